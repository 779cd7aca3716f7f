"""The layer between the engine and the table: time passes at each call, and faults happen there.

Each process has a plan, which says at which of its calls what goes wrong. Between the calls of one process those of
others find their place.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from tests.model.expected_task import ExpectedTask
from tests.model.simulation import Killed, Process, Simulation
from tests.model.steps import ShortRepr
from tests.model.table import Table
from tests.model.write_kinds import kind_of, kind_of_creation

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Condition, ConditionalUpdate, Result, Unknown, Written
from dynatick.domain.task import Row
from dynatick.engine.ports import Counted, Page, ScanPage, StoreFailure
from dynatick.errors import StoreError

T = TypeVar("T")

KILL_BEFORE = "killed before"
KILL_AFTER = "killed after"
KILL_MEANWHILE = "killed meanwhile"  # the request is on its way, and takes effect a moment later
REFUSE = "refused"  # throttled until the SDK gives up
LOSE = "answer lost"  # it took effect, without an answer
REPEAT = "repeated"  # the answer was lost, and the SDK has sent it again
FREEZE_BEFORE = "frozen before"
FREEZE_AFTER = "frozen after"
FAULTS = (KILL_BEFORE, KILL_AFTER, KILL_MEANWHILE, REFUSE, LOSE, REPEAT, FREEZE_BEFORE, FREEZE_AFTER)

LATENCY = 0.005
CONNECTED = 0.05  # s that a call takes a connection, where these are few
UNKNOWN = Unknown("no answer")


@dataclass(frozen=True, repr=False)
class Fault(ShortRepr):
    """A fault at a process's nth call (from 1), and at those after it."""

    call: int
    kind: str
    seconds: float = 10.0  # of a freeze
    calls: int = 1


@dataclass(frozen=True, repr=False)
class Plan(ShortRepr):
    """The course of a process. ``seed`` 0: every call takes the same time."""

    seed: int = 0
    faults: tuple[Fault, ...] = ()
    skew: float = 0.0
    timeout: float = 120.0  # seconds until it is killed
    unlogged: bool = False  # its function raises when its pass is over
    cold: bool = False  # in a new environment, though one is idle


QUIET = Plan()


@dataclass(eq=False)
class Request:
    """An operation of a client, and its result."""

    operation: str
    tasks: dict[str, ExpectedTask] = field(default_factory=dict)  # of the rows it is to create, by id
    not_before: float = -math.inf  # what it asks for, as seconds of the simulation
    until: float | None = None  # how long after its first time a task may be postponed
    token: str | None = None  # of a completion
    effects: int = 0
    faultless: bool = True
    may_write: bool = True
    answer: object = None


@dataclass(eq=False, kw_only=True)
class Actor(Process):
    """A process at work on the table."""

    kind: str  # hand, client, doctor, scheduler, processor, expiry
    woken: bool = False  # a processor, by a message of the queue of wake-ups
    plan: Plan = QUIET
    calls: int = 0
    began: float = 0.0
    ends: float = math.inf  # when it will be killed
    order_ends: float = math.inf  # when it is to leave the rest to others, as its order says
    closed_at: dict[str, float] = field(default_factory=dict)  # through which second it has closed buckets, by cursor
    finished: bool = False
    raised: bool = False
    unrepaired: int | None = None  # rows that its scan says it has left
    environment: list[Actor] = field(default_factory=list)  # the invocations that share a process with this one
    request: Request = field(default_factory=lambda: Request("nothing"))

    def __post_init__(self) -> None:
        self.rng = random.Random(self.plan.seed)
        self.skew = self.plan.skew

    def latency(self) -> float:
        if self.plan.seed == 0:
            return LATENCY
        x = self.rng.random()
        if x < 0.93:
            return self.rng.uniform(0.0005, 0.05)
        return self.rng.uniform(0, 3) if x < 0.99 else self.rng.uniform(3, 60)

    def kill(self) -> None:
        super().kill()
        for actor in self.environment:
            Process.kill(actor)

    @property
    def failed(self) -> bool:
        """Returns whether a fault may have kept it from its end."""
        return self.dead or self.raised or bool(self.plan.faults)

    def die(self) -> NoReturn:
        self.kill()
        raise Killed

    def fault(self) -> Fault | None:
        self.calls += 1
        return next((f for f in self.plan.faults if 0 <= self.calls - f.call < f.calls), None)


