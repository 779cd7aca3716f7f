"""Random worlds: whatever clients, ticks, deployments, kills and a lagging index do, no task is lost.

One seed is one world of some twenty minutes: tasks with and without a time, cancelled, rescheduled, deleted, replaced
and redriven; ticks missed, doubled, late and overlapping; the grid and the number of shards changed; passes and
schedulers killed in the middle; stream records late and repeated. Then things calm down, and everything must have come
to its end.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from tests.builders import NOON, FakeClock, InProcess, scheduled_row
from tests.unit.engine.support import LaggingStore

from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Result, Written
from dynatick.domain.instants import format_instant
from dynatick.domain.lifecycle import cancel, is_terminal, redrive, reschedule
from dynatick.domain.task import Row, Task, is_own_row
from dynatick.engine.assign import Arrival, assign
from dynatick.engine.cursor import read_cursor
from dynatick.engine.installation_settings import publish_settings
from dynatick.engine.placement import Placer, send_rejection
from dynatick.engine.ports import ActionContext, ScanPage
from dynatick.engine.processor import Processor
from dynatick.engine.rules import Rules
from dynatick.store.memory import MemoryStore

MINUTES = 20
LAG = timedelta(seconds=115)  # at the most; two minutes are allowed for


INSERTS = ["bare", "client", "client", "client", "bucket", "near", "due", "iso", "off", "delay", "odd shard"]


class Killed(BaseException):
    """The process is dead. Nothing that catches errors may stop it."""


class Life:
    """One process: it may die after so many steps, and then takes no further one."""

    def __init__(self, steps: int | None) -> None:
        self._left = steps
        self._lock = threading.Lock()
        self.dead = False

    def step(self) -> None:
        with self._lock:
            if self._left is not None:
                self._left -= 1
                self.dead = self.dead or self._left < 0
        self.check()

    def check(self) -> None:
        if self.dead:
            raise Killed


class Stream(LaggingStore):
    """The table, with what its stream would tell of every change of a task."""

    def __init__(self, clock: FakeClock, lag: Callable[[], timedelta]) -> None:
        super().__init__(clock, lag)
        self.told: Callable[[str, Row | None, Row | None], None] = lambda task_id, new, old: None

    def put(self, row: Row) -> None:
        with self._lock:
            old = self.get(str(row["taskId"]))
            super().put(row)
            self._tell(str(row["taskId"]), old)

    def create(self, row: Row) -> bool:
        with self._lock:
            created = super().create(row)
            if created:
                self._tell(str(row["taskId"]), None)
            return created

    def write(self, change: ConditionalUpdate) -> Result:
        with self._lock:
            old = self.get(change.task_id)
            result = super().write(change)
            if isinstance(result, Written):
                self._tell(change.task_id, old)
            return result

    def _tell(self, task_id: str, old: Row | None) -> None:
        new = self.get(task_id)
        passes = old is None or (new is not None and new.get("status") in (None, "scheduled"))  # the template's filter
        if passes and not is_own_row(task_id):
            self.told(task_id, new, old)


class MortalStore:
    """The table as one process sees it."""

    def __init__(self, store: Stream, life: Life) -> None:
        self._store, self._life = store, life

    def __getattr__(self, name: str) -> object:
        method = getattr(self._store, name)

        def call(*args: object, **more: object) -> object:
            self._life.step()
            return method(*args, **more)

        return call

    def write_many(self, changes: Sequence[ConditionalUpdate]) -> Sequence[Result]:
        self._life.step()
        return [self._store.write(change) for change in changes]


@dataclass
class Execution:
    inc: int
    run: int
    attempt: int
    at: datetime
    succeeded: bool = False


@dataclass
class Chaos:
    """A world, and its dice."""

    seed: int
    dice: random.Random = field(init=False)
    clock: FakeClock = field(default_factory=FakeClock)
    calm: bool = False
    incs: int = 0
    alive: dict[str, int | None] = field(default_factory=dict)  # the incarnation that should be there
    kinds: dict[int, str] = field(default_factory=dict)
    cancelled: dict[int, datetime] = field(default_factory=dict)
    edited: set[int] = field(
        default_factory=set
    )  # by hand: bucket and due instant agree only once the stream has shown it
    executions: list[Execution] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    records: dict[str, deque[tuple[datetime, Row | None, Row | None]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        slow_index = self.dice.random() < 0.6
        self.store = Stream(
            self.clock,
            lambda: LAG * self.dice.random() if slow_index and self.dice.random() < 0.4 else timedelta(seconds=0.1),
        )
        self.store.told = self._told
        self.mortality = self.dice.choice([0, 0, 0.15, 0.4])
        self.rules = Rules(
            grid=Grid(tick_minutes=self.dice.choice([1, 1, 5]), shard_count=self.dice.choice([1, 1, 3])), threads=4
        )
        self.lock = threading.RLock()
        self.tokens = iter(range(10**9))
        self.in_process = InProcess(store=self.store, clock=self.clock)
        self.nested = 0

    # -- the stream -------------------------------------------------------------------------------------------------

    def _told(self, task_id: str, new: Row | None, old: Row | None) -> None:
        late = 0 if self.calm else self.dice.choice([0.2, 0.2, 0.5, 5, 90])
        self.records.setdefault(task_id, deque()).append((self.clock() + timedelta(seconds=late), new, old))

    def deliver(self) -> None:
        """What is due of the stream: in order for each task, in batches, perhaps twice."""
        for _ in range(50):
            with self.lock:
                due = [i for i, waiting in self.records.items() if waiting and waiting[0][0] <= self.clock()]
                due = due[: self.dice.randint(1, 8)]
                batch = [Arrival(i, *self.records[i][0][1:]) for i in due]
            if not batch:
                return
            life = Life(None if self.calm or self.dice.random() > self.mortality else self.dice.randint(1, 12))
            try:
                store = MortalStore(self.store, life)
                placer = Placer(
                    store, self.rules, publish_settings(store, self.rules.grid, now=self.clock()), self.clock,
                    lambda row, error: send_rejection(self.in_process.dead_letters, row, error, self.clock()),
                )  # fmt: skip
                failed = {key for key, _ in assign(batch, placer).failed}
            except Killed:
                failed = set(due)
            for task_id in due:
                if task_id not in failed and (self.calm or self.dice.random() > 0.08):
                    self.records[task_id].popleft()

    # -- the processor ----------------------------------------------------------------------------------------------

    def run(self, task: Task, context: ActionContext, life: Life) -> object:
        life.step()
        inc = int(str(task.payload["inc"]))
        with self.lock:
            now = self.clock()
            execution = Execution(inc, task.run, task.attempt, now)
            self.executions.append(execution)
            if now < task.due_at - timedelta(seconds=4) and inc not in self.edited:
                self.wrong.append(f"early: {task.task_id} at {now}, due {task.due_at}")
            kind, dice = self.kinds[inc], self.dice.random()
        if not self.calm and dice < 0.05 and self.nested < 2:
            self.nested += 1
            try:
                self.tick(self.clock())  # another tick comes while this one works
            finally:
                self.nested -= 1
        elif not self.calm and dice < 0.15:
            self.clock.forward(seconds=dice * 100)
        life.check()
        if kind == "fails":
            raise ValueError("it always does")
        if kind == "again" and task.attempt < 3:
            raise ValueError("not yet")
        execution.succeeded = True
        return None

    def tick(self, at: datetime) -> None:
        events: list[Mapping[str, object]] = [{"time": format_instant(at.replace(second=0, microsecond=0))}]
        while events:
            life = Life(None if self.calm or self.dice.random() > self.mortality else self.dice.randint(1, 60))
            processor = Processor(
                store=MortalStore(self.store, life),
                actions=Work(self, life),
                dead_letters=self.in_process.dead_letters,
                invoker=Asked(events),
                rules=self.rules,
                clock=self._mortal_clock(life),
                new_token=lambda: f"token-{next(self.tokens)}",
            )
            try:
                processor.handle(events.pop(0), hard_end=self.clock() + timedelta(seconds=50))
            except Killed:
                life.dead = True

    def _mortal_clock(self, life: Life) -> Callable[[], datetime]:
        def clock() -> datetime:
            life.check()
            return self.clock()

        return clock

    # -- clients ----------------------------------------------------------------------------------------------------

    def insert(self, task_id: str) -> None:
        dice, now = self.dice, self.clock()
        self.incs += 1
        self.kinds[self.incs] = dice.choice(["works", "works", "works", "again", "fails"])
        grid = Grid(
            tick_minutes=dice.choice([1, self.rules.grid.tick_minutes]),
            shard_count=dice.choice([1, self.rules.grid.shard_count]),
        )
        due = now + timedelta(seconds=dice.uniform(-400, 400))
        bucket = grid.bucket_of(task_id, due)
        row: dict[str, object] = {
            "taskId": task_id,
            "payload": {"inc": Decimal(self.incs)},
            "retryPolicy": {
                "maximumRetryAttempts": Decimal(40),
                "minBackoffSeconds": Decimal(1),
                "maxBackoffSeconds": Decimal(20),
            },
        }
        if self.kinds[self.incs] == "fails":
            row["retryPolicy"] = {"maximumRetryAttempts": Decimal(1), "minBackoffSeconds": Decimal(1)}
        match dice.choice(
            ["bare", "client", "client", "client", "bucket", "near", "due", "iso", "off", "delay", "odd shard"]
        ):
            case "client":
                row = scheduled_row(task_id, bucket, **row) | {"dueAt": format_instant(due)}
            case "bucket":
                row["taskDateTime"] = str(Bucket(bucket.minute))
            case "near":
                row["taskDateTime"] = str(Bucket(minute_of(now + timedelta(seconds=dice.uniform(-60, 60)))))
            case "due":
                row["dueAt"] = format_instant(due)
            case "iso":
                row["taskDateTime"] = format_instant(due)
            case "off":
                row["taskDateTime"] = str(Bucket(minute_of(due) + 1, dice.choice([0, bucket.shard])))
            case "delay":
                row["delaySeconds"] = Decimal(dice.randint(0, 300))
            case "odd shard":
                row["taskDateTime"] = str(Bucket(bucket.minute, 7))
        self.alive[task_id] = self.incs
        self.store.put(row)

    def edit(self, task_id: str) -> None:
        dice, row = self.dice, self.store.get(task_id)
        if row is None:
            return
        inc, now = int(str(row["payload"]["inc"])), self.clock()
        waits = not is_terminal(row) and row.get("status") in (None, "scheduled")
        later = now + timedelta(seconds=dice.uniform(-120, 300))
        place = self.rules.grid.bucket_of(task_id, later)
        match dice.choice(["cancel", "reschedule", "by hand", "redrive", "delete", "replace"]):
            case "cancel" if waits:
                if isinstance(self.store.write(cancel(row, now=now, retention_days=1)), Written):
                    self.cancelled[inc] = self.clock()
            case "reschedule" if waits:
                self.store.write(reschedule(row, bucket=place, due_at=later))
            case "by hand" if waits:
                name = dice.choice(["taskDateTime", "dueAt"])
                value = dice.choice([str(place), format_instant(later)])
                self.store.write(ConditionalUpdate(task_id=task_id, set={name: value}))
                self.edited.add(inc)
            case "redrive" if row.get("outcome") in ("failed", "cancelled"):
                again = now + timedelta(minutes=self.rules.grid.tick_minutes)
                self.cancelled.pop(inc, None)
                run = int(str(row.get("run", 1))) + 1
                self.store.write(redrive(row, bucket=self.rules.grid.bucket_of(task_id, again), due_at=again, run=run))
            case "delete":
                self.alive[task_id] = None
                self.store.delete(task_id)
            case "replace":
                self.insert(task_id)

    # -- a life -----------------------------------------------------------------------------------------------------

    def live(self) -> None:
        ids = [f"t{n}" for n in range(14)]
        for minute in range(1, MINUTES + 1):
            for _ in range(self.dice.randint(0, 5)):
                self.clock.to(instant_of(minute_of(NOON) + minute - 1) + timedelta(seconds=self.dice.uniform(0, 60)))
                task_id = self.dice.choice(ids)
                if self.store.get(task_id) is None:
                    self.insert(task_id)
                else:
                    self.edit(task_id)
                if self.dice.random() < 0.7:
                    self.deliver()
            if self.dice.random() < 0.1:
                grid = Grid(tick_minutes=self.dice.choice([1, 5]), shard_count=self.dice.choice([1, 2, 3]))
                self.rules = replace(self.rules, grid=grid)
            self.clock.to(instant_of(minute_of(NOON) + minute) + timedelta(milliseconds=200))
            if minute % self.rules.grid.tick_minutes == 0 and self.dice.random() > 0.15:
                late = timedelta(minutes=self.dice.choice([0, 0, 0, 1, 3]))
                for _ in range(self.dice.choice([1, 1, 1, 2])):
                    self.tick(self.clock() - late)
        self.calm_down()

    def calm_down(self) -> None:
        self.calm = True
        self.rules = replace(self.rules, grid=replace(self.rules.grid, tick_minutes=1))
        for _ in range(45):
            self.clock.to(instant_of(minute_of(self.clock()) + 1) + timedelta(milliseconds=200))
            self.deliver()
            self.tick(self.clock())
            if not any(self.records.values()) and not self.open_rows() and self.all_drained():
                return

    def open_rows(self) -> dict[str, Row]:
        page = ScanPage((), "")
        found: dict[str, Row] = {}
        while page.after is not None:
            page = MemoryStore.scan(self.store, after=page.after)
            found |= {str(row["taskId"]): row for row in page.rows if not is_own_row(row["taskId"])}
        return found

    def all_drained(self) -> bool:
        ever = publish_settings(self.store, self.rules.grid, now=self.clock()).shards_ever
        return all(
            read_cursor(self.store, shard, self.clock()).drained_through >= minute_of(NOON) + MINUTES
            for shard in range(ever)
        )

    def judge(self) -> list[str]:
        wrong = list(self.wrong)
        wrong += [f"waits for ever: {row}" for row in self.open_rows().values()]
        if not self.all_drained():
            wrong.append("a bucket is never drained")
        for task_id, inc in self.alive.items():
            row = self.store.get(task_id)
            if (row is None) != (inc is None):
                wrong.append(f"{'resurrected' if inc is None else 'vanished'}: {task_id} {row}")
            if row is None or inc is None:
                continue
            if row["payload"]["inc"] != inc:
                wrong.append(f"another came back: {row}")
            mine = [e for e in self.executions if e.inc == inc]
            match row.get("outcome"):
                case "completed" if not any(e.succeeded for e in mine):
                    wrong.append(f"completed without having run: {row}")
                case "failed" if self.kinds[inc] != "fails" or not mine:
                    wrong.append(f"failed for nothing: {row}")
                case "cancelled" if inc not in self.cancelled:
                    wrong.append(f"nobody has cancelled it: {row}")
        for inc, at in self.cancelled.items():
            wrong += [
                f"ran although it was cancelled at {at}: {e}" for e in self.executions if e.inc == inc and e.at > at
            ]
        attempts = Counter((e.inc, e.run, e.attempt) for e in self.executions)
        wrong += [f"attempt made {number} times: {attempt}" for attempt, number in attempts.items() if number > 1]
        return wrong


@dataclass
class Work:
    """The actions of one process."""

    chaos: Chaos
    life: Life

    def run(self, task: Task, context: ActionContext) -> object:
        return self.chaos.run(task, context, self.life)

    def names(self) -> Sequence[str]:
        return ["log"]

    def payload_schemas(self) -> Mapping[str, str]:
        return {}

    def timeout_seconds(self, task: Task) -> int | None:
        return task.timeout_seconds


@dataclass
class Asked:
    """Invocations that a process has asked for."""

    events: list[Mapping[str, object]]

    def invoke(self, event: Mapping[str, object]) -> None:
        self.events.append(event)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_no_task_is_lost(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.live()
    assert chaos.judge() == []
