"""How an invocation spends its time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

_TO_BEGIN = timedelta(seconds=5)  # until a new invocation has begun the first task: it reads settings, polls, claims
_SECOND = timedelta(seconds=1)


def max_timeout_seconds(whole: timedelta) -> int:
    """The longest ``timeoutSeconds`` that an invocation of this length can serve: what is left between its first task's
    start (a tenth of the time, at most 5 s) and its last records. Such a task fits whenever it is the first."""
    return (whole - min(whole / 10, _TO_BEGIN) - _to_record(whole)) // _SECOND


def _to_record(whole: timedelta) -> timedelta:
    """A twentieth of the time, at most 3 s: for the last records, and to give back."""
    return min(whole / 20, timedelta(seconds=3))


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """How a pass spends its time: three instants before the process is killed."""

    stop_claiming: datetime
    stop_waiting: datetime
    hard_end: datetime

    @classmethod
    def until(cls, hard_end: datetime, now: datetime) -> Budget:
        """A quarter of the time, at most 20 s, is for what is in hand; the last of it for records."""
        whole = max(hard_end - now, timedelta())
        return cls(
            stop_claiming=hard_end - min(whole / 4, timedelta(seconds=20)),
            stop_waiting=hard_end - _to_record(whole),
            hard_end=hard_end,
        )
