"""An inserter goes through all interfaces in turn, and changes its tasks: python -m tests.soak.inserter NAME SEED.

It meets faults on its way to AWS as the functions do, and may be killed as well.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta

import boto3
from tests.sandbox.folder import SharedFolder
from tests.sandbox.journal import CANCEL, REDRIVE, RESCHEDULE, RUN
from tests.sandbox.seam import Fault, Seam
from tests.sandbox.trace import Tracer
from tests.sandbox.watch import Watch
from tests.soak.batches import FURTHEST, draw_batch, end_unsealed
from tests.soak.interfaces import Interfaces
from tests.soak.tasks import LENIENT, RandomTask, draw, draw_time

from dynatick import TaskClient
from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.instants import format_instant
from dynatick.errors import DynatickError
from dynatick.store.dynamodb import DynamoStore

TURN_SECONDS = 0.7  # at least, by the machine's clock
RACE_SECONDS = 15.0  # after the tick, by the shared clock
KNOWN = 150  # tasks that it may change
FAULTS = (
    Fault(at="any", do="throttle", chance=0.03, times=None),
    Fault(at="any", do="fail before", chance=0.02, times=None),
    Fault(at="any", do="lose response", chance=0.02, times=None),
    Fault(at="insert", do="throttle parts", amount=0.3, chance=0.1, times=None),
)


def bare(task_id: str) -> RandomTask:
    """Returns a task of nothing but an id."""
    return RandomTask(task_id=task_id, incarnation=task_id, row={"taskId": task_id})


class Inserter:
    def __init__(self, name: str, seed: str, folder: SharedFolder, table: str) -> None:
        self._name, self._folder = name, folder
        self._dice = random.Random(f"{seed} {name}")
        self._seam = Seam(seed=self._dice.randrange(1 << 32))
        self._seam.arm(FAULTS)
        self._seam.tracer = Tracer(folder, table, is_outside=True)
        Watch(folder, self._seam)
        self._client = TaskClient(DynamoStore(table), clock=folder.clock)
        self._interfaces = Interfaces(name, folder, self._client, boto3.client("dynamodb"), table)
        self._known: deque[RandomTask] = deque(maxlen=KNOWN)
        self._members: deque[RandomTask] = deque(maxlen=KNOWN)  # which are neither replaced nor deleted
        self._batches: deque[str] = deque(maxlen=20)
        self._racing: list[tuple[datetime, RandomTask]] = []  # and when they are changed
        self._made = 0

    def run(self) -> None:
        interfaces, file = self._interfaces, self._folder.path / f"{self._name}.jsonl"
        turns: list[tuple[int, Callable[[], object]]] = [
            (4, lambda: self._each(interfaces.put_bare, map(bare, self._new_ids("bare", 3)))),
            (4, lambda: self._each(interfaces.put_timed, self._draw("timed", 3))),
            (4, lambda: self._each(interfaces.insert, self._draw("single", 3))),
            (
                3,
                lambda: self._known.extend(interfaces.insert_many(self._draw("many", self._dice.choice([10, 25, 40])))),
            ),
            (1, lambda: self._known.extend(interfaces.command(self._draw("command", 20), file))),
            (8, self._change),
            (3, self._insert_for_a_race),
            (2, self._load_batch),
            (3, self._change_members),
            (1, self._change_batch),
        ]
        weights = [weight for weight, _ in turns]
        with self._seam.installed():
            self._end_unsealed()
            while not self._folder.stop.exists():
                end = time.monotonic() + TURN_SECONDS
                (_, turn) = self._dice.choices(turns, weights)[0]
                turn()
                self._race()
                time.sleep(max(end - time.monotonic(), 0))

    def _each(self, insert: Callable[[RandomTask], list[RandomTask]], tasks: Iterable[RandomTask]) -> None:
        for task in tasks:
            self._known += insert(task)

    # -- turns -----------------------------------------------------------------------------------------------------

    def _change(self) -> None:
        changes = [self._cancel, self._reschedule, self._run_now, self._replace, self._delete]
        for _ in range(4):
            if self._known:
                self._dice.choices(changes, [3, 3, 2, 2, 2])[0](self._dice.choice(self._known))

    def _end_unsealed(self) -> None:
        """What the process with this name before left, which was killed."""
        prefix = f"batch-{self._name.partition('.')[0]}."
        with suppress(DynatickError):  # it is left to the end of the soak
            end_unsealed(self._client, prefix, lambda: self._dice.random() < 0.5, self._interfaces.note_cancelled)

    def _load_batch(self) -> None:
        (batch_id,) = self._new_ids("batch", 1)
        if members := self._interfaces.load(draw_batch(self._dice, batch_id)):
            self._members.extend(members)
            self._batches.append(batch_id)

    def _change_members(self) -> None:
        for _ in range(4):
            if self._members:
                changes = [self._cancel, self._reschedule, self._run_now]
                self._dice.choices(changes, [3, 3, 1])[0](self._dice.choice(self._members))

    def _change_batch(self) -> None:
        if not self._batches:
            return
        batch_id, batches = self._dice.choice(self._batches), self._client.batches
        delay = timedelta(seconds=self._dice.randint(0, FURTHEST))
        calls: dict[str, Callable[[], object]] = {
            CANCEL: lambda: batches.cancel(batch_id),
            RESCHEDULE: lambda: batches.reschedule(batch_id, delay=delay),
            REDRIVE: lambda: batches.redrive(batch_id),
        }
        (operation,) = self._dice.choices([*calls], [1, 2, 2])
        self._interfaces.change_batch(operation, batch_id, calls[operation])

    def _insert_for_a_race(self) -> None:
        """Tasks that are at work for a while just after the next tick, when they are cancelled or rescheduled."""
        tick = instant_of(minute_of(self._folder.clock()) + 1)
        for task_id in self._new_ids("race", 4):
            row = {"taskId": task_id, "payload": {"incarnation": task_id, "seconds": 0.5}, "retryPolicy": LENIENT}
            task = RandomTask(task_id=task_id, incarnation=task_id, row=row, times={"dueAt": format_instant(tick)})
            at = tick + timedelta(seconds=self._dice.uniform(0, RACE_SECONDS))
            self._racing += [(at, inserted) for inserted in self._interfaces.insert(task)]

    def _race(self) -> None:
        now = self._folder.clock()
        due = [task for at, task in self._racing if at <= now]
        self._racing = [(at, task) for at, task in self._racing if at > now]
        for task in due:
            self._dice.choices([self._cancel, self._reschedule, self._run_now], [4, 1, 1])[0](task)

    def _cancel(self, task: RandomTask) -> None:
        self._interfaces.change(CANCEL, task, lambda: self._client.cancel(task.task_id))

    def _reschedule(self, task: RandomTask) -> None:
        (name, value), = draw_time(self._dice, self._folder.clock()).items()  # fmt: skip
        argument = {"delaySeconds": "delay_seconds", "dueAt": "due_at", "taskDateTime": "task_date_time"}[name]
        times = {argument: value}
        self._interfaces.change(RESCHEDULE, task, lambda: self._client.reschedule(task.task_id, **times))  # type: ignore[arg-type]

    def _run_now(self, task: RandomTask) -> None:
        self._interfaces.change(RUN, task, lambda: self._client.run_now(task.task_id))

    def _replace(self, task: RandomTask) -> None:
        self._made += 1
        new = draw(self._dice, task.task_id, f"{task.task_id}/{self._made}", self._folder.clock())
        timed = self._dice.random() < 0.5
        self._known.remove(task)
        self._known += self._interfaces.replace(new, timed=timed, bypassed=self._seam.bypassed)

    def _delete(self, task: RandomTask) -> None:
        self._known.remove(task)
        self._interfaces.delete(task)

    # -- tasks -----------------------------------------------------------------------------------------------------

    def _draw(self, interface: str, number: int) -> list[RandomTask]:
        ids = self._new_ids(interface, number)
        return [draw(self._dice, task_id, task_id, self._folder.clock()) for task_id in ids]

    def _new_ids(self, interface: str, number: int) -> list[str]:
        self._made += number
        return [f"{interface}-{self._name}-{n}" for n in range(self._made - number, self._made)]


if __name__ == "__main__":
    _, name, seed = sys.argv
    Inserter(name, seed, SharedFolder.from_env(os.environ), os.environ["DYNATICK_TABLE"]).run()
