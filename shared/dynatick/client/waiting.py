"""Waits until tasks have ended, for scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
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
    seconds: Callable[[], float],
    pause: Callable[[float], None],
) -> T:
    """Polls again and again, less often with time, and returns what it saw last. Raises WaitTimedOut."""
    seen = watch(poll, has_ended, timeout=timeout, seconds=seconds, pause=pause)
    if not has_ended(seen):
        raise WaitTimedOut(f"{of} has not ended in time")
    return seen


def watch(
    poll: Callable[[], T],
    has_ended: Callable[[T], bool],
    *,
    timeout: timedelta | None,
    seconds: Callable[[], float],
    pause: Callable[[float], None],
) -> T:
    """The same, but returns what it saw last when the time is up, too."""
    further = waits(timeout=timeout, seconds=seconds)
    while not has_ended(seen := poll()) and (wait := next(further, None)) is not None:
        pause(wait)
    return seen


def waits(*, timeout: timedelta | None, seconds: Callable[[], float]) -> Iterator[float]:
    """The seconds before each further poll, more with time, until the ``timeout`` is over (None: never).

    ``seconds``: a clock, which is read now and at each step.
    """
    return _until(None if timeout is None else seconds() + timeout.total_seconds(), seconds)


def _until(end: float | None, seconds: Callable[[], float]) -> Iterator[float]:
    wait = FIRST_WAIT
    while (left := LONGEST_WAIT if end is None else end - seconds()) > 0:
        yield min(wait, left)
        wait = min(1.5 * wait, LONGEST_WAIT)
