"""The process dies between executing and recording, and anywhere else: executed again with the same idempotency key."""

from __future__ import annotations

import random
from collections import Counter

from tests.builders import key_of
from tests.faults.conftest import NewWorld, Report
from tests.faults.world import AFTER_LEASE, LIFE, World
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


def test_fault_07_dies_once_it_has_recorded(world: World, report: Report) -> None:
    """Nobody got the answer, and nothing is done again."""
    world.insert_many([{"taskId": f"t{n:02d}", "delaySeconds": 30, "payload": {"seconds": 0.01}} for n in range(FEW)])
    assert world.next_tick(faults=[Fault(at="record", do="kill after")]).what == "killed"
    recorded = {task_id for task_id, row in world.rows().items() if row.get("outcome") == "completed"}
    assert recorded
    world.clock.forward(seconds=AFTER_LEASE)
    world.finish()
    executed = [execution.task_id for execution in world.ledger.done()]
    assert all(executed.count(task_id) == 1 for task_id in recorded)
    report(world)


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


def test_fault_07_dies_anywhere_many_times(new_world: NewWorld, report: Report) -> None:
    """Killed at a random request, or at a random moment, again and again, until it was between work and record."""
    world = new_world(DYNATICK_TASK_THREADS="4")
    dice = random.Random(7)
    patient = {"retryPolicy": {"maximumRetryAttempts": 100}}
    number = 0
    while number < 12 or (number < 60 and max(Counter(one.task_id for one in world.ledger.done()).values()) < 2):
        tasks = [
            {"taskId": f"{number:02d}-{n:02d}", "delaySeconds": 30, "payload": {"seconds": 0.005}, **patient}
            for n in range(30)
        ]
        world.insert_many(tasks)
        if number % 2:
            step = Fault(at="any", do=dice.choice(["kill before", "kill after"]), skip=dice.randrange(3, 32))
            world.next_tick(faults=[step])
        else:
            world.clock.forward(minutes=1)
            sandbox = world.sandbox()
            sandbox.begin(world.event(), life=LIFE)
            world.wait_a_moment(dice.uniform(0.0, 0.3))
            world.kill(sandbox)
        world.clock.forward(seconds=dice.choice([0, AFTER_LEASE]))
        number += 1
    assert len(world.ledger.died()) >= 8
    world.clock.forward(seconds=AFTER_LEASE)
    world.finish()
    figures = report(world)
    assert figures.executed == number * 30
    assert figures.repeated > 0
