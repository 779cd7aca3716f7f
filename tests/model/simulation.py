"""Processes of which one thread runs at a time, and time passes only while all of them wait.

The engine runs in it as it is, threads and all: what it waits with is replaced by the ``standins``, its threads by
greenlets. So a run depends on nothing but its seeds: it can be had again, step by step, and an hour of it takes no
time. A process can be killed wherever one of its threads waits.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count

from greenlet import getcurrent, greenlet

EVE = datetime(2026, 12, 31, 23, 40, tzinfo=UTC)
"""When a simulation begins: the year is about to end."""


class Killed(BaseException):
    """Raised in every thread of a process that was killed; no handler of errors catches it."""


@dataclass(eq=False)
class Process:
    """Threads that die together. ``skew``: how far the process's clock is off, in seconds."""

    simulation: Simulation
    name: str
    skew: float = 0.0
    dead: bool = False
    frozen: bool = False  # its threads stand still; whatever would have woken them does so when it thaws
    stalled: dict[GreenThread, None] = field(default_factory=dict)
    threads: dict[GreenThread, None] = field(default_factory=dict)  # those that have not ended, in order

    def clock(self) -> datetime:
        instant = self.simulation.instant
        return instant + timedelta(seconds=self.skew) if self.skew else instant

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen, stalled, self.stalled = False, self.stalled, {}
        for thread in stalled:
            self.simulation.wake(thread)

    def kill(self) -> None:
        """Ends it here and now; nothing that it does after has any effect."""
        if self.dead:
            return
        self.dead = True
        self.simulation.on_death(self)
        for thread in self.threads:
            self.simulation.wake(thread)


class GreenThread:
    """A thread of a process: a greenlet, which runs until it waits."""

    def __init__(self, process: Process, work: Callable[[], object]) -> None:
        self.process = process
        self.work = work
        self.ticket = 0  # of the present wait: what wakes an earlier one comes too late
        self.greenlet: greenlet | None = None


class Simulation:
    """The clock, and who runs next: the first to wake; of those, the first to wait."""

    present: Simulation | None = None

    def __init__(self, start: datetime = EVE) -> None:
        self.start = start
        self.now = 0.0  # seconds since then
        self._instant = self.now, start
        self.errors: list[BaseException] = []  # what ended a thread, and should not have
        self.on_death: Callable[[Process], None] = lambda process: None
        self.running: GreenThread | None = None
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._resumer: greenlet | None = None
        self._processes: dict[Process, None] = {}

    @property
    def instant(self) -> datetime:
        if self._instant[0] != self.now:
            self._instant = self.now, self.start + timedelta(seconds=self.now)
        return self._instant[1]

    # -- from outside --------------------------------------------------------------------------------------------------

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Schedules something that no thread does."""
        heapq.heappush(self._agenda, (max(when, self.now), next(self._order), do))

    def spawn(self, process: Process, work: Callable[[], object], *, delay: float = 0.0) -> GreenThread:
        """Begins a thread of a process."""
        thread = GreenThread(process, work)
        self._processes[process] = None
        process.threads[thread] = None
        self._wake_at(self.now + delay, thread)
        return thread

    def run_until(self, end: float) -> None:
        """Lets everything happen that happens before ``end``."""
        while self._agenda and self._agenda[0][0] <= end:
            self.now, _, do = heapq.heappop(self._agenda)
            do()
            if self.errors:
                raise self.errors[0]
        self.now = max(self.now, end)

    def next_event(self) -> float | None:
        return self._agenda[0][0] if self._agenda else None

    def close(self) -> None:
        """Ends all threads."""
        for process in self._processes:
            process.dead = True
            for thread in list(process.threads):
                self._resume(thread)
            assert not process.threads, f"a thread of {process.name} would not end"

    # -- from within a thread ------------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """Waits."""
        thread = self._me()
        self._wake_at(self.now + seconds, thread)
        self._yield(thread)

    def wait(self, waiting: deque[tuple[GreenThread, int]], timeout: float | None) -> None:
        """Waits until this thread is taken from the line and woken, or time is up."""
        thread = self._me()
        waiting.append((thread, thread.ticket))
        if timeout is not None:
            self._wake_at(self.now + timeout, thread)
        self._yield(thread)

    def wake(self, thread: GreenThread) -> None:
        self._wake_at(self.now, thread)

    def wake_first(self, waiting: deque[tuple[GreenThread, int]]) -> None:
        """Wakes the first in line that still waits there."""
        while waiting:
            thread, ticket = waiting.popleft()
            if thread.ticket == ticket and thread in thread.process.threads:
                self.wake(thread)
                return

    def my_process(self) -> Process:
        return self._me().process

    # -- taking turns --------------------------------------------------------------------------------------------------

    def _me(self) -> GreenThread:
        assert self.running is not None, "only a thread of the simulation can wait in it"
        if self.running.process.dead:
            raise Killed
        return self.running

    def _wake_at(self, when: float, thread: GreenThread) -> None:
        ticket = thread.ticket
        self.at(when, lambda: self._resume(thread) if thread.ticket == ticket else None)

    def _yield(self, thread: GreenThread) -> None:
        assert self._resumer is not None
        self._resumer.switch()
        if thread.process.dead:
            raise Killed

    def _resume(self, thread: GreenThread) -> None:
        if thread not in thread.process.threads:
            return
        if thread.process.frozen and not thread.process.dead:
            thread.process.stalled[thread] = None
            return
        thread.ticket += 1
        if thread.greenlet is None:
            if thread.process.dead:  # it never began
                thread.process.threads.pop(thread, None)
                return
            thread.greenlet = greenlet(lambda: self._carry(thread))
        before, self.running = self._resumer, thread
        self._resumer = getcurrent()
        thread.greenlet.switch()
        self._resumer, self.running = before, None

    def _carry(self, thread: GreenThread) -> None:
        try:
            thread.work()
        except Killed:
            pass
        except BaseException as error:
            self.errors.append(error)
        finally:
            thread.process.threads.pop(thread, None)
