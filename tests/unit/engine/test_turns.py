"""Limits by key: how many tasks of a key run at once, which is next, and what a process leaves to the next one."""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, NoReturn

import pytest
from tests.builders import NOON, FakeActions, InProcess, scheduled_row
from tests.silent import LONG
from tests.unit.engine.support import Once, ids, raises, world

from dynatick import CompleteLater, Reschedule, TaskClient
from dynatick.actions.rate_limit import RateLimits
from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.completion import completion_token
from dynatick.domain.conditional_update import ConditionalUpdate, Result, Unknown
from dynatick.domain.limit_keys import parse_limits
from dynatick.domain.normalise import Defaults
from dynatick.domain.task import Row, Task
from dynatick.engine import invocation, limits, polling
from dynatick.engine.claims import Claimed
from dynatick.engine.limits import HeldElsewhere, KeyTurns, LimitsLease, Turns, limits_id
from dynatick.engine.orders import PassOrder, Resume
from dynatick.engine.pools import TaskPool
from dynatick.engine.ports import ActionContext, Page, Store
from dynatick.engine.rules import SKEW_MARGIN, Rules
from dynatick.engine.settings import publish_settings
from dynatick.errors import PermanentError, RateLimited, StoreError
from dynatick.store.codec import item_bytes
from dynatick.store.memory import MemoryStore


@dataclass
class Watched(FakeActions):
    """Actions that note how many tasks of each key run at once."""

    def __init__(self, takes: float = 0.0) -> None:
        super().__init__()
        self.takes = takes
        self.running: Counter[str] = Counter()
        self.maximum: Counter[str] = Counter()
        self._watch = threading.Lock()

    def run(self, task: Task, context: ActionContext) -> object:
        key = task.limit_key or ""
        with self._watch:
            self.running[key] += 1
            self.maximum[key] = max(self.maximum[key], self.running[key])
        try:
            time.sleep(self.takes)  # wait: so that others could begin meanwhile
            return super().run(task, context)
        finally:
            with self._watch:
                self.running[key] -= 1


BUCKET = Bucket(minute_of(NOON))

LOST: dict[str, object] = {
    "status": "running", "attempt": 1, "lease": "gone", "startedAt": "2026-12-31T11:40:00Z",
    "leaseUntil": "2026-12-31T11:50:00Z",
}  # fmt: skip


def rules_of(*limits: str, **more: object) -> Rules:
    return Rules(defaults=Defaults(key_limits=parse_limits(limits)), **more)


def system_of(*limits: str, takes: float = 0.0, **more: object) -> InProcess:
    return InProcess(rules=rules_of(*limits, **more), actions=Watched(takes))


def due(system: InProcess, task_id: str, key: str | None, bucket: Bucket | None = None, **more: object) -> None:
    shard = system.rules.grid.shard_of(key or task_id)
    keyed = {} if key is None else {"limitKey": key}
    assert isinstance(system.store, MemoryStore)
    system.store.put(scheduled_row(task_id, bucket or Bucket(minute_of(NOON), shard), **keyed, **more))


@pytest.mark.parametrize("in_one_thread", [False, True])
def test_no_more_tasks_of_a_key_run_at_once_than_its_limit_says(in_one_thread: bool) -> None:
    system = system_of("customer=1", "host=3", takes=0.002, in_one_thread=in_one_thread)
    for n in range(40):
        due(system, f"one-{n:02}", "customer:1")
        due(system, f"host-{n:02}", "host:a")
        due(system, f"free-{n:02}", None)
    system.tick()
    assert all(system.outcome(f"{name}-{n:02}") == "completed" for name in ("one", "host", "free") for n in range(40))
    assert system.actions.maximum["customer:1"] == 1
    assert system.actions.maximum["host:a"] <= 3
    if not in_one_thread:
        assert system.actions.maximum["host:a"] > 1
    record = system.row(limits_id(0))
    assert record["lease"] is None and record["version"] == 2


def test_a_key_that_has_thousands_of_tasks_delays_no_other() -> None:
    system = system_of("tenant=1", in_one_thread=True)
    for n in range(2_000):
        due(system, f"a-flood-{n:04}", "tenant:flood")
    for n in range(30):
        due(system, f"b-other-{n:02}", f"tenant:{n}")
    system.tick()
    ran = [task_id for task_id, _, _ in system.actions.ran]
    assert len(ran) == len(set(ran)) == 2_030
    others = [position for position, task_id in enumerate(ran) if task_id.startswith("b-")]
    assert max(others) < 200  # the index lists them after the two thousand
    assert system.actions.maximum["tenant:flood"] == 1


def test_only_a_few_of_a_key_wait_in_memory_and_the_index_is_read_on() -> None:
    system = system_of("tenant=2", takes=0.0005)
    for n in range(450):
        due(system, f"a-{n:03}", "tenant:flood")
    system.tick()
    assert sum(system.outcome(f"a-{n:03}") == "completed" for n in range(450)) == 450
    assert system.actions.maximum["tenant:flood"] == 2


def test_while_another_process_has_the_lease_nothing_with_a_key_begins() -> None:
    system = system_of("customer=1", in_one_thread=True)
    due(system, "keyed", "customer:1")
    due(system, "free", None)
    lease = lease_of(system, "another")
    assert lease.acquire() is None
    system.tick()
    assert (system.outcome("keyed"), system.outcome("free")) == (None, "completed")
    assert system.row("keyed")["status"] == "scheduled"
    lease.release({})
    system.next_tick()
    assert system.outcome("keyed") == "completed"


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"version": "x"},
        {"leaseUntil": "soon"},
        {"held": ["a"]},
        {"starts": {"customer:1": "x"}},
        {"shardCount": None},
    ],
    ids=str,
)
def test_a_limits_record_that_was_changed_by_hand_holds_up_no_task_without_a_key(changed: dict[str, object]) -> None:
    system = system_of("customer=1", in_one_thread=True)
    due(system, "first", "customer:1")
    system.tick()
    record = {**system.row(limits_id(0)), **changed} if changed else {"taskId": limits_id(0), "outcome": "none"}
    system.store.put(record)
    due(system, "keyed", "customer:1", Bucket(minute_of(NOON) + 1))
    due(system, "free", None, Bucket(minute_of(NOON) + 1))
    system.next_tick()
    assert (system.outcome("keyed"), system.outcome("free")) == (None, "completed")
    assert system.store.delete(limits_id(0))
    system.next_tick()
    assert system.outcome("keyed") == "completed"


