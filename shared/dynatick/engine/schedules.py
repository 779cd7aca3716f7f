"""Schedules that a tick finds due: first their occurrences are created, then each schedule is moved to its next run.

An occurrence is created as claimed by this pass: one write instead of two; one with a limit key as a task that waits.
Its id follows from the schedule and the nominal instant, so a second pass finds that it exists. All writes are
conditional. What is overdue is reported before the schedule's row forgets it: a pass that dies in between, or that
another has overtaken, reports it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate, Lost, Result, Written
from dynatick.domain.lifecycle import started
from dynatick.domain.occurrences import (
    MAX_DECIDED,
    Overdue,
    Plan,
    advance,
    bucket_at,
    occurrence_row,
    oldest_made_up,
    plan_occurrences,
    settle,
)
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.schedule import OF_AWAITED, AwaitedOccurrence, Missed, MissedFor, Overlap, Schedule, is_schedule
from dynatick.domain.task import LargeRow, Row
from dynatick.engine.claims import Claimed, Claimer, Contended, Ineligible, Malformed, Rejected, Verdict, understand
from dynatick.engine.conditional_write import create_many, write_many
from dynatick.engine.placement import Placer, Undelivered
from dynatick.engine.ports import ReportOverdue, Store, StoreFailure
from dynatick.errors import DynatickError

# -- recurring ---------------------------------------------------------------------------------------------------------

MAX_AT_ONCE = 100
"""Occurrences of one batch of schedules, so that memory doesn't grow with a backlog."""

_OF_OCCURRENCES = (attr.STATUS, attr.OUTCOME, attr.SCHEDULE_ID)  # whether it belongs to the schedule, and has ended


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """The occurrences of one schedule. ``verdict``: of the schedule's own entry; Contended holds its bucket back."""

    verdict: Verdict
    claimed: Sequence[Claimed] = ()  # occurrences for this pass to run
    waiting: Sequence[tuple[Bucket, str, str]] = ()  # occurrences that wait for turns: bucket, id, limit key
    elsewhere: Sequence[int] = ()  # buckets of open occurrences that other processes made
    written: Sequence[int] = ()  # buckets of the occurrences that this pass made
    missed: int = 0
    more: bool = False  # further runs are due: poll again
    next: Bucket | None = None  # that the schedule was moved to, or may have been


@dataclass(slots=True)
class _Case:
    """A schedule of a batch."""

    bucket: Bucket
    row: Row
    schedule: Schedule
    plan: Plan
    rows: list[Row] = field(default_factory=list)  # its occurrences, to be created
    claimed: list[Claimed] = field(default_factory=list)
    waiting: list[tuple[Bucket, str, str]] = field(default_factory=list)  # for their turns: bucket, id, limit key
    elsewhere: list[int] = field(default_factory=list)
    tasks: dict[datetime, Row] = field(default_factory=dict)  # of occurrences that existed before, by nominal instant
    made: list[datetime] = field(default_factory=list)  # by this pass
    awaited: Sequence[AwaitedOccurrence] = ()  # after this pass
    failed: bool = False  # an occurrence may not exist: the schedule stays in its bucket

    def add_task(self, nominal: datetime, row: Row | None) -> None:
        """Adds the row of an occurrence, unless it is another task that has its id."""
        if row is not None and RowView(row).schedule_id == self.schedule.schedule_id:
            self.tasks[nominal] = row


