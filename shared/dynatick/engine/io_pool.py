"""Few requests at once, as long as that is enough.

Python runs one thread at a time. Several that are ready at once take turns, and each turn costs: a pass whose requests
are answered at once takes a third more CPU with six threads than with two. But where answers take their time, or one
does not come, two are too few.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

Job = Callable[[], Callable[[], None]]


class IoPool:
    """Does jobs in the order in which they come, in ``least`` threads; a job that has waited for ``patience`` seconds
    makes one more, until there are ``most``. Jobs must not raise; ``report`` is called with what each returns."""

    def __init__(
        self, *, least: int, most: int, patience: float, name: str, report: Callable[[Callable[[], None]], None]
    ) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._report = report
        self._running = 0
        self._waiting: deque[tuple[float, Job]] = deque()  # since when
        self._lanes = least
        self._most = most
        self._busy = 0
        self._patience = patience

    @property
    def running(self) -> int:
        """How many jobs threads are at just now."""
        return self._running

    def submit(self, job: Job) -> None:
        """Has a job done."""
        with self._lock:
            self._waiting.append((time.monotonic(), job))
            if self._busy == self._lanes:
                return
            self._busy += 1
        self._pool.submit(self._work)

    def widen(self) -> None:
        """Opens one lane more, if a job has waited for too long. To be called now and then."""
        with self._lock:
            if not self._waiting or self._lanes == self._most or self._busy < self._lanes:
                return
            if time.monotonic() - self._waiting[0][0] < self._patience:
                return
            self._lanes += 1
            self._busy += 1
        self._pool.submit(self._work)

    def close(self) -> None:
        """What is under way is brought to its end; what waits is done no more."""
        with self._lock:
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._busy -= 1
                    return
                _, job = self._waiting.popleft()
                self._running += 1
            result = job()
            with self._lock:
                self._running -= 1  # before it is reported: the one who hears of it must not find it running
            self._report(result)