def test_a_process_that_died_has_the_lease_until_its_end() -> None:
    system = system_of("customer=1", in_one_thread=True)
    due(system, "keyed", "customer:1")
    lease_of(system, "another", minutes=15).acquire()
    system.ticks(14)
    assert system.outcome("keyed") is None
    system.ticks(2)
    assert system.outcome("keyed") == "completed"


def test_what_its_process_left_running_is_attempted_again_within_the_limit() -> None:
    system = system_of("customer=1", in_one_thread=True)
    due(system, "lost", "customer:1", **LOST)
    due(system, "next", "customer:1")
    done = system.tick()
    assert (system.outcome("lost"), system.outcome("next")) == ("completed", "completed")
    assert ("lost", 1, 2) in system.actions.ran
    assert len(done) == 1  # no invocation was started for it: it could not have kept the limit


def test_a_task_in_the_shard_of_another_key_is_placed_and_not_run_there() -> None:
    system = system_of("customer=1", grid=Grid(shard_count=8), in_one_thread=True)
    own = system.rules.grid.shard_of("customer:1")
    due(system, "stray", "customer:1", Bucket(minute_of(NOON), (own + 1) % 8))
    system.tick()
    assert (system.outcome("stray"), system.row("stray")["status"]) == (None, "scheduled")
    assert Bucket.parse(system.row("stray")["taskDateTime"]).shard == own
    system.next_tick()
    assert system.outcome("stray") == "completed"


def test_the_stream_places_a_raw_row_in_the_shard_of_its_key() -> None:
    system = system_of("customer=1", grid=Grid(shard_count=8))
    row = system.put(taskId="raw", taskDateTime="2026-12-31#13:00", limitKey="customer:1")
    assert row["taskDateTime"] == str(Bucket(minute_of(NOON) + 60, system.rules.grid.shard_of("customer:1")))


def test_a_raw_row_of_an_unknown_class_fails_with_the_reason() -> None:
    row = system_of("customer=1").put(taskId="raw", limitKey="custmer:1")
    assert row["outcome"] == "failed"
    assert row["error"] == (
        "limitKey: 'custmer:1' is not accepted; expected a class of the parameter KeyLimits: the classes are customer"
    )


def test_a_class_that_is_removed_no_longer_limits() -> None:
    system = system_of(takes=0.02)
    for n in range(8):
        due(system, f"a-{n}", "customer:1")
    system.tick()
    assert all(system.outcome(f"a-{n}") == "completed" for n in range(8))
    assert system.actions.maximum["customer:1"] > 1
    assert system.store.get(limits_id(0)) is None


def with_a_place_that_is_kept() -> InProcess:
    """A system whose task ``first`` waits for a completion."""
    system = system_of("customer=1", in_one_thread=True)
    system.actions.behaviour["first"] = lambda *_: CompleteLater(timedelta(hours=8))
    due(system, "first", "customer:1")
    system.tick()
    return system


def test_a_task_that_waits_for_a_completion_keeps_its_place() -> None:
    system = with_a_place_that_is_kept()
    due(system, "second", "customer:1", Bucket(minute_of(NOON) + 1))
    system.ticks(3)
    assert system.row("first")["status"] == "waiting"
    assert system.row("second")["status"] == "scheduled"
    client = TaskClient(system.store, clock=system.clock)
    client.complete(completion_token(str(system.row("first")["lease"]), "first"))
    system.next_tick()
    assert system.outcome("second") == "completed"


def test_a_completion_that_does_not_come_frees_the_place_when_it_is_overdue() -> None:
    system = system_of("customer=1", in_one_thread=True)
    system.actions.behaviour["first"] = lambda _, context: (
        CompleteLater(timedelta(minutes=5)) if context.attempt == 1 else None
    )
    due(system, "first", "customer:1")
    system.tick()
    due(system, "second", "customer:1", Bucket(minute_of(NOON) + 1))
    system.ticks(4)
    assert system.outcome("second") is None
    system.ticks(4)
    assert (system.outcome("first"), system.outcome("second")) == ("completed", "completed")
    assert system.actions.maximum["customer:1"] == 1


def test_occurrences_have_the_limit_key_of_their_schedule() -> None:
    system = system_of("report=1", takes=0.002)
    system.put(
        taskId="hourly", scheduleExpression="rate(1 minute)", limitKey="report:a", catchUp="all", overlap="allow"
    )
    system.clock.forward(minutes=30)
    system.next_tick()
    ran = [task_id for task_id, _, _ in system.actions.ran if task_id.startswith("hourly#")]
    assert len(ran) == len(set(ran)) >= 29
    assert system.actions.maximum == {"report:a": 1}
    assert all(system.row(task_id)["limitKey"] == "report:a" for task_id in ran)


