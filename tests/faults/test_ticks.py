"""Ticks are missed, late, doubled, overlap, run out of time, or their interval changes: nothing is skipped."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.faults.conftest import NewWorld
from tests.sandbox.journal import Began, Ended
from tests.sandbox.seam import Fault
from tests.sandbox.worker import NO_LEASE
from tests.sandbox.world import AFTER_LEASE, TIMEOUT, World

from dynatick import TaskClient
from dynatick.domain.buckets import Bucket, instant_of, minute_of
from dynatick.domain.instants import parse_instant
from dynatick.domain.task import Row
from dynatick.engine.counts import tick_record_id
from dynatick.engine.rules import MAX_TICK_MINUTES, Precision


def test_fault_02_a_tick_is_missed_or_late(world: World) -> None:
    """Its time is the event's."""
    first = minute_of(world.clock()) + 1
    for minute in range(4):
        world.insert_soon((f"{minute}-{n:02d}" for n in range(50)), taskDateTime=Bucket(first + minute))

    def executed() -> set[str]:
        return {task_id[0] for task_id in world.executed()}

    # The tick of minute 0 is missed. The next one serves both.
    world.clock.to(instant_of(first + 1) + timedelta(milliseconds=200))
    assert world.tick().what == "returned"
    assert executed() == {"0", "1"}

    # The tick of minute 2 fails at once, for its first write is refused; it is tried again when the clock shows more
    # than minute 3 already, and still is the tick of minute 2. Minute 3 is on time then if wake-ups start its pass.
    late = instant_of(first + 2)
    world.clock.to(late + timedelta(milliseconds=200))
    assert world.tick(late, faults=[Fault(at="acquire shard", do="refuse")]).what == "error"
    world.clock.to(late + timedelta(seconds=95))
    assert world.tick(late).what == "returned"
    assert executed() == ({"0", "1", "2", "3"} if world.delivers_wake_ups else {"0", "1", "2"})

    # A clock that is behind: an event of a minute to come would run its tasks early, and is refused.
    assert world.tick(world.clock() + timedelta(minutes=5)).what == "error"
    assert world.tick().what == "returned"
    assert executed() == {"0", "1", "2", "3"}
    world.assert_survived()


CLAIMS_UNDER_WAY = 2 * 25  # entries that may overtake each other: two claims of 25, made at the same time


@pytest.mark.parametrize("minutes", [5, 10, 20, 1440])
def test_fault_03_no_tick_while_tasks_arrive(world: World, minutes: int) -> None:
    """The backlog is drained in order of due time."""
    steps = min(minutes, 60)
    for step in range(steps):
        now = world.clock()
        # For the next tick, for later within the outage, and for the time after it.
        delays = [n * min(minutes, 20) for n in range(8)] if step % 2 else [30.0, 90.0, 3 * 60.0]
        world.insert_many(
            [{"taskId": f"{step:02d}-{n}", "dueAt": now + timedelta(seconds=delay)} for n, delay in enumerate(delays)]
        )
        world.put(taskId=f"{step:02d}-raw", delaySeconds=60)
        world.deliver_stream()
        world.clock.forward(minutes=minutes / steps)
    due = {task_id: Bucket.parse(row["taskDateTime"]).minute for task_id, row in world.rows().items()}
    assert world.next_tick().what == "returned"

    backlog = sorted(minute for minute in due.values() if minute <= minute_of(world.clock()))
    assert len(backlog) > 0.8 * len(due)
    order = [due[execution.task_id] for execution in world.journal.done()]
    assert len(order) == len(backlog)
    for place, minute in enumerate(order):
        # No task runs before more than two claims' worth of others that were due earlier.
        assert backlog[max(place - CLAIMS_UNDER_WAY - 16, 0)] <= minute, place
        assert minute <= backlog[min(place + CLAIMS_UNDER_WAY + 16, len(backlog) - 1)], place
    world.assert_survived()


@pytest.mark.parametrize("lease", [True, False], ids=["shard lease", "no shard lease"])
def test_fault_15_a_tick_fires_three_times_at_once(new_world: NewWorld, lease: bool) -> None:
    """The shard lease only saves work (protocol 16): without it all three drain the shard, and nothing runs twice."""
    world = new_world(DYNATICK_TASK_THREADS="4", **({} if lease else {NO_LEASE: "1"}))
    ids = world.insert_soon(200, payload={"seconds": 0.01})
    first, *others = world.ready_sandboxes(3)
    world.to_next_minute()
    # Without a lease, it must have some and leave some to the others, however slow they are to begin.
    first.begin(world.event(), timeout=TIMEOUT, faults=[] if lease else [Fault(at="claim", do="freeze after")])
    assert lease or world.end(first).what == "frozen"
    for sandbox in others:
        sandbox.begin(world.event(), timeout=TIMEOUT)
    assert [world.end(sandbox).what for sandbox in others] == ["returned"] * 2
    if not lease:
        first.thaw()
    assert world.end(first).what == "returned"
    workers = {execution.pid for execution in world.journal.done()}
    assert len(workers) == 1 if lease else len(workers) > 1
    assert world.tick().what == "returned"  # and once more
    assert len(world.journal.of(Began)) == len(ids)
    world.assert_survived()


