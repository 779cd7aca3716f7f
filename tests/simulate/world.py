"""A burst: tasks that are due in the same minute, the ticks that run them, and AWS around it, with its limits.

The engine runs as it is, in the function's own entry point and with the product's own store, in the simulation of
``tests.model``. What each task does is to wait.
"""

from __future__ import annotations

import uuid
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from itertools import count
from math import inf

from tests.model.environment import Environment
from tests.model.seam import Actor
from tests.model.simulation import EVE, Process, Simulation
from tests.model.standins import inside
from tests.simulate.assumptions import NEW_TABLE_WRITES, Assumptions
from tests.simulate.aws_lambda import Function
from tests.simulate.capacity import Capacity
from tests.simulate.dynamodb import INDEX, SimulatedDynamoDB, SimulatedStore
from tests.simulate.lean_items import LeanItems

from dynatick.client import TaskClient
from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext, DeadLetter
from dynatick.engine.processor import Invoked, Processor
from dynatick.engine.rules import Rules
from dynatick_stack.counting.rules import item_bytes

ACTION = "wait"
WARMING_TICKS = 2  # of an installation that has nothing to do: its settings, its cursors, its environments
TICKS_AFTER = 7  # until the final poll of the bucket, when the index has had time to settle
_SCRAMBLE, _UNSCRAMBLE = 2654435761, 244002641  # inverse to each other modulo 2**32


@dataclass(frozen=True, kw_only=True, slots=True)
class Burst:
    """What is simulated. ``warm``: write units a second that table and index are warm for."""

    tasks: int
    shards: int
    threads: int = 64
    task_ms: int = 200
    row_bytes: int = 700
    warm: float = NEW_TABLE_WRITES
    workers: int = 0  # of each shard
    memory_mb: int = 1769
    timeout: float = 120.0
    assumptions: Assumptions = field(default_factory=Assumptions)


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What was used since the beginning."""

    invocations: int
    cold_starts: int
    lambda_throttles: int
    lambda_seconds: float  # that are billed
    table_throttles: int
    index_throttles: int
    write_units: float
    read_units: float

    def __sub__(self, other: Counts) -> Counts:
        return Counts(**{f.name: getattr(self, f.name) - getattr(other, f.name) for f in fields(self)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a burst ended. Times in seconds after the tasks' due time; an infinite one: a task did not start."""

    burst: Burst
    used: Counts  # from the due time on
    last_start: float
    p50: float
    p99: float
    most_running: int  # executions of the function at once
    table_peak: float  # write units of the busiest second
    index_peak: float
    problems: Sequence[str]  # tasks that did not end, or ran more than once

    @property
    def lost(self) -> int:
        return len(self.problems)


class Waiting:
    """The action of all tasks: they wait. It keeps when each began, and how often."""

    def __init__(self, burst: Burst, simulation: Simulation, due_at: float) -> None:
        self._simulation, self._seconds, self._due_at = simulation, burst.task_ms / 1000, due_at
        self.starts = array("d", [inf]) * burst.tasks
        self.executions = bytearray(burst.tasks)

    def names(self) -> Sequence[str]:
        return [ACTION]

    def payload_schemas(self) -> Mapping[str, str]:
        return {}

    def timeout_seconds(self, task: Task) -> int | None:
        return task.timeout_seconds

    def run(self, task: Task, context: ActionContext) -> object:
        n = number_of(task.task_id)
        if not self.executions[n]:
            self.starts[n] = self._simulation.now - self._due_at
        self.executions[n] = min(255, self.executions[n] + 1)
        self._simulation.sleep(self._seconds)
        return None


def id_of(number: int) -> str:
    """As long as a UUID, and as if thrown by dice."""
    scrambled = number * _SCRAMBLE % 2**32
    return f"{scrambled:08x}-5f3c-4c1e-9b7a-{scrambled ^ 0x5BD1E995:012x}"


def number_of(task_id: str) -> int:
    return int(task_id[:8], 16) * _UNSCRAMBLE % 2**32


