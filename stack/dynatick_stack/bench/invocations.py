"""Invocations of the processor side by side, each in a process of its own, as Lambda runs them.

A process that has ended one serves the next. ``warm`` of them are there from the beginning: the cold starts of Lambda
go on side by side, those of one machine would wait for each other and be what is measured.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from types import TracebackType
from typing import Self

from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick_stack.bench.installation import Clock, Installation
from dynatick_stack.bench.peak import peak_rss_bytes

LIFE_SECONDS = 300.0  # of an invocation: a pass that is cut short releases tasks, and that costs write units too

Event = Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What a process works on, and how."""

    endpoint: str
    table: str
    ahead_seconds: float  # of the machine's clock
    threads: int
    max_workers: int
    task_seconds: float  # that each task waits


@dataclass(frozen=True, slots=True)
class Ended:
    """What one invocation did."""

    executions: int
    asked: int  # invocations that it asked for
    peak_rss_bytes: int  # of the process, so far


class Invocations:
    """Those of one installation. Its processes end with the block."""

    def __init__(self, setup: Setup, *, warm: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._asked: SimpleQueue[Event | None] = context.SimpleQueue()
        self._ready = context.Barrier(warm + 1)
        initial = (setup, self._asked, self._ready)
        self._processes = ProcessPoolExecutor(2 * warm, context, initializer=_begin, initargs=initial)
        self._warm = warm
        self._changed = threading.Condition()
        self._running = self._asked_started = 0
        self._error: BaseException | None = None
        self.most_at_once = 0
        self.ended: list[Ended] = []

    def __enter__(self) -> Self:
        for _ in range(self._warm):
            self._processes.submit(_wait_until_all_are_ready)
        self._ready.wait()
        threading.Thread(target=self._start_asked, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._asked.put(None)
        if error is not None:  # what still runs would take its time
            for process in multiprocessing.active_children():
                process.kill()
        self._processes.shutdown(cancel_futures=True)

    @property
    def executions(self) -> int:
        return sum(one.executions for one in self.ended)

    @property
    def peak_rss_bytes(self) -> int:
        """Of the largest process."""
        return max(one.peak_rss_bytes for one in self.ended)

    def start(self, event: Event, *, is_asked: bool = False) -> None:
        """Begins one, and does not wait for it. ``is_asked``: by another one."""
        with self._changed:
            self._running += 1
            self._asked_started += is_asked
            self.most_at_once = max(self.most_at_once, self._running)
        self._processes.submit(_handle, event).add_done_callback(self._end)

    def wait(self, seconds: float) -> bool:
        """Until none runs any more, at most so long. Returns whether none does. Raises what one of them raised."""
        end = time.monotonic() + seconds
        with self._changed:
            while self._is_busy() and self._error is None and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            if self._error is not None:
                raise self._error
            return not self._is_busy()

    def _is_busy(self) -> bool:
        # What an invocation has asked for may come after its end.
        return self._running > 0 or self._asked_started < sum(one.asked for one in self.ended)

    def _start_asked(self) -> None:
        while (event := self._asked.get()) is not None:
            self.start(event, is_asked=True)

    def _end(self, invocation: Future[Ended]) -> None:
        with self._changed:
            self._running -= 1
            if (error := invocation.exception()) is None:
                self.ended.append(invocation.result())
            else:
                self._error = error
            self._changed.notify_all()


class Environment:
    """One process: an installation whose further invocations are other processes', and the action of its tasks, which
    waits."""

    def __init__(self, setup: Setup, asked: SimpleQueue[Event | None], ready: Barrier) -> None:
        self.ready = ready
        self._queue, self._task_seconds, self._lock = asked, setup.task_seconds, threading.Lock()
        self._executions = self._asked = 0
        self._installation = Installation(
            setup.endpoint,
            setup.table,
            clock=Clock(datetime.now(UTC) + timedelta(seconds=setup.ahead_seconds)),
            threads=setup.threads,
            max_workers=setup.max_workers,
            action=self,
            invoker=self,
        )

    def handle(self, event: Event) -> Ended:
        executions, asked, processor = self._executions, self._asked, self._installation.processor
        processor.handle(event, hard_end=self._installation.clock() + timedelta(seconds=LIFE_SECONDS))
        # Lambda would have to end such a process, and with it these tasks.
        assert not processor.running, "threads that still run"
        return Ended(self._executions - executions, self._asked - asked, peak_rss_bytes())

    def run(self, task: Task, context: ActionContext) -> object:
        with self._lock:
            self._executions += 1
        if self._task_seconds:
            time.sleep(self._task_seconds)
        return None

    def invoke(self, event: Event) -> None:
        self._asked += 1
        self._queue.put(event)


_environment: Environment  # of this process


def _begin(setup: Setup, asked: SimpleQueue[Event | None], ready: Barrier) -> None:
    global _environment
    _environment = Environment(setup, asked, ready)


def _wait_until_all_are_ready() -> None:
    _environment.ready.wait()


def _handle(event: Event) -> Ended:
    return _environment.handle(event)