def test_retries_and_further_turns_stay_within_the_limit_and_the_shard() -> None:
    system = system_of("customer=1", grid=Grid(shard_count=8), in_one_thread=True)
    failures = iter((ValueError("no"), Reschedule(after=60)))

    def behaves(*_: object) -> None:
        if (error := next(failures, None)) is not None:
            raise error

    system.actions.behaviour["a"] = behaves
    due(system, "a", "customer:1", retryPolicy={"minBackoffSeconds": 60, "maximumRetryAttempts": 2})
    shard = system.rules.grid.shard_of("customer:1")
    system.tick()
    assert Bucket.parse(system.row("a")["taskDateTime"]).shard == shard
    system.ticks(3)
    assert Bucket.parse(system.row("a")["taskDateTime"]).shard == shard
    system.ticks(4)
    assert system.outcome("a") == "completed"
    assert system.actions.times("a") == 3


def test_when_the_number_of_shards_changes_no_two_processes_run_tasks_of_one_key() -> None:
    system = system_of("customer=1", in_one_thread=True)
    old = lease_of(system, "old")  # it knows one shard
    assert old.acquire() is None
    system.rules = rules_of("customer=1", grid=Grid(shard_count=8), in_one_thread=True)
    publish_settings(system.store, system.rules.grid, now=system.clock())
    due(system, "a", "customer:1", Bucket(minute_of(NOON) + 1, system.rules.grid.shard_of("customer:1")))
    system.ticks(2)
    assert system.outcome("a") is None
    old.release({})
    system.ticks(2)
    assert system.outcome("a") == "completed"
    assert isinstance(old.acquire(), HeldElsewhere)  # its settings are no longer those of the installation


def test_a_place_that_is_kept_is_known_when_the_number_of_shards_has_changed() -> None:
    system = with_a_place_that_is_kept()
    system.rules = rules_of("customer=1", grid=Grid(shard_count=8), in_one_thread=True)
    system.next_tick()
    due(system, "second", "customer:1", Bucket(minute_of(system.clock()) + 1, system.rules.grid.shard_of("customer:1")))
    system.ticks(3)
    assert system.row("second")["status"] == "scheduled"


def lease_of(system: InProcess, token: str, minutes: float = 2) -> LimitsLease:
    """That of shard 0, for a process that ends after these minutes."""
    settings = publish_settings(system.store, system.rules.grid, now=system.clock())
    until = system.clock() + timedelta(minutes=minutes)
    return LimitsLease(system.store, system.clock, settings, 0, token=token, until=until)


def turns_of(system: InProcess, lease: LimitsLease | None = None) -> KeyTurns:
    return KeyTurns(system.rules.key_limits, lease or lease_of(system, "mine"), system.clock)


def task_of(task_id: str, key: str) -> Task:
    return Task.from_row(scheduled_row(task_id, BUCKET, limitKey=key))


def test_the_tasks_of_a_rate_begin_evenly_spaced() -> None:
    system = system_of("mail=30/m")
    turns = turns_of(system)
    for n in range(5):
        assert turns.offer(BUCKET, f"a-{n}", "mail:x")
    assert [task_id for _, task_id in turns.take(25)] == ["a-0", "a-1"]  # what may begin within two seconds
    first, second = task_of("a-0", "mail:x"), task_of("a-1", "mail:x")
    assert (turns.seconds_to_wait(first), turns.seconds_to_wait(second)) == (0, 2)
    assert (turns.take(25), turns.goes_on_until(NOON)) == ([], True)
    system.clock.forward(seconds=1.5)
    assert turns.seconds_to_wait(second) == 0.5
    system.clock.forward(seconds=0.6)  # it begins late, and those after it are as much later
    assert turns.seconds_to_wait(second) == 0
    turns.freed(first)
    turns.freed(second)
    assert [task_id for _, task_id in turns.take(25)] == ["a-2"]
    assert turns.seconds_to_wait(task_of("a-2", "mail:x")) == 2


def test_a_start_is_kept_for_a_task_that_waits_for_the_rate_of_its_action() -> None:
    system = system_of("mail=30/m")
    turns = turns_of(system)
    for n in range(3):
        turns.offer(BUCKET, f"a-{n}", "mail:x")
    turns.take(25)
    first, second = task_of("a-0", "mail:x"), task_of("a-1", "mail:x")
    assert turns.seconds_to_wait(first) == 0
    turns.keep_start(first, 1)
    assert turns.seconds_to_wait(second) == 3
    system.clock.forward(seconds=1)
    assert turns.seconds_to_wait(first) == 0
    turns.keep_start(first, 0.5)  # again
    assert turns.seconds_to_wait(second) == 2.5
    system.clock.forward(seconds=0.5)
    assert (turns.seconds_to_wait(first), turns.seconds_to_wait(second)) == (0, 2)
    assert turns.seconds_to_wait(first) == 2  # it has begun, and this is another attempt
    system.clock.forward(seconds=2)
    assert turns.seconds_to_wait(second) == 0
    turns.keep_start(first, 9)  # it has come too late: another has begun
    assert turns.seconds_to_wait(first) == 2
    turns.keep_start(second, 1)
    assert turns.seconds_to_wait(first) == 3