class World:
    """One installation, and the tasks of one burst in it."""

    def __init__(self, burst: Burst, simulation: Simulation) -> None:
        self.burst, self.simulation, self.assumptions = burst, simulation, burst.assumptions
        self.due = minute_of(EVE) + WARMING_TICKS + 1
        self.due_at = (instant_of(self.due) - EVE).total_seconds()
        self.dynamodb = SimulatedDynamoDB(
            simulation, self.assumptions, lambda: Capacity(burst.warm, lambda: simulation.now)
        )
        self.cpu_share = self.assumptions.cpu_share(burst.memory_mb)
        self.rules = Rules(grid=Grid(shard_count=burst.shards), threads=burst.threads, max_workers=burst.workers)
        self.function = Function(simulation, self.assumptions, self._environment, burst.timeout, self.dynamodb.forget)
        self.action = Waiting(burst, simulation, self.due_at)
        self.invoked: list[Invoked] = []
        self._processes = count(1)

    def run(self) -> Outcome:
        """Lets everything happen, and judges it."""
        for n in range(WARMING_TICKS):
            self._tick(minute_of(EVE) + 1 + n)
        self.simulation.run_until(self.due_at - 30)
        self._insert()
        for n in range(TICKS_AFTER):
            self._tick(self.due + n)
        self.simulation.run_until(self.due_at)
        before = self._counts()
        self.simulation.run_until(self.due_at + 60 * TICKS_AFTER)
        return self._judge(self._counts() - before)

    def _tick(self, minute: int) -> None:
        """The rule's event."""
        event = {"source": "aws.events", "time": instant_of(minute).strftime("%Y-%m-%dT%H:%M:00Z")}
        when = (instant_of(minute) - EVE).total_seconds() + self.assumptions.tick_delay
        self.simulation.at(when, lambda: self.function.invoke(event))

    def _insert(self) -> None:
        """The client inserts one task. The others are like that one, and are there without a request."""
        self._insert_one()
        table = self.dynamodb.table
        index = table.indexes[INDEX]
        written, _ = table.items.pop(id_of(0))
        index.buckets.clear()
        missing = max(0, self.burst.row_bytes - item_bytes(written))
        example = {**written, "payload": {"M": {"text": {"S": "x" * missing}}}}
        items = LeanItems(example)
        for key, sized in table.items.items():
            items[key] = sized
        for n in range(self.burst.tasks):
            task_id = id_of(n)
            name = str(self.rules.grid.bucket_of(task_id, instant_of(self.due)))
            item = {**example, "taskId": {"S": task_id}, "taskDateTime": {"S": name}}
            items[task_id] = (item, item_bytes(item))
            index.buckets[name].append(task_id)
        for ids in index.buckets.values():
            ids.sort()
        table.items = items  # type: ignore[assignment]

    def _insert_one(self) -> None:
        bucket = str(Bucket(self.due))
        client = TaskClient(self._store(), clock=self._clock, check_actions=False)
        process = Process(self.simulation, "client")
        self.simulation.spawn(process, lambda: client.insert(id_of(0), task_date_time=bucket, action=ACTION))
        self.simulation.run_until(self.due_at - 20)

    # -- the function --------------------------------------------------------------------------------------------------

    def _environment(self) -> Environment:
        process, numbers = uuid.UUID(int=next(self._processes)).hex, count(1)
        processor = Processor(
            store=self._store(),
            actions=self.action,
            dead_letters=self,
            invoker=self,
            rules=self.rules,
            clock=self._clock,
            new_token=lambda: f"{process}.{next(numbers)}",
            pause=self.simulation.sleep,
        )
        return Environment(processor, self._clock, self.invoked.append, self._end_process)

    def _store(self) -> SimulatedStore:
        return SimulatedStore(self.dynamodb, cpu_share=self.cpu_share)

    def _clock(self) -> datetime:
        return self.simulation.my_process().clock()

    def _end_process(self) -> None:
        actor = self.simulation.my_process()
        assert isinstance(actor, Actor)
        actor.die()

    def invoke(self, event: Mapping[str, object]) -> None:
        """Starts an invocation (the processor's ``Invoker``)."""
        self.simulation.sleep(self.dynamodb.dice.uniform(*self.assumptions.invoke_latency))
        self.function.invoke(event)

    def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """Takes dead letters, of which there should be none: a task that failed is a problem by itself."""
        return [True] * len(letters)

    # -- afterwards ----------------------------------------------------------------------------------------------------

    def _counts(self) -> Counts:
        function, table, total = self.function, self.dynamodb.table, self.dynamodb.database.counts.total
        index = table.of_indexes[INDEX]
        return Counts(
            invocations=function.invocations,
            cold_starts=function.cold_starts,
            lambda_throttles=function.throttles,
            lambda_seconds=function.seconds,
            table_throttles=table.capacity.refused_writes + table.capacity.refused_reads,
            index_throttles=index.refused_writes + index.refused_reads,
            write_units=total.write_units,
            read_units=total.read_units,
        )

    def _judge(self, used: Counts) -> Outcome:
        table = self.dynamodb.table
        starts = sorted(self.action.starts)
        return Outcome(
            burst=self.burst,
            used=used,
            last_start=starts[-1],
            p50=starts[len(starts) // 2],
            p99=starts[len(starts) * 99 // 100],
            most_running=self.function.most_running,
            table_peak=max(table.capacity.by_second.values()),
            index_peak=max(table.of_indexes[INDEX].by_second.values()),
            problems=list(self._problems()),
        )

    def _problems(self) -> Iterator[str]:
        items = self.dynamodb.table.items
        for n, executions in enumerate(self.action.executions):
            task_id = id_of(n)
            item, _ = items[task_id]
            status = item.get("status", {}).get("S")
            if (status, executions) != ("completed", 1):
                yield f"{task_id}: {status}, after {executions} executions"
        due = str(Bucket(self.due))
        for shard in range(self.burst.shards):
            drained = items[f"_dynatick#cursor#{shard}"][0]["drainedThrough"]["S"]
            if drained < due:
                yield f"shard {shard} is drained through {drained} only"


def simulate(burst: Burst) -> Outcome:
    """Runs a burst in a simulation of its own."""
    simulation = Simulation()
    with inside(simulation):
        return World(burst, simulation).run()
