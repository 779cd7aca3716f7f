"""The engine's own settings, given once by whoever wires it up."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from dynatick.domain.buckets import Grid
from dynatick.domain.normalise import Defaults

SKEW_MARGIN = timedelta(seconds=4)
"""Twice the skew allowed between two hosts' clocks (protocol, terms)."""

SHARD_LEASE = timedelta(seconds=30)
"""How long a shard stays with a process that has gone silent. Short: it only saves work (16)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """What an installation has decided."""

    grid: Grid = field(default_factory=Grid)
    defaults: Defaults = field(default_factory=Defaults)
    index_lag: timedelta = timedelta(seconds=120)  # L: how far the index may lag behind the table
    threads: int = 16
    max_timeout_seconds: int | None = None  # what a task may reserve at the most; None: not known
    max_continuations: int = 50  # how often a pass may continue itself before it waits for the next tick

    @property
    def retention_days(self) -> int:
        return self.defaults.retention_days

    @property
    def index_settled_after(self) -> timedelta:
        """How long after a bucket was closed a look at it is final (3)."""
        return self.index_lag + SKEW_MARGIN