def test_a_key_with_a_rate_is_not_held_up_by_the_rate_of_its_action() -> None:
    """While a task waits for the one, it does not lose its start of the other."""
    system = system_of("host=6/m")
    clock, turns, rates = system.clock, turns_of(system), RateLimits(["send=5/s"], clock=system.clock)
    waiting: list[tuple[datetime, int, Claimed]] = []
    begun: list[tuple[datetime, str]] = []

    def submit(claimed: Claimed, seconds: float) -> None:
        heapq.heappush(waiting, (clock() + timedelta(seconds=seconds), len(begun) + len(waiting), claimed))

    def run(task: Task, context: ActionContext) -> None:
        rates.acquire(task, "send")
        begun.append((clock(), str(task.limit_key)))

    system.actions.run = run  # type: ignore[method-assign]
    end = NOON + timedelta(minutes=2)
    pool = TaskPool(
        system.actions,
        threads=1,
        deadline=end,
        stop_waiting=end,
        clock=clock,
        ended=lambda attempted: turns.freed(attempted.task),
        unbegun=lambda claimed: pytest.fail("it is released"),
        seconds_to_wait=turns.seconds_to_wait,
        keep_start=turns.keep_start,
        in_one_thread=True,
    )
    pool._wait_for_limit = submit  # type: ignore[method-assign]
    for n in range(3):
        for key in range(20):
            assert turns.offer(BUCKET, f"{n}-{key}", f"host:{key}")
    while len(begun) < 60 and clock() < end:
        for _, task_id in turns.take(100):
            task = task_of(task_id, f"host:{task_id[2:]}")
            submit(Claimed(task, {}), 0)
        if waiting and waiting[0][0] <= clock():
            pool.submit(heapq.heappop(waiting)[2])
        else:
            clock.forward(seconds=0.05)
    assert [at for at, _ in begun][-1] < NOON + timedelta(seconds=25)
    of_keys = [[at for at, name in begun if name == f"host:{key}"] for key in range(20)]
    for starts, interval in [*((one, 10) for one in of_keys), ([at for at, _ in begun], 0.2)]:
        assert all(later - at >= timedelta(seconds=interval - 0.02) for at, later in pairwise(starts))


def test_a_pass_keeps_the_start_of_what_waits_for_the_rate_of_its_action(monkeypatch: pytest.MonkeyPatch) -> None:
    system = system_of("host=6/m", in_one_thread=True)
    early, waits = [RateLimited(0.1)], list[float]()

    def comes_again(pool: TaskPool, claimed: Claimed, seconds: float) -> None:
        waits.append(seconds)
        if len(waits) < 3:
            pool.submit(claimed)

    monkeypatch.setattr(TaskPool, "_wait_for_limit", comes_again)
    system.actions.behaviour["a"] = lambda *_: raises(early.pop())() if early else None
    due(system, "a", "host:x")
    system.tick()
    assert (waits, system.outcome("a")) == ([0.1], "completed")


def test_the_next_process_keeps_to_the_rate_of_the_last_one() -> None:
    system = system_of("mail=1/h")
    lease = lease_of(system, "mine")
    turns = turns_of(system, lease)
    turns.offer(BUCKET, "a-0", "mail:x")
    turns.take(25)
    assert turns.seconds_to_wait(task_of("a-0", "mail:x")) == 0
    turns.freed(task_of("a-0", "mail:x"))
    turns.end()
    system.clock.forward(minutes=59)
    following = turns_of(system, lease_of(system, "next"))
    following.offer(BUCKET, "a-1", "mail:x")
    following.offer(BUCKET, "b-0", "mail:y")
    assert [task_id for _, task_id in following.take(25)] == ["b-0"]
    system.clock.forward(minutes=1)
    assert [task_id for _, task_id in following.take(25)] == ["a-1"]


def test_after_a_process_that_died_each_key_waits_an_interval_from_its_end() -> None:
    system = system_of("mail=1/h")
    lease_of(system, "dead", minutes=15).acquire()
    system.clock.forward(minutes=16)
    turns = turns_of(system)
    turns.offer(BUCKET, "a", "mail:x")
    assert turns.take(25) == []
    system.clock.to(NOON + timedelta(hours=1, minutes=15))
    assert [task_id for _, task_id in turns.take(25)] == ["a"]


@pytest.mark.parametrize("asked", ["when a task may begin", "whether a pack may be opened"])
def test_what_is_asked_of_a_key_before_the_lease_is_held_leaves_its_rate_alone(asked: str) -> None:
    """Only the lease says from when on its next task may begin."""
    system = system_of("mail=1/h")
    lease_of(system, "dead", minutes=15).acquire()
    turns = turns_of(system)
    if asked == "when a task may begin":
        assert turns.expected("mail:x", 1) == timedelta(hours=1)
    else:
        assert not turns.opens(task_of("pack", "mail:x"))
    system.clock.forward(minutes=16)
    turns.offer(BUCKET, "a", "mail:x")
    assert turns.take(25) == []
    system.clock.to(NOON + timedelta(hours=1, minutes=15))
    assert [task_id for _, task_id in turns.take(25)] == ["a"]


def test_keys_take_turns() -> None:
    system = system_of("tenant=2")
    turns = turns_of(system)
    for key in ("tenant:a", "tenant:b", "tenant:c"):
        for n in range(4):
            turns.offer(BUCKET, f"{key[-1]}-{n}", key)
    assert [task_id for _, task_id in turns.take(25)] == ["a-0", "b-0", "c-0", "a-1", "b-1", "c-1"]
    assert turns.take(25) == []
    turns.freed(task_of("b-0", "tenant:b"))
    turns.freed(task_of("a-1", "tenant:a"))
    assert [task_id for _, task_id in turns.take(25)] == ["b-2", "a-2"]


def test_a_key_has_no_more_than_a_hundred_entries_in_memory() -> None:
    turns = turns_of(system_of("tenant=1"))
    taken = [turns.offer(BUCKET, f"a-{n:03}", "tenant:a") for n in range(150)]
    assert taken == [True] * 100 + [False] * 50
    assert turns.to_read_on() is None  # there are enough of it
    for _ in range(90):
        ((_, task_id),) = turns.take(25)
        turns.freed(task_of(task_id, "tenant:a"))
    key, position = turns.to_read_on() or ("", Resume(0))
    assert key == "tenant:a"
    assert position < Resume(BUCKET.minute, "a-100")
    assert Resume(BUCKET.minute, "a-099") < Resume(BUCKET.minute, "a-100")


