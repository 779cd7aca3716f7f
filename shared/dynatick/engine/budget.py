"""How an invocation spends its time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """How a pass spends its time: three instants before the process is killed."""

    stop_claiming: datetime
    stop_waiting: datetime
    hard_end: datetime

    @classmethod
    def until(cls, hard_end: datetime, now: datetime) -> Budget:
        """A quarter of the time, at most 20 s, is for what is in hand; a twentieth, at most 3 s, to give back."""
        whole = max(hard_end - now, timedelta())
        return cls(
            stop_claiming=hard_end - min(whole / 4, timedelta(seconds=20)),
            stop_waiting=hard_end - min(whole / 20, timedelta(seconds=3)),
            hard_end=hard_end,
        )
