"""A task is deleted by hand while it waits, is claimed, runs, or is about to be recorded: it stays deleted."""

from __future__ import annotations

import pytest
from tests.faults.conftest import Report
from tests.faults.world import LIFE, World
from tests.sandbox.seam import Fault

DELETED = [f"deleted-{n}" for n in range(10)]
KEPT = [f"kept-{n}" for n in range(10)]


def insert(world: World, payload: dict[str, object]) -> None:
    policy = {"retryPolicy": {"minBackoffSeconds": 0}}
    world.insert_many([{"taskId": i, "delaySeconds": 30, "payload": payload, **policy} for i in (*DELETED, *KEPT)])


def delete(world: World) -> None:
    for task_id in DELETED:
        world.delete(task_id)


@pytest.mark.parametrize(
    ("at", "payload", "executed"),
    [
        ("claim", {}, False),  # it was polled, and waits
        ("record", {}, True),  # it has run, and its outcome is on the way
        ("record", {"failures": 1}, False),  # so is its retry
        ("record", {"permanent": True}, False),  # or its failure
        ("letters", {"permanent": True}, False),  # of which no letter is sent yet
        ("release shard", {"failures": 1}, False),  # it waits for its retry
    ],
)
def test_fault_18_deleted_at_a_step_of_its_pass(
    world: World, at: str, payload: dict[str, object], executed: bool, report: Report
) -> None:
    insert(world, payload)
    sandbox = world.frozen_tick(Fault(at=at, do="freeze before"))
    delete(world)
    world.thaw(sandbox)
    assert set(world.rows()) == set(KEPT)
    world.finish()
    assert set(world.rows()) == set(KEPT)
    figures = report(world)
    failed = {"failed": 10} if payload.get("permanent") else {}
    assert figures.otherwise == ({} if executed else {"deleted by hand": 10}) | failed


def test_fault_18_deleted_before_the_scheduler_has_seen_it(world: World, report: Report) -> None:
    """Between its record and its write, too."""
    for number, task_id in enumerate((*DELETED, *KEPT)):
        # What must lose more than one attribute is written singly, not in a batch.
        world.put(taskId=task_id, **({"lease": 1, "startedAt": 2} if number % 2 else {}))
    sandbox = world.sandbox("scheduler")
    sandbox.begin({"Records": world.stream.new()}, life=LIFE, faults=[Fault(at="other", do="freeze before")])
    assert world.end(sandbox).what == "frozen"
    delete(world)
    sandbox.thaw()
    assert world.end(sandbox).value == {"batchItemFailures": []}
    assert set(world.rows()) == set(KEPT)
    world.next_tick()
    world.finish()
    assert set(world.rows()) == set(KEPT)
    assert report(world).otherwise == {"deleted by hand": 10}