def test_a_bucket_that_is_not_closed_is_not_read_on() -> None:
    """It lists what is not due yet, too."""
    turns = turns_of(system_of("tenant=1"))
    taken = [turns.offer(BUCKET, f"a-{n:03}", "tenant:a", is_closed=False) for n in range(150)]
    assert taken == [True] * 100 + [False] * 50
    for _ in range(90):
        ((_, task_id),) = turns.take(25)
        turns.freed(task_of(task_id, "tenant:a"))
    assert turns.to_read_on() is None


def test_what_is_read_on_for_one_key_is_offered_for_all() -> None:
    turns = turns_of(system_of("tenant=1"))
    for n in range(150):
        for key in "abc":
            turns.offer(BUCKET, f"{n:03}-{key}", f"tenant:{key}")
    start, end = Resume(BUCKET.minute, "100-"), Resume(BUCKET.minute, "120-b")
    assert turns.begin_to_offer(Resume(BUCKET.minute, "100-c"), end) == []  # it begins after what was passed over
    for entry in turns.take(25):
        turns.freed(task_of(entry[1], f"tenant:{entry[1][-1]}"))
    lines = turns.begin_to_offer(start, end)
    assert [line.key for line in lines] == ["tenant:a", "tenant:b", "tenant:c"]
    assert [turns.offer(BUCKET, f"100-{key}", f"tenant:{key}") for key in "abc"] == [True] * 3
    assert not turns.offer(BUCKET, "101-a", "tenant:a")
    turns.read_through(lines, end)
    again = turns.begin_to_offer(Resume(BUCKET.minute, "101-"), end)
    assert [line.key for line in again] == ["tenant:a"]  # the first that had no room
    turns.read_through(again, None)
    rest = turns.begin_to_offer(Resume(BUCKET.minute), None)
    assert [line.key for line in rest] == ["tenant:b", "tenant:c"]  # from the end on


def test_while_others_wait_it_is_read_on_once_there_is_room_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_WAITING", 400)
    keys = [f"k{n:02}" for n in range(39)]
    turns = turns_of(system_of("tenant=1"))
    for n in range(15):
        for key in keys:
            turns.offer(BUCKET, f"{n:03}-{key}", f"tenant:{key}")

    def end_some() -> int:
        entries = turns.take(10)
        for _, task_id in entries:
            turns.freed(task_of(task_id, f"tenant:{task_id[-3:]}"))
        return len(entries)

    waiting = 400
    while turns.to_read_on() is None:
        waiting -= end_some()
    assert waiting == 200
    turns.begin_to_offer(Resume(BUCKET.minute), None)
    for _ in range(20):
        end_some()
    assert turns.to_read_on() is None  # nothing was passed over any more


def test_a_key_of_which_none_waits_is_read_on_once_as_many_have_begun_as_come_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the index it would have had no turn before them, either; and each reading finds room for more."""
    monkeypatch.setattr(limits, "MAX_WAITING", 800)

    def begun_before_it_is_read_on(keys: int, of_each: int) -> int:
        """800 entries wait, of some keys that are not held back; some of others were passed over."""
        turns = turns_of(system_of("tenant=1"))
        for n in range(of_each):
            for key in range(keys):
                assert turns.offer(BUCKET, f"{n:03}-{key}", f"tenant:{key}")
        for key in range(keys, keys + 500):
            assert not turns.offer(BUCKET, f"100-{key}", f"tenant:{key}")
        begun = 0
        while turns.to_read_on() is None:
            ((_, task_id),) = turns.take(1)
            turns.freed(task_of(task_id, f"tenant:{task_id[4:]}"))
            begun += 1
        return begun

    assert begun_before_it_is_read_on(keys=8, of_each=100) == 100  # there must be room for those of one key
    assert begun_before_it_is_read_on(keys=200, of_each=4) == 200
    assert begun_before_it_is_read_on(keys=800, of_each=1) == 400  # half of what there is room for


@pytest.mark.parametrize("in_one_thread", [False, True])
def test_a_poll_waits_for_room_while_many_keys_may_have_a_turn(
    in_one_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it passed over would be listed once more."""
    monkeypatch.setattr(limits, "MAX_WAITING", 100)
    monkeypatch.setattr(limits, "MANY_KEYS", 0)  # whether many may depends on how fast threads are
    monkeypatch.setattr(polling, "PAGE", 25)
    system = system_of("tenant=1", in_one_thread=in_one_thread)
    listed = Counter[str]()
    query = system.store.query_bucket

    def counts(bucket: Bucket, **options: Any) -> Page:
        page = query(bucket, **options)
        listed.update(entry.task_id for entry in page.entries)
        return page

    monkeypatch.setattr(system.store, "query_bucket", counts)
    for n in range(400):
        due(system, f"a-{n:03}", f"tenant:{n % 60}")
    due(system, "b", None)
    system.tick()
    assert len(system.actions.ran) == 401
    assert {listed[f"a-{n:03}"] for n in range(400)} == {1}


def test_no_poll_waits_for_a_few_keys() -> None:
    """Behind thousands of entries of theirs may be other keys."""
    turns = turns_of(system_of("tenant=1"))
    for key in range(limits.MANY_KEYS):
        for n in range(10):
            turns.offer(BUCKET, f"{n:03}-{key}", f"tenant:{key}")
    assert turns.is_crowded(1)  # 10,000 wait
    ((_, task_id),) = turns.take(1)
    assert not turns.is_crowded(1)
    assert not turns.is_crowded(2)  # a key fewer may have a turn
    turns.freed(task_of(task_id, f"tenant:{task_id[4:]}"))
    assert turns.is_crowded(2)


