"""What a task costs, held exactly: capacity units, calls and statements, as the counting endpoint counts them.

These depend on the code alone, not on how busy the machine is; a change that costs more must say so here. Where it is a
matter of time how many go together in a call, or how often a bucket is polled, the bound is one that only another
way of working can pass. Times are not asserted anywhere: they are what `make bench` is for.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from dynatick import Commit, CompleteLater, NewTask, TaskClient
from dynatick.actions.rate_limit import RateLimits
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.completion import completion_token
from dynatick.domain.instants import format_instant
from dynatick.domain.task import Row, Task
from dynatick.engine.cursor import acquire_shard, cursor_id
from dynatick.engine.invocation import RECORD_DELAY_SECONDS
from dynatick.engine.orders import PassOrder
from dynatick.engine.ports import ActionContext
from dynatick.engine.rates import RateRecords
from dynatick.store.dynamodb import DynamoStore
from dynatick_stack.bench import units
from dynatick_stack.bench.installation import ACTION, Clock, Installation
from dynatick_stack.counting.counts import Counts, Engine

TASKS = 500
BATCHES = TASKS // 25

INSERT_UNITS = 2  # the row, and its entry in the index
CLAIM_UNITS = 1  # what a claim changes is not in the index
RECORD_UNITS = 2  # the outcome is
MOVE_UNITS = 3  # the row, its old entry in the index, and its new one
NORMALISE_UNITS = 2  # a row without a bucket costs 1 to put; then it gets one, and so an entry


def of(counts: Counts, operation: str) -> tuple[int, int, float, float]:
    """Calls, statements, read units, write units."""
    found = counts.by_operation.get(operation)
    return (0, 0, 0, 0) if found is None else (found.calls, found.statements, found.read_units, found.write_units)


def test_where_a_task_comes_from_costs_no_unit(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where no span is current, the row says nothing of it."""
    installation = Installation.fresh(engine.url)
    bucket, client = installation.bucket(), installation.client
    client.insert("first", task_date_time=bucket, action="log")  # which reads the settings
    meter = units.Meter(engine)
    client.insert("untraced", task_date_time=bucket, action="log")
    untraced = meter.read()
    assert "traceparent" not in client.get("untraced").row
    meter.read()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider())
    client.insert("traced", task_date_time=bucket, action="log")
    traced = meter.read()

    assert untraced.total.write_units == INSERT_UNITS
    assert client.get("traced").row.keys() - client.get("untraced").row.keys() == {"traceparent"}
    assert traced.by_operation == untraced.by_operation


def test_a_task_with_a_time(engine: Engine) -> None:
    life = units.timed(engine, TASKS)

    assert of(life.insert, "BatchExecuteStatement") == (BATCHES, TASKS, 0, TASKS * INSERT_UNITS)
    assert of(life.insert, "GetItem") == (1, 1, 1, 0)  # the settings in force
    assert set(life.insert.by_operation) == {"BatchExecuteStatement", "GetItem"}

    # The stream tells the scheduler of each; it reads the cursor once a batch of 100, and the settings, and writes
    # nothing. What the processor writes does not reach it.
    assert life.scheduler_batches == TASKS // 100
    assert set(life.scheduler.by_operation) == {"GetItem"}
    assert life.scheduler.total.calls <= TASKS // 100 + life.ticks

    calls, statements, _, write_units = of(life.processor, "BatchExecuteStatement")
    assert statements == 2 * TASKS  # one claim, one record
    assert write_units == TASKS * (CLAIM_UNITS + RECORD_UNITS)
    assert 2 * BATCHES <= calls <= 3 * BATCHES
    assert of(life.processor, "UpdateItem") == (2 * life.ticks, 2 * life.ticks, 0, 2 * life.ticks)  # the cursor
    assert of(life.processor, "PutItem") == (1, 1, 0, 1)  # the tick's record
    assert life.total.refused == 0  # nothing was lost and tried again
    assert "BatchGetItem" not in life.processor.by_operation  # claims bring the payload with them

    polls = of(life.processor, "Query")
    # A bucket of 500 is one page. It is polled when it is due, in that pass once more, at the next tick, and finally
    # when the index has settled; a busy machine may add a round or two. Other polls are at empty buckets.
    entry_bytes = 160  # with its outcome; more than there are
    assert polls[2] <= 6 * math.ceil(TASKS * entry_bytes / 4096) * 0.5 + polls[0] * 0.5
    assert life.per_task("read_units") <= 0.25  # a bucket of 500; less than half of it in large ones


