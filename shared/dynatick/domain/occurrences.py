"""Which occurrences of a schedule a tick makes, misses or buffers; their rows; and the schedule's next one.

An occurrence's id follows from its schedule and its nominal instant, and it is written before its schedule moves on. A
tick that is interrupted between the two writes, or that comes second, finds that the occurrence exists.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid, instant_of
from dynatick.domain.conditional_update import ConditionalUpdate, as_read
from dynatick.domain.instants import format_instant, optional_text
from dynatick.domain.lifecycle import terminal
from dynatick.domain.normalise import has_value
from dynatick.domain.pause import Pause
from dynatick.domain.recurrence import MAX_MISSED_ENTRIES, bucket_of_deadlines, bucket_of_occurrence
from dynatick.domain.schedule import (
    MAX_AWAITED,
    AwaitedOccurrence,
    CatchUp,
    Missed,
    MissedFor,
    Overlap,
    Schedule,
    ScheduleState,
    handed_on,
    is_handed_on,
)
from dynatick.domain.task import LargeRow, Row, Status

# -- plan --------------------------------------------------------------------------------------------------------------

MAX_DECIDED = 2000
"""Occurrences that one plan decides on. After a long outage the next tick continues with the rest."""

MAX_CATCH_UP = 10_000
"""About how many late occurrences ``catchUp: all`` makes: the latest ones. A week of them, if there is one a minute."""

MAX_CATCH_UP_AGE = timedelta(days=366)
_JUST_BEFORE = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a tick does with the due occurrences of a schedule in a closed bucket."""

    make: Sequence[datetime]  # nominal instants of the occurrences to make, oldest first
    missed: Sequence[Missed]
    buffered: datetime | None
    next_occurrence_at: datetime | None  # None: there are no more
    more: bool  # further occurrences are due already, so the schedule stays in its bucket
    last: datetime | None = None  # of those to make, the one that counts as the previous occurrence from now on
    decided: Sequence[datetime] = field(default=(), compare=False)  # every occurrence that this plan decides on

    def skips(self, schedule: Schedule) -> bool:
        """Whether an occurrence is missed or newly buffered that could have been made now."""
        return bool(self.missed) or self.buffered != schedule.buffered_occurrence_at


def plan_occurrences(
    schedule: Schedule,
    *,
    closed_through: int,
    grid: Grid,
    active: bool,
    limit: int,
    max_decided: int = MAX_DECIDED,
    there: Mapping[datetime, bool] = MappingProxyType({}),
    pauses: Sequence[Pause] = (),
    oldest: datetime | None = None,
) -> Plan:
    """The occurrences to make at a tick that has closed all buckets through ``closed_through``: at most ``limit``.

    An occurrence is in time at its own tick and at the one after; ``catchUp`` decides for later ones. ``overlap``
    decides while the one before has not ended (``active``). ``there``: occurrences whose rows exist already, written by
    an interrupted tick or a backfill, each with whether its task has yet to end. ``pauses``: the latest of everything.
    ``oldest``: what ``oldest_made_up`` returns, if it is known.
    """
    oldest = oldest_made_up(schedule, closed_through) if oldest is None else oldest
    deciding = _Deciding(schedule, grid, closed_through, active, there, pauses, oldest)
    nominal = schedule.next_occurrence_at
    if schedule.buffered_occurrence_at is not None and (not active or schedule.buffered_occurrence_at in there):
        deciding.start(schedule.buffered_occurrence_at)
    else:
        deciding.buffered = schedule.buffered_occurrence_at
    for _ in range(max_decided):
        if nominal is None or not deciding.is_due(nominal) or len(deciding.make) >= limit:
            break
        following = occurrence_after(schedule, nominal)
        deciding.decide(nominal, is_latest=following is None or not deciding.is_due(following))
        nominal = following
    if nominal is not None and nominal < oldest and len(deciding.decided) >= max_decided:
        nominal = deciding.pass_over(nominal)
    return Plan(
        make=deciding.make,
        missed=deciding.missed,
        buffered=deciding.buffered,
        next_occurrence_at=nominal,
        more=nominal is not None and deciding.is_due(nominal),
        last=deciding.last,
        decided=deciding.decided,
    )


