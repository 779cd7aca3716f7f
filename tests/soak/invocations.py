"""The invocations to come, each at its time."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any


@dataclass(frozen=True, order=True)
class Invocation:
    at: float  # by the machine's monotonic clock
    number: int
    event: Mapping[str, Any] = field(compare=False)
    again: int = field(compare=False)  # how often it is sent again if it fails, as Lambda does


class Invocations:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._waiting: list[Invocation] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._under_way = 0

    def put(self, event: Mapping[str, Any], *, after: float = 0.0, again: int = 0) -> None:
        """``after``: seconds."""
        with self._changed:
            heapq.heappush(self._waiting, Invocation(time.monotonic() + after, next(self._numbers), event, again))
            self._changed.notify()

    def take(self, timeout: float) -> Invocation | None:
        """The next that is due, if one is before ``timeout``. To be followed by ``done``."""
        end = time.monotonic() + timeout
        with self._changed:
            while True:
                now = time.monotonic()
                if self._waiting and self._waiting[0].at <= now:
                    self._under_way += 1
                    return heapq.heappop(self._waiting)
                if now >= end:
                    return None
                next_one = min(self._waiting[0].at, end) if self._waiting else end
                self._changed.wait(next_one - now)

    def done(self) -> None:
        with self._changed:
            self._under_way -= 1

    @property
    def idle(self) -> bool:
        """Nothing waits, nothing is under way."""
        with self._changed:
            return not self._waiting and not self._under_way
