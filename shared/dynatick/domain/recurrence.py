"""What becomes of a schedule: made ready when it comes in or was changed, and moved on when runs of it are due.

Pure decisions, each carried out as one conditional write. An occurrence's id follows from its schedule and its nominal
instant, and it is written before its schedule moves on; so whoever is interrupted between the two, or comes second,
finds that it is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, as_read
from dynatick.domain.expressions import Rate, check_fires
from dynatick.domain.instants import format_instant
from dynatick.domain.lifecycle import TIME_INPUTS, terminal
from dynatick.domain.normalise import Defaults, action_name, created_at, has_value, past_attributes, reject
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.schedule import (
    DEFINITION,
    RECURRING,
    TIMING,
    CatchUp,
    Former,
    Missed,
    MissedFor,
    Overlap,
    Schedule,
    ScheduleState,
    handed_on,
    is_handed_on,
)
from dynatick.domain.task import MALFORMED_REASON, LargeRow, Row, Status, check_payload
from dynatick.domain.timeout import check_timeout
from dynatick.errors import InvalidInput

_HANDED_ON = ("payload", "retryPolicy", "timeoutSeconds")  # to occurrences, beside what is the user's own

MISSED_KEPT = 10
EARLIER_KEPT = 10
MAX_PAUSED = 1000
"""Runs of a pause that are counted."""

MAX_WEIGHED = 2000
"""Runs that one decision weighs. What is left of a long outage is for the next look at the schedule."""

_POSITION = ("taskDateTime", "nextOccurrenceAt", "bufferedOccurrenceAt", "lastOccurrenceAt", "definedAt")


# -- coming in, and being changed ------------------------------------------------------------------------------------


def ready(row: Row, *, now: datetime, grid: Grid, defaults: Defaults, revision: int = 1) -> ConditionalUpdate | None:
    """What must be written before a row is a schedule in the bucket of its next run; None if it is one.

    A new row is checked and placed. One that somebody has edited is placed anew, from now on; all runs that were due
    before are still dealt with. What cannot be understood is marked failed with the reason. On condition that nothing
    has changed which this depends on. ``revision``: with which a new one begins.
    """
    try:
        change = edited(row, {}, now=now, grid=grid, defaults=defaults, revision=revision)
    except InvalidInput as error:
        return refused(row, error, now=now, grid=grid, retention_days=defaults.retention_days)
    return change if change.set or change.remove else None


def edited(
    row: Row, edits: Mapping[str, object], *, now: datetime, grid: Grid, defaults: Defaults, revision: int = 1
) -> ConditionalUpdate:
    """The write that changes attributes of a schedule (None: removes one), and places it anew where that is called for.

    Raises InvalidInput for what cannot be taken.
    """
    wanted = {name: value for name, value in {**row, **edits}.items() if value is not None}
    schedule = Schedule.from_row(wanted)
    if schedule.start is None and isinstance(schedule.expression, Rate):
        # A rate counts from its start: without a date, from the next tick.
        schedule = replace(schedule, start=instant_of(grid.tick_after(minute_of(now))))
    action = action_name(wanted, defaults)
    check_payload(wanted.get("payload"))
    if wanted.get("retryPolicy") is not None:
        RetryPolicy.from_row(wanted["retryPolicy"])
    if wanted.get("timeoutSeconds") is not None:
        check_timeout(wanted["timeoutSeconds"])
    if row.get("status") == RECURRING:
        values, remove = _repaired(wanted, schedule, now, grid)
        values["action"] = action
    else:
        values, remove = _begun(wanted, schedule, now, grid, action, revision)
    values = {name: value for name, value in edits.items() if value is not None} | values
    remove = tuple(dict.fromkeys((*remove, *(name for name, value in edits.items() if value is None))))
    return ConditionalUpdate(
        task_id=schedule.schedule_id,
        set={name: value for name, value in values.items() if not has_value(row, name, value)},
        remove=tuple(name for name in remove if name in row and name not in values),
        conditions=_as_polled(row),
        returning=True,
    )


def refused(
    row: Row, reason: InvalidInput | str, *, now: datetime, grid: Grid, retention_days: int
) -> ConditionalUpdate:
    """→ failed with the reason, as a task that cannot be understood; listed among the schedules as FAILED."""
    change = reject(row, reason, now=now, grid=grid, retention_days=retention_days)
    return replace(change, set={**change.set, "scheduleState": str(ScheduleState.FAILED)})


def _begun(
    row: Row, schedule: Schedule, now: datetime, grid: Grid, action: str, revision: int
) -> tuple[dict[str, object], tuple[str, ...]]:
    """A row that nobody has looked at becomes a schedule."""
    if row.get("status") is None:
        for name in TIME_INPUTS:
            if row.get(name) is not None:
                raise InvalidInput(
                    name, row[name], "leave it out: a schedule's times follow from its expression, from startDate on"
                )
    created = created_at(row, now)
    first = _first_occurrence(schedule, now)
    values: dict[str, object] = {
        **_as_understood(row, schedule),
        "status": RECURRING,
        "scheduleId": schedule.schedule_id,
        "action": action,
        "revision": revision,
        "createdAt": created,
        **_position(schedule, now, grid, first),
    }
    stray = (*past_attributes(row), *TIME_INPUTS, "attempt", "run", "cronExpression", "nextOccurrenceAt")
    return values, tuple(name for name in stray if name not in values)


def _repaired(row: Row, schedule: Schedule, now: datetime, grid: Grid) -> tuple[dict[str, object], tuple[str, ...]]:
    """A schedule that somebody may have changed: its definition, its place, or what it must not carry."""
    values: dict[str, object] = {"scheduleId": schedule.schedule_id}
    remove: tuple[str, ...] = ("outcome", "expiresAt", "cronExpression", MALFORMED_REASON)
    paused = schedule.state is ScheduleState.DISABLED
    pending = is_pending(schedule, now)
    if schedule.defined != schedule.definition:
        values |= _as_understood(row, schedule) | _remembered(row, schedule, now)
        if pending:  # the runs that are due stay due; what comes after them follows the new definition, from now on
            values["definedAt"] = format_instant(now)
            if due_before := _due_before(schedule, now):
                values["dueBefore"] = [former.to_row() for former in due_before]
            if not _is_next_due(schedule, now):  # one that waits is all that pends
                first = None if paused else schedule.next_after(now)
                values |= {} if first is None else {"nextOccurrenceAt": format_instant(first)}
                remove = (*remove, "nextOccurrenceAt")
        else:
            values |= _position(schedule, now, grid, _first_occurrence(schedule, now))
            if paused:
                remove = (*remove, "taskDateTime", "nextOccurrenceAt")
    elif paused:
        if not pending:
            remove = (*remove, "taskDateTime", "nextOccurrenceAt")
    elif (
        schedule.next_occurrence_at is None and schedule.buffered_occurrence_at is not None
    ):  # none is left but the one that waits
        first = schedule.next_after(max(now, schedule.buffered_occurrence_at))
        values |= {} if first is None else {"nextOccurrenceAt": format_instant(first)}
        if schedule.bucket is None:
            values["taskDateTime"] = str(grid.bucket_of(schedule.schedule_id, now))
    elif schedule.next_occurrence_at is None:
        values |= _position(schedule, now, grid, _first_occurrence(schedule, now))
    elif _is_misplaced(row, schedule, grid):
        values["taskDateTime"] = str(_bucket_of(schedule, schedule.next_occurrence_at, grid))
    return values, tuple(name for name in remove if name not in values)


def _remembered(row: Row, schedule: Schedule, now: datetime) -> dict[str, object]:
    """What a history needs and a change of the definition would let be forgotten: when runs came until now, and which
    runs a pause has left out."""
    values: dict[str, object] = {}
    before = schedule.definition or {}
    former = Former.from_row({**before, "until": format_instant(now)})
    if former is None:
        return values
    if any(former.to_row().get(name) != schedule.defined.get(name) for name in TIMING):
        kept = row.get("earlier")
        values["earlier"] = [*(kept if isinstance(kept, (list, tuple)) else ()), former.to_row()][-EARLIER_KEPT:]
    if before.get("scheduleState") == str(ScheduleState.DISABLED) and schedule.defined_at is not None:
        left_out = _paused_occurrences(former, schedule.defined_at)
        if left_out is not None:
            values["missed"] = [entry.to_row() for entry in [*schedule.missed, left_out][-MISSED_KEPT:]]
    return values


def _paused_occurrences(former: Former, paused_at: datetime) -> Missed | None:
    """The runs of a pause that ends. What was due when it began is made in spite of it."""
    first: datetime | None = None
    last, number = paused_at, 0
    while number < MAX_PAUSED and (run := former.next_after(last)) is not None:
        first, last, number = first or run, run, number + 1
    if first is None:
        return None
    # Of very many the number is not counted to its end.
    last = last if number < MAX_PAUSED else former.until
    return Missed(first=first, last=last, runs=number, reason=MissedFor.PAUSED)


def is_pending(schedule: Schedule, now: datetime) -> bool:
    """Whether a run is due, or waits, that the schedule's tick has still to make."""
    if schedule.bucket is None:
        return False
    if schedule.buffered_occurrence_at is not None:
        return True
    due = schedule.next_occurrence_at
    if due is None or due > now:
        return False
    return schedule.state is ScheduleState.ENABLED or schedule.defined != schedule.definition or _before_pause(schedule)