def oldest_made_up(schedule: Schedule, closed_through: int) -> datetime:
    """No late occurrence before this instant is made by ``catchUp: all``, so that neither a long outage nor a
    ``nextOccurrenceAt`` that was set by hand makes tasks by the million: they are bounded by number and by age."""
    closed = instant_of(closed_through)
    span = timedelta(minutes=MAX_CATCH_UP)  # no expression has two occurrences within a minute
    oldest, first = closed - span, schedule.next_occurrence_at
    if schedule.catch_up is not CatchUp.ALL or first is None or first >= oldest:
        return oldest
    number, limit = _number(schedule, oldest, closed), closed - MAX_CATCH_UP_AGE
    while max(first, limit) < oldest:
        earlier = max(oldest - span, limit)
        number += _number(schedule, earlier, oldest)
        if number > MAX_CATCH_UP:
            break
        oldest, span = earlier, 2 * span
    return oldest


def _number(schedule: Schedule, start: datetime, end: datetime) -> int:
    """The number of nominal instants from ``start`` to before ``end``, or one more than MAX_CATCH_UP."""
    number, nominal = 0, occurrence_after(schedule, start - _JUST_BEFORE)
    while nominal is not None and nominal < end and number <= MAX_CATCH_UP:
        number, nominal = number + 1, occurrence_after(schedule, nominal)
    return number


def tick_of(schedule: Schedule, nominal: datetime, grid: Grid) -> int:
    """The tick at which an occurrence is to be made. That of its schedule's bucket is later, if the interval or the
    window has become smaller since the schedule was put there."""
    tick = grid.tick_at_or_after(schedule.starts_at(nominal))
    return tick if schedule.bucket is None or schedule.is_moved else max(tick, schedule.bucket.minute)


def pause_over(schedule: Schedule, nominal: datetime, pauses: Sequence[Pause], grid: Grid) -> Pause | None:
    """The pause that has kept an occurrence from being made in time: at its tick, or at the one after."""
    tick = tick_of(schedule, nominal, grid)
    ticks = (instant_of(tick), instant_of(grid.tick_after(tick)))
    return next((pause for pause in pauses if any(map(pause.covers, ticks))), None)


def occurrence_after(schedule: Schedule, nominal: datetime) -> datetime | None:
    """The nominal instant after another one: by the replaced definitions as long as they have due occurrences, then by
    the current one, from its change on."""
    after = nominal
    for former in schedule.due_before:
        if after < former.until:
            following = former.next_after(after)
            if following is not None:
                return following
            after = former.until
    changed = schedule.defined_at
    return schedule.next_after(nominal if changed is None or changed < nominal else changed)


