"""A world as it goes on: threads that are its rule, its stream, its queues and its inserters, and that disturb it."""

from __future__ import annotations

import heapq
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any

from tests.sandbox.journal import ENVIRONMENT, KILLED, TICK, Died, Disturbance, Tail
from tests.sandbox.process import Outcome, Sandbox, tail
from tests.sandbox.seam import Fault
from tests.sandbox.stream import Record, as_event, not_done
from tests.sandbox.worker import SEED, SKEW
from tests.sandbox.world import BATCH, World
from tests.soak.plan import DROPPED, GAP, TIMEOUT, Plan

from dynatick.domain.buckets import instant_of, minute_of
from dynatick_stack.template import ROOT

TIMEOUT_SECONDS = 60.0  # seconds by the machine's clock beyond an invocation's timeout
POLL = 0.1  # seconds after which a thread checks again
INSERTERS_SECONDS = 90.0
LEAD = 0.5  # seconds before its instant that a wake-up comes in time
REFUSES = Fault(at="dead letters", do="refuse", times=None)


class DelayQueue:
    """Invocations, each at its time. Safe to share between threads."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Mapping[str, Any], int]] = []
        self._numbers = count()
        self._lock = threading.Lock()

    def put(self, event: Mapping[str, Any], *, after: float = 0.0, retries: int = 0) -> None:
        """``after``: seconds. ``retries``: how often it is sent again if it fails, as Lambda does."""
        with self._lock:
            heapq.heappush(self._waiting, (time.monotonic() + after, next(self._numbers), event, retries))

    def take(self) -> tuple[Mapping[str, Any], int] | None:
        """The event and retries of the next that is due, if one is."""
        with self._lock:
            if not self._waiting or self._waiting[0][0] > time.monotonic():
                return None
            _, _, event, retries = heapq.heappop(self._waiting)
            return event, retries


@dataclass(eq=False)
class Slot:
    """A place for one process of a function, one after another."""

    role: str
    sandbox: Sandbox | None = None
    deployed: tuple[str, ...] = ()  # the settings that change
    busy: bool = False
    killed: bool = False  # by us


class Chaos:
    def __init__(self, world: World, plan: Plan) -> None:
        self._world, self._plan, self._folder = world, plan, world.folder
        self._invocations, self._wake_ups = DelayQueue(), DelayQueue()
        self._slots = [Slot("processor") for _ in range(plan.processors + plan.wake_up_processors)]
        self._scheduler = Slot("scheduler")
        self._inserters: dict[str, subprocess.Popen[bytes]] = {}
        self._unstreamed, self._left_out = Tail(self._folder.unstreamed), count()
        self._queue_refuses = False
        self._over, self._lock = threading.Event(), threading.Lock()
        self._faults: dict[str, Iterator[Sequence[Fault]]] = {
            role: plan.faults(role) for role in ("processor", "scheduler")
        }
        self._seeds, self._skews = plan.dice("seams"), plan.skews()
        self._threads: list[threading.Thread] = []
        self.records: list[Record] = []  # of the stream, that are not delivered yet
        self.error: BaseException | None = None  # of the soak itself

    # -- from outside ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        for work in (self._tick, self._deliver, self._kill, self._run_started, self._send_wake_ups, self._deploy,
                     self._refuse):  # fmt: skip
            self._start(work)
        for number, slot in enumerate(self._slots):
            is_for_wake_ups = number < self._plan.wake_up_processors
            self._start(self._serve, slot, self._wake_ups if is_for_wake_ups else self._invocations)
        for number in range(self._plan.inserters):
            self._start(self._insert, f"i{number}")

    def stop(self) -> None:
        """No more tasks, then no more faults; returns when no thread is in the middle of anything."""
        self._folder.stop.touch()
        end = time.monotonic() + INSERTERS_SECONDS
        while self._inserters:
            self.check()
            if time.monotonic() > end:
                raise AssertionError("the inserters do not end")
            time.sleep(POLL)
        self._join()
        self.check()

    def close(self) -> None:
        """Ends the processes, and with them the threads."""
        self._over.set()
        for inserter in [*self._inserters.values()]:
            kill_group(inserter)
        for sandbox in self._world.sandboxes:
            sandbox.kill()
        self._join()

    def check(self) -> None:
        """Raises what a thread has raised."""
        if self.error is not None:
            raise self.error

    # -- what AWS does ---------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """The rule."""
        clock = self._folder.clock
        last = minute_of(clock())
        for ticks in self._plan.ticks():
            while (minute := minute_of(clock())) <= last:
                if self._over.wait(POLL):
                    return
            last = minute
            for how, late in ticks:
                if how in (DROPPED, GAP):
                    self._note(how)
                    continue
                self._note(how, at=self._folder.now() + late)
                event = self._world.event(instant_of(minute))
                self._invocations.put(event, after=late / self._plan.speed, retries=2)

    def _run_started(self) -> None:
        """Lambda's queue of asynchronous invocations."""
        started, plans = Tail(self._folder.invocations), self._plan.started()
        while not self._over.wait(POLL / 4):
            for event, delays in zip(started.new(), plans, strict=False):
                self._note("started" if delays else "start dropped")
                for delay in delays:
                    self._invocations.put(event, after=delay / self._plan.speed, retries=2)

    def _send_wake_ups(self) -> None:
        """The queue of wake-ups, which delivers one again that failed."""
        sent, plans = Tail(self._folder.wake_ups), self._plan.wake_ups()
        while not self._over.wait(POLL / 4):
            for (event, at), offsets in zip(sent.new(), plans, strict=False):
                self._note("wake-up" if offsets else "wake-up dropped")
                for offset in offsets:
                    after = (at - LEAD + offset - self._folder.now()) / self._plan.speed
                    self._wake_ups.put({"Records": [{"body": json.dumps(event)}]}, after=max(after, 0.0), retries=2)

    def _serve(self, slot: Slot, invocations: DelayQueue) -> None:
        """Runs one invocation after another. Lambda sends one that failed twice more; here, one that was killed."""
        dice = self._plan.dice("retries")
        while not self._over.is_set():
            if (order := invocations.take()) is None:
                self._over.wait(POLL / 4)
                continue
            event, retries = order
            outcome = self._invoke(slot, event)
            if outcome.what != "returned" and retries:
                self._note("sent again")
                invocations.put(event, after=dice.uniform(0, 20) / self._plan.speed, retries=retries - 1)

    def _deliver(self) -> None:
        """The stream: late, and a batch of which some failed comes again, as does a whole one now and then."""
        dice = self._plan.dice("stream")
        while not self._over.is_set():
            self.records += self._world.stream.new() + self.not_streamed()
            if not (batch := self.records[:BATCH]):
                self._over.wait(POLL)
                continue
            self._over.wait(dice.choice([0.0, 0.0, 0.5, 1.5]))
            outcome = self._invoke(self._scheduler, {"Records": batch})
            if outcome.what == "returned" and dice.random() >= 0.1:
                self.records = [*not_done(batch, outcome.value), *self.records[len(batch) :]]

    def not_streamed(self) -> list[Record]:
        """The emulator's stream leaves out what PartiQL has written; a real one shows it."""
        table, records = self._world.table, list[Record]()
        for task_id in dict.fromkeys(self._unstreamed.new()):
            key = {"taskId": {"S": task_id}}
            item = self._world.dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item", {})
            if item.get("status") == {"S": "scheduled"}:
                image = {"NewImage": item, "SequenceNumber": f"partiql-{next(self._left_out)}"}
                records.append({"eventName": "INSERT", "dynamodb": image})
        return as_event(records)

    def _invoke(self, slot: Slot, event: Mapping[str, Any]) -> Outcome:
        """Invokes the slot's warm process, or a new one."""
        with self._lock:
            faults = next(self._faults[slot.role])
        faults = [*faults, REFUSES] if self._queue_refuses else faults
        deployed = tuple(self._world.environ[name] for name in ("DYNATICK_SHARD_COUNT", "DYNATICK_PRECISION"))
        if slot.sandbox is not None and slot.deployed != deployed:
            slot.sandbox.close()  # of an earlier deployment
        if slot.sandbox is None or not slot.sandbox.alive:
            own = {SEED: str(self._seeds.randrange(1 << 32)), SKEW: str(next(self._skews))}
            slot.sandbox, slot.deployed = self._world.sandbox(slot.role, **own), deployed
            slot.sandbox.wait_until_ready()
        slot.killed = False
        try:
            slot.sandbox.begin(event, timeout=TIMEOUT, faults=faults)
            slot.busy = True
            outcome = slot.sandbox.wait(TIMEOUT / self._plan.speed + TIMEOUT_SECONDS)
        except BrokenPipeError:  # it was killed just before
            outcome = Outcome(what="killed", value=-signal.SIGKILL)
        finally:
            slot.busy = False
        if outcome.what in ("killed", "exited"):
            self._world.note_death(slot.sandbox, outcome.value, from_outside=slot.killed)
            slot.sandbox.close()
        return outcome

    # -- what disturbs it ------------------------------------------------------------------------------------------

    def _deploy(self) -> None:
        """Deploys another number of shards, and perhaps another precision. What is at work ends with the old ones."""
        for pause, shards, precision in self._plan.deployments():
            if self._over.wait(pause):
                return
            self._world.deploy(DYNATICK_SHARD_COUNT=str(shards), DYNATICK_PRECISION=precision)
            self._note(f"shards changed, precision {precision}", of=ENVIRONMENT)

    def _refuse(self) -> None:
        for pause, length in self._plan.refusals():
            if self._over.wait(pause):
                return
            self._note("the dead-letter queue refuses", of=ENVIRONMENT)
            self._queue_refuses = True
            self._over.wait(length)
            self._queue_refuses = False

    def _kill(self) -> None:
        """Processes that are at work; waits for one that is."""
        for pause, role, which in self._plan.kills():
            if self._over.wait(pause):
                return
            if role == "inserter":
                if inserters := sorted(self._inserters.items()):
                    with self._world.between_requests():
                        kill_group(inserters[int(which * len(inserters))][1])
                continue
            slots = [self._scheduler] if role == "scheduler" else self._slots
            for _ in repeat(None, 30):
                working = ((slot, slot.sandbox) for slot in slots if slot.busy)
                if busy := [(slot, sandbox) for slot, sandbox in working if sandbox is not None and sandbox.alive]:
                    slot, sandbox = busy[int(which * len(busy))]
                    slot.killed = True
                    with suppress(ProcessLookupError), self._world.between_requests():
                        os.kill(sandbox.pid, signal.SIGKILL)
                    break
                if self._over.wait(POLL):
                    return

    def _insert(self, name: str) -> None:
        """Runs one inserter after another, as they are killed."""
        for number in count():
            with self._world.log.open("ab") as log:
                process = self._inserters[name] = subprocess.Popen(
                    [sys.executable, "-m", "tests.soak.inserter", f"{name}.{number}", str(self._plan.seed)],
                    cwd=ROOT,
                    env=self._world.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for us, who end it in order
                )
            code = process.wait()
            if code != -signal.SIGKILL or self._over.is_set():
                break
            self._world.journal.add(Died(pid=process.pid, role="inserter", why=KILLED))
        del self._inserters[name]
        if code not in (0, -signal.SIGKILL):
            raise AssertionError(f"an inserter ended with {code}; see its log:\n{tail(self._world.log)}")

    # -- threads ---------------------------------------------------------------------------------------------------

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                if not self._over.is_set():  # what ends, ends in disorder
                    self.error = error
                    self._over.set()

        thread = threading.Thread(target=run, name=work.__name__, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _join(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)

    def _note(self, what: str, *, of: str = TICK, at: float | None = None) -> None:
        self._world.journal.add(Disturbance(of=of, what=what, at=at))


def kill_group(inserter: subprocess.Popen[bytes]) -> None:
    """Kills a process with all that it has started."""
    if inserter.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(inserter.pid, signal.SIGKILL)
