"""Decides which occurrences of a schedule a tick makes, which are missed, and which is buffered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from dynatick.domain.buckets import Grid, instant_of
from dynatick.domain.pause import Pause
from dynatick.domain.schedule import CatchUp, Missed, MissedFor, Overlap, Schedule

MAX_DECIDED = 2000
"""Occurrences that one plan decides on. After a long outage the next tick continues with the rest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a tick does with the due occurrences of a schedule in a closed bucket."""

    make: Sequence[datetime]  # nominal instants of the occurrences to make, oldest first
    missed: Sequence[Missed]
    buffered: datetime | None
    next_occurrence_at: datetime | None  # None: there are no more
    more: bool  # further occurrences are due already, so the schedule stays in its bucket
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
) -> Plan:
    """The occurrences to make at a tick that has closed all buckets through ``closed_through``: at most ``limit``.

    An occurrence is in time at its own tick and at the one after; ``catchUp`` decides for later ones. ``overlap``
    decides while the one before has not ended (``active``). ``there``: occurrences whose rows exist already, written by
    an interrupted tick or a backfill, each with whether its task has yet to end. ``pauses``: the latest of everything.
    """
    deciding = _Deciding(schedule, grid, closed_through, active, there, pauses)
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
    return Plan(
        make=deciding.make,
        missed=deciding.missed,
        buffered=deciding.buffered,
        next_occurrence_at=nominal,
        more=nominal is not None and deciding.is_due(nominal),
        decided=deciding.decided,
    )


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
    ) -> None:
        self.schedule, self.grid, self.closed_through, self.pauses = schedule, grid, closed_through, pauses
        self.active, self.there = active, there
        self.decided: list[datetime] = []
        self.make: list[datetime] = []
        self.missed: list[Missed] = []
        self.buffered: datetime | None = None
        self._apart = False  # whether one was made since the last that was missed

    def tick_of(self, nominal: datetime) -> int:
        return self.grid.tick_at_or_after(self.schedule.starts_at(nominal))

    def is_due(self, nominal: datetime) -> bool:
        return not self.schedule.is_paused_at(nominal) and self.tick_of(nominal) <= self.closed_through

    def decide(self, nominal: datetime, *, is_latest: bool) -> None:
        self.decided.append(nominal)
        in_time = self.tick_of(nominal) >= self.closed_through - self.grid.tick_minutes
        made_up = self.schedule.catch_up is CatchUp.ALL or (self.schedule.catch_up is CatchUp.LATEST and is_latest)
        if nominal in self.there:
            self.start(nominal)
        elif not in_time and not made_up:
            was_paused = pause_over(self.schedule, nominal, self.pauses, self.grid) is not None
            self.miss(nominal, MissedFor.ALL_PAUSED if was_paused else MissedFor.OUTAGE)
        elif not self.active or self.schedule.overlap is Overlap.ALLOW:
            self.start(nominal)
        elif self.schedule.overlap is Overlap.BUFFER_ONE and self.buffered is None:
            self.buffered = nominal
        else:
            self.miss(nominal, MissedFor.OVERLAP)

    def start(self, nominal: datetime) -> None:
        if nominal == self.schedule.buffered_occurrence_at:
            self.decided.append(nominal)
        self.make.append(nominal)
        self.active = self.there.get(nominal, True)
        self._apart = True

    def miss(self, nominal: datetime, reason: MissedFor) -> None:
        last = self.missed[-1] if self.missed else None
        if last is not None and last.reason is reason and not self._apart:
            self.missed[-1] = replace(last, last=nominal, occurrences=last.occurrences + 1)
        else:
            self.missed.append(Missed(first=nominal, last=nominal, occurrences=1, reason=reason))
        self._apart = False
