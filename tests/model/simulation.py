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
    """What lives and dies together. ``skew``: how far its clock is off, in seconds."""

    simulation: Simulation
    name: str
    skew: float = 0.0
    dead: bool = False
    frozen: bool = False  # its threads stand still; whatever would have woken them does so when it thaws
    stalled: dict[Strand, None] = field(default_factory=dict)
    strands: dict[Strand, None] = field(default_factory=dict)  # those that have not ended, in order

    def clock(self) -> datetime:
        return self.simulation.instant + timedelta(seconds=self.skew)

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen, stalled, self.stalled = False, self.stalled, {}
        for strand in stalled:
            self.simulation.wake(strand)

    def kill(self) -> None:
        """Ends it here and now; nothing that it does after has any effect."""
        if self.dead:
            return
        self.dead = True
        for strand in self.strands:
            self.simulation.wake(strand)


class Strand:
    """One thread of a process: a greenlet, which runs until it waits."""

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
        self.errors: list[BaseException] = []  # what ended a strand, and should not have
        self.running: Strand | None = None
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._conductor: greenlet | None = None
        self._processes: dict[Process, None] = {}

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
        self._processes[process] = None
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
        """Waits until this thread is taken from the line and woken, or time is up."""
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

    # -- taking turns --------------------------------------------------------------------------------------------------

    def _me(self) -> Strand:
        assert self.running is not None, "only a thread of the simulation can wait in it"
        if self.running.process.dead:
            raise Killed
        return self.running

    def _wake_at(self, when: float, strand: Strand) -> None:
        ticket = strand.ticket
        self.at(when, lambda: self._resume(strand) if strand.ticket == ticket else None)

    def _yield(self, strand: Strand) -> None:
        assert self._conductor is not None
        self._conductor.switch()
        if strand.process.dead:
            raise Killed

    def _resume(self, strand: Strand) -> None:
        if strand not in strand.process.strands:
            return
        if strand.process.frozen and not strand.process.dead:
            strand.process.stalled[strand] = None
            return
        strand.ticket += 1
        if strand.greenlet is None:
            if strand.process.dead:  # it never began
                strand.process.strands.pop(strand, None)
                return
            strand.greenlet = greenlet(lambda: self._carry(strand))
        before, self.running = self._conductor, strand
        self._conductor = getcurrent()
        strand.greenlet.switch()
        self._conductor, self.running = before, None

    def _carry(self, strand: Strand) -> None:
        try:
            strand.work()
        except Killed:
            pass
        except BaseException as error:
            self.errors.append(error)
        finally:
            strand.process.strands.pop(strand, None)