def test_how_fast_a_key_goes_is_known_when_its_last_task_has_ended() -> None:
    """What waits is moved to the tick of its turn after the pass has left it, and all that ran has ended."""
    system = system_of("tenant=1")
    turns = turns_of(system)
    for n in range(20):
        turns.offer(BUCKET, f"a{n:02}", "tenant:a")
    for _ in range(limits.MEASURED):
        ((_, task_id),) = turns.take(1)
        system.clock.forward(seconds=30)
        turns.freed(task_of(task_id, "tenant:a"))
    ((_, last),) = turns.take(1)
    turns.leave()
    system.clock.forward(seconds=30)
    turns.freed(task_of(last, "tenant:a"))
    assert turns.expected("tenant:a", 4) == timedelta(minutes=2)


def test_a_task_without_a_place_is_not_admitted_whoever_claimed_it() -> None:
    system = system_of("tenant=1")
    turns = turns_of(system)
    assert turns.admits(task_of("a", "tenant:a"))
    assert not turns.admits(task_of("b", "tenant:a"))
    assert turns.admits(task_of("a", "tenant:b"))  # it was given another key: the place of the first is free again
    assert turns.admits(task_of("b", "tenant:a"))
    assert Turns(system.rules.key_limits).admits(task_of("c", "other:a"))
    assert not Turns(system.rules.key_limits).admits(task_of("c", "tenant:a"))


def test_a_rate_holds_when_the_number_of_shards_has_changed() -> None:
    system = system_of("mail=1/h")
    few = publish_settings(system.store, system.rules.grid, now=system.clock())
    until = system.clock() + timedelta(minutes=2)
    lease = LimitsLease(system.store, system.clock, few, 0, token="few", until=until)
    turns = turns_of(system, lease)
    turns.offer(BUCKET, "a-0", "mail:other")
    turns.take(25)
    assert turns.seconds_to_wait(task_of("a-0", "mail:other")) == 0
    turns.freed(task_of("a-0", "mail:other"))
    turns.end()
    system.rules = rules_of("mail=1/h", grid=Grid(shard_count=8))
    many = publish_settings(system.store, system.rules.grid, now=system.clock())
    shard = many.grid.shard_of("mail:other")
    assert shard != 0
    bucket = Bucket(minute_of(NOON), shard)
    lease = LimitsLease(system.store, system.clock, many, shard, token="many", until=until)
    following = turns_of(system, lease)
    following.offer(bucket, "a-1", "mail:other")
    assert following.take(25) == []
    system.clock.forward(hours=1)
    assert following.take(25) == [(bucket, "a-1")]


def test_a_rate_holds_when_the_number_of_shards_has_changed_and_a_process_died() -> None:
    system = system_of("mail=1/h")
    assert lease_of(system, "dead", minutes=15).acquire() is None
    many = publish_settings(system.store, Grid(shard_count=8), now=system.clock())
    shard = many.grid.shard_of("mail:other")
    assert shard != 0
    system.clock.forward(minutes=16)
    until = system.clock() + timedelta(hours=2)
    turns = turns_of(system, LimitsLease(system.store, system.clock, many, shard, token="many", until=until))
    bucket = Bucket(minute_of(NOON), shard)
    assert turns.offer(bucket, "a", "mail:other")
    assert turns.take(25) == []
    system.clock.to(NOON + timedelta(hours=1, minutes=15))
    assert turns.take(25) == [(bucket, "a")]


class CutOff(MemoryStore):
    """A table that answers nothing about these rows any more."""

    cut_off: frozenset[str] = frozenset()

    def get(self, task_id: str) -> Row | None:
        if task_id in self.cut_off:
            raise StoreError("no answer")
        return super().get(task_id)


def test_a_lease_whose_process_can_not_see_the_others_is_worth_nothing() -> None:
    system = system_of("tenant=1")
    system.store = store = CutOff()
    turns = turns_of(system)
    store.cut_off = frozenset({"_dynatick#settings"})
    assert not turns.offer(BUCKET, "a", "tenant:a")
    assert isinstance(turns.fault, StoreError)
    assert not turns.offer(BUCKET, "b", "tenant:a")
    assert not turns.admits(task_of("c", "tenant:a"))


def waits_for_a_completion(system: InProcess, task_id: str, status: str) -> None:
    """A task that was claimed with the token of ``task_of``."""
    due(system, task_id, "tenant:a", status=status, lease="mine", leaseUntil="2026-12-31T20:00:00Z")


def test_a_task_that_is_being_handed_over_keeps_its_place() -> None:
    system = system_of("tenant=1")
    lease = lease_of(system, "mine")
    turns = turns_of(system, lease)
    task = replace(task_of("a", "tenant:a"), lease="mine")
    assert turns.admits(task)
    waits_for_a_completion(system, "a", "running")
    assert turns.hold([task])
    assert lease.look_at_held() == []  # by the coordinator, before the record is written
    turns.is_handed_over(task)
    turns.end()
    waits_for_a_completion(system, "a", "waiting")
    following = turns_of(system, lease_of(system, "next"))
    assert not following.admits(task_of("b", "tenant:a"))


def test_what_could_not_be_held_keeps_the_lease_until_the_end_of_its_process() -> None:
    system = system_of("tenant=1")
    lease = lease_of(system, "mine")
    turns = turns_of(system, lease)
    task = replace(task_of("a", "tenant:a"), lease="mine")
    assert turns.admits(task)
    store, lease._store = lease._store, Unanswering()
    with pytest.raises(StoreError):
        turns.hold([task])
    lease._store = store
    turns.is_handed_over(task)  # nobody knows whether it was
    turns.end()
    assert isinstance(lease_of(system, "next").acquire(), HeldElsewhere)


def test_a_write_of_places_is_not_taken_for_an_earlier_one_that_got_no_answer() -> None:
    """It took effect, and nothing could be read then: the next write of that version is another one."""
    system = system_of("tenant=2")
    lease = lease_of(system, "mine")
    turns = turns_of(system, lease)
    first, second = (replace(task_of(task_id, "tenant:a"), lease="mine") for task_id in ("a", "b"))
    assert turns.admits(first) and turns.admits(second)
    store, lease._store = lease._store, Mute(lease._store)
    with pytest.raises(StoreError):
        turns.hold([first])
    lease._store = store
    with pytest.raises(StoreError):
        turns.hold([second])
    assert [one["taskId"] for one in system.row(limits_id(0))["held"]] == ["a"]


