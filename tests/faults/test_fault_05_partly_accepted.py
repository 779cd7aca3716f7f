"""Only part of a batch is accepted, by DynamoDB, the queue, the tasks' targets: each entry's own result counts."""

from __future__ import annotations

import pytest
from tests.builders import key_of
from tests.faults.conftest import NewWorld, Report
from tests.faults.targets import Targets
from tests.faults.world import AFTER_LEASE, World
from tests.sandbox.seam import Fault

TASKS = 120


def test_fault_05_batches_of_writes_are_partly_throttled(world: World, report: Report) -> None:
    """At each try anew, and one batch for longer than it is tried: what stays throttled is written singly."""
    world.insert_many([{"taskId": f"t{n:03d}", "delaySeconds": 30} for n in range(TASKS)])
    parts = [Fault(at=at, do="throttle parts", amount=0.4, times=10) for at in ("claim", "record")]
    outcome = world.next_tick(faults=parts)
    assert outcome.what == "returned"
    assert outcome.hits == {"throttle parts @ claim": 10, "throttle parts @ record": 10}
    executed = {execution.task_id for execution in world.ledger.done()}
    assert {task_id for task_id, row in world.rows().items() if row.get("outcome") == "completed"} == executed
    world.finish()
    figures = report(world)
    assert figures.executed == TASKS
    assert figures.repeated == 0


def test_fault_05_the_queue_takes_part_of_the_letters(world: World, report: Report) -> None:
    """What the dead-letter queue did not take is not recorded as failed; it fails again, and is heard then."""
    world.insert_many([{"taskId": f"t{n:02d}", "delaySeconds": 30, "payload": {"permanent": True}} for n in range(30)])
    outcome = world.next_tick(faults=[Fault(at="letters", do="refuse parts", amount=0.5, times=None)])
    assert outcome.hit > 0
    heard = {letter["taskId"] for letter in world.letters()}
    failed = {task_id for task_id, row in world.rows().items() if row.get("outcome") == "failed"}
    assert failed == heard
    assert 0 < len(failed) < 30
    world.clock.forward(seconds=AFTER_LEASE)
    world.finish()
    assert heard | {letter["taskId"] for letter in world.letters()} == world.inserted
    figures = report(world)
    assert figures.otherwise == {"failed": 30}


@pytest.mark.parametrize(("kind", "at"), [("sqs", "messages"), ("eventbridge", "events")])
def test_fault_05_a_target_takes_part_of_a_batch(
    engine: str, new_world: NewWorld, report: Report, kind: str, at: str
) -> None:
    """What was refused is tried again, and nothing else is. One kind answers by id, as SNS does, one by position."""
    targets = Targets(engine)
    world = new_world(**targets.environ)
    world.insert_many(
        [
            {"taskId": f"t{n:03d}", "delaySeconds": 30, "action": kind, "payload": targets.payloads[kind],
             "retryPolicy": {"minBackoffSeconds": 0}}
            for n in range(TASKS)
        ]
    )  # fmt: skip
    outcome = world.next_tick(faults=[Fault(at=at, do="refuse parts", amount=0.4, times=8)])
    assert outcome.what == "returned"
    assert outcome.hits == {f"refuse parts @ {at}": 8}
    come = targets.come(kind)
    assert 0 < len(come) < TASKS
    rows = world.rows()
    completed = {task_id for task_id, row in rows.items() if row.get("outcome") == "completed"}
    assert completed == {task_id for task_id, _ in come}, "each entry's own result was recorded"
    for task_id in world.open():
        assert [entry["error"] for entry in rows[task_id]["attempts"]] in (
            ["the target refused it (InternalError)"],
            ["the target refused it (InternalFailure)"],
        )
    world.finish()
    come += targets.come(kind)
    assert come == {(task_id, key_of(row)): 1 for task_id, row in world.rows().items()}
    figures = report(world, elsewhere={task_id for task_id, _ in come})
    assert figures.executed == TASKS