class _Deciding:
    """A plan in the making."""

    def __init__(
        self,
        schedule: Schedule,
        grid: Grid,
        closed_through: int,
        active: bool,
        there: Mapping[datetime, bool],
        pauses: Sequence[Pause],
        oldest: datetime,
    ) -> None:
        self.schedule, self.grid, self.closed_through, self.pauses = schedule, grid, closed_through, pauses
        self.active, self.there, self.oldest = active, there, oldest
        self.decided: list[datetime] = []
        self.make: list[datetime] = []
        self.missed: list[Missed] = []
        self.buffered: datetime | None = None
        self.last: datetime | None = None
        self._apart = False  # whether one was made since the last that was missed

    def is_due(self, nominal: datetime) -> bool:
        if self.schedule.is_paused_at(nominal):
            return False
        start = self.grid.tick_at_or_after(self.schedule.starts_at(nominal))
        return start <= self.closed_through or self._was_due_before(nominal)

    def _was_due_before(self, nominal: datetime) -> bool:
        """Whether an occurrence was due when the definition changed, and its schedule is where it was put for it: its
        window was another one."""
        schedule, changed = self.schedule, self.schedule.defined_at
        is_next = nominal == schedule.next_occurrence_at and changed is not None and nominal <= changed
        return is_next and not schedule.awaited and schedule.buffered_occurrence_at is None

    def decide(self, nominal: datetime, *, is_latest: bool) -> None:
        self.decided.append(nominal)
        in_time = tick_of(self.schedule, nominal, self.grid) >= self.closed_through - self.grid.tick_minutes
        catch_up = self.schedule.catch_up
        is_too_old = catch_up is CatchUp.ALL and nominal < self.oldest
        made_up = (catch_up is CatchUp.ALL and not is_too_old) or (catch_up is not CatchUp.NONE and is_latest)
        if nominal in self.there:
            self.start(nominal)
        elif not in_time and not made_up:
            was_paused = pause_over(self.schedule, nominal, self.pauses, self.grid) is not None
            too_old = MissedFor.TOO_OLD if is_too_old else MissedFor.OUTAGE
            self.miss(nominal, MissedFor.ALL_PAUSED if was_paused else too_old)
        elif not self.active or self.schedule.overlap is Overlap.ALLOW:
            self.start(nominal)
        elif self.schedule.overlap is Overlap.BUFFER_ONE and self.buffered is None:
            self.buffered = nominal
        else:
            self.miss(nominal, MissedFor.OVERLAP)

    def pass_over(self, nominal: datetime) -> datetime | None:
        """Leaves out every occurrence before the oldest that may be made, without deciding on each. Returns the one
        after them; ``nominal`` itself if none of those is due, since the latest that is due may have to be made.

        What is passed over continues the latest entry of what is missed, and is not counted.
        """
        following = occurrence_after(self.schedule, self.oldest - _JUST_BEFORE)
        if following is None or not self.is_due(following) or not self.missed or self._apart:
            return nominal
        self.missed[-1] = replace(self.missed[-1], last=self.oldest - _JUST_BEFORE)
        return following

    def start(self, nominal: datetime) -> None:
        if nominal == self.schedule.buffered_occurrence_at:
            self.decided.append(nominal)
        self.make.append(nominal)
        self._apart = True
        if nominal not in self.there or not self.active or self.schedule.overlap is Overlap.ALLOW:
            self.active, self.last = self.there.get(nominal, True), nominal
        # Else a client has made it, while the previous one has not ended: that one still delays those to come.

    def miss(self, nominal: datetime, reason: MissedFor) -> None:
        last = self.missed[-1] if self.missed else None
        if last is not None and last.reason is reason and not self._apart:
            self.missed[-1] = replace(last, last=nominal, occurrences=last.occurrences + 1)
        else:
            self.missed.append(Missed(first=nominal, last=nominal, occurrences=1, reason=reason))
        self._apart = False


# -- writes ------------------------------------------------------------------------------------------------------------

_HANDED_ON = (attr.PAYLOAD, attr.RETRY_POLICY, attr.TIMEOUT_SECONDS, attr.SUBJECT, attr.LIMIT_KEY)
"""What occurrences get, with the user's own attributes."""


def advance(
    row: Row,
    schedule: Schedule,
    plan: Plan,
    awaited: Sequence[AwaitedOccurrence] = (),
    *,
    closed_through: int,
    grid: Grid,
    now: datetime,
    retention_days: int,
) -> ConditionalUpdate:
    """The update that moves a schedule on, once the occurrences of ``plan`` are written. ``awaited``: after that."""
    following = plan.next_occurrence_at
    due_before = [one for one in schedule.due_before if following is not None and one.until >= following]
    values: dict[str, object] = {  # None: it is removed
        attr.BUFFERED_OCCURRENCE_AT: optional_text(plan.buffered),
        attr.NEXT_OCCURRENCE_AT: optional_text(following),
        attr.DUE_BEFORE: [former.to_row() for former in due_before] or None,
        attr.AWAITED: [one.to_row() for one in awaited] or None,
    }
    if plan.last is not None:
        values[attr.LAST_OCCURRENCE_AT] = format_instant(plan.last)
        values[attr.LAST_TASK_ID] = schedule.occurrence_id(plan.last)
    if plan.missed:
        kept = _continued(schedule, plan.missed)[-MAX_MISSED_ENTRIES:]
        values[attr.MISSED] = [entry.to_row() for entry in kept]
        values[attr.MISSED_OCCURRENCES] = schedule.missed_occurrences + sum(entry.occurrences for entry in plan.missed)
    if not plan.more:
        is_paused = schedule.state is ScheduleState.DISABLED and (following is None or schedule.is_paused_at(following))
        bucket = _bucket_of_next_poll(schedule, plan, awaited, closed_through, grid)
        values[attr.TASK_DATE_TIME] = None if bucket is None else str(bucket)
        if is_paused and plan.buffered is None:
            values[attr.NEXT_OCCURRENCE_AT] = None
        if bucket is None and not is_paused:
            values |= terminal(Status.COMPLETED, now, retention_days)
            values[attr.SCHEDULE_STATE] = str(ScheduleState.COMPLETED)
    return ConditionalUpdate(
        task_id=schedule.schedule_id,
        set={name: value for name, value in values.items() if value is not None and not has_value(row, name, value)},
        remove=tuple(name for name, value in values.items() if value is None and name in row),
        conditions=as_read(row, *dict.fromkeys((attr.OUTCOME, attr.STATUS, *attr.DEFINITION, *attr.POSITION))),
        returning=True,
    )


