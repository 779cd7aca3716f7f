"""An inserter goes through all interfaces in turn, and changes its mind: python -m tests.soak.inserter NAME SEED.

It meets faults on its way to AWS as the functions do, and may be killed as well.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

import boto3
from tests.sandbox.folder import SharedFolder
from tests.sandbox.journal import CANCEL, RESCHEDULE, RUN
from tests.sandbox.seam import Fault, Seam
from tests.sandbox.watch import Watch
from tests.soak.interfaces import Interfaces
from tests.soak.tasks import LENIENT, Drawn, draw, draw_time

from dynatick import TaskClient
from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.instants import format_instant
from dynatick.store.dynamodb import DynamoStore

TURN_SECONDS = 0.7  # at least, by the machine's clock
RACE_SECONDS = 15.0  # after the tick, by the shared clock
KNOWN = 150  # tasks that it may change its mind about
FAULTS = (
    Fault(at="any", do="throttle", chance=0.03, times=None),
    Fault(at="any", do="fail before", chance=0.02, times=None),
    Fault(at="any", do="lose answer", chance=0.02, times=None),
    Fault(at="insert", do="throttle parts", amount=0.3, chance=0.1, times=None),
)


class Inserter:
    def __init__(self, name: str, seed: int, here: SharedFolder, table: str) -> None:
        self._name, self._here = name, here
        self._dice = random.Random(f"{seed} {name}")
        self._seam = Seam(seed=self._dice.randrange(1 << 32))
        self._seam.arm(FAULTS)
        Watch(here, self._seam)
        self._client = TaskClient(DynamoStore(table), clock=here.clock)
        self._interfaces = Interfaces(name, here, self._client, boto3.client("dynamodb"), table)
        self._known: deque[Drawn] = deque(maxlen=KNOWN)
        self._racing: list[tuple[datetime, Drawn]] = []  # and when they are changed
        self._made = 0

    def run(self) -> None:
        turns: list[tuple[int, Callable[[], None]]] = [
            (4, self._put_bare),
            (4, self._put_timed),
            (4, self._insert),
            (3, self._insert_many),
            (1, self._command),
            (8, self._change_minds),
            (3, self._insert_for_a_race),
        ]
        weights = [weight for weight, _ in turns]
        with self._seam.installed():
            while not self._here.stop.exists():
                end = time.monotonic() + TURN_SECONDS
                (_, turn) = self._dice.choices(turns, weights)[0]
                turn()
                self._race()
                time.sleep(max(end - time.monotonic(), 0))

    # -- turns -----------------------------------------------------------------------------------------------------

    def _put_bare(self) -> None:
        """Nothing but an id."""
        for _ in range(3):
            task_id = self._new_id("bare")
            task = Drawn(task_id=task_id, life=task_id, row={"taskId": task_id})
            self._keep([task] if self._interfaces.put(task, timed=False) else [])

    def _put_timed(self) -> None:
        for task in self._draw("timed", 3):
            self._keep([task] if self._interfaces.put(task, timed=True) else [])

    def _insert(self) -> None:
        for task in self._draw("single", 3):
            self._keep([task] if self._interfaces.insert(task) else [])

    def _insert_many(self) -> None:
        self._keep(self._interfaces.insert_many(self._draw("many", self._dice.choice([10, 25, 40]))))

    def _command(self) -> None:
        file = self._here.path / f"{self._name}.jsonl"
        self._keep(self._interfaces.command(self._draw("command", 20), file))

    def _change_minds(self) -> None:
        for _ in range(4):
            if not self._known:
                return
            task = self._dice.choice(self._known)
            change = self._dice.choices(
                [self._cancel, self._reschedule, self._run_now, self._replace, self._delete], [3, 3, 2, 2, 2]
            )[0]
            change(task)

    def _insert_for_a_race(self) -> None:
        """Tasks that are at work for a while just after the next tick, when they are cancelled or rescheduled."""
        clock = self._here.clock
        tick = instant_of(minute_of(clock()) + 1)
        for _ in range(4):
            task_id = self._new_id("race")
            row = {"taskId": task_id, "payload": {"life": task_id, "seconds": 0.5}, "retryPolicy": LENIENT}
            times = {"dueAt": format_instant(tick)}
            task = Drawn(task_id=task_id, life=task_id, row=row, times=times)
            if self._interfaces.insert(task):
                self._racing.append((tick + timedelta(seconds=self._dice.uniform(0, RACE_SECONDS)), task))

    def _race(self) -> None:
        now = self._here.clock()
        due = [task for at, task in self._racing if at <= now]
        self._racing = [(at, task) for at, task in self._racing if at > now]
        for task in due:
            self._dice.choices([self._cancel, self._reschedule, self._run_now], [4, 1, 1])[0](task)

    def _cancel(self, task: Drawn) -> None:
        self._interfaces.change(CANCEL, task, lambda: self._client.cancel(task.task_id))

    def _reschedule(self, task: Drawn) -> None:
        (name, value), = draw_time(self._dice, self._here.clock()).items()  # fmt: skip
        argument = {"delaySeconds": "delay_seconds", "dueAt": "due_at", "taskDateTime": "task_date_time"}[name]
        times = {argument: value}
        self._interfaces.change(RESCHEDULE, task, lambda: self._client.reschedule(task.task_id, **times))  # type: ignore[arg-type]

    def _run_now(self, task: Drawn) -> None:
        self._interfaces.change(RUN, task, lambda: self._client.run_now(task.task_id))

    def _replace(self, task: Drawn) -> None:
        self._made += 1
        new = draw(self._dice, task.task_id, f"{task.task_id}/{self._made}", self._here.clock())
        timed = self._dice.random() < 0.5
        self._known.remove(task)
        self._keep([new] if self._interfaces.replace(new, timed=timed, aside=self._seam.aside) else [])

    def _delete(self, task: Drawn) -> None:
        self._known.remove(task)
        self._interfaces.delete(task)

    # -- tasks -----------------------------------------------------------------------------------------------------

    def _draw(self, interface: str, number: int) -> list[Drawn]:
        ids = [self._new_id(interface) for _ in range(number)]
        return [draw(self._dice, task_id, task_id, self._here.clock()) for task_id in ids]

    def _new_id(self, interface: str) -> str:
        self._made += 1
        return f"{interface}-{self._name}-{self._made}"

    def _keep(self, tasks: list[Drawn]) -> None:
        self._known.extend(tasks)


def main(name: str, seed: str) -> None:
    here = SharedFolder.from_env(os.environ)
    Inserter(name, int(seed), here, os.environ["DYNATICK_TABLE"]).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
