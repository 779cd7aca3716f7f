"""A world in which one thread runs at a time, and time passes only while all of them wait.

The engine runs in it as it is, threads and all: what it waits with is replaced by the ``standins``. So a run depends on
nothing but its seeds: it can be had again, step by step, and an hour of it takes no time. A process can be killed
wherever one of its threads waits.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count

from tests.builders import NOON


class Killed(BaseException):
    """Raised in every thread of a process that was killed; no handler of errors catches it."""


@dataclass(eq=False)
class Process:
    """What lives and dies together. ``skew``: how far its clock is off, in seconds."""

    simulation: Simulation
    name: str
    skew: float = 0.0
    dead: bool = False
    strands: dict[Strand, None] = field(default_factory=dict)  # those that have not ended, in order

    def clock(self) -> datetime:
        return self.simulation.instant + timedelta(seconds=self.skew)

    def kill(self) -> None:
        """Ends it here and now; nothing that it does after has any effect."""
        if self.dead:
            return
        self.dead = True
        for strand in self.strands:
            self.simulation.wake(strand)


class Strand:
    """One thread of a process, on a real thread that is used again after it."""

    def __init__(self, process: Process, work: Callable[[], object]) -> None:
        self.process = process
        self.work = work
        self.ticket = 0  # of the present wait: what wakes an earlier one comes too late
        self.carrier: _Carrier | None = None


class _Carrier:
    """A real thread. It runs while it holds the baton, and not otherwise."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.turn.acquire()
        self.job: Callable[[], None] | None = None
        threading.Thread(target=self._run, name="carrier", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.turn.acquire()
            assert self.job is not None
            self.job()


_idle: list[_Carrier] = []


class Simulation:
    """The clock, and who runs next: whoever wakes first; of those, whoever began to wait first."""

    present: Simulation | None = None

    def __init__(self, start: datetime = NOON) -> None:
        self.start = start
        self.now = 0.0  # seconds since then
        self.errors: list[BaseException] = []  # what ended a strand, and should not have
        self.running: Strand | None = None
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._baton = threading.Lock()
        self._baton.acquire()
        self._processes: list[Process] = []

    @property
    def instant(self) -> datetime:
        return self.start + timedelta(seconds=self.now)

    # -- from outside --------------------------------------------------------------------------------------------------

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Has something done at a time, by nobody."""
        heapq.heappush(self._agenda, (max(when, self.now), next(self._order), do))

    def spawn(self, process: Process, work: Callable[[], object], *, delay: float = 0.0) -> Strand:
        """Begins a thread of a process."""
        strand = Strand(process, work)
        if process not in self._processes:
            self._processes.append(process)
        process.strands[strand] = None
        self._wake_at(self.now + delay, strand)
        return strand

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
            for strand in list(process.strands):
                self._resume(strand)
            assert not process.strands, f"a thread of {process.name} would not end"

    # -- from within a strand ------------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """Waits."""
        strand = self._me()
        self._wake_at(self.now + seconds, strand)
        self._yield(strand)

    def wait(self, waiting: deque[tuple[Strand, int]], timeout: float | None) -> None:
        """Waits until somebody takes this thread from the line and wakes it, or time is up."""
        strand = self._me()
        waiting.append((strand, strand.ticket))
        if timeout is not None:
            self._wake_at(self.now + timeout, strand)
        self._yield(strand)

    def wake(self, strand: Strand) -> None:
        self._wake_at(self.now, strand)

    def wake_first(self, waiting: deque[tuple[Strand, int]]) -> None:
        """Wakes the first in line that still waits there."""
        while waiting:
            strand, ticket = waiting.popleft()
            if strand.ticket == ticket and strand in strand.process.strands:
                self.wake(strand)
                return

    def my_process(self) -> Process:
        return self._me().process

    # -- the baton -----------------------------------------------------------------------------------------------------

    def _me(self) -> Strand:
        assert self.running is not None, "only a thread of the simulation can wait in it"
        if self.running.process.dead:
            raise Killed
        return self.running

    def _wake_at(self, when: float, strand: Strand) -> None:
        ticket = strand.ticket
        self.at(when, lambda: self._resume(strand) if strand.ticket == ticket else None)

    def _yield(self, strand: Strand) -> None:
        assert strand.carrier is not None
        self._baton.release()
        strand.carrier.turn.acquire()
        if strand.process.dead:
            raise Killed

    def _resume(self, strand: Strand) -> None:
        if strand not in strand.process.strands:
            return
        strand.ticket += 1
        if strand.carrier is None:
            if strand.process.dead:  # it never began
                strand.process.strands.pop(strand, None)
                return
            strand.carrier = _idle.pop() if _idle else _Carrier()
            strand.carrier.job = lambda: self._carry(strand)
        self.running = strand
        strand.carrier.turn.release()
        self._baton.acquire()
        self.running = None

    def _carry(self, strand: Strand) -> None:
        try:
            strand.work()
        except Killed:
            pass
        except BaseException as error:
            self.errors.append(error)
        finally:
            strand.process.strands.pop(strand, None)
            assert strand.carrier is not None
            _idle.append(strand.carrier)
            self._baton.release()
