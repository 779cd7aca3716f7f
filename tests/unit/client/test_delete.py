"""Deleting a task: what may go, what a race does, and that nothing runs that is gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.client.support import each_state, started
from tests.unit.engine.support import World

from dynatick import InvalidInput, StoreError, TaskChanged, TaskClient, TaskNotFound, TransitionRefused


@pytest.fixture
def world() -> World:
    return each_state()


@pytest.mark.parametrize("task_id", ["unscheduled", "scheduled", "completed", "failed", "waits-for-its-retry"])
def test_a_task_that_does_not_run_is_removed_without_a_trace(world: World, client: TaskClient, task_id: str) -> None:
    before = world.actions.times(task_id)
    client.delete(task_id)
    world.next_tick(180)
    assert (world.store.get(task_id), world.actions.times(task_id)) == (None, before)
    with pytest.raises(TaskNotFound):
        client.delete(task_id)


def test_a_task_that_runs_stays_and_a_schedule_is_deleted_as_one(world: World, client: TaskClient) -> None:
    client.schedules.insert("nightly", "rate(1 day)")
    with pytest.raises(TransitionRefused, match="it is a schedule; delete it as a schedule"):
        client.delete("nightly")
    with pytest.raises(TransitionRefused) as refused:
        client.delete("running")
    assert str(refused.value) == (
        "cannot delete task 'running': it is running; an attempt can't be stopped: wait until it has ended; "
        "if the task is retried, cancel it then"
    )
    assert refused.value.status == "running"
    assert world.store.get_many(["running", "nightly"]).keys() == {"running", "nightly"}


def test_a_row_of_ours_is_left_alone(world: World, client: TaskClient) -> None:
    there = world.row("_dynatick#cursor#0")
    with pytest.raises(InvalidInput, match="reserved"):
        client.delete("_dynatick#cursor#0")
    assert world.row("_dynatick#cursor#0") == there


@pytest.fixture
def first(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Does something between the read and the first delete."""

    def be_first(does: Callable[[], object]) -> None:
        delete = world.store.delete

        def late(task_id: str, conditions: object = ()) -> bool:
            monkeypatch.setattr(world.store, "delete", delete)
            does()
            return delete(task_id, conditions)  # type: ignore[arg-type]

        monkeypatch.setattr(world.store, "delete", late)

    return be_first


First = Callable[[Callable[[], object]], None]


def test_a_claim_that_was_faster_is_not_undone(world: World, client: TaskClient, first: First) -> None:
    first(lambda: started(world, "scheduled"))
    with pytest.raises(TransitionRefused, match="it is running"):
        client.delete("scheduled")
    assert world.row("scheduled")["lease"] == "t"


def test_a_change_or_a_delete_by_others_meanwhile_is_no_obstacle(
    world: World, client: TaskClient, first: First
) -> None:
    first(lambda: client.cancel("scheduled"))
    client.delete("scheduled")
    assert world.store.get("scheduled") is None
    first(lambda: world.store.delete("completed"))
    client.delete("completed")
    assert world.store.get("completed") is None


def test_a_row_that_never_holds_still_is_a_fault(
    world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.store, "delete", lambda task_id, conditions: False)
    with pytest.raises(StoreError, match="cannot delete 'scheduled': other requests changed it"):
        client.delete("scheduled")


def test_only_the_version_that_was_seen(world: World, client: TaskClient, first: First) -> None:
    seen = client.get("scheduled").version
    client.update("scheduled", payload={"n": 1})
    with pytest.raises(TaskChanged):
        client.delete("scheduled", version=seen)
    now = client.get("scheduled").version
    first(lambda: client.update("scheduled", payload={"n": 2}))
    with pytest.raises(TaskChanged):
        client.delete("scheduled", version=now)
    client.delete("scheduled", version=client.get("scheduled").version)
    assert world.store.get("scheduled") is None
