"""The present of a seeded installation, whose clock stands on a fixed day."""

from __future__ import annotations

from datetime import UTC, datetime

from dynatick_stack.bench.installation import Clock

NOW = datetime(2027, 3, 24, 9, 12, 30, tzinfo=UTC)
"""The present of all pages: a Wednesday morning, four days before Europe's clocks go forward."""


def clock_at(now: datetime) -> Clock:
    """A clock that stands while it is read: how often the engine reads it depends on the machine. Handlers move it."""
    return Clock(now, still=True)
