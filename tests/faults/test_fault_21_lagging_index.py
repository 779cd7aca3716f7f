"""The index lags behind the table: a later poll of the bucket finds the task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.faults.conftest import NewWorld, Report
from tests.faults.lag import Lag, LaggingIndex
from tests.faults.worker import LAG
from tests.faults.world import World
from tests.sandbox.seam import Seam

EACH = 40


@contextmanager
def seen_late(world: World) -> Iterator[None]:
    """What this process writes reaches the index late, too."""
    seam = Seam()
    lag = Lag(minimum=0, maximum=0)  # it only writes, and the readers decide
    seam.watch = LaggingIndex(seam, world.dynamodb, world.table, world.folder / "index", lag, world.clock)
    with seam.installed():
        yield


def arrive(world: World, minute: int) -> None:
    """Just before their tick, in every way that there is."""
    world.insert_many([{"taskId": f"{minute}-{n:02d}", "delaySeconds": 2} for n in range(EACH)])
    for number in range(4):
        world.put(taskId=f"{minute}-raw-{number}", delaySeconds=2)
    failing = {"payload": {"failures": 1}, "retryPolicy": {"minBackoffSeconds": 0}}
    world.insert_many([{"taskId": f"{minute}-again-{n}", "delaySeconds": 2, **failing} for n in range(4)])


def test_fault_21_the_index_lags_as_long_as_allowed_for(new_world: NewWorld, report: Report) -> None:
    """Up to 110 of the 120 s of IndexLagSeconds, for each change another time, so that they show out of order."""
    world = new_world(**{LAG: "5 110"})
    with seen_late(world):
        for minute in range(4):
            world.clock.forward(seconds=55 - world.clock().second)
            arrive(world, minute)
            world.deliver(world.stream.new())
            before = len(world.ledger.done())
            world.next_tick()
            at_once = sum(execution.task_id.startswith(f"{minute}-") for execution in world.ledger.done()[before:])
            assert at_once < EACH, "the index did not lag"
        world.finish()
    figures = report(world)
    assert figures.executed == figures.inserted == 4 * (EACH + 8)
