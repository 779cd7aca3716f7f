"""Whether the installation runs: what every page says first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from dynatick.client import TaskClient
from dynatick.client.operations import ActionPause, Pause
from dynatick.domain.buckets import Grid, instant_of, minute_of

NONE, RUNNING, LATE, PAUSED = "none", "running", "late", "paused"
UNREAD = "unread"  # the table could not be read

PREFIXES = {LATE: "⚠ needs attention", NONE: "⚠ no tick yet", PAUSED: "⏸ paused", UNREAD: "⚠ not read"}
"""What the title of a page begins with, unless all is well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The installation at an instant."""

    word: str  # running, paused, late, none: no tick has come yet
    problems: tuple[tuple[str, str], ...]  # what is wrong, and what to do
    pause: Pause | None
    paused_actions: tuple[ActionPause, ...]
    last_tick: datetime | None
    next_tick: datetime
    tick_minutes: int

    @property
    def tick(self) -> str:
        """Names the latest tick, so that a page knows of another one. Ticks of a pause leave no record, and count by
        the clock."""
        last = self.next_tick - timedelta(minutes=self.tick_minutes) if self.word == PAUSED else self.last_tick
        return f"{self.word} {last:%Y-%m-%dT%H:%M}" if last else self.word


def state_of(client: TaskClient, now: datetime) -> State:
    """Reads the settings and the cursors: three requests. Raises StoreError."""
    health, settings = client.operations.health(), client.settings()
    grid = settings.grid if settings is not None else Grid()
    problems = [(one.why, one.remedy) for one in health.findings]
    if health.pause is not None:
        word = PAUSED
    elif health.last_tick is None:
        word, problems = NONE, []
    else:
        word = LATE if problems else RUNNING
    return State(
        word=word,
        problems=tuple(problems),
        pause=health.pause,
        paused_actions=health.paused_actions,
        last_tick=health.last_tick,
        next_tick=instant_of(grid.tick_after(minute_of(now))),
        tick_minutes=grid.tick_minutes,
    )
