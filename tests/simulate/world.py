"""An installation with AWS around it, and AWS's limits.

The engine runs as it is, in the function's own entry point and with the product's own store, in the simulation of
``tests.model``. What each task does is to wait.
"""

from __future__ import annotations

import uuid
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from itertools import count
from math import inf

from tests.model.environment import Environment
from tests.model.faulty_store import Actor
from tests.model.simulation import EVE, Process, Simulation
from tests.simulate.assumptions import Assumptions
from tests.simulate.aws_lambda import Function
from tests.simulate.capacity import Capacity
from tests.simulate.dynamodb import INDEX, SimulatedDynamoDB, SimulatedStore
from tests.simulate.lean_items import LeanItems
from tests.simulate.wake_up_queue import WakeUpQueue

from dynatick.client import NewTask, TaskClient
from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of
from dynatick.domain.limit_keys import parse_limits
from dynatick.domain.normalise import Defaults
from dynatick.domain.packs import parse_member_id
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext, DeadLetter
from dynatick.engine.processor import Invoked, Processor
from dynatick.engine.rules import Precision, Rules
from dynatick.testing.functions import rule_event
from dynatick_stack.plan.figures import NEW_TABLE_WRITE_UNITS
from dynatick_stack.plan.loads import Plan

ACTION = "wait"
WARMING_TICKS = 2  # of an installation that has nothing to do: its settings, its cursors, its environments
BARE_ROW_BYTES = 177  # of a row as the client writes it, with an empty text in its payload
_SCRAMBLE, _UNSCRAMBLE = 2654435761, 244002641  # inverse to each other modulo 2**32


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """The scenario of a simulation. ``warm``: write units a second that table and index are warm for."""

    tasks: int  # or schedules
    members: int = 0  # of one batch, due with them
    keys: Sequence[tuple[str, int, int]] = ()  # classes of limit keys: the limit of each, its keys, and its tasks
    shards: int
    threads: int = 64
    task_ms: int = 200
    row_bytes: int = 700
    warm: float = NEW_TABLE_WRITE_UNITS
    workers: int = 0  # of each shard
    memory_mb: int = 1769
    timeout: float = 120.0
    precision: Precision = Precision.TICK
    assumptions: Assumptions = field(default_factory=Assumptions)

    @classmethod
    def of(cls, plan: Plan) -> Scenario:
        """Returns the scenario that a plan names."""
        load, fleet = plan.load, plan.fleet
        return cls(
            tasks=load.tasks,
            shards=fleet.shards,
            threads=fleet.threads,
            task_ms=round(load.options.task_seconds * 1000),
            row_bytes=load.options.row_bytes,
            warm=fleet.warm,
            workers=fleet.workers,
            memory_mb=fleet.memory_mb,
            timeout=plan.timeout_seconds,
            precision=Precision.SECOND if load.options.to_the_second else Precision.TICK,
        )

    @property
    def classes(self) -> Sequence[str]:
        return [limit.partition("=")[0] for limit, _, _ in self.keys]


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """The capacity used since the beginning."""

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


class Waiting:
    """The action of all tasks: they wait. It keeps how late each began, and how often.

    ``late``: seconds, of the first execution; infinite without one. ``ended``: the same, of its end. ``latest``: of all
    that were due at an instant.
    """

    def __init__(self, scenario: Scenario, simulation: Simulation, wait_for_member: Callable[[], float]) -> None:
        """``wait_for_member``: takes the CPU of a member of a batch, and returns how long it waits for that. A task's
        is taken with its statements."""
        self._simulation, self._seconds, self._tasks = simulation, scenario.task_ms / 1000, scenario.tasks
        self._wait_for_member = wait_for_member
        self.late = array("d", [inf]) * (scenario.tasks + scenario.members)  # tasks, then members
        self.ended = array("d", [inf]) * (scenario.tasks + scenario.members)
        self.latest: dict[datetime, float] = {}
        self.executions = bytearray(scenario.tasks + scenario.members)

    def names(self) -> Sequence[str]:
        return [ACTION]

    def payload_schemas(self) -> Mapping[str, str]:
        return {}

    def timeout_seconds(self, task: Task) -> int | None:
        return task.timeout_seconds

    def run(self, task: Task, context: ActionContext) -> object:
        member = parse_member_id(task.task_id)
        n = number_of(task.task_id) if member is None else self._tasks + member[1]
        late = (self._simulation.instant - context.due_at).total_seconds()
        self.latest[context.due_at] = max(late, self.latest.get(context.due_at, 0.0))
        if not self.executions[n]:
            self.late[n] = late
        self.executions[n] = min(255, self.executions[n] + 1)
        self._simulation.sleep(self._seconds + (0.0 if member is None else self._wait_for_member()))
        self.ended[n] = min(self.ended[n], (self._simulation.instant - context.due_at).total_seconds())
        return None


def id_of(number: int) -> str:
    """Returns an id as long as a UUID, and as evenly spread."""
    scrambled = number * _SCRAMBLE % 2**32
    return f"{scrambled:08x}-5f3c-4c1e-9b7a-{scrambled ^ 0x5BD1E995:012x}"


def number_of(task_id: str) -> int:
    return int(task_id[:8], 16) * _UNSCRAMBLE % 2**32


