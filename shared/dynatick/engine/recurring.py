"""Schedules that a tick finds due: their occurrences are written, taken into the same pass, and they are moved on.

In that order. An occurrence begins as claimed by this pass, so that one write does for two; whoever comes second finds
it there (its id follows from schedule and nominal instant). All writes are conditional.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Lost, Result, Unknown, Written
from dynatick.domain.lifecycle import is_terminal, started
from dynatick.domain.occurrence_plan import MAX_DECIDED, Plan, plan_occurrences
from dynatick.domain.occurrences import advance, bucket_at, occurrence_row
from dynatick.domain.schedule import Missed, MissedFor, Overlap, Schedule, is_schedule
from dynatick.domain.task import Row
from dynatick.engine.claims import Claimed, Claimer, Contended, Ineligible, Malformed, Verdict, understand
from dynatick.engine.placement import Placer
from dynatick.engine.ports import Store, StoreFailure
from dynatick.errors import DynatickError

MAX_AT_ONCE = 100
"""Occurrences that one batch of schedules makes at the most, so that memory does not grow with a backlog."""

_OF_OCCURRENCES = ("status", "outcome", "scheduleId")  # the attributes that tell whether a run was made, and has ended


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """What became of one schedule. ``verdict``: what it means to its bucket; Contended holds that back."""

    verdict: Verdict
    won: Sequence[Claimed] = ()  # occurrences, ours to run
    elsewhere: Sequence[int] = ()  # buckets that hold occurrences of it which others made, and have not ended
    written: Sequence[int] = ()  # buckets that occurrences were written into
    missed: int = 0
    more: bool = False  # further runs are due: look again


@dataclass(slots=True)
class _Case:
    """A schedule on its way through a batch."""

    bucket: Bucket
    row: Row
    schedule: Schedule
    plan: Plan
    rows: list[Row] = field(default_factory=list)  # its occurrences, as they are to be written
    won: list[Claimed] = field(default_factory=list)
    elsewhere: list[int] = field(default_factory=list)
    failed: bool = False  # some occurrence may not be there: it is left where it is


@dataclass(slots=True)
class Recurring:
    """Serves due schedules in batches."""

    store: Store
    placer: Placer
    claimer: Claimer
    clock: Callable[[], datetime]
    new_token: Callable[[], str]

    def serve(
        self, entries: Sequence[tuple[Bucket, str]], *, closed_through: int, lease_until: datetime
    ) -> Sequence[Served]:
        """One answer an entry, in order. No id may stand twice. Raises StoreError if the table does not answer before
        anything was written.
        """
        rows = self.store.get_many([schedule_id for _, schedule_id in entries])
        cases: dict[int, _Case] = {}
        served: dict[int, Served] = {}
        for n, (bucket, schedule_id) in enumerate(entries):
            found = self._understood(rows.get(schedule_id), bucket, lease_until)
            if isinstance(found, Served):
                served[n] = found
            else:
                row, schedule = found
                cases[n] = _Case(bucket, row, schedule, _NOTHING)
        self._plan(list(cases.values()), closed_through)
        self._make(list(cases.values()), closed_through, lease_until)
        results = self._move_on(list(cases.values()), closed_through)
        for (n, case), result in zip(cases.items(), results, strict=True):
            served[n] = _served(case, result)
        return [served[n] for n in range(len(entries))]

    def _understood(self, row: Row | None, bucket: Bucket, lease_until: datetime) -> Served | tuple[Row, Schedule]:
        if row is None or is_terminal(row):
            return Served(verdict=Ineligible())
        task_id = str(row["taskId"])
        if not is_schedule(row):  # a task whose scheduleId somebody has set to its own id, or put in its place
            (verdict,) = self.claimer.claim([(bucket, task_id)], lease_until=lease_until)
            return (
                Served(verdict=Contended(), won=[verdict]) if isinstance(verdict, Claimed) else Served(verdict=verdict)
            )
        if row.get("taskDateTime") != str(bucket):
            return Served(verdict=Ineligible())
        try:
            change = self.placer.make_ready(row)
            if change is not None:
                result = self.placer.carry_out(row, change)
                if not isinstance(result, Written) or result.row is None:
                    return Served(verdict=Contended())
                row = result.row
                if is_terminal(row) or row.get("taskDateTime") != str(bucket):
                    self.placer.settle(task_id, row)
                    return Served(verdict=Ineligible())
            return row, Schedule.from_row(row)
        except DynatickError:
            return Served(verdict=Contended())

    def _plan(self, cases: Sequence[_Case], closed_through: int) -> None:
        waiting = {
            case.schedule.last_task_id
            for case in cases
            if case.schedule.last_task_id is not None and case.schedule.overlap is not Overlap.ALLOW
        }
        latest = self.store.get_many(waiting, only=_OF_OCCURRENCES) if waiting else {}
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
                there={
                    run: not is_terminal(row)
                    for run in case.plan.decided
                    if (row := there.get(schedule.occurrence_id(run))) is not None
                    and row.get("scheduleId") == schedule.schedule_id
                },
            )

        for case in cases:
            case.plan = plan(case)
        # Before a run is left out it is asked for: a tick that died may have made it, or a client.
        doubtful = [case for case in cases if case.plan.skips(case.schedule)]
        if doubtful:
            there = self.store.get_many(
                [case.schedule.occurrence_id(run) for case in doubtful for run in case.plan.decided],
                only=_OF_OCCURRENCES,
            )
        for case in doubtful:
            case.plan = plan(case)

    def _make(self, cases: Sequence[_Case], closed_through: int, lease_until: datetime) -> None:
        """Writes the occurrences, and tells apart those that are there already."""
        now, grid = self.clock(), self.placer.settings.grid
        for case in cases:
            for run in case.plan.make:
                bucket = bucket_at(case.schedule, run, found_in=case.bucket, closed_through=closed_through, grid=grid)
                row = occurrence_row(case.row, case.schedule, run, bucket, now=now)
                case.rows.append(started(row, token=self.new_token(), lease_until=lease_until, now=now))
        rows = [row for case in cases for row in case.rows]
        if not rows:
            return
        answers = self.store.create_many(rows)
        there: Mapping[str, Row] = {}
        # Taken, or without an answer: then it may be there all the same, and would wait for the end of our own lease.
        doubtful = [
            str(row["taskId"])
            for row, answer in zip(rows, answers, strict=True)
            if answer is False or (isinstance(answer, StoreFailure) and not answer.too_large)
        ]
        unreadable = False
        try:
            there = self.store.get_many(doubtful) if doubtful else {}
        except DynatickError:
            unreadable = True
        answer_to = {str(row["taskId"]): answer for row, answer in zip(rows, answers, strict=True)}
        for case in cases:
            missed: list[Missed] = []
            for run, row in zip(case.plan.make, case.rows, strict=True):
                task_id = str(row["taskId"])
                answer = answer_to[task_id]
                if answer is True:
                    self._win(case, row)
                elif isinstance(answer, StoreFailure) and answer.too_large:
                    missed.append(Missed(first=run, last=run, occurrences=1, reason=MissedFor.TOO_LARGE))
                elif unreadable or (isinstance(answer, StoreFailure) and task_id not in there):
                    case.failed = True
                else:
                    self._meet(case, row, there.get(task_id), run, missed)
            if missed:
                case.plan = replace(case.plan, missed=[*case.plan.missed, *missed])

    def _win(self, case: _Case, row: Row) -> None:
        won = understand(row)
        if isinstance(won, Malformed):  # what a schedule hands on was checked before
            case.failed = True
        else:
            case.won.append(won)

    def _meet(self, case: _Case, row: Row, present: Row | None, run: datetime, missed: list[Missed]) -> None:
        """The id of an occurrence was taken."""
        if present is None:  # made, and deleted since: it stays deleted
            return
        if present.get("lease") == row["lease"]:
            self._win(case, present)  # made after all: it was only the answer that got lost
        elif present.get("scheduleId") != case.schedule.schedule_id:
            missed.append(Missed(first=run, last=run, occurrences=1, reason=MissedFor.ID_TAKEN))
        elif not is_terminal(present):
            bucket = Bucket.canonical(present.get("taskDateTime"))
            if bucket is not None and bucket.shard == case.bucket.shard:
                case.elsewhere.append(bucket.minute)

    def _move_on(self, cases: Sequence[_Case], closed_through: int) -> Sequence[Result | None]:
        """One result a case; None: it was left where it is."""
        going = [case for case in cases if not case.failed]
        now, days, grid = self.clock(), self.placer.rules.retention_days, self.placer.settings.grid
        changes = [
            advance(
                case.row,
                case.schedule,
                case.plan,
                closed_through=closed_through,
                grid=grid,
                now=now,
                retention_days=days,
            )
            for case in going
        ]
        try:
            results = iter(self.store.write_many(changes) if changes else ())
        except DynatickError as error:  # what was made is run all the same
            results = iter([Unknown(str(error))] * len(changes))
        return [None if case.failed else next(results) for case in cases]


_NOTHING = Plan(make=(), missed=(), buffered=None, next_occurrence_at=None, more=False)


def _served(case: _Case, result: Result | None) -> Served:
    moved = isinstance(result, Written)
    return Served(
        verdict=Ineligible() if moved and not case.plan.more else Contended(),
        won=case.won,
        elsewhere=case.elsewhere,
        written=[won.task.bucket.minute for won in case.won],
        missed=sum(entry.occurrences for entry in case.plan.missed) if moved else 0,
        more=case.plan.more if moved else isinstance(result, Lost),
    )