@dataclass(slots=True)
class Recurring:
    """Makes the occurrences of due schedules, in batches."""

    store: Store
    placer: Placer
    claimer: Claimer
    clock: Callable[[], datetime]
    new_token: Callable[[], str]
    report_overdue: ReportOverdue = lambda overdue: None
    _oldest: dict[tuple[str, int], datetime] = field(default_factory=dict)  # made up, by schedule and closed watermark

    def make_occurrences(
        self, entries: Sequence[tuple[Bucket, str]], *, closed_through: int, lease_until: datetime
    ) -> Sequence[Made]:
        """One result for each entry, in order; ids must differ. Raises StoreError if the table doesn't answer before
        anything was written.
        """
        rows = self.store.get_many([schedule_id for _, schedule_id in entries])
        cases: dict[int, _Case] = {}
        made: dict[int, Made] = {}
        for n, (bucket, schedule_id) in enumerate(entries):
            found = self._schedule_of(rows.get(schedule_id), bucket, lease_until)
            if isinstance(found, Made):
                made[n] = found
            else:
                row, schedule = found
                cases[n] = _Case(bucket, row, schedule, _NOTHING)
        self._plan(list(cases.values()), closed_through)
        self._make(list(cases.values()), closed_through, lease_until)
        writes = self._move_on(list(cases.values()), closed_through)
        for (n, case), write in zip(cases.items(), writes, strict=True):
            made[n] = _made(case, write)
        return [made[n] for n in range(len(entries))]

    def _schedule_of(self, row: Row | None, bucket: Bucket, lease_until: datetime) -> Made | tuple[Row, Schedule]:
        if row is None or is_terminal(row):
            return Made(verdict=Ineligible())
        task_id = RowView(row).task_id
        if not is_schedule(row):  # a task that has taken its place, or whose scheduleId is its own id
            (verdict,) = self.claimer.claim([(bucket, task_id)], lease_until=lease_until)
            return (
                Made(verdict=Contended(), claimed=[verdict]) if isinstance(verdict, Claimed) else Made(verdict=verdict)
            )
        if not RowView(row).is_open_in(bucket):
            return Made(verdict=Ineligible())
        try:
            change = self.placer.make_ready(row)
            if change is not None:
                try:
                    result = self.placer.carry_out(row, change)
                except Undelivered as error:
                    return Made(verdict=Rejected(row, error.rejection))
                if not isinstance(result, Written) or result.row is None:
                    return Made(verdict=Contended())
                row = result.row
                if not RowView(row).is_open_in(bucket):
                    self.placer.place(task_id, row)
                    return Made(verdict=Ineligible())
            return row, Schedule.from_row(row)
        except DynatickError:
            return Made(verdict=Contended())

    def _plan(self, cases: Sequence[_Case], closed_through: int) -> None:
        waiting = {
            case.schedule.last_task_id
            for case in cases
            if case.schedule.last_task_id is not None and case.schedule.overlap is not Overlap.ALLOW
        }
        awaited = {
            case.schedule.occurrence_id(one.nominal): (case, one.nominal)
            for case in cases
            for one in case.schedule.awaited
        }
        only = OF_AWAITED if awaited else _OF_OCCURRENCES
        latest = self.store.get_many(waiting | awaited.keys(), only=only) if waiting or awaited else {}
        for task_id, (case, nominal) in awaited.items():
            case.add_task(nominal, latest.get(task_id))
        there: Mapping[str, Row] = {}

        def plan(case: _Case) -> Plan:
            schedule = case.schedule
            before = latest.get(schedule.last_task_id or "")
            return plan_occurrences(
                schedule,
                closed_through=closed_through,
                grid=self.placer.settings.grid,
                active=before is not None and not is_terminal(before),
                limit=max(1, MAX_AT_ONCE // len(cases)),
                max_decided=max(MAX_AT_ONCE, MAX_DECIDED // len(cases)),
                pauses=self.placer.settings.pauses,
                oldest=self._oldest_made_up(schedule, closed_through),
                there={
                    run: not is_terminal(row)
                    for run in case.plan.decided
                    if (row := there.get(schedule.occurrence_id(run))) is not None
                    and RowView(row).schedule_id == schedule.schedule_id
                },
            )

        for case in cases:
            case.plan = plan(case)
        # A run that would be left out may exist: a tick that died may have made it, or a client.
        leaving_out = [case for case in cases if case.plan.skips(case.schedule)]
        if leaving_out:
            there = self.store.get_many(
                [case.schedule.occurrence_id(run) for case in leaving_out for run in case.plan.decided],
                only=_OF_OCCURRENCES,
            )
        for case in leaving_out:
            case.plan = plan(case)

    def _oldest_made_up(self, schedule: Schedule, closed_through: int) -> datetime:
        key = (schedule.schedule_id, closed_through)
        if key not in self._oldest:  # a long backlog is made in many rounds, and counting it takes time
            self._oldest[key] = oldest_made_up(schedule, closed_through)
        return self._oldest[key]

    def _make(self, cases: Sequence[_Case], closed_through: int, lease_until: datetime) -> None:
        """Creates the occurrences, and finds out which exist already."""
        now = self.clock()
        for case in cases:
            case.rows = [self._occurrence(case, run, closed_through, lease_until, now) for run in case.plan.make]
        rows = {RowView(row).task_id: row for case in cases for row in case.rows}
        if not rows:
            return
        answers = dict(zip(rows, create_many(self.store, list(rows.values())), strict=True))
        # The id is taken; or there was no answer, and the occurrence may exist and wait for the end of our own lease.
        unclear = [task_id for task_id, answer in answers.items() if answer is not True and not _is_too_large(answer)]
        there: Mapping[str, Row] | None
        try:
            there = self.store.get_many(unclear) if unclear else {}
        except DynatickError:
            there = None
        for case in cases:
            self._follow(case, answers, there)

    def _occurrence(self, case: _Case, run: datetime, closed_through: int, lease_until: datetime, now: datetime) -> Row:
        """The row that is to be created."""
        grid = self.placer.settings.grid
        bucket = bucket_at(case.schedule, run, found_in=case.bucket, closed_through=closed_through, grid=grid)
        row = occurrence_row(case.row, case.schedule, run, bucket, now=now)
        if not self.placer.rules.is_limited(RowView(row).limit_key):
            return started(row, token=self.new_token(), lease_until=lease_until, now=now)
        stays = {attr.MOVED_TO: str(bucket)}  # it waits for its turn, and the stream leaves it where it is
        return row.changed(stays) if isinstance(row, LargeRow) else {**row, **stays}

    def _follow(self, case: _Case, answers: Mapping[str, bool | StoreFailure], there: Mapping[str, Row] | None) -> None:
        """Does what the answers to the creations ask for. ``there``: the rows that exist of those whose answers leave
        it open; None: that can't be read."""
        missed: list[Missed] = []
        for run, row in zip(case.plan.make, case.rows, strict=True):
            task_id = RowView(row).task_id
            answer = answers[task_id]
            if answer is True:
                case.made.append(run)
                self._add_claimed(case, row)
            elif _is_too_large(answer):
                missed.append(Missed(first=run, last=run, occurrences=1, reason=MissedFor.TOO_LARGE))
            elif there is None or (isinstance(answer, StoreFailure) and task_id not in there):
                case.failed = True
                if attr.LEASE in row:
                    self.claimer.add_unclear(task_id, str(row[attr.LEASE]))
            else:
                self._add_existing(case, row, there.get(task_id), run, missed)
        if missed:
            case.plan = replace(case.plan, missed=[*case.plan.missed, *missed])

    def _add_claimed(self, case: _Case, row: Row) -> None:
        view = RowView(row)
        if attr.LEASE not in row and view.limit_key is not None and view.bucket is not None:
            case.waiting.append((view.bucket, view.task_id, view.limit_key))
            return
        claimed = understand(row)
        if isinstance(claimed, Malformed):  # can't be: the schedule was checked
            case.failed = True
        else:
            case.claimed.append(claimed)

    def _add_existing(self, case: _Case, row: Row, present: Row | None, run: datetime, missed: list[Missed]) -> None:
        """The id of an occurrence was taken by ``present``."""
        if present is None:  # it was made, and deleted since: it stays deleted
            return
        view = RowView(present)
        case.add_task(run, present)
        if attr.LEASE in row and view.lease == row[attr.LEASE]:
            self._add_claimed(case, present)  # this pass made it: only the answer was lost
        elif view.schedule_id != case.schedule.schedule_id:
            missed.append(Missed(first=run, last=run, occurrences=1, reason=MissedFor.ID_TAKEN))
        elif not is_terminal(present) and (bucket := view.bucket) is not None and bucket.shard == case.bucket.shard:
            case.elsewhere.append(bucket.minute)

    def _report_overdue(self, cases: Sequence[_Case]) -> None:
        """Reports what is overdue, and notes what is awaited from now on."""
        now, settings, overdue = self.clock(), self.placer.settings, list[Overdue]()
        for case in cases:
            case.awaited, found = settle(
                case.schedule,
                case.plan,
                case.tasks,
                made=case.made,
                now=now,
                grid=settings.grid,
                pauses=settings.pauses,
            )
            overdue += found
        if overdue:
            self.report_overdue(overdue)

    def _move_on(
        self, cases: Sequence[_Case], closed_through: int
    ) -> Sequence[tuple[ConditionalUpdate, Result] | None]:
        """Moves the schedules to their next runs. One write for each case; None: it stays in its bucket."""
        going = [case for case in cases if not case.failed]
        try:
            self._report_overdue(going)
        except OSError:  # of standard output: a later tick reports it, and the occurrences that were made run now
            return [None] * len(cases)
        now, days, grid = self.clock(), self.placer.rules.retention_days, self.placer.settings.grid
        changes = [
            advance(
                case.row,
                case.schedule,
                case.plan,
                case.awaited,
                closed_through=closed_through,
                grid=grid,
                now=now,
                retention_days=days,
            )
            for case in going
        ]
        writes = iter(zip(changes, write_many(self.store, changes), strict=True))
        return [None if case.failed else next(writes) for case in cases]


def _is_too_large(answer: bool | StoreFailure) -> bool:
    return isinstance(answer, StoreFailure) and answer.too_large


_NOTHING = Plan(make=(), missed=(), buffered=None, next_occurrence_at=None, more=False)


def _made(case: _Case, write: tuple[ConditionalUpdate, Result] | None) -> Made:
    change, result = write or (None, None)
    moved = isinstance(result, Written)
    bucket = None if change is None or isinstance(result, Lost) else change.set.get(attr.TASK_DATE_TIME)
    return Made(
        verdict=Ineligible() if moved and not case.plan.more else Contended(),
        claimed=case.claimed,
        waiting=case.waiting,
        elsewhere=case.elsewhere,
        written=[
            *(claimed.task.bucket.minute for claimed in case.claimed),
            *(one.minute for one, _, _ in case.waiting),
        ],
        missed=sum(entry.occurrences for entry in case.plan.missed) if moved else 0,
        more=case.plan.more if moved else isinstance(result, Lost),
        next=Bucket.canonical(bucket),
    )
