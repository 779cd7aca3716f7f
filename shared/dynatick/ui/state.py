"""Whether the installation runs: what every page says first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from dynatick.client import TaskClient
from dynatick.domain.buckets import Grid, instant_of, minute_of

NONE, RUNNING, LATE = "none", "running", "late"


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The installation at an instant."""

    word: str  # running, late, none: no tick has come yet
    reason: str  # in a sentence; empty if it runs
    last_tick: datetime | None
    next_tick: datetime
    tick_minutes: int
    shards: int


def state_of(client: TaskClient, now: datetime) -> State:
    """Reads the settings and the cursors: two requests. Raises StoreError."""
    health, settings = client.health(), client.settings()
    grid = settings.grid if settings is not None else Grid()
    findings = [one.why for one in health.findings]
    if health.last_tick is None:
        word, reason = NONE, "no tick has come yet"
    elif findings:
        word, reason = LATE, "; ".join(findings)
    else:
        word, reason = RUNNING, ""
    return State(
        word=word,
        reason=reason,
        last_tick=health.last_tick,
        next_tick=_next_tick(grid, now),
        tick_minutes=grid.tick_minutes,
        shards=settings.shards_ever if settings is not None else 1,
    )


def _next_tick(grid: Grid, now: datetime) -> datetime:
    return instant_of(grid.tick_after(minute_of(now + timedelta())))