def _continued(schedule: Schedule, missed: Sequence[Missed]) -> list[Missed]:
    """The entries of earlier ticks, and these. The first of these goes on with the last of those if no occurrence
    between them was made, or is buffered."""
    first, last = missed[0], schedule.missed[-1] if schedule.missed else None
    if last is None or last.reason is not first.reason or occurrence_after(schedule, last.last) != first.first:
        return [*schedule.missed, *missed]
    together = replace(first, first=last.first, occurrences=last.occurrences + first.occurrences)
    return [*schedule.missed[:-1], together, *missed[1:]]


def _bucket_of_next_poll(
    schedule: Schedule, plan: Plan, awaited: Sequence[AwaitedOccurrence], closed_through: int, grid: Grid
) -> Bucket | None:
    """The bucket of the tick that has to look at the schedule next; None: none has.

    That is the next run's; before that, the one at which an awaited occurrence must have completed; and while one is
    buffered, the next, in case the one before has ended by then.
    """
    soon = Bucket(grid.tick_after(closed_through), grid.shard_of(schedule.shard_key))
    if plan.buffered is not None:
        return soon
    buckets = [max(soon, bucket_of_deadlines(schedule, awaited, grid))] if awaited else []
    following = plan.next_occurrence_at
    if following is not None and not schedule.is_paused_at(following):
        buckets.append(bucket_of_occurrence(schedule, following, grid))
    return min(buckets, default=None)


def occurrence_row(
    row: Row, schedule: Schedule, nominal: datetime, bucket: Bucket, *, now: datetime, extra: str = ""
) -> Row:
    """The row of an occurrence: a task that waits in ``bucket``. ``extra``: ends the id of one that run-now makes."""
    values = {
        attr.TASK_ID: schedule.occurrence_id(nominal, extra=extra),
        attr.SCHEDULE_ID: schedule.schedule_id,
        attr.TASK_DATE_TIME: str(bucket),
        attr.DUE_AT: format_instant(nominal),
        attr.ACTION: row[attr.ACTION],
        attr.STATUS: str(Status.SCHEDULED),
        attr.ATTEMPT: 0,
        attr.RUN: 1,
    }  # no createdAt, so that the idempotency key is the same whichever tick writes it
    if isinstance(row, LargeRow):
        return row.changed(values, only=lambda name: name in _HANDED_ON or is_handed_on(name))
    return handed_on(row) | values | {name: row[name] for name in _HANDED_ON if row.get(name) is not None}


def bucket_at(schedule: Schedule, nominal: datetime, *, found_in: Bucket, closed_through: int, grid: Grid) -> Bucket:
    """The bucket of an occurrence that a tick writes: its own time's, within the buckets that are still polled."""
    minute = grid.tick_at_or_after(schedule.starts_at(nominal))
    return Bucket(max(found_in.minute, min(minute, closed_through)), found_in.shard)


# -- overdue occurrences -----------------------------------------------------------------------------------------------
#
# Those that were missed, or that did not complete in time.