@dataclass
class FaultyStore:
    """The Store port, for the process that runs. ``page``: how many entries a page of a bucket holds."""

    table: Table
    simulation: Simulation
    page: int = 7
    poll_seconds: float = 0.0  # that each page of a bucket takes longer than any other call
    always: str | None = None  # a fault that each call of each process meets
    connections: int | None = None  # calls that can be under way at once
    under_way: int = 0  # requests of processes that have died since
    polls: list[tuple[Actor, Bucket, float]] = field(default_factory=list)  # of processors: who, what, when
    committed: list[Mapping[str, object]] = field(default_factory=list)  # effects that took effect with an outcome
    _taken_until: list[float] = field(default_factory=list)  # of the connections
    _taken: set[str] = field(default_factory=set)  # tokens of transactions
    fault_of: Callable[[str], str | None] | None = None  # instead of the plans' faults, of each write by its kind

    @property
    def actor(self) -> Actor:
        process = self.simulation.my_process()
        assert isinstance(process, Actor)
        return process

    def get(self, task_id: str) -> Row | None:
        return self._read(lambda: self.table.get(task_id))

    def get_many(
        self, task_ids: Iterable[str], *, consistent: bool = True, only: Collection[str] = ()
    ) -> Mapping[str, Row]:
        ids = list(dict.fromkeys(task_ids))
        return self._read(lambda: self.table.inner.get_many(ids, only=only))

    def query_bucket(
        self,
        bucket: Bucket,
        *,
        after: str | None = None,
        open_only: bool = True,
        outcome: str | None = None,
        limit: int | None = None,
        prefix: str | None = None,
        count: Counted | None = None,
    ) -> Page:
        assert prefix is None and count is None, "the index of the model knows no prefixes and counts nothing"
        limit, actor = min(limit or self.page, self.page), self.actor
        if actor.kind == "processor":
            self.simulation.sleep(self.poll_seconds)
            self.polls.append((actor, bucket, self.simulation.now))

        def poll() -> Page:
            page = self.table.query_bucket(bucket, after=after, open_only=open_only, outcome=outcome, limit=limit)
            if outcome is None:
                self.table.trace.poll(actor, bucket, after, page, open_only)
            return page

        return self._read(poll)

    def scan(self, *, after: str | None = None, open_only: bool = True) -> ScanPage:
        actor = self.actor

        def scan() -> ScanPage:
            page = self.table.inner.scan(after=after, open_only=open_only)
            if open_only:
                self.table.trace.scan(actor, after, page)
            return page

        return self._read(scan)

    def create(self, row: Row) -> bool:
        return self.call(
            lambda by: self.table.create(by, row),
            _no_answer,
            lambda _: _no_answer(),
            again=lambda is_created: is_created or _no_answer(),
            write=kind_of_creation(row),
        )

    def create_many(self, rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        failure = StoreFailure("no answer")
        return self.call(
            lambda by: self.table.create_many(by, rows),
            lambda: [failure] * len(rows),
            lambda answers: [failure if self._is_lost() else answer for answer in answers],
            again=lambda answers: [failure if answer is False else answer for answer in answers],
            write=" and ".join(sorted({kind_of_creation(row) for row in rows})),
        )

    def write(self, change: ConditionalUpdate) -> Result:
        return self.call(
            lambda by: self.table.write(by, change), lambda: UNKNOWN, lambda _: UNKNOWN, write=kind_of(change)
        )

    def write_many(self, changes: Sequence[ConditionalUpdate]) -> Sequence[Result]:
        """A batch is no transaction: some of it may be refused, and of some the answer lost."""
        actor = self.actor
        rng = actor.rng

        def some_refused() -> Sequence[Result]:
            taken = [rng.random() < 0.4 for _ in changes]
            results = iter(self.table.write_many(actor, [c for c, t in zip(changes, taken, strict=True) if t]))
            return [next(results) if t else UNKNOWN for t in taken]

        return self.call(
            lambda by: self.table.write_many(by, changes),
            some_refused,
            lambda results: [UNKNOWN if self._is_lost() else result for result in results],
            write=" and ".join(sorted({kind_of(change) for change in changes})),
        )

    def transact(
        self,
        change: ConditionalUpdate | None = None,
        row: Row | None = None,
        items: Sequence[Mapping[str, object]] = (),
        *,
        token: str | None = None,
    ) -> Result:
        assert change is not None and row is None, "no task of the model is a member of a batch"

        def take(by: Actor) -> Result:
            if token is not None and token in self._taken:
                return Written()
            result = self.table.write(by, change)
            if isinstance(result, Written):
                self.committed += items
                self._taken.add(str(token))
            return result

        return self.call(take, lambda: UNKNOWN, lambda _: UNKNOWN, write=f"{kind_of(change)} with effects")

    def delete(self, task_id: str, conditions: Sequence[Condition] = ()) -> bool:
        return self.call(
            lambda by: self.table.delete(by, task_id, conditions),
            _no_answer,
            lambda _: _no_answer(),
            write="delete",
        )

    def _is_lost(self) -> bool:
        """Whether one answer of a batch is lost with its others."""
        return self.fault_of is not None or self.actor.rng.random() < 0.6

    def _read(self, do: Callable[[], T]) -> T:
        return self.call(lambda _: do(), _no_answer, lambda _: _no_answer())

    def call(
        self,
        do: Callable[[Actor], T],
        refused: Callable[[], T],
        lost: Callable[[T], T],
        *,
        again: Callable[[T], T] = lambda answer: answer,
        write: str = "",
    ) -> T:
        """Carries out one call to something outside of the process. ``again``: the answer to a request that was sent
        twice. ``write``: the kind of a write."""
        actor, simulation = self.actor, self.simulation
        fault = actor.fault()
        kind = self.always or (None if fault is None else fault.kind)
        if write and self.fault_of is not None:
            kind = self.fault_of(write)
        if fault is not None and kind == FREEZE_BEFORE:
            simulation.sleep(fault.seconds)
        if self.connections is not None:
            self._connect(self.connections)
        simulation.sleep(actor.latency())
        if kind == KILL_BEFORE:
            actor.die()
        if kind == KILL_MEANWHILE:
            self.under_way += 1
            simulation.at(simulation.now + 1.0, lambda: self._take_effect(do, actor))
            actor.die()
        if kind == REFUSE:
            return refused()
        answer = do(actor)
        if kind == KILL_AFTER:
            actor.die()
        if kind == REPEAT:
            simulation.sleep(actor.latency())
            answer = again(do(actor))
        if kind == LOSE:
            answer = lost(answer)
        if fault is not None and kind == FREEZE_AFTER:
            simulation.sleep(fault.seconds)
        simulation.sleep(actor.latency() / 2)
        return answer

    def _connect(self, connections: int) -> None:
        """Waits for a connection, which it takes for as long as an answer takes."""
        free_at = sorted([*(at for at in self._taken_until if at > self.simulation.now), *[0.0] * connections])
        begin = max(free_at[-connections], self.simulation.now)
        self._taken_until = [*(at for at in free_at if at > self.simulation.now), begin + CONNECTED]
        self.simulation.sleep(begin - self.simulation.now)

    def _take_effect(self, do: Callable[[Actor], object], actor: Actor) -> None:
        self.under_way -= 1
        do(actor)


def _no_answer() -> NoReturn:
    raise StoreError("no answer")
