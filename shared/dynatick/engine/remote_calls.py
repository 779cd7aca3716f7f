"""Calls to other services, in threads of their own: nothing waits for a service that is silent but what needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from dynatick.engine.io_pool import IoPool
from dynatick.engine.ports import Clock

T = TypeVar("T")

START_TIMEOUT = timedelta(seconds=10)
"""An invocation waits no longer for answers to its calls that start others: a little more than their own timeouts."""

MAX_WAIT_SECONDS = 0.02  # a call that waits longer for a thread gets another


class RemoteCalls:
    """Calls to one service. The coordinator calls everything here.

    ``report`` lets the coordinator handle an answer. If none comes for ``timeout``, all calls that are under way count
    as unanswered, and those that follow at once. ``keep_fault`` gets what a call raises.
    """

    def __init__(
        self,
        name: str,
        *,
        max_threads: int,
        timeout: timedelta,
        clock: Clock,
        report: Callable[[Callable[[], None]], None],
        keep_fault: Callable[[Exception], None],
        in_one_thread: bool,
    ) -> None:
        self._timeout, self._clock, self._keep_fault = timeout, clock, keep_fault
        self._pool = IoPool(
            min_threads=1,
            max_threads=max_threads,
            max_wait_seconds=MAX_WAIT_SECONDS,
            name=f"dynatick-{name}",
            report=report,
            in_one_thread=in_one_thread,
        )
        self._under_way: dict[int, Callable[[], object]] = {}
        self._number = 0
        self._silent_since = clock()
        self.is_silent = False  # a call had no answer

    @property
    def under_way(self) -> bool:
        """Whether an answer is still waited for."""
        return bool(self._under_way)

    def submit(
        self, call: Callable[[], T], then: Callable[[T], object], unanswered: Callable[[], object] = lambda: None
    ) -> None:
        """Queues a call. ``then`` is called with what it returns; ``unanswered`` instead, if it raises or returns too
        late."""
        if self.is_silent:
            unanswered()
            return
        if not self._under_way:
            self._silent_since = self._clock()
        self._number += 1
        self._under_way[self._number] = unanswered
        self._pool.submit(partial(self._call, self._number, call, then))

    def check(self, end: datetime) -> None:
        """Ends the wait for what has no answer in time, and by ``end`` at the latest. To be called regularly."""
        self._pool.grow()
        if self._under_way and self._clock() >= min(self._silent_since + self._timeout, end):
            self.is_silent = True
            self.close()
            given_up, self._under_way = self._under_way, {}
            for unanswered in given_up.values():
                unanswered()

    def close(self) -> None:
        """Drops the calls that wait. Those that are made end by themselves."""
        self._pool.close()

    def _call(self, number: int, call: Callable[[], T], then: Callable[[T], object]) -> Callable[[], None]:
        """Makes a call, in a thread of the pool. Returns what the coordinator does with the answer."""
        try:
            answer = call()
        except Exception as error:  # the coordinator raises it once everything in flight is recorded
            return partial(self._failed, number, error)
        return partial(self._answered, number, partial(then, answer))

    def _answered(self, number: int, then: Callable[[], object]) -> None:
        self._silent_since = self._clock()
        if self._under_way.pop(number, None) is not None:
            then()

    def _failed(self, number: int, error: Exception) -> None:
        self._keep_fault(error)
        self._answered(number, self._under_way.get(number, _nothing))


def in_turn(start: Callable[[T], bool], orders: Iterable[T]) -> int:
    """Starts orders until one can't be started. Returns how many were."""
    number = 0
    for order in orders:
        if not start(order):
            break
        number += 1
    return number


def _nothing() -> None:
    pass
