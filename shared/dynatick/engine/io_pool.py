"""Threads that talk to the table: few, as long as few are enough.

Python runs one thread at a time. Threads that are ready together take turns, and each switch costs CPU: a pass whose
requests are answered at once takes a third more with six threads than with two. But if requests are slow, or one gets
no answer, two threads are too few.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
Job = Callable[[], Callable[[], None]]
_CHECK_SECONDS = 0.05


class Executor(Protocol):
    """Where work is done."""

    def submit(self, work: Callable[..., object], /, *arguments: object) -> object:
        """Begins the work, or queues it."""

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        """Drops what is queued."""


class CallingThread:
    """Does work where it is submitted, before ``submit`` returns."""

    def submit(self, work: Callable[..., object], /, *arguments: object) -> None:
        work(*arguments)

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        pass


def executor(max_threads: int, name: str, *, in_one_thread: bool) -> Executor:
    """An executor with ``max_threads`` threads, which start when they are needed; or the calling thread."""
    return CallingThread() if in_one_thread else ThreadPoolExecutor(max_threads, thread_name_prefix=name)


def begin(job: Callable[[], object], *, name: str, in_one_thread: bool) -> None:
    """Runs a job in a thread of its own, for which the end of the process doesn't wait; or in the calling thread."""
    if in_one_thread:
        job()
    else:
        threading.Thread(target=job, name=name, daemon=True).start()


class Jobs(Generic[T]):
    """Jobs that run in at most ``max_threads`` threads, while others are submitted. Safe for use by many threads."""

    def __init__(self, *, max_threads: int, name: str, in_one_thread: bool) -> None:
        self._answers: SimpleQueue[tuple[int, T | Exception]] = SimpleQueue()
        self._pool = executor(max_threads, name, in_one_thread=in_one_thread)
        self._lock = threading.Lock()
        self._number = 0

    def submit(self, job: Callable[[], T]) -> int:
        """Begins a job, or queues it. Returns its number, from 0."""
        with self._lock:
            number = self._number
            self._number += 1
        self._pool.submit(self._run, number, job)
        return number

    def results(self, *, is_over: Callable[[], bool] = lambda: False) -> list[T | Exception | None]:
        """Waits for all jobs. One result each, by number: what it returned, or the error it raised. None: it had not
        ended when ``is_over`` held. To be called once, after the last job was submitted."""
        results: dict[int, T | Exception] = {}
        while len(results) < self._number:
            try:
                number, result = self._answers.get(timeout=_CHECK_SECONDS)
            except Empty:
                if is_over():
                    break
            else:
                results[number] = result
        self._pool.shutdown(wait=False, cancel_futures=True)
        return [results.get(number) for number in range(self._number)]

    def _run(self, number: int, job: Callable[[], T]) -> None:
        try:
            self._answers.put((number, job()))
        except Exception as error:
            self._answers.put((number, error))


def run_all(
    jobs: Sequence[Callable[[], T]], *, max_threads: int, name: str, in_one_thread: bool
) -> list[T | Exception | None]:
    """Runs jobs in ``max_threads`` threads. One result each, in order: what a job returned, or the error it raised."""
    running: Jobs[T] = Jobs(max_threads=max_threads, name=name, in_one_thread=in_one_thread)
    for job in jobs:
        running.submit(job)
    return running.results()


class IoPool:
    """Runs jobs in order of submission, with ``min_threads`` threads at first. If a job has waited for
    ``max_wait_seconds``, ``grow`` adds a thread, up to ``max_threads``. A job must not raise; ``report`` gets what it
    returns."""

    def __init__(
        self,
        *,
        min_threads: int,
        max_threads: int,
        max_wait_seconds: float,
        name: str,
        report: Callable[[Callable[[], None]], None],
        in_one_thread: bool = False,
    ) -> None:
        self._pool = executor(max_threads, name, in_one_thread=in_one_thread)
        self._lock = threading.Lock()
        self._report = report
        self._running = 0
        self._waiting: deque[tuple[float, Job]] = deque()  # with the time of submission
        self._threads = min_threads  # how many may work at once
        self._max_threads = max_threads
        self._working = 0
        self._max_wait_seconds = max_wait_seconds

    @property
    def running(self) -> int:
        """The number of jobs that are running."""
        return self._running

    def submit(self, job: Job) -> None:
        """Queues a job."""
        with self._lock:
            self._waiting.append((time.monotonic(), job))
            if self._working == self._threads:
                return
            self._working += 1
        self._pool.submit(self._work)

    def grow(self) -> None:
        """Adds a thread if a job has waited too long. The coordinator calls this regularly."""
        with self._lock:
            if not self._waiting or self._threads == self._max_threads or self._working < self._threads:
                return
            if time.monotonic() - self._waiting[0][0] < self._max_wait_seconds:
                return
            self._threads += 1
            self._working += 1
        self._pool.submit(self._work)

    def close(self) -> None:
        """Drops the jobs that wait. Running jobs end by themselves."""
        with self._lock:
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working -= 1
                    return
                _, job = self._waiting.popleft()
                self._running += 1
            result = job()
            with self._lock:
                self._running -= 1  # before the report, so that its receiver doesn't count this job as running
            self._report(result)
