"""The engine's settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from dynatick.domain.buckets import Grid
from dynatick.domain.normalise import Defaults

SKEW_MARGIN = timedelta(seconds=4)
"""Twice the skew allowed between two hosts' clocks (protocol, terms)."""

SHARD_LEASE = timedelta(seconds=30)
"""How long a dead process keeps a shard. Short: the lease only saves work (16)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The settings of an installation."""

    grid: Grid = field(default_factory=Grid)
    defaults: Defaults = field(default_factory=Defaults)
    index_lag: timedelta = timedelta(seconds=120)  # by which the index may be behind the table
    threads: int = 16
    max_timeout_seconds: int | None = None  # the longest timeoutSeconds of a task; None: not known
    max_turns: int = 10_000  # of one run of a task whose handler asks for further turns
    max_continuations: int = 50  # of one pass; then its rest waits for the next tick

    @property
    def retention_days(self) -> int:
        return self.defaults.retention_days

    @property
    def index_settled_after(self) -> timedelta:
        """How long after a bucket was closed a poll of it is final (3)."""
        return self.index_lag + SKEW_MARGIN
