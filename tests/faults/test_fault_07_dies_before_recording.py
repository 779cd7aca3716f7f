"""The process dies between executing and recording, and anywhere else: executed again with the same idempotency key."""

from __future__ import annotations

from tests.builders import key_of
from tests.faults.conftest import Report
from tests.faults.world import AFTER_LEASE, World
from tests.sandbox.seam import Fault

FEW = 20  # one claim


def test_fault_07_dies_between_executing_and_recording(world: World, report: Report) -> None:
    world.insert_many([{"taskId": f"t{n:02d}", "delaySeconds": 30} for n in range(FEW)])
    # Before whichever record comes first: two batches may be on their way at once.
    assert world.next_tick(faults=[Fault(at="record", do="kill before", times=None)]).what == "killed"
    unrecorded = {execution.task_id for execution in world.ledger.done()}
    assert unrecorded
    assert not any("outcome" in row for row in world.rows().values())

    world.clock.forward(seconds=AFTER_LEASE)
    world.finish()
    again = [execution for execution in world.ledger.done() if execution.attempt == 2]
    assert {execution.task_id for execution in again} == world.inserted
    assert {execution.key for execution in world.ledger.done()} == {key_of(row) for row in world.rows().values()}
    figures = report(world)
    assert figures.executed == FEW
    assert figures.repeated == len(unrecorded)


def test_fault_07_dies_at_each_step_of_a_pass(world: World, report: Report) -> None:
    """Also between the write that closes the buckets and the one that ends the pass."""
    points = [
        ("acquire shard", "kill before"),
        ("acquire shard", "kill after"),
        ("poll", "kill before"),
        ("poll", "kill after"),
        ("claim", "kill before"),
        ("release shard", "kill before"),
        ("release shard", "kill after"),
    ]
    for number, (at, do) in enumerate(points):
        world.insert_many([{"taskId": f"{number}-{n}", "delaySeconds": 30} for n in range(10)])
        assert world.next_tick(faults=[Fault(at=at, do=do)]).what == "killed", (at, do)
    world.clock.forward(seconds=AFTER_LEASE)
    world.finish()
    figures = report(world)
    assert figures.executed == 10 * len(points)
    assert figures.repeated == 0  # none of these points lies between execution and record
