"""Invocations of the processor side by side, each in a process of its own, as Lambda runs them.

A process that has ended one serves the next. ``warm`` of them are there from the beginning: the cold starts of Lambda
go on side by side, those of one machine would wait for each other and be what is measured.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from queue import Empty

from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick_stack.bench.installation import Clock, Installation
from dynatick_stack.bench.peak import peak_rss_bytes

POLL_SECONDS = 0.01
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
    """Those of one installation, in the processes of a pool. ``asked``: where invocations ask for others."""

    def __init__(self, processes: ProcessPoolExecutor, asked: Queue[Event]) -> None:
        self._processes, self._asked = processes, asked
        self._running: list[Future[Ended]] = []
        self._asked_started = 0
        self.most_at_once = 0
        self.ended: list[Ended] = []

    @property
    def executions(self) -> int:
        return sum(one.executions for one in self.ended)

    @property
    def peak_rss_bytes(self) -> int:
        """The peak memory of the largest process."""
        return max(one.peak_rss_bytes for one in self.ended)

    def run(self, event: Event, seconds: float) -> bool:
        """Begins one, and waits until neither it nor any that was asked for runs any more, at most so long. Returns
        whether none does. Raises what one of them raised."""
        self._start(event)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(Empty):
                self._start(self._asked.get(timeout=POLL_SECONDS))
                self._asked_started += 1
            for one in [one for one in self._running if one.done()]:
                self._running.remove(one)
                self.ended.append(one.result())
            # What an invocation has asked for may come after its end.
            if not self._running and self._asked_started == sum(one.asked for one in self.ended):
                return True
        return False

    def _start(self, event: Event) -> None:
        self._running.append(self._processes.submit(_handle, event))
        self.most_at_once = max(self.most_at_once, len(self._running))


@contextmanager
def invocations_of(setup: Setup, *, warm: int) -> Iterator[Invocations]:
    """Those of an installation. Its processes end with the block."""
    context = multiprocessing.get_context("spawn")
    asked: Queue[Event] = context.Queue()
    ready = context.Barrier(warm + 1)
    with ProcessPoolExecutor(2 * warm, context, initializer=_begin, initargs=(setup, asked, ready)) as processes:
        for _ in range(warm):
            processes.submit(_wait_until_all_are_ready)
        ready.wait()
        try:
            yield Invocations(processes, asked)
        except BaseException:  # what still runs would take its time
            for process in multiprocessing.active_children():
                process.kill()
            raise


class Environment:
    """One process: an installation whose further invocations are other processes', and the action of its tasks, which
    waits."""

    def __init__(self, setup: Setup, asked: Queue[Event], ready: Barrier) -> None:
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


def _begin(setup: Setup, asked: Queue[Event], ready: Barrier) -> None:
    global _environment
    _environment = Environment(setup, asked, ready)


def _wait_until_all_are_ready() -> None:
    _environment.ready.wait()


def _handle(event: Event) -> Ended:
    return _environment.handle(event)