class World:
    """An installation, and the tasks that are due in one of its buckets."""

    def __init__(self, scenario: Scenario, simulation: Simulation, *, due_after: int = WARMING_TICKS + 1) -> None:
        """``due_after``: minutes from the beginning of the simulation."""
        self.scenario, self.simulation, self.assumptions = scenario, simulation, scenario.assumptions
        self.due = minute_of(EVE) + due_after
        self.due_at = (instant_of(self.due) - EVE).total_seconds()
        self.dynamodb = SimulatedDynamoDB(
            simulation, self.assumptions, lambda: Capacity(scenario.warm, lambda: simulation.now)
        )
        self.cpu_share = self.assumptions.cpu_share(scenario.memory_mb)
        self.rules = Rules(
            grid=Grid(shard_count=scenario.shards),
            threads=scenario.threads,
            max_workers=scenario.workers,
            precision=scenario.precision,
            defaults=Defaults(key_limits=parse_limits(limit for limit, _, _ in scenario.keys)),
        )
        self.function = Function(
            simulation, self.assumptions, self._environment, scenario.timeout, self.dynamodb.forget
        )
        self.wake_ups = WakeUpQueue(simulation, self.assumptions, self.function)
        member_seconds = self.assumptions.member_cpu / self.cpu_share
        self.action = Waiting(scenario, simulation, lambda: self.dynamodb.wait_for_cpu(member_seconds))
        self.invoked: list[Invoked] = []
        self._processes = count(1)

    def warm_up(self) -> None:
        """The installation's first ticks, which find nothing."""
        for n in range(WARMING_TICKS):
            self.tick(minute_of(EVE) + 1 + n)
        self.simulation.run_until(60.0 * WARMING_TICKS + 30)

    def tick(self, minute: int) -> None:
        """The rule's event."""
        event = rule_event(instant_of(minute))
        when = (instant_of(minute) - EVE).total_seconds() + self.assumptions.tick_delay
        self.simulation.at(when, lambda: self.function.invoke(event))

    def fill(self, insert: Callable[[TaskClient], object], *own_id: str) -> None:
        """A client inserts the first task. The others are like that one, and are there without a request. ``own_id``:
        further attributes that have the task's id."""
        client = self.client()
        self.spawn("client", lambda: insert(client))
        self.simulation.run_until(self.simulation.now + 1)
        table = self.dynamodb.table
        index = table.indexes[INDEX]
        example, size = table.items.pop(id_of(0))
        index.buckets.clear()
        table.items = items = LeanItems(example, table.items)  # type: ignore[assignment]
        for n in range(self.scenario.tasks):
            task_id = id_of(n)
            own = {attribute: {"S": task_id} for attribute in ("taskId", *own_id)}
            key = self.key_of(n) if self.scenario.keys else task_id
            if self.scenario.keys:
                own["limitKey"] = {"S": key}
            name = str(self.rules.grid.bucket_of(key, instant_of(self.due)))
            items[task_id] = ({**example, **own, "taskDateTime": {"S": name}}, size)
            index.buckets[name].append(task_id)
        for ids in index.buckets.values():
            ids.sort()

    def buckets(self) -> list[str]:
        """The names in which the tasks are due, one for each shard."""
        return [str(Bucket(self.due, shard)) for shard in range(self.scenario.shards)]

    def client(self) -> TaskClient:
        """Returns a client on a machine of its own."""
        return TaskClient(self._store(1.0), clock=self._clock, check_actions=False)

    def spawn(self, name: str, work: Callable[[], object]) -> None:
        """Begins a process."""
        self.simulation.spawn(Process(self.simulation, name), work)

    def new_task(self, n: int) -> NewTask:
        payload = {"text": "x" * (self.scenario.row_bytes - BARE_ROW_BYTES)}
        key = self.key_of(n) if self.scenario.keys else None
        return NewTask(task_id=id_of(n), due_at=instant_of(self.due), action=ACTION, payload=payload, limit_key=key)

    def key_of(self, n: int) -> str:
        """The limit key of a task: those of a class follow one another, and its keys take turns."""
        for name, (_, keys, tasks) in zip(self.scenario.classes, self.scenario.keys, strict=True):
            if n < tasks:
                return f"{name}:{n % keys}"
            n -= tasks
        raise ValueError("there are more tasks than those of its classes")

    # -- the function --------------------------------------------------------------------------------------------------

    def _environment(self) -> Environment:
        number = next(self._processes)
        process, numbers = uuid.UUID(int=number).hex, count(1)
        processor = Processor(
            store=self._store(self.cpu_share),
            actions=self.action,
            dead_letters=self,
            invoker=self,
            wake_ups=self.wake_ups if self.scenario.precision is Precision.SECOND else None,
            rules=self.rules,
            clock=self._clock,
            new_token=lambda: f"{process}.{next(numbers)}",
            pause=self.simulation.sleep,
        )
        return Environment(processor, self._clock, self.invoked.append, self._end_process, number)

    def _store(self, cpu_share: float) -> SimulatedStore:
        return SimulatedStore(self.dynamodb, cpu_share=cpu_share)

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

    # -- what it took --------------------------------------------------------------------------------------------------

    def counts(self) -> Counts:
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
