"""The table is restored to a point in time. Cursors and settings may be older than the tasks then, or newer.

After the restore comes the reconcile, as docs/how-to/operate.md says. Nothing is lost; what had run since that time
runs again, with the same idempotency key, and nothing else does.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.faults.conftest import NewWorld
from tests.sandbox.journal import DELETE
from tests.sandbox.seam import Fault
from tests.sandbox.world import AFTER_LEASE, RECONCILE, World

from dynatick.domain.task import is_own_row

Items = dict[str, dict[str, Any]]  # by id, as DynamoDB spells them


def restore(world: World, items: Items) -> None:
    """The table with these rows. Its stream begins anew, and no process of before comes back."""
    with world.restoring():
        for task_id in world.items().keys() - items.keys():
            world.dynamodb.delete_item(TableName=world.table, Key={"taskId": {"S": task_id}})
        for item in items.values():
            world.dynamodb.put_item(TableName=world.table, Item=item)
    world.stream.new()
    world.note(DELETE, *(world.inserted - items.keys()))
    world.deploy()


def of(items: Items, *, own: bool) -> Items:
    return {task_id: item for task_id, item in items.items() if is_own_row(task_id) == own}


def live(world: World, name: str) -> None:
    """Runs some tasks; a process that dies leaves one in flight, and others wait."""
    for number in range(3):
        world.insert_for_next_tick(f"{name}-{number}-{n}" for n in range(10))
        world.insert_many([{"taskId": f"{name}-{number}-later", "delaySeconds": 3600 + 600 * number}])
        world.next_tick()
    for _ in range(6):  # until buckets are drained
        world.next_tick()
    world.insert_for_next_tick([f"{name}-in-flight"])
    world.deliver_stream()
    world.kill(world.frozen_tick(Fault(at="claim", do="freeze after")))


@pytest.mark.parametrize(
    ("own_rows", "tasks"),
    [("old", "old"), ("old", "new"), ("new", "old")],
    ids=["all", "cursors and settings older than the tasks", "cursors and settings newer than the tasks"],
)
def test_fault_31_restored_to_a_point_in_time(new_world: NewWorld, own_rows: str, tasks: str) -> None:
    """Shards came in and went meanwhile, too: the older settings do not know of them."""
    world = new_world()
    live(world, "before")
    states = {"old": world.items()}
    world.deploy(DYNATICK_SHARD_COUNT="3")
    world.tick()
    live(world, "after")
    world.deploy(DYNATICK_SHARD_COUNT="1")
    world.tick()
    world.next_tick(120)
    world.insert_many([{"taskId": f"waits-{n}", "delaySeconds": 1800} for n in range(5)])
    world.deliver_stream()
    states["new"] = world.items()
    ran = world.executed()
    assert ran

    restore(world, of(states[own_rows], own=True) | of(states[tasks], own=False))
    # What its row does not show as ended, and has run, is executed again.
    again = {task_id for task_id in world.open() if task_id in ran}
    assert bool(again) == (tasks == "old")
    before = len(world.journal.done())
    assert world.invoke(RECONCILE).what == "returned"
    for _ in range(4):
        assert world.next_tick().what == "returned"
        world.clock.forward(seconds=AFTER_LEASE)
        world.run_started()
    assert world.invoke(RECONCILE).what == "returned"  # the daily one
    world.clock.forward(hours=1)
    # What was inserted later is deleted, and never runs.
    world.assert_survived(repeated=len(again), restored=again, deleted=5 if tasks == "old" else 0)
    assert {execution.task_id for execution in world.journal.done()[before:]} & ran == again