def _is_next_due(schedule: Schedule, now: datetime) -> bool:
    """Whether the next run was due under the definition that is being replaced."""
    due = schedule.next_occurrence_at
    if due is None or due > now:
        return False
    before = schedule.definition
    return before is None or before.get("scheduleState") == str(ScheduleState.ENABLED) or _before_pause(schedule)


def _before_pause(schedule: Schedule) -> bool:
    due, paused_at = schedule.next_occurrence_at, schedule.defined_at
    return due is not None and paused_at is not None and due <= paused_at


def _due_before(schedule: Schedule, now: datetime) -> Sequence[Former]:
    """The definitions that have runs which are due, beside the first: now the one in force is among them."""
    former, first = schedule.former(now), schedule.next_occurrence_at
    if former is None or first is None:
        return schedule.due_before
    since = max([first, *(before.until for before in schedule.due_before)])
    return schedule.due_before if former.next_after(since) is None else [*schedule.due_before, former]


def _first_occurrence(schedule: Schedule, after: datetime) -> datetime:
    """Raises InvalidInput if there is none."""
    return check_fires(schedule.expression, after=after, zone=schedule.zone, start=schedule.start, end=schedule.end)


def _as_understood(row: Row, schedule: Schedule) -> dict[str, object]:
    """The definition, in canonical notation."""
    values: dict[str, object] = {
        "scheduleExpression": schedule.expression.text,
        "scheduleExpressionTimezone": schedule.zone,
        "scheduleState": str(schedule.state),
        "definition": schedule.defined,
    }
    for name, date in (("startDate", schedule.start), ("endDate", schedule.end)):
        if date is not None:
            values[name] = format_instant(date)
    return values


