"""Waits until tasks have ended, for scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TypeVar

from dynatick.errors import WaitTimedOut

T = TypeVar("T")
FIRST_WAIT, LONGEST_WAIT = 0.5, 5.0  # seconds between two polls


def wait_until(
    poll: Callable[[], T],
    has_ended: Callable[[T], bool],
    *,
    of: str,
    timeout: timedelta | None,
    clock: Callable[[], datetime],
    pause: Callable[[float], None],
) -> T:
    """Polls again and again, less often with time, and returns what it saw last. Raises WaitTimedOut."""
    pauses = waits(of=of, timeout=timeout, clock=clock)
    while not has_ended(seen := poll()):
        pause(next(pauses))
    return seen


def waits(*, of: str, timeout: timedelta | None, clock: Callable[[], datetime]) -> Iterator[float]:
    """The seconds before each further poll, more with time. Raises WaitTimedOut ``timeout`` after the call."""
    return _until(None if timeout is None else clock() + timeout, of, clock)


def _until(end: datetime | None, of: str, clock: Callable[[], datetime]) -> Iterator[float]:
    seconds = FIRST_WAIT
    while True:
        left = LONGEST_WAIT if end is None else (end - clock()).total_seconds()
        if left <= 0:
            raise WaitTimedOut(f"{of} has not ended in time")
        yield min(seconds, left)
        seconds = min(1.5 * seconds, LONGEST_WAIT)