def test_a_place_that_can_not_be_written_discards_no_other_record() -> None:
    """Each task ends in the same batch of records as the one that is handed over, and has no attempt left."""
    w = world(rules=rules_of("customer=1", in_one_thread=True))
    for n, task_id in enumerate(["first", "second", *ids(20)]):
        w.insert(task_id, limitKey=f"customer:{n}", retryPolicy={"maximumRetryAttempts": 0})
    w.behave(lambda *_: CompleteLater(timedelta(hours=2)), "first")
    w.behave(raises(PermanentError("no")), "second")
    w.rigged.throttled = is_held = Once(lambda change: change.task_id == limits_id(0) and bool(change.set.get("held")))
    with pytest.raises(StoreError, match="the limits of shard 0"):
        w.next_tick()
    assert is_held.done
    assert [w.outcome(task_id) for task_id in ids(20)] == ["completed"] * 20
    assert (w.outcome("second"), w.row("first")["status"]) == ("failed", "running")
    w.ticks(6)
    assert w.outcome("first") == "failed"  # as one whose record had no answer
    assert w.actions.times("second") == 1


def test_only_tasks_with_limit_keys_need_room_to_be_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_HELD_BYTES", 0)
    monkeypatch.setattr(invocation, "RECORD_DELAY_SECONDS", 0.5)  # so that they are recorded together
    w = world(rules=rules_of("customer=1"))
    w.insert("free")
    w.insert("keyed", limitKey="customer:1")
    both = threading.Barrier(2)

    def hands_over(*_: object) -> CompleteLater:
        both.wait(LONG)
        return CompleteLater(timedelta(hours=2))

    w.behave(hands_over, "free", "keyed")
    w.next_tick()
    assert (w.row("free")["status"], w.row("keyed")["status"]) == ("waiting", "scheduled")
    assert (w.row("keyed")["attempt"], "attempts" in w.row("keyed")) == (0, False)


def test_what_waits_for_room_in_the_record_has_its_turn_as_soon_as_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAX_HELD_BYTES", limits.size_of_held("a", "tenant:a"))
    system = system_of("tenant=1")
    turns = turns_of(system, lease_of(system, "mine"))
    task = replace(task_of("a", "tenant:a"), lease="mine")
    assert turns.admits(task) and turns.hold([task])
    turns.is_handed_over(task)
    waits_for_a_completion(system, "a", "waiting")
    assert turns.offer(BUCKET, "b", "tenant:b") and turns.offer(BUCKET, "c", "tenant:c")
    assert (turns.take(5), turns.has_turn) == ([], False)
    due(system, "a", "tenant:a", status="completed", outcome="completed")
    turns.look_at_held()
    assert turns.take(5) == [(BUCKET, "b")]
    turns.not_claimed(BUCKET, "b")
    assert turns.take(5) == [(BUCKET, "c")]


def test_while_the_record_has_no_room_tasks_of_a_class_that_is_handed_over_wait_and_others_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = world(rules=rules_of("customer=1", "mail=1", in_one_thread=True))
    first, *others = all_ids = ids(4)
    w.behave(lambda *_: CompleteLater(timedelta(hours=2)), *all_ids)
    w.insert(first, limitKey="customer:0")
    w.next_tick()
    assert w.row(first)["status"] == "waiting"
    room = limits.size_of_held(first, "customer:0")
    monkeypatch.setattr(limits, "MAX_HELD_BYTES", 2 * room)
    for n, task_id in enumerate(others, 1):
        w.insert(task_id, limitKey=f"customer:{n}")
    w.insert("mail", limitKey="mail:1")
    w.ticks(3)
    assert sorted(str(w.row(one)["status"]) for one in others) == ["scheduled", "scheduled", "waiting"]
    assert w.outcome("mail") == "completed"
    client = TaskClient(w.rigged, clock=w.clock)
    client.complete(completion_token(str(w.row(first)["lease"]), first))
    w.ticks(6)
    assert sorted(str(w.row(one)["status"]) for one in others) == ["scheduled", "waiting", "waiting"]
    assert sorted(map(w.actions.times, all_ids)) == [0, 1, 1, 1]


class Unanswering(MemoryStore):
    def write(self, change: ConditionalUpdate) -> Result:
        return Unknown("no answer")


class Mute(Unanswering):
    """What is written to the table takes effect, and nothing is answered."""

    def __init__(self, table: Store) -> None:
        super().__init__()
        self.table = table

    def write(self, change: ConditionalUpdate) -> Result:
        self.table.write(change)
        return super().write(change)

    def get_many(self, *asked: object, **more: object) -> NoReturn:
        raise StoreError("no answer")

    get = get_many