def test_fault_15_a_frozen_tick_wakes_up_after_others_have_reclaimed(world: World) -> None:
    """Their clock is far ahead, and its leases seemed to be over: its records meet another's token (protocol 12)."""
    world.insert_soon(5, payload={"failures": 1}, retryPolicy={"minBackoffSeconds": 0})
    second = world.sandbox()
    first = world.frozen_tick(Fault(at="record", do="freeze before"))  # with failures in flight
    world.clock.forward(seconds=45)  # past the shard's lease
    for execution in world.journal.of(Ended):  # on a busy machine not all, by the first record
        world.edit(execution.task_id, "leaseUntil", "2026-12-31T11:00:00Z")
    second.begin(world.event(), timeout=TIMEOUT)
    assert world.end(second).what == "returned"
    (recovery,) = world.started()
    second.begin(recovery, timeout=TIMEOUT, faults=[Fault(at="record", do="freeze before")])
    assert world.end(second).what == "frozen"  # with second attempts, which succeeded
    done = world.executed()
    assert done
    world.thaw(first)
    assert {(row["status"], row["attempt"]) for row in map(world.row, done)} == {("running", 2)}
    world.thaw(second)
    assert {row["outcome"] for row in map(world.row, done)} == {"completed"}
    world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived()


# Interval in minutes, shards, ticks until the next deployment.
DEPLOYMENTS = [(5, 1, 2), (30, 4, 2), (5, 2, 5), (60, 1, 1), (1, 3, 8), (15, 1, 3)]


def test_fault_17_interval_and_shards_change_with_tasks_waiting(new_world: NewWorld) -> None:
    """Up and down. Tasks are due in the next three hours; inserted by each client, with the settings that it saw first,
    and by put-item. None is orphaned, none runs early."""
    world = new_world(DYNATICK_TICK_MINUTES="5")
    given = world.environ.get("DYNATICK_PRECISION", Precision.TICK)
    clients: list[TaskClient] = []
    for number, (minutes, shards, ticks) in enumerate(DEPLOYMENTS):
        precision = given if minutes <= MAX_TICK_MINUTES else Precision.TICK
        world.deploy(DYNATICK_TICK_MINUTES=str(minutes), DYNATICK_SHARD_COUNT=str(shards), DYNATICK_PRECISION=precision)
        world.tick()  # as a deployment does
        clients.append(TaskClient(world.store, clock=world.clock, settings_ttl_seconds=1e9))
        now = world.clock()
        for n in range(30):
            task_id, at = f"{number}-{n:02d}", now + timedelta(seconds=10 + n * 360 + number)
            if n % 3:
                world.insert(task_id, client=clients[n % len(clients)], due_at=at)
            else:
                world.put(taskId=task_id, dueAt=at.strftime("%Y-%m-%dT%H:%M:%SZ"))
        world.deliver_stream()
        for _ in range(ticks):
            assert world.tick_on_grid(minutes).what == "returned"
    for _ in range(20):  # past the last of them, and the longest interval
        assert world.tick_on_grid(15).what == "returned"
    world.assert_survived()

    assert len(world.cursors()) == 4  # every shard that was ever in use is served to the end
    due = {task_id: parse_instant(row["dueAt"], "dueAt") for task_id, row in world.rows().items()}
    longest = timedelta(minutes=max(minutes for minutes, _, _ in DEPLOYMENTS) + 10)  # ten for a tick on a slow machine
    for execution in world.journal.done():
        assert due[execution.task_id] <= execution.instant < due[execution.task_id] + longest, execution


NO_MORE = 101.0  # seconds after which an invocation's time has none left to begin a task, and some to record it


def test_fault_20_the_rest_of_a_bucket_runs_in_a_new_invocation(new_world: NewWorld) -> None:
    """Time runs out before the bucket is drained: claimed work is finished or released, the rest continues at once."""
    world = new_world(DYNATICK_TASK_THREADS="4")
    ids = world.insert_soon(200, payload={"seconds": 0.1})
    # Two claims are under way at the most: when the third begins, one has been answered.
    sandbox = world.frozen_tick(Fault(at="claim", do="freeze before", skip=2))
    world.clock.forward(seconds=NO_MORE)
    world.thaw(sandbox)
    assert world.run_started()

    # One tick, and what it started: nothing waits for another tick, nothing was done twice, no attempt was lost.
    assert len(world.journal.done()) == len(ids)
    assert {(row["outcome"], row["attempt"]) for row in world.rows().values()} == {("completed", 1)}
    (cursor,) = world.cursors()
    records: list[Row] = []
    while (record := world.store.get(tick_record_id(cursor.closed_through, 0, len(records)))) is not None:
        records.append(record)
    assert len(records) >= 2
    assert records[0]["continued"] is True
    assert int(str(records[0]["released"])) > 0
    assert sum(int(str(record["completed"])) for record in records) == len(ids)
    world.assert_survived()