def _position(schedule: Schedule, now: datetime, grid: Grid, first: datetime) -> dict[str, object]:
    values: dict[str, object] = {"definedAt": format_instant(now)}
    if schedule.state is ScheduleState.ENABLED:
        values["nextOccurrenceAt"] = format_instant(first)
        values["taskDateTime"] = str(_bucket_of(schedule, first, grid))
    return values


def _bucket_of(schedule: Schedule, nominal: datetime, grid: Grid) -> Bucket:
    return grid.bucket_of(schedule.schedule_id, schedule.starts_at(nominal))


def _is_misplaced(row: Row, schedule: Schedule, grid: Grid) -> bool:
    """Whether it lies in no bucket, or in one later than its next run's without having been moved there by a tick."""
    if schedule.bucket is None or schedule.next_occurrence_at is None:
        return True
    if schedule.buffered_occurrence_at is not None or row.get("movedTo") == row.get("taskDateTime"):
        return False
    return schedule.bucket.minute > _bucket_of(schedule, schedule.next_occurrence_at, grid).minute


def _as_polled(row: Row) -> tuple[Any, ...]:
    names = dict.fromkeys(("outcome", "status", "action", *TIME_INPUTS, *DEFINITION, *_POSITION))
    return as_read(row, *names)


# -- moving on -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a tick does with a schedule that it finds in a closed bucket."""

    make: Sequence[datetime]  # nominal instants of the occurrences to make, oldest first
    missed: Sequence[Missed]
    buffered: datetime | None
    next_occurrence_at: datetime | None  # None: no run is left
    more: bool  # further runs are due already, so that the schedule stays where it is
    weighed: Sequence[datetime] = field(default=(), compare=False)  # all runs that this decides on

    def leaves_out(self, schedule: Schedule) -> bool:
        """Whether some run is not made now that might be."""
        return bool(self.missed) or self.buffered != schedule.buffered_occurrence_at


