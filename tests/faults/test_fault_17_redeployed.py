"""Interval and shards are changed, up and down, with tasks waiting: none is orphaned, none runs early."""

from __future__ import annotations

from datetime import timedelta

from tests.faults.conftest import NewWorld, Report
from tests.faults.world import World

from dynatick import TaskClient
from dynatick.domain.instants import parse_instant
from dynatick.engine.rules import MAX_TICK_MINUTES, Precision

# Interval in minutes, shards, ticks until the next deployment.
DEPLOYMENTS = [(5, 1, 2), (30, 4, 2), (5, 2, 5), (60, 1, 1), (1, 3, 8), (15, 1, 3)]
PER_DEPLOYMENT = 60


def insert(world: World, number: int, clients: list[TaskClient]) -> None:
    """Due in the next three hours; by each client, with the settings that it saw first, and by put-item."""
    now = world.clock()
    for n in range(PER_DEPLOYMENT):
        task_id, due = f"{number}-{n:02d}", now + timedelta(seconds=10 + n * 180 + number)
        if n % 3:
            world.insert(task_id, client=clients[n % len(clients)], due_at=due)
        else:
            world.put(taskId=task_id, dueAt=due.strftime("%Y-%m-%dT%H:%M:%SZ"))
    world.deliver(world.stream.new())


def test_fault_17_interval_and_shards_change_with_tasks_waiting(new_world: NewWorld, report: Report) -> None:
    world = new_world(DYNATICK_TICK_MINUTES="5")
    given = world.environ.get("DYNATICK_PRECISION", Precision.TICK)
    clients: list[TaskClient] = []
    for number, (minutes, shards, ticks) in enumerate(DEPLOYMENTS):
        precision = given if minutes <= MAX_TICK_MINUTES else Precision.TICK
        world.deploy(DYNATICK_TICK_MINUTES=str(minutes), DYNATICK_SHARD_COUNT=str(shards), DYNATICK_PRECISION=precision)
        world.tick()  # as a deployment does
        clients.append(TaskClient(world.store, clock=world.clock, settings_ttl_seconds=1e9))
        insert(world, number, clients)
        for _ in range(ticks):
            assert world.tick_on_grid(minutes).what == "returned"
    for _ in range(20):  # past the last of them, and the longest interval
        assert world.tick_on_grid(15).what == "returned"
    world.finish()

    assert len(world.cursors()) == 4  # every shard that was ever in use is served to the end
    due = {task_id: parse_instant(row["dueAt"], "dueAt") for task_id, row in world.rows().items()}
    longest = timedelta(minutes=max(minutes for minutes, _, _ in DEPLOYMENTS), seconds=30)
    for execution in world.ledger.done():
        at = execution.instant
        assert due[execution.task_id] <= at < due[execution.task_id] + longest, execution
    assert report(world).executed == len(DEPLOYMENTS) * PER_DEPLOYMENT
