"""The same tick fires twice, ticks overlap, a frozen one wakes up beside its successor: one execution an attempt."""

from __future__ import annotations

import pytest
from tests.faults.conftest import NewWorld, Report
from tests.faults.worker import NO_LEASE
from tests.faults.world import AFTER_LEASE, LIFE, World
from tests.sandbox.seam import Fault

from dynatick.domain.buckets import instant_of, minute_of

TASKS = 200


def insert(world: World, number: int = TASKS, *, seconds: float = 0.01) -> None:
    world.insert_many(
        [{"taskId": f"t{n:03d}", "delaySeconds": 30, "payload": {"seconds": seconds}} for n in range(number)]
    )


@pytest.mark.parametrize("lease", [True, False], ids=["shard lease", "no shard lease"])
def test_fault_15_a_tick_fires_three_times_at_once(new_world: NewWorld, lease: bool, report: Report) -> None:
    """The shard lease only saves work (protocol 16): without it all three drain the shard, and nothing runs twice."""
    world = new_world(DYNATICK_TASK_THREADS="4", **({} if lease else {NO_LEASE: "1"}))
    insert(world)
    sandboxes = [world.sandbox() for _ in range(3)]
    for sandbox in sandboxes:
        sandbox.wait_until_ready()
    world.clock.to(instant_of(minute_of(world.clock()) + 1))
    first, *others = sandboxes
    # Without a lease, it must have some and leave some to the others, however slow they are to begin.
    first.begin(world.event(), life=LIFE, faults=[] if lease else [Fault(at="claim", do="freeze after")])
    assert lease or world.end(first).what == "frozen"
    for sandbox in others:
        sandbox.begin(world.event(), life=LIFE)
    assert [world.end(sandbox).what for sandbox in others] == ["returned"] * 2
    if not lease:
        first.thaw()
    assert world.end(first).what == "returned"
    workers = {execution.pid for execution in world.ledger.done()}
    assert len(workers) == 1 if lease else len(workers) > 1
    assert world.tick().what == "returned"  # and once more
    assert len(world.ledger.begun()) == TASKS
    world.finish()
    assert report(world).executed == TASKS


def test_fault_15_a_frozen_tick_wakes_up_after_others_took_over(world: World, report: Report) -> None:
    """Their clock is far ahead, and its leases seemed to be over: its records meet another's token (protocol 12)."""
    policy = {"payload": {"failures": 1}, "retryPolicy": {"minBackoffSeconds": 0}}
    world.insert_many([{"taskId": f"t{n}", "delaySeconds": 30, **policy} for n in range(5)])
    second = world.sandbox()
    first = world.frozen_tick(Fault(at="record", do="freeze before"))  # with failures in flight
    world.clock.forward(seconds=45)  # past the shard's lease
    ended = {execution.task_id for execution in world.ledger.ended()}  # on a busy machine not all, by the first record
    for task_id in ended:
        world.edit(task_id, "leaseUntil", "2026-12-31T11:00:00Z")
    second.begin(world.event(), life=LIFE)
    assert world.end(second).what == "returned"
    (recovery,) = world.started()
    second.begin(recovery, life=LIFE, faults=[Fault(at="record", do="freeze before")])
    assert world.end(second).what == "frozen"  # with second attempts, which succeeded
    done = world.ledger.done()
    assert done
    world.thaw(first)
    for execution in done:
        row = world.row(execution.task_id)
        assert (row["status"], row["attempt"]) == ("running", 2)
    world.thaw(second)
    assert {world.row(execution.task_id)["outcome"] for execution in done} == {"completed"}
    world.clock.forward(seconds=AFTER_LEASE)
    world.finish()
    assert report(world).executed == 5