def plan_occurrences(
    schedule: Schedule,
    *,
    closed_through: int,
    grid: Grid,
    active: bool,
    most: int,
    most_weighed: int = MAX_WEIGHED,
    there: Mapping[datetime, bool] = MappingProxyType({}),
) -> Plan:
    """Which runs are made at a tick that has closed all buckets through ``closed_through``.

    A run is in time at its own tick and at the one after. For later ones ``catchUp`` decides, and for those that fall
    due while the one before has not ended (``active``), ``overlap``. At most ``most`` are made at once. ``there``: the
    runs whose occurrences exist already, by a tick that did not get further, or made up by a client; and whether they
    have still to end.
    """
    deciding = _Deciding(schedule, grid, closed_through, active, there)
    run = schedule.next_occurrence_at
    if schedule.buffered_occurrence_at is not None and (not active or schedule.buffered_occurrence_at in there):
        deciding.start(schedule.buffered_occurrence_at)
    else:
        deciding.buffered = schedule.buffered_occurrence_at
    for _ in range(most_weighed):
        if run is None or not deciding.is_due(run) or len(deciding.make) >= most:
            break
        following = _occurrence_after(schedule, run)
        deciding.decide(run, is_latest=following is None or not deciding.is_due(following))
        run = following
    return Plan(
        make=deciding.make,
        missed=deciding.missed,
        buffered=deciding.buffered,
        next_occurrence_at=run,
        more=run is not None and deciding.is_due(run),
        weighed=deciding.weighed,
    )


def _occurrence_after(schedule: Schedule, run: datetime) -> datetime | None:
    """After the runs that were due when a definition changed, the new one counts from the change."""
    after = run
    for former in schedule.due_before:
        if after < former.until:
            following = former.next_after(after)
            if following is not None:
                return following
            after = former.until
    changed = schedule.defined_at
    return schedule.next_after(run if changed is None or changed < run else changed)


class _Deciding:
    def __init__(
        self, schedule: Schedule, grid: Grid, closed_through: int, active: bool, there: Mapping[datetime, bool]
    ) -> None:
        self.schedule, self.grid, self.closed_through = schedule, grid, closed_through
        self.active, self.there = active, there
        self.weighed: list[datetime] = []
        self.make: list[datetime] = []
        self.missed: list[Missed] = []
        self.buffered: datetime | None = None
        self._apart = False  # whether a run was made since the last one that was missed

    def tick_of(self, run: datetime) -> int:
        return self.grid.tick_at_or_after(self.schedule.starts_at(run))

    def is_due(self, run: datetime) -> bool:
        s = self.schedule
        if s.state is ScheduleState.DISABLED and (s.defined_at is None or run > s.defined_at):
            return False
        return self.tick_of(run) <= self.closed_through

    def decide(self, run: datetime, *, is_latest: bool) -> None:
        self.weighed.append(run)
        in_time = self.tick_of(run) >= self.closed_through - self.grid.tick_minutes
        made_up = self.schedule.catch_up is CatchUp.ALL or (self.schedule.catch_up is CatchUp.LATEST and is_latest)
        if run in self.there:
            self.start(run)
        elif not in_time and not made_up:
            self.miss(run, MissedFor.OUTAGE)
        elif not self.active or self.schedule.overlap is Overlap.ALLOW:
            self.start(run)
        elif self.schedule.overlap is Overlap.BUFFER_ONE and self.buffered is None:
            self.buffered = run
        else:
            self.miss(run, MissedFor.OVERLAP)

    def start(self, run: datetime) -> None:
        if run == self.schedule.buffered_occurrence_at:
            self.weighed.append(run)
        self.make.append(run)
        self.active = self.there.get(run, True)
        self._apart = True

    def miss(self, run: datetime, reason: MissedFor) -> None:
        last = self.missed[-1] if self.missed else None
        if last is not None and last.reason is reason and not self._apart:
            self.missed[-1] = replace(last, last=run, runs=last.runs + 1)
        else:
            self.missed.append(Missed(first=run, last=run, runs=1, reason=reason))
        self._apart = False


