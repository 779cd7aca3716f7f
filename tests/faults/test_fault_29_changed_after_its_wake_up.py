"""A task is cancelled, rescheduled, edited, deleted or replaced after its wake-up was sent: it does not run, up to the
very second."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.faults.conftest import NewWorld, Report
from tests.faults.test_fault_28_wake_ups import as_sent, assert_none_is_early, live
from tests.faults.world import SECOND, World

IDS = [f"t{n}" for n in range(10)]


def later(world: World) -> str:
    return (world.clock() + timedelta(seconds=90)).strftime("%Y-%m-%dT%H:%M:%SZ")


CHANGES: dict[str, Callable[[World, str], object]] = {
    "cancelled": lambda world, task_id: world.cancel(task_id),
    "rescheduled": lambda world, task_id: world.reschedule(task_id, due_at=later(world)),
    "edited by hand": lambda world, task_id: world.edit(task_id, "dueAt", later(world)),
    "deleted": lambda world, task_id: world.delete(task_id),
    "replaced": lambda world, task_id: world.put(taskId=task_id, dueAt=later(world)),
}


@pytest.mark.parametrize("seen", [True, False], ids=["seen by the scheduler", "not yet seen"])
@pytest.mark.parametrize("change", CHANGES)
def test_fault_29_changed_after_its_wake_up_was_sent(
    new_world: NewWorld, change: str, seen: bool, report: Report
) -> None:
    world = new_world(**SECOND)
    due = world.clock() + timedelta(seconds=30)
    for task_id in IDS:
        world.insert(task_id, due_at=due)
    world.deliver(world.stream.new())
    sent = world.wake_ups()
    assert len(sent) == 1
    world.clock.to(due - timedelta(seconds=1))
    for task_id in IDS:
        CHANGES[change](world, task_id)
    if seen:
        world.deliver(world.stream.new())
    world.clock.to(due)
    for event, _ in sent * 2:
        assert world.wake(event).what == "returned"
    assert world.ledger.begun() == []
    live(world, as_sent, 3)
    world.finish()
    assert_none_is_early(world)
    figures = report(world)
    gone = {"cancelled": "cancelled", "deleted": "deleted by hand"}.get(change)
    assert figures.executed == (0 if gone else 10)