_MISSED = {
    MissedFor.OUTAGE: "missed: no tick ran",
    MissedFor.TOO_OLD: "missed: too old to be made up",
    MissedFor.ALL_PAUSED: "missed: all was paused",  # the pause follows
    MissedFor.OVERLAP: "missed: the occurrence before it had not ended",
    MissedFor.PAUSED: "missed: its schedule was paused",
    MissedFor.ID_TAKEN: "missed: another task has its id",
    MissedFor.TOO_LARGE: "missed: its row would be too large",
}
_BUFFERED = "waits for the occurrence before it to end"
_MADE_LATE = "begins only now: no tick ran in time"
_MADE_AFTER_PAUSE = "begins only now: all was paused"  # the pause follows
_TOO_MANY = f"not awaited: {MAX_AWAITED} occurrences before it have not completed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Overdue:
    """Consecutive occurrences of a schedule that were missed, or one that did not complete in time."""

    schedule_id: str
    first: datetime  # nominal instants
    last: datetime
    occurrences: int  # how many
    reason: str


def settle(
    schedule: Schedule,
    plan: Plan,
    tasks: Mapping[datetime, Row],
    *,
    made: Collection[datetime],
    now: datetime,
    grid: Grid,
    pauses: Sequence[Pause] = (),
) -> tuple[Sequence[AwaitedOccurrence], Sequence[Overdue]]:
    """The occurrences that are awaited once ``plan`` is carried out, and those that are overdue.

    ``tasks``: the rows of the occurrences that existed before, by nominal instant. ``made``: those that this tick has
    made. What ``overlap`` leaves out is overdue only where occurrences are expected to complete: else it was asked for.
    ``pauses``: the latest of everything.
    """

    def naming(pause: Pause | None, reason: str) -> str:
        return reason if pause is None else f"{reason} {pause}"

    awaited: list[AwaitedOccurrence] = []
    overdue = [
        _missed(schedule, missed, naming(_pause_of(schedule, missed, pauses, grid), _MISSED[missed.reason]))
        for missed in plan.missed
        if missed.reason is not MissedFor.OVERLAP or schedule.expected_within_seconds is not None
    ]
    for one in [*schedule.awaited, *_newly_awaited(schedule, plan)]:
        is_buffered = one.nominal in (plan.buffered, schedule.buffered_occurrence_at)
        otherwise = None
        if is_buffered:
            otherwise = _BUFFERED
        elif one.nominal in made:
            pause = pause_over(schedule, one.nominal, pauses, grid)
            otherwise = _MADE_LATE if pause is None else naming(pause, _MADE_AFTER_PAUSE)
        found = one.judge(tasks.get(one.nominal), now, otherwise=otherwise)
        if isinstance(found, AwaitedOccurrence) and len(awaited) < MAX_AWAITED:
            awaited.append(found)
        elif found is not None:
            reason = found if isinstance(found, str) else _TOO_MANY
            overdue.append(_overdue(schedule, one.nominal, reason))
    return awaited, overdue


def _newly_awaited(schedule: Schedule, plan: Plan) -> list[AwaitedOccurrence]:
    """Those on which the plan decides first. A buffered one has been awaited since it was buffered."""
    decided = plan.make if plan.buffered is None else [*plan.make, plan.buffered]
    return [
        AwaitedOccurrence(nominal=nominal, expected_by=expected_by)
        for nominal in decided
        if nominal != schedule.buffered_occurrence_at and (expected_by := schedule.expected_by(nominal)) is not None
    ]


def _pause_of(schedule: Schedule, missed: Missed, pauses: Sequence[Pause], grid: Grid) -> Pause | None:
    return pause_over(schedule, missed.first, pauses, grid) if missed.reason is MissedFor.ALL_PAUSED else None


def _missed(schedule: Schedule, missed: Missed, reason: str) -> Overdue:
    return Overdue(
        schedule_id=schedule.schedule_id,
        first=missed.first,
        last=missed.last,
        occurrences=missed.occurrences,
        reason=reason,
    )


def _overdue(schedule: Schedule, nominal: datetime, reason: str) -> Overdue:
    return Overdue(schedule_id=schedule.schedule_id, first=nominal, last=nominal, occurrences=1, reason=reason)
