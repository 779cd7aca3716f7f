"""The engine's settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from dynatick.domain.buckets import Grid
from dynatick.domain.limit_keys import KeyLimits, class_of
from dynatick.domain.normalise import Defaults

SKEW_MARGIN = timedelta(seconds=4)
"""Twice the skew allowed between two hosts' clocks (protocol, terms)."""

SHARD_LEASE = timedelta(seconds=30)
"""How long a dead process keeps a shard. Short: the lease only saves work (16)."""

TICKS_PLANNED = 2
"""How many ticks ahead wake-ups are planned: a tick may be a minute late."""

MAX_TICK_MINUTES = 5
"""The longest tick interval with ``Precision.SECOND``: what is planned ahead fits the delay of a queue, 15 minutes."""


class Precision(StrEnum):
    """How near to its due time a task begins."""

    TICK = "tick"  # at the first tick at or after it
    SECOND = "second"  # within about a second, by a wake-up


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The settings of an installation."""

    grid: Grid = field(default_factory=Grid)
    defaults: Defaults = field(default_factory=Defaults)
    precision: Precision = Precision.TICK
    limited_actions: frozenset[str] = frozenset()  # with a rate limit, which only a pass keeps: they get no wake-ups
    index_lag: timedelta = timedelta(seconds=120)  # by which the index may be behind the table
    threads: int = 16
    max_workers: int = 0  # of a shard, at once
    in_one_thread: bool = False  # polls, claims, tasks and records run one after another, in the caller's thread
    max_timeout_seconds: int | None = None  # the longest timeoutSeconds of a task; None: not known
    max_turns: int = 10_000  # of one run of a task whose handler asks for further turns
    max_continuations: int = 50  # of one pass; then its rest waits for the next tick

    def is_planned(self, minute: int, closed_through: int) -> bool:
        """Whether the bucket of this minute has been planned, so that the writer of an instant in it must send the
        wake-up (19)."""
        return minute <= closed_through + TICKS_PLANNED * self.grid.tick_minutes

    @property
    def key_limits(self) -> KeyLimits:
        return self.defaults.key_limits or {}

    def is_limited(self, key: str | None) -> bool:
        """Whether tasks with this limit key have a limit, so that only a pass may run them (23)."""
        return key is not None and class_of(key) in self.key_limits

    @property
    def retention_days(self) -> int:
        return self.defaults.retention_days

    @property
    def index_settled_after(self) -> timedelta:
        """How long after a bucket was closed a poll of it is final (3)."""
        return self.index_lag + SKEW_MARGIN