def test_a_subject_costs_one_write_unit_at_the_insert_and_none_later(engine: Engine) -> None:
    life = units.timed(engine, TASKS, subject="customer:4711")
    assert of(life.insert, "BatchExecuteStatement") == (BATCHES, TASKS, 0, TASKS * (INSERT_UNITS + 1))
    _, statements, _, write_units = of(life.processor, "BatchExecuteStatement")
    assert (statements, write_units) == (2 * TASKS, TASKS * (CLAIM_UNITS + RECORD_UNITS))


def test_a_limit_key_costs_no_unit_for_a_task_and_two_for_a_pass(engine: Engine) -> None:
    installation = Installation.fresh(engine.url, key_limits=("customer=4",))
    bucket = installation.bucket()
    installation.fill(100, bucket, limit_key=lambda n: "customer:4711")
    meter = units.Meter(engine)
    (report,) = installation.next_tick()
    assert report.completed == 100
    spent = meter.read()
    _, statements, _, write_units = of(spent, "BatchExecuteStatement")
    assert (statements, write_units) == (200, 100 * (CLAIM_UNITS + RECORD_UNITS))
    own = spent.total.write_units - write_units
    assert own == 3 + 2  # the cursor twice and the tick's record; and the limits lease, acquired and released


def test_a_rate_limit_costs_a_unit_for_each_time_that_starts_are_reserved(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = Installation.fresh(engine.url, clock=Clock(still=True), threads=1)
    tokens = count()
    records = RateRecords(installation.store, lambda: str(next(tokens)))
    limits, run = RateLimits([f"{ACTION}=10000/s"], clock=installation.clock, records=records), installation.actions.run

    def limited(task: Task, context: ActionContext) -> object:
        limits.acquire(task, task.action)
        return run(task, context)

    monkeypatch.setattr(installation.actions, "run", limited)
    installation.fill(100, installation.bucket())
    meter = units.Meter(engine)
    (report,) = installation.next_tick()
    assert report.completed == 100
    spent = meter.read()
    reservations = next(tokens)
    assert reservations == 7  # of 1, 2, 4, … 64 starts
    _, _, _, write_units = of(spent, "BatchExecuteStatement")
    assert write_units == 100 * (CLAIM_UNITS + RECORD_UNITS)
    assert spent.total.write_units - write_units == 3 + reservations


def test_a_task_whose_action_is_paused_costs_nothing_until_its_bucket_is_polled_last_and_then_a_move(
    engine: Engine,
) -> None:
    installation = Installation.fresh(engine.url, clock=Clock(still=True), threads=1)
    installation.client.operations.pause_action(ACTION)
    installation.fill(100, installation.bucket())
    meter = units.Meter(engine)
    (report,) = installation.next_tick()
    while not report.put_off:
        spent = meter.read()
        assert {*spent.by_operation} & {"BatchExecuteStatement", "BatchGetItem"} == set()
        (report,) = installation.next_tick()
    assert (report.put_off, report.claimed) == (100, 0)
    spent = meter.read()
    assert of(spent, "BatchGetItem")[2] == 100
    assert of(spent, "BatchExecuteStatement") == (4, 100, 0, 100 * MOVE_UNITS)
    (report,) = installation.next_tick()
    assert (report.due, report.put_off) == (0, 0)
    assert {*meter.read().by_operation} & {"BatchExecuteStatement", "BatchGetItem"} == set()


def test_a_limit_key_costs_no_unit_for_a_member_of_a_batch(engine: Engine) -> None:
    spent = {}
    for key in (None, "customer:4711"):
        installation = Installation.fresh(engine.url, key_limits=("customer=4",))
        bucket = installation.bucket()
        meter = units.Meter(engine)
        installation.client.batches.insert(
            ({"n": n} for n in range(1_200)), batch_id="b", action=ACTION, due_at=bucket.instant, limit_key=key
        )
        inserted = meter.read().total.write_units
        (report,) = installation.next_tick()
        assert report.completed == 1_200
        spent[key] = inserted, meter.read().total.write_units
    (free_insert, free), (keyed_insert, keyed) = spent[None], spent["customer:4711"]
    assert keyed_insert == free_insert
    assert keyed == free + 2  # the limits lease, acquired and released


class Sent(list[tuple[Mapping[str, object], datetime]]):
    """A queue of wake-ups that keeps them."""

    def send(self, wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> int:
        self.extend(wake_ups)
        return 0


def test_a_limit_key_costs_no_unit_for_a_task_before_its_tick_and_a_pass_for_the_second(engine: Engine) -> None:
    sent = Sent()
    installation = Installation.fresh(
        engine.url, key_limits=("customer=4",), wake_ups=sent, clock=Clock(still=True), threads=1
    )
    at = installation.bucket(2).instant + timedelta(seconds=30)
    rows = [
        {"taskId": f"t{n}", "dueAt": format_instant(at), "action": ACTION, "limitKey": "customer:4711"}
        for n in range(100)
    ]
    assert installation.client.insert_many(rows).inserted == 100
    installation.next_tick()
    ((event, instant),) = sent
    assert instant == at
    installation.next_tick()
    installation.clock.to(at)
    meter = units.Meter(engine)
    installation.processor.handle({"Records": [{"body": json.dumps(event)}]}, hard_end=at + timedelta(minutes=2))
    report = installation.run_asked()[0]
    assert report.completed == 100
    spent = meter.read()
    _, statements, _, write_units = of(spent, "BatchExecuteStatement")
    assert (statements, write_units) == (200, 100 * (CLAIM_UNITS + RECORD_UNITS))
    assert spent.total.write_units - write_units == 3 + 2  # as at the tick: cursor, record of the tick, limits lease


def test_a_second_for_which_a_pass_runs_already_costs_a_unit(engine: Engine) -> None:
    installation = Installation.fresh(
        engine.url, key_limits=("customer=4",), wake_ups=Sent(), clock=Clock(still=True), threads=1
    )
    now, tick = installation.clock(), minute_of(installation.clock())
    acquire_shard(installation.store, 0, tick, token="of the pass that runs", now=now)
    meter = units.Meter(engine)
    invoked = installation.processor.handle(
        PassOrder(tick=tick, shard=0, woken_at=now).to_event(), hard_end=now + timedelta(minutes=2)
    )
    assert invoked.passed is not None
    assert invoked.passed.leased_elsewhere
    assert meter.read().total.write_units == 1


class Lasts:
    """An action that takes some seconds of a clock, each of which ends when the pass has read its cursor."""

    def __init__(self, seconds: int, clock: Clock, has_read: threading.Semaphore) -> None:
        self._seconds, self._clock, self._has_read = seconds, clock, has_read

    def run(self, task: Task, context: ActionContext) -> None:
        while self._has_read.acquire(blocking=False):
            pass  # when it began
        for _ in range(self._seconds):
            self._clock.to(self._clock() + timedelta(seconds=0.5))
            time.sleep(2 * RECORD_DELAY_SECONDS)  # wait: the pass may look round, and has nothing to read
            self._clock.to(self._clock() + timedelta(seconds=0.5))
            assert self._has_read.acquire(timeout=60)


def reads_of_a_pass(engine: Engine, monkeypatch: pytest.MonkeyPatch, seconds: int) -> int:
    """The reads of a pass that stays for some seconds with a task with a limit key."""
    clock, has_read = Clock(still=True), threading.Semaphore(0)
    installation = Installation.fresh(engine.url, key_limits=("customer=4",), wake_ups=Sent(), clock=clock)
    installation.actions.add("lasts", Lasts(seconds, clock, has_read))
    installation.next_tick()  # publishes its name
    row = {"taskId": "a", "taskDateTime": str(installation.bucket()), "action": "lasts", "limitKey": "customer:4711"}
    assert installation.client.insert_many([row]).inserted == 1
    get = DynamoStore.get

    def noted(store: DynamoStore, task_id: str) -> Row | None:
        row = get(store, task_id)
        if task_id == cursor_id(0):
            has_read.release()
        return row

    meter = units.Meter(engine)
    with monkeypatch.context() as patched:
        patched.setattr(DynamoStore, "get", noted)
        (report,) = installation.next_tick()
    assert report.completed == 1
    return of(meter.read(), "GetItem")[0]


def test_with_key_limits_a_pass_reads_its_cursor_once_each_second(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = 4  # settings and cursor; limits record, and whether the number of shards is still the same
    for seconds in (2, 5):
        assert reads_of_a_pass(engine, monkeypatch, seconds) == at_once + seconds


def test_a_task_that_is_put_off_to_its_turn_costs_three_units(engine: Engine) -> None:
    installation = Installation.fresh(engine.url, key_limits=("mail=6/h",), clock=Clock(still=True), threads=1)
    installation.fill(5, installation.bucket(), limit_key=lambda n: "mail:a")
    assert installation.next_tick()[0].completed == 1
    put_off: list[int] = []
    for _ in range(5):  # the bucket's final poll comes once the index has settled
        meter = units.Meter(engine)
        (report,) = installation.next_tick()
        put_off.append(report.put_off)
        assert of(meter.read(), "BatchExecuteStatement")[3] == report.put_off * 3
    assert sorted(put_off) == [0, 0, 0, 0, 4]  # once: to the ticks of their turns


def test_a_raw_row_without_a_time(engine: Engine) -> None:
    life = units.untimed(engine, TASKS)

    assert of(life.insert, "PutItem") == (TASKS, TASKS, 0, TASKS)
    assert life.insert.total.write_units == TASKS
    calls, statements, _, write_units = of(life.scheduler, "BatchExecuteStatement")
    assert (calls, statements, write_units) == (BATCHES, TASKS, TASKS * NORMALISE_UNITS)
    assert set(life.scheduler.by_operation) == {"BatchExecuteStatement", "GetItem"}
    # The stream tells of the row as it was put, and as it was normalised.
    assert life.scheduler_batches == 2 * TASKS // 100
    assert life.scheduler.total.reads <= life.scheduler_batches + life.ticks

    _, statements, _, write_units = of(life.processor, "BatchExecuteStatement")
    assert (statements, write_units) == (2 * TASKS, TASKS * (CLAIM_UNITS + RECORD_UNITS))


def test_a_failure_costs_no_more_than_a_success(engine: Engine) -> None:
    installation = Installation.fresh(engine.url)
    bucket = installation.bucket()
    installation.insert(100, bucket, fail_every=1)
    meter = units.Meter(engine)
    (report,) = installation.next_tick()
    assert report.failed == 100
    _, statements, _, write_units = of(meter.read(), "BatchExecuteStatement")
    assert (statements, write_units) == (200, 100 * (CLAIM_UNITS + RECORD_UNITS))


class Committing:
    """An action that commits one small item of a user's; in the same table, for want of another."""

    def __init__(self, table: str) -> None:
        self._table = table

    def run(self, task: Task, context: ActionContext) -> object:
        item = {"taskId": f"_dynatick#effect#{task.task_id}", "status": "effect", "outcome": "none"}
        return Commit([{"Put": {"TableName": self._table, "Item": item}}])


def test_a_commit_costs_twice_its_writes(engine: Engine) -> None:
    """Its outcome, beside the index, and its items: nothing for tasks that commit nothing."""
    installation = Installation.fresh(engine.url)
    installation.actions.add("commit", Committing(installation.table))
    installation.next_tick()  # publishes the action
    installation.client = TaskClient(installation.store, clock=installation.clock)
    bucket = installation.bucket()
    ids = [f"t{n:03d}" for n in range(100)]
    tasks = [NewTask(task_id=one, task_date_time=str(bucket), action="commit") for one in ids]
    assert installation.client.insert_many(tasks).inserted == 100
    meter = units.Meter(engine)
    (report,) = installation.next_tick()
    assert report.completed == 100
    counts = meter.read()
    assert of(counts, "BatchExecuteStatement")[1::2] == (100, 100 * CLAIM_UNITS)
    assert of(counts, "TransactWriteItems") == (100, 200, 0, 100 * (2 * 1 + 1 + 2 * 1))  # the row, its entry, the item


class HandingOver:
    """An action whose tasks are completed later, with heartbeats."""

    def run(self, task: Task, context: ActionContext) -> object:
        return CompleteLater(timedelta(hours=8), timedelta(minutes=10))


def test_to_hand_over_a_heartbeat_and_a_completion_cost_three_units_each(engine: Engine) -> None:
    """The row, and two for its place in the index: nothing for tasks that are not handed over."""
    installation = Installation.fresh(engine.url)
    installation.actions.add("later", HandingOver())
    installation.next_tick()  # publishes the action
    installation.client = client = TaskClient(installation.store, clock=installation.clock)
    bucket = installation.bucket()
    ids = [f"t{n:02d}" for n in range(50)]
    tasks = [NewTask(task_id=one, task_date_time=str(bucket), action="later") for one in ids]
    assert client.insert_many(tasks).inserted == 50
    meter = units.Meter(engine)
    (report,) = installation.next_tick()
    assert report.waiting == 50
    _, statements, _, write_units = of(meter.read(), "BatchExecuteStatement")
    assert (statements, write_units) == (100, 50 * (CLAIM_UNITS + 3))
    tokens = [completion_token(str(installation.store.get(one)["lease"]), one) for one in ids]
    installation.next_tick()
    for does in (client.heartbeat, client.complete):
        meter.read()
        for token in tokens:
            does(token)
        counts = meter.read()
        assert of(counts, "UpdateItem")[1::2] == (50, 50 * 3)
        assert counts.total.reads <= 50 + 1  # the row, and once the settings


def test_tasks_elsewhere_cost_nothing(engine: Engine) -> None:
    """The same work in a table that holds many other tasks: pending, and ended."""

    def work(installation: Installation, prefix: str) -> tuple[Counts, Counts, Counts]:
        bucket, meter = installation.bucket(), units.Meter(engine)
        installation.insert(100, bucket, prefix=prefix)
        inserted = meter.read()
        installation.next_tick()
        ticked = meter.read()
        installation.client.history(bucket, limit=50)
        return inserted, ticked, meter.read()

    installation = Installation.fresh(engine.url)
    work(installation, "first-")  # so that the settings are known
    before = work(installation, "a-")
    installation.insert(2_000, Bucket(installation.bucket().minute + 600), prefix="pending-")
    installation.insert(2_000, installation.bucket(), prefix="ended-")
    installation.next_tick()
    for _ in range(6):
        installation.next_tick()
    work(installation, "again-")
    after = work(installation, "b-")
    for one, other in zip(before, after, strict=True):
        assert one.total.write_units == other.total.write_units
        assert other.total.reads <= one.total.reads + 4  # polls are a matter of time
        assert other.total.read_units <= one.total.read_units + 4 * 2


def test_pages_of_history_cost_what_they_show(engine: Engine) -> None:
    installation = Installation.fresh(engine.url)
    bucket = installation.bucket()
    installation.insert(1_000, bucket, fail_every=10)
    installation.next_tick()
    client, meter = installation.client, units.Meter(engine)
    client.history(bucket, limit=100)
    page = meter.read()
    assert of(page, "Query")[0] == 1
    assert page.total.reads <= 2  # and the settings
    assert page.total.read_units <= 4
    client.history(bucket, status="failed", limit=100)
    failed = meter.read()  # a filter reads the whole bucket, and pays for it
    assert 1 <= of(failed, "Query")[0] <= 2
    assert failed.total.read_units <= 1_000 * 220 / 4096 * 0.5 + 2
