"""How an invocation spends its time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

_TO_BEGIN = timedelta(seconds=5)  # until an invocation begins its first task: it reads settings, polls and claims
_SECOND = timedelta(seconds=1)


def max_timeout_seconds(whole: timedelta) -> int:
    """The longest ``timeoutSeconds`` that fits into an invocation of this length, if that task is its first: the time
    between the start of the first task (after a tenth of the time, at most 5 s) and the last records."""
    return (whole - min(whole / 10, _TO_BEGIN) - _to_record(whole)) // _SECOND


def _to_record(whole: timedelta) -> timedelta:
    """A twentieth of the time, at most 3 s: for the last records and releases."""
    return min(whole / 20, timedelta(seconds=3))


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """How a pass spends its time: three instants before the process is killed."""

    stop_claiming: datetime
    stop_waiting: datetime
    hard_end: datetime

    @classmethod
    def until(cls, hard_end: datetime, now: datetime) -> Budget:
        """The last quarter of the time, at most 20 s, is for tasks in flight; the end of it for their records."""
        whole = max(hard_end - now, timedelta())
        return cls(
            stop_claiming=hard_end - min(whole / 4, timedelta(seconds=20)),
            stop_waiting=hard_end - _to_record(whole),
            hard_end=hard_end,
        )