def advance(
    row: Row, schedule: Schedule, plan: Plan, *, closed_through: int, grid: Grid, now: datetime, retention_days: int
) -> ConditionalUpdate:
    """The write that moves a schedule on, once the occurrences of ``plan`` are there."""
    values: dict[str, object] = {}
    remove: list[str] = []
    if plan.make:
        last = plan.make[-1]
        values |= {"lastOccurrenceAt": format_instant(last), "lastTaskId": schedule.occurrence_id(last)}
    if plan.missed:
        kept = [*schedule.missed, *plan.missed][-MISSED_KEPT:]
        values["missed"] = [entry.to_row() for entry in kept]
        values["missedOccurrences"] = schedule.missed_occurrences + sum(entry.runs for entry in plan.missed)
    if plan.buffered is not None:
        values["bufferedOccurrenceAt"] = format_instant(plan.buffered)
    else:
        remove.append("bufferedOccurrenceAt")
    if plan.next_occurrence_at is not None:
        values["nextOccurrenceAt"] = format_instant(plan.next_occurrence_at)
    else:
        remove.append("nextOccurrenceAt")
    due_before = [
        one
        for one in schedule.due_before
        if plan.next_occurrence_at is not None and one.until >= plan.next_occurrence_at
    ]
    if due_before:
        values["dueBefore"] = [former.to_row() for former in due_before]
    else:
        remove.append("dueBefore")
    paused = schedule.state is ScheduleState.DISABLED
    if not plan.more:
        if plan.buffered is not None:
            values["taskDateTime"] = str(_look_again(schedule, plan, closed_through, grid))
        elif paused:
            remove += ["taskDateTime", "nextOccurrenceAt"]
            values.pop("nextOccurrenceAt", None)
        elif plan.next_occurrence_at is None:
            remove.append("taskDateTime")
            values |= terminal(Status.COMPLETED, now, retention_days)
            values["scheduleState"] = str(ScheduleState.COMPLETED)
        else:
            values["taskDateTime"] = str(_bucket_of(schedule, plan.next_occurrence_at, grid))
    return ConditionalUpdate(
        task_id=schedule.schedule_id,
        set={name: value for name, value in values.items() if not has_value(row, name, value)},
        remove=tuple(name for name in remove if name in row),
        conditions=as_read(row, *dict.fromkeys(("outcome", "status", *DEFINITION, *_POSITION))),
        returning=True,
    )


def _look_again(schedule: Schedule, plan: Plan, closed_through: int, grid: Grid) -> Bucket:
    """While a run waits for the one before it, the next tick looks again."""
    soon = Bucket(grid.tick_after(closed_through), grid.shard_of(schedule.schedule_id))
    if plan.next_occurrence_at is None or schedule.state is ScheduleState.DISABLED:
        return soon
    return min(soon, _bucket_of(schedule, plan.next_occurrence_at, grid))


# -- occurrences -----------------------------------------------------------------------------------------------------


def occurrence(
    row: Row, schedule: Schedule, nominal: datetime, bucket: Bucket, *, now: datetime, extra: str = ""
) -> Row:
    """The row of an occurrence: a task that waits in ``bucket``. ``extra``: for one that is beside the expression."""
    values = {
        "taskId": schedule.occurrence_id(nominal, extra=extra),
        "scheduleId": schedule.schedule_id,
        "taskDateTime": str(bucket),
        "dueAt": format_instant(nominal),
        "action": row["action"],
        "status": str(Status.SCHEDULED),
        "attempt": 0,
        "run": 1,
    }  # no createdAt: its idempotency key must not tell who has made it
    if isinstance(row, LargeRow):
        return row.changed(values, only=lambda name: name in _HANDED_ON or is_handed_on(name))
    return handed_on(row) | values | {name: row[name] for name in _HANDED_ON if row.get(name) is not None}


def bucket_at(schedule: Schedule, nominal: datetime, *, found_in: Bucket, closed_through: int, grid: Grid) -> Bucket:
    """Where a tick lists an occurrence: under its own time, as far as buckets that are still being looked at go."""
    minute = grid.tick_at_or_after(schedule.starts_at(nominal))
    return Bucket(max(found_in.minute, min(minute, closed_through)), found_in.shard)
