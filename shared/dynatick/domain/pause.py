"""Pauses. While everything is paused, no tick runs anything; while an action is, its tasks wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from dynatick.domain.buckets import Grid, instant_of
from dynatick.domain.instants import format_instant
from dynatick.domain.view import View

KNOWN_AFTER = timedelta(seconds=10)
"""What begins tasks knows of a pause, and of its end, no later than this."""

LONGEST_WAIT = timedelta(minutes=15)
"""So far ahead, at most, a task is moved whose action is paused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause(View):
    """A pause: no tick runs anything. Since when, by whom, and why."""

    since: datetime | None  # None: it was written by hand, without an instant
    by: str | None = None
    reason: str | None = None
    until: Annotated[datetime | None, "None: it is in force."] = None

    def covers(self, instant: datetime) -> bool:
        """Whether it was in force then."""
        return (self.since is None or self.since <= instant) and (self.until is None or instant <= self.until)

    def __str__(self) -> str:
        """``since 2026-12-31T12:00:00Z until 2026-12-31T12:10:00Z by ada: a bad deployment``."""
        since = "since an unknown time" if self.since is None else f"since {format_instant(self.since)}"
        until = "" if self.until is None else f" until {format_instant(self.until)}"
        by = "" if self.by is None else f" by {self.by}"
        return f"{since}{until}{by}" + ("" if self.reason is None else f": {self.reason}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionPause(Pause):
    """The pause of one action: none of its tasks begins. Since when, by whom, and why."""

    action: str
    waiting_begin_by: Annotated[
        datetime | None, "The latest tick at which a task begins that waits; None: the pause is in force."
    ] = None

    def wait(self, now: datetime, grid: Grid) -> timedelta:
        """How long a task is left alone that is found during the pause: a quarter of the time since it began, from a
        tick to ``LONGEST_WAIT``. So after a short pause it begins soon, and a long one costs few writes."""
        quarter = LONGEST_WAIT if self.since is None else (now - self.since) / 4
        return max(timedelta(minutes=grid.tick_minutes), min(quarter, LONGEST_WAIT))

    def begin_by(self, until: datetime, grid: Grid) -> datetime:
        """The latest tick to which a task was moved if the pause ends now."""
        known = until + KNOWN_AFTER
        return instant_of(grid.tick_at_or_after(known + self.wait(known, grid)))
