"""The clock of a seeded installation: it stands on a fixed day, and moves only when it is set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NOW = datetime(2027, 3, 24, 9, 12, 30, tzinfo=UTC)
"""The present of all pages: a Wednesday morning, four days before Europe's clocks go forward."""


class Clock:
    """A clock that stands while it is read: how often the engine reads it depends on the machine. Handlers move it."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def to(self, instant: datetime) -> None:
        """Moves on to an instant; never back."""
        self.now = max(self.now, instant)

    def work(self, seconds: float) -> None:
        """Moves the clock on, for a handler takes time."""
        self.now += timedelta(seconds=seconds)
