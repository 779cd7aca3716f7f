"""Decides which occurrences of a schedule a tick makes, which are missed, and which is buffered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from dynatick.domain.buckets import Grid, instant_of
from dynatick.domain.pause import Pause
from dynatick.domain.schedule import CatchUp, Missed, MissedFor, Overlap, Schedule

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
        following = _occurrence_after(schedule, nominal)
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
    number, nominal = 0, _occurrence_after(schedule, start - _JUST_BEFORE)
    while nominal is not None and nominal < end and number <= MAX_CATCH_UP:
        number, nominal = number + 1, _occurrence_after(schedule, nominal)
    return number


def pause_over(schedule: Schedule, nominal: datetime, pauses: Sequence[Pause], grid: Grid) -> Pause | None:
    """The pause that has kept an occurrence from being made in time: at its tick, or at the one after."""
    tick = grid.tick_at_or_after(schedule.starts_at(nominal))
    ticks = (instant_of(tick), instant_of(grid.tick_after(tick)))
    return next((pause for pause in pauses if any(map(pause.covers, ticks))), None)


def _occurrence_after(schedule: Schedule, nominal: datetime) -> datetime | None:
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

    def tick_of(self, nominal: datetime) -> int:
        return self.grid.tick_at_or_after(self.schedule.starts_at(nominal))

    def is_due(self, nominal: datetime) -> bool:
        return not self.schedule.is_paused_at(nominal) and self.tick_of(nominal) <= self.closed_through

    def decide(self, nominal: datetime, *, is_latest: bool) -> None:
        self.decided.append(nominal)
        in_time = self.tick_of(nominal) >= self.closed_through - self.grid.tick_minutes
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
        following = _occurrence_after(self.schedule, self.oldest - _JUST_BEFORE)
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