@pytest.mark.parametrize(("keys", "are_known"), [(limits.MAX_STARTS_BYTES // 286, True), (limits.MAX_STARTS, False)])
def test_what_a_process_leaves_fits_into_a_row_however_long_its_keys_are(keys: int, are_known: bool) -> None:
    """If the next one does not know each start, all wait an interval."""
    system = system_of("mail=1/h")

    def long(n: int) -> Task:
        return replace(task_of(f"t{n}", f"mail:{n:0251}"), lease=f"{n:032}")

    first = lease_of(system, "first")
    assert first.acquire() is None
    first.release({str(long(n).limit_key): NOON + timedelta(hours=1) for n in range(keys)})
    following = lease_of(system, "next")
    assert following.acquire() is None
    assert len(following.starts) == (keys if are_known else 0)
    assert (following.began_until >= NOON) is not are_known
    assert following.hold([long(n) for n in range(500)])
    assert not following.hold([long(n) for n in range(600)])
    assert item_bytes(system.row(limits_id(0))) < 400 * 1024


def test_a_limits_record_that_can_not_be_written_says_why() -> None:
    lease = lease_of(system_of("tenant=1"), "mine")
    assert lease.acquire() is None
    lease._store = Unanswering()
    with pytest.raises(StoreError, match="cannot write the limits of shard 0: no answer"):
        lease.hold([task_of("a", "tenant:a")])


@pytest.mark.parametrize("limit", ["tenant=1", "tenant=2"])
def test_a_task_that_a_lagging_index_lists_in_two_buckets_has_one_place(limit: str) -> None:
    turns = turns_of(system_of(limit))
    other = BUCKET._replace(minute=BUCKET.minute + 1)
    assert turns.offer(BUCKET, "a", "tenant:a")
    assert turns.offer(other, "a", "tenant:a")
    assert turns.take(25) == [(BUCKET, "a")]
    assert turns.knows(other, "a")  # it still waits
    turns.not_claimed(other, "a")  # in another claim, which did not ask for a place
    assert turns.take(25) == []
    turns.not_claimed(BUCKET, "a")
    assert turns.take(25) == [(other, "a")]
    assert turns.admits(task_of("a", "tenant:a"))
    assert not turns.knows(BUCKET, "a")
    assert not turns.offer(BUCKET, "a", "tenant:a")  # it stays in the index: if it lies there, that is not drained


def test_nothing_is_begun_after_the_lease_was_given_back() -> None:
    system = system_of("tenant=1")
    turns = turns_of(system)
    assert turns.offer(BUCKET, "a", "tenant:a")
    turns.leave()
    turns.end()
    system.clock.forward(seconds=5)
    assert not turns.offer(BUCKET, "b", "tenant:a")  # what was read on comes late
    assert lease_of(system, "next").acquire() is None


def test_clocks_may_differ_at_the_end_of_a_lease() -> None:
    system = system_of("tenant=1")
    assert lease_of(system, "dead", minutes=2).acquire() is None
    system.clock.forward(minutes=2)
    assert isinstance(lease_of(system, "next").acquire(), HeldElsewhere)
    system.clock.forward(seconds=SKEW_MARGIN.total_seconds() + 1)
    assert lease_of(system, "next").acquire() is None


def test_a_process_that_knows_another_number_of_shards_keeps_no_lease() -> None:
    system = system_of("tenant=1")
    old = lease_of(system, "old")
    system.rules = rules_of("tenant=1", grid=Grid(shard_count=8))
    new = lease_of(system, "new")
    assert isinstance(old.acquire(), HeldElsewhere)
    assert new.acquire() is None  # that one has released it again


def test_processes_that_know_the_same_number_of_shards_each_have_the_lease_of_one() -> None:
    system = system_of("tenant=1")
    lease_of(system, "old")
    system.rules = rules_of("tenant=1", grid=Grid(shard_count=8))
    settings = publish_settings(system.store, system.rules.grid, now=system.clock())
    until = system.clock() + timedelta(minutes=2)
    for shard in range(8):
        lease = LimitsLease(system.store, system.clock, settings, shard, token=f"of {shard}", until=until)
        assert lease.acquire() is None


def test_what_the_last_but_one_process_left_says_nothing_of_one_that_died() -> None:
    system = system_of("mail=1/h")
    lease = lease_of(system, "first")
    assert lease.acquire() is None
    lease.release({"mail:x": NOON + timedelta(minutes=30)})
    assert lease_of(system, "dead", minutes=15).acquire() is None  # it may have begun one at 12:14
    system.clock.to(NOON + timedelta(minutes=31))
    turns = turns_of(system)
    turns.offer(BUCKET, "a", "mail:x")
    assert turns.take(25) == []


class Lagging(MemoryStore):
    """An index that shows no limit keys yet."""

    def query_bucket(self, bucket: Bucket, **given: object) -> Page:
        page = super().query_bucket(bucket, **given)
        return Page([replace(entry, limit_key=None) for entry in page.entries], page.after)


def test_what_the_index_shows_without_its_key_is_not_begun_beyond_the_limit() -> None:
    system = system_of("tenant=1", takes=0.01)
    system.store = Lagging()
    for n in range(8):
        due(system, f"a-{n}", "tenant:a")
    system.tick()
    assert system.actions.maximum == {"tenant:a": 1}


def test_a_row_that_names_the_shard_of_another_key_is_placed_before_it_is_due() -> None:
    system = system_of("customer=1", grid=Grid(shard_count=8))
    own = system.rules.grid.shard_of("customer:1")
    wrong = Bucket(minute_of(NOON) + 60, (own + 1) % 8)
    row = system.put(**scheduled_row("raw", wrong, limitKey="customer:1"))
    assert row["taskDateTime"] == str(wrong._replace(shard=own))


def test_what_its_process_left_running_is_not_claimed_while_its_key_has_no_place() -> None:
    system = with_a_place_that_is_kept()
    bucket = Bucket(minute_of(NOON) + 1)
    due(system, "lost", "customer:1", bucket, **LOST)
    system.next_tick()
    order = PassOrder(
        tick=bucket.minute, shard=0, continuation=1, resume=Resume(bucket.minute), left=((bucket, "lost"),)
    )
    system.handle(order.to_event())  # a continuation claims it first, without its turn
    assert (system.row("lost")["lease"], system.row("lost")["attempt"]) == ("gone", 1)
    TaskClient(system.store, clock=system.clock).cancel("first")
    system.next_tick()
    assert (system.outcome("lost"), system.row("lost")["attempt"]) == ("completed", 2)
