"""A soak as it goes on: processes that serve ticks and the stream, and are killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import filterfalse, repeat
from typing import Any

from tests.sandbox.journal import RANDOM, Died, Disturbed, Tail, Ticked
from tests.sandbox.process import Outcome, Sandbox
from tests.sandbox.seam import Fault
from tests.soak.invocations import Invocation, Invocations
from tests.soak.plan import DROPPED, GAP, LIFE
from tests.soak.rig import ClosedError, Rig, kill_group
from tests.soak.schedules import insert_schedules
from tests.soak.stream import Deliveries

from dynatick.domain.buckets import Bucket, instant_of, minute_of
from dynatick.domain.lifecycle import is_terminal
from dynatick.domain.task import Row

TIMEOUT_SECONDS = 60.0  # seconds by the machine's clock beyond an invocation's life
GOES = 0.1  # seconds after which a thread checks again
SETTLING_TICKS = 12  # after that many without a fault or an attempt, what is still open waits for ever
CLIENTS_SECONDS = 90.0
LEAD = 0.5  # seconds before its instant that a wake-up comes in time
REFUSES = Fault(at="letters", do="refuse", times=None)


@dataclass(eq=False)
class Slot:
    """A place for one process of a function, one after another."""

    role: str
    sandbox: Sandbox | None = None
    deployed: tuple[int, str] | None = None  # with so many shards, and this precision
    busy: bool = False
    struck: bool = False


class Storm:
    def __init__(self, rig: Rig) -> None:
        self._rig, self._plan, self._here = rig, rig.plan, rig.here
        self._invocations, self._calm, self._over = Invocations(), threading.Event(), threading.Event()
        self._wake_ups = Invocations()
        self._asked, self._sent = Tail(self._here.invocations), Tail(self._here.wake_ups)  # what processes ask for
        self._slots = [Slot("processor") for _ in range(self._plan.processors + self._plan.wakers)]
        self._scheduler = Slot("scheduler")
        self._clients: dict[str, Any] = {}
        self._deliveries = Deliveries(rig)
        self._stream_idle = False
        self._queue_refuses = False
        self._lock = threading.Lock()
        self._faults: dict[str, Iterator[Sequence[Fault]]] = {
            role: self._plan.faults(role) for role in ("processor", "scheduler")
        }
        self._threads: list[threading.Thread] = []
        self.fault: BaseException | None = None  # of the soak itself

    # -- from outside ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Starts everything, once the first tick has made the settings and the cursors known."""
        self._first_tick()
        insert_schedules(self._rig)
        works = (
            self._tick, self._deliver, self._kill, self._start_what_ticks_ask_for, self._send_wake_ups, self._deploy,
            self._refuse,
        )  # fmt: skip
        for work in works:
            self._start(work)
        for n, slot in enumerate(self._slots):
            self._start(self._serve, slot, self._wake_ups if n < self._plan.wakers else self._invocations)
        for number in range(self._plan.inserters):
            self._start(self._insert, f"i{number}")

    def stop_inserting(self) -> None:
        """No more tasks, no more faults; returns when the inserters have ended."""
        self._here.stop.touch()
        self._calm.set()
        end = time.monotonic() + CLIENTS_SECONDS
        while self._clients:
            self.check()
            if time.monotonic() > end:
                raise AssertionError("the inserters do not end")
            time.sleep(GOES)

    def settle(self, attempts: Callable[[], int]) -> None:
        """Ticks without faults until every task has ended and every bucket is drained, or nothing goes on any more.

        When nothing is under way the clock is put forward to the next tick, or to the first bucket with an open row: a
        failure whose dead letter was refused lies up to an hour ahead. At the last tick the clock stops: however long
        the verdict takes on this machine, no tick is missing meanwhile. ``attempts``: how many there were so far.
        """
        ticks, before = 0, -1
        while ticks < SETTLING_TICKS:
            with self._idle(attempts):
                if (now := attempts()) != before:
                    ticks, before = 0, now
                rows = self._rig.rows().values()
                if self._is_settled(rows):
                    break
                self._next_tick(min(map(_minute, filterfalse(is_terminal, rows)), default=0))
            ticks += 1
        with self._idle(attempts):
            self._here.clock.stop()
            self._next_tick()
        with self._idle(attempts):
            pass

    def end(self) -> None:
        """Ends the processes, and with them the threads."""
        self._over.set()
        self._rig.kill_all()
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)

    def check(self) -> None:
        """Raises what a thread has raised."""
        if self.fault is not None:
            raise self.fault

    @contextmanager
    def _idle(self, meanwhile: Callable[[], object]) -> Iterator[None]:
        """Waits until nobody is in the middle of anything, and nothing waits; within, it stays so."""
        while True:
            self.check()
            meanwhile()
            with self._lock:
                if self._asked.at_end and self._sent.at_end and self._stream_idle and self._queues_are_idle():
                    yield
                    return
            time.sleep(GOES)

    def _queues_are_idle(self) -> bool:
        return self._invocations.idle and self._wake_ups.idle

    def _is_settled(self, rows: Collection[Row]) -> bool:
        last = max(map(_minute, rows), default=0)
        return all(map(is_terminal, rows)) and all(cursor.drained_through >= last for cursor in self._rig.cursors())

    # -- ticks -----------------------------------------------------------------------------------------------------

    def _first_tick(self) -> None:
        order = Invocation(0.0, 0, self._tick_event(minute_of(self._here.clock())), 0)
        outcome = self._invoke(self._slots[0], order.event, ())
        if outcome.what != "returned":
            raise AssertionError(f"the first tick, without any fault: {outcome}")

    def _next_tick(self, minute: int = 0) -> None:
        """Puts the clock forward to it, or to a later minute. Only within ``_idle``."""
        clock = self._here.clock
        clock.to(instant_of(max(minute_of(clock()) + 1, minute)) + timedelta(seconds=3))
        self._stream_idle = False
        self._invocations.put(self._tick_event(minute_of(clock())))
        self._note("while settling")

    def _tick(self) -> None:
        clock, last = self._here.clock, minute_of(self._here.clock())
        for record_results in self._plan.ticks():
            while (minute := minute_of(clock())) <= last or self._calm.is_set():
                if self._over.wait(GOES):
                    return
            last = minute
            for recorded_as, late in record_results:
                self._note(recorded_as)
                if recorded_as not in (DROPPED, GAP):
                    self._invocations.put(self._tick_event(minute), after=late / self._plan.speed, again=2)

    @staticmethod
    def _tick_event(minute: int) -> dict[str, Any]:
        return {"source": "aws.events", "time": f"{instant_of(minute):%Y-%m-%dT%H:%M:00Z}"}

    def _start_what_ticks_ask_for(self) -> None:
        """Lambda's queue of asynchronous invocations."""
        for delays in self._plan.started():
            while self._asked.at_end:
                if self._over.wait(GOES / 4):
                    return
            with self._lock:
                for line in self._asked.new():
                    calm = self._calm.is_set()
                    self._note("started" if calm or delays else "start dropped")
                    for delay in (0.0,) if calm else delays:
                        self._invocations.put(json.loads(line), after=delay / self._plan.speed, again=2)

    def _send_wake_ups(self) -> None:
        """The queue of wake-ups, which delivers one again that failed."""
        plans, clock = self._plan.wake_ups(), self._here.clock
        while not self._over.wait(GOES / 4):
            with self._lock:
                for line in self._sent.new():
                    (event, at), calm = json.loads(line), self._calm.is_set()
                    times = next(plans)
                    self._note("wake-up" if calm or times else "wake-up dropped")
                    for off in (0.0,) if calm else times:
                        after = (at - LEAD + off - clock().timestamp()) / self._plan.speed
                        self._wake_ups.put({"Records": [{"body": json.dumps(event)}]}, after=max(after, 0.0), again=2)

    # -- processes -------------------------------------------------------------------------------------------------

    def _serve(self, slot: Slot, invocations: Invocations) -> None:
        """Runs one invocation after another. Lambda sends one that failed twice more; here, one that was killed."""
        dice = self._plan.dice("again")
        while not self._over.is_set():
            order = invocations.take(GOES)
            if order is None:
                continue
            outcome = self._invoke(slot, order.event, self._next_faults("processor"))
            if outcome.what != "returned" and order.again:
                self._note("sent again")
                delay = 0.0 if self._calm.is_set() else dice.uniform(0, 20) / self._plan.speed
                invocations.put(order.event, after=delay, again=order.again - 1)
            with self._lock:
                self._stream_idle = False  # it may have written
            invocations.done()

    def _deliver(self) -> None:
        dice = self._plan.dice("stream")
        while not self._over.is_set():
            with self._lock:
                batch = self._deliveries.next()
                self._stream_idle = not batch
            if not batch:
                self._over.wait(GOES)
                continue
            calm = self._calm.is_set()
            if not calm:
                self._over.wait(dice.choice([0.0, 0.0, 0.5, 1.5]))
            outcome = self._invoke(self._scheduler, {"Records": list(batch)}, self._next_faults("scheduler"))
            self._deliveries.delivered(batch, outcome, repeat=not calm and dice.random() < 0.1)

    def _next_faults(self, role: str) -> Sequence[Fault]:
        with self._lock:
            faults = next(self._faults[role])
        if self._calm.is_set():
            return ()
        return [*faults, REFUSES] if self._queue_refuses else faults

    def _invoke(self, slot: Slot, event: Any, faults: Sequence[Fault]) -> Outcome:
        """In the slot's warm process, or in a new one."""
        if slot.sandbox is not None and slot.deployed != self._rig.deployed:
            slot.sandbox.close()  # of an earlier deployment
            slot.sandbox = None
        if slot.sandbox is None or not slot.sandbox.alive:
            slot.deployed = self._rig.deployed
            slot.sandbox = self._rig.sandbox(slot.role)
            slot.sandbox.wait_until_ready()
        slot.struck = False
        try:
            slot.sandbox.begin(event, life=LIFE, faults=faults)
            slot.busy = True
            outcome = slot.sandbox.wait(LIFE / self._plan.speed + TIMEOUT_SECONDS)
        except BrokenPipeError:  # it was struck just before
            outcome = Outcome(what="killed", value=-signal.SIGKILL)
        finally:
            slot.busy = False
        if outcome.what in ("killed", "exited"):
            self._bury(slot, outcome.value)
        return outcome

    def _bury(self, slot: Slot, code: int) -> None:
        assert slot.sandbox is not None
        self._rig.note_death(slot.sandbox, code, struck=slot.struck)
        slot.sandbox.close()
        slot.sandbox = None

    def _insert(self, name: str) -> None:
        """One inserter after another, as they are killed."""
        for number in range(10_000):
            self._clients[name] = process = self._rig.inserter(f"{name}.{number}")
            code = process.wait()
            if code == 0:
                break
            if code != -signal.SIGKILL:
                raise AssertionError(f"an inserter ended with {code}; see its log:\n{self._tail()}")
            self._here.journal.add(Died(pid=process.pid, role="inserter", why=RANDOM))
        del self._clients[name]

    def _deploy(self) -> None:
        """With another number of shards, and perhaps another precision. What is at work ends with the old ones."""
        for pause, shards, precision in self._plan.deployments():
            if self._over.wait(pause) or self._calm.is_set():
                return
            self._rig.deployed = shards, precision
            self._here.journal.add(Disturbed(what=f"shards changed, precision {precision}"))

    def _refuse(self) -> None:
        for pause, length in self._plan.refusals():
            if self._over.wait(pause) or self._calm.is_set():
                return
            self._here.journal.add(Disturbed(what="the dead-letter queue refuses"))
            self._queue_refuses = True
            self._over.wait(length)
            self._queue_refuses = False

    def _kill(self) -> None:
        for pause, role, which in self._plan.kills():
            if self._over.wait(pause) or self._calm.is_set():
                return
            if role == "inserter":
                clients = sorted(self._clients.items())
                if clients:
                    kill_group(clients[int(which * len(clients))][1])
                continue
            slots = [self._scheduler] if role == "scheduler" else self._slots
            self._strike(slots, which)

    def _strike(self, slots: Sequence[Slot], which: float) -> None:
        """Kills one that is at work; waits for one that is."""
        for _ in repeat(None, 30):
            busy = [slot for slot in slots if slot.busy and slot.sandbox is not None and slot.sandbox.alive]
            if busy:
                slot = busy[int(which * len(busy))]
                if (sandbox := slot.sandbox) is not None:
                    slot.struck = True
                    with suppress(ProcessLookupError):
                        os.kill(sandbox.pid, signal.SIGKILL)
                return
            if self._over.wait(GOES):
                return

    # -- threads ---------------------------------------------------------------------------------------------------

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        def run() -> None:
            try:
                work(*arguments)
            except ClosedError:
                assert self._over.is_set()
            except BaseException as error:
                if not self._over.is_set():  # what ends, ends in disorder
                    self.fault = error
                    self._over.set()

        thread = threading.Thread(target=run, name=work.__name__, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _note(self, recorded_as: str) -> None:
        self._here.journal.add(Ticked(recorded_as=recorded_as))

    def _tail(self) -> str:
        return "\n".join(self._rig.log.read_text(errors="replace").splitlines()[-20:])


def _minute(row: Row) -> int:
    """Of the bucket in which a row lies; 0: in none."""
    bucket = Bucket.canonical(row.get("taskDateTime"))
    return 0 if bucket is None else bucket.minute
