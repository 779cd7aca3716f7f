"""Update, cancel, restore, redrive, run now, delete …: from each state, and against another client who is faster."""

from __future__ import annotations

from functools import partial

import pytest
from tests.builders import key_of
from tests.unit.client.support import WISHES, be_first, before_deletes, each_state, started
from tests.unit.engine.support import World

from dynatick import TaskChanged, TaskClient, TaskNotFound, TransitionRefused
from dynatick.domain.conditional_update import Lost
from dynatick.errors import StoreError

ALLOWED = {
    "change": ["unscheduled", "scheduled", "failed"],
    "cancel": ["unscheduled", "scheduled", "waiting"],
    "reschedule": ["unscheduled", "scheduled"],
    "redrive": ["failed"],
    "restore": ["cancelled"],
    "run": ["unscheduled", "scheduled", "completed", "failed", "cancelled"],
}


@pytest.fixture
def world() -> World:
    return each_state()


@pytest.mark.parametrize(
    "state", ["unscheduled", "scheduled", "running", "waiting", "completed", "failed", "cancelled"]
)
@pytest.mark.parametrize("wish", WISHES)
def test_what_is_possible_from_each_state(world: World, client: TaskClient, wish: str, state: str) -> None:
    before = world.row(state)
    if state in ALLOWED[wish]:
        view = WISHES[wish](client, state)
        assert view == client.get(state)
        assert view.status == {"cancel": "cancelled", "change": state}.get(wish, "scheduled")
        return
    with pytest.raises(TransitionRefused) as refused:
        WISHES[wish](client, state)
    assert refused.value.status == state
    possible = f"possible only while it is {' or '.join(ALLOWED[wish])}"
    if (wish, state) == ("redrive", "cancelled"):
        possible = "a cancelled task is restored, to run at its time, or run at the next tick"
    assert str(refused.value) == f"cannot {wish} task '{state}': it is {state}; {possible}"
    assert world.row(state) == before


def test_what_is_redriven_or_is_to_run_now_is_due_at_the_next_tick(world: World, client: TaskClient) -> None:
    view = client.redrive("failed")
    assert (view.status, view.run, view.attempt, view.error, view.finished_at) == ("scheduled", 2, 0, None, None)
    assert (view.bucket, view.expires_at) == ("2026-12-31#12:02", None)
    view = client.run_now("scheduled")
    assert (view.bucket, view.run, client.run_now("completed").run) == ("2026-12-31#12:02", 1, 2)
    world.next_tick()
    assert key_of(world.row("failed"), 2) in world.actions.keys


def test_a_restored_task_waits_for_its_own_time_with_the_attempts_that_it_had(world: World, client: TaskClient) -> None:
    client.insert("december", due_at="2027-12-24T18:00:00Z", payload={"n": 1})
    for task_id in ("december", "waits-for-its-retry"):
        before = client.get(task_id)
        client.cancel(task_id)
        after = client.restore(task_id)
        assert after == client.get(task_id)
        assert {**after.row, "restoredAt": None} == {**before.row, "restoredAt": None}
        assert after.row["restoredAt"] == "2026-12-31T12:01:00.200Z"
    assert client.get("waits-for-its-retry").attempt == 1
    events = [event.what for event in client.operations.explain("december").events]
    assert events == ["inserted", "its cancellation was taken back", "due"]


def test_a_restored_task_whose_time_has_passed_runs_at_the_next_tick_in_the_same_run(
    world: World, client: TaskClient
) -> None:
    client.insert("late", due_at="2026-12-31T12:01:30Z")
    assert client.cancel("late").bucket == "2026-12-31#12:02"
    world.next_tick(3)
    view = client.restore("late")
    assert (view.bucket, view.run, view.due_at) == ("2026-12-31#12:05", 1, world.clock())
    world.next_tick()
    assert (client.get("late").status, world.actions.keys[-1]) == ("completed", key_of(world.row("late"), 1))


@pytest.mark.parametrize("row", [{}, {"delaySeconds": 60}, {"taskDateTime": "2026-12-31#11:00"}, {"dueAt": "noon"}])
def test_a_row_that_the_scheduler_had_not_seen_is_restored_as_it_was_put(
    world: World, client: TaskClient, row: dict[str, object]
) -> None:
    world.rigged.put({"taskId": "raw", "action": "log", **row})
    client.cancel("raw")
    assert client.restore("raw").status == "unscheduled"
    world.stream(world.row("raw"))
    world.ticks(3)
    assert client.get("raw").status == ("failed" if row == {"dueAt": "noon"} else "completed")


def test_a_malformed_row_can_be_redriven_once_it_is_repaired_by_its_new_time(world: World, client: TaskClient) -> None:
    too_long = "i" * 1500  # for the index
    world.put(taskId="february", dueAt="2027-02-31T12:00:00Z")
    world.put(taskId="hopeless", payload="no map")
    world.put(taskId=too_long)
    assert client.get(too_long).status == "failed"
    for task_id in ("february", "hopeless"):
        assert client.get(task_id).status == "failed"
        client.redrive(task_id)
    world.ticks(2)
    assert client.get("february").status == "completed"
    view = client.get("hopeless")
    assert view.status == "failed"
    assert view.error == "payload: 'a str' is not accepted; expected a map of names to values"


def test_time_and_payload_change_in_one_write_and_what_is_left_out_stays(client: TaskClient) -> None:
    moved = client.update("scheduled", due_at="2026-12-31T14:00:00Z", payload={"n": 2})
    assert (moved.bucket, moved.payload, moved.status) == ("2026-12-31#14:00", {"n": 2}, "scheduled")
    assert client.get("scheduled") == moved
    less = client.update("scheduled", payload={})
    assert (less.payload, less.bucket, less.due_at) == ({}, moved.bucket, moved.due_at)
    assert client.update("scheduled", delay_seconds=60).payload == {}


def test_a_change_that_lost_a_race_is_tried_again_on_the_row_as_it_is(world: World, client: TaskClient) -> None:
    with be_first(world, lambda: client.reschedule("scheduled", due_at="2026-12-31T15:00:00Z")):
        assert client.cancel("scheduled").bucket == "2026-12-31#15:00"
    again = be_first(world, lambda: (world.clock.forward(seconds=1), client.run_now("scheduled")))
    with again, pytest.raises(TransitionRefused, match="it is scheduled"):
        client.restore("scheduled")
    assert client.get("scheduled").run == 2
    client.cancel("scheduled")
    once_more = be_first(world, lambda: (client.restore("scheduled"), client.cancel("scheduled")))
    with once_more:
        assert client.restore("scheduled").status == "scheduled"


def test_a_version_names_a_row_as_it_stands(world: World, client: TaskClient) -> None:
    client.insert("a", task_date_time="2026-12-31#13:00", payload={"n": 1}, attributes={"own": [1.5, None, {"x", "y"}]})
    seen = client.get("a").version
    assert client.get("a").version == seen
    changed = client.update("a", payload={"n": 2}, version=seen)
    assert changed.version == client.get("a").version != seen
    with pytest.raises(TaskChanged, match="'a' has changed"):
        client.update("a", payload={"n": 3}, version=seen)
    for attribute in ("payload", "leaseUntil"):
        other = {**world.row("a"), attribute: {"other": True}}
        with be_first(world, partial(world.rigged.put, other)), pytest.raises(TaskChanged):
            client.update("a", payload={"mine": True}, version=client.get("a").version)
        assert world.row("a") == other


def test_a_lost_answer_is_found_in_the_row(world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    world.rigged.throttled = lambda change: True
    with pytest.raises(StoreError, match="cannot change 'scheduled': "):
        client.cancel("scheduled")
    world.rigged.throttled, world.rigged.unanswered = lambda change: False, lambda change: True
    assert client.cancel("scheduled").status == "cancelled"
    monkeypatch.setattr(world.store, "write", lambda change: Lost())
    with pytest.raises(StoreError, match="other requests changed it 20 times"):
        client.cancel("unscheduled")


@pytest.mark.parametrize("task_id", ["unscheduled", "scheduled", "completed", "failed", "waits-for-its-retry"])
def test_a_task_that_does_not_run_is_deleted_and_never_runs(world: World, client: TaskClient, task_id: str) -> None:
    before = world.actions.times(task_id)
    client.delete(task_id)
    world.next_tick(180)
    assert (world.store.get(task_id), world.actions.times(task_id)) == (None, before)
    with pytest.raises(TaskNotFound):
        client.delete(task_id)


def test_running_tasks_and_schedules_remain(world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    client.schedules.insert("nightly", "rate(1 day)")
    with pytest.raises(TransitionRefused, match="it is a schedule; delete it as a schedule"):
        client.delete("nightly")
    before_deletes(world, monkeypatch, lambda: started(world, "scheduled"))
    for task_id in ("running", "scheduled"):
        with pytest.raises(TransitionRefused, match="it is running; an attempt can't be stopped: wait") as refused:
            client.delete(task_id)
        assert refused.value.status == "running"
        assert world.row(task_id)["lease"] == "t"
    assert world.store.get("nightly") is not None


def test_a_change_or_a_delete_by_others_meanwhile_is_no_obstacle_unless_a_version_is_given(
    world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_deletes(world, monkeypatch, lambda: client.cancel("scheduled"))
    client.delete("scheduled")
    before_deletes(world, monkeypatch, lambda: world.store.delete("completed"))
    client.delete("completed")
    assert world.store.get("scheduled") is world.store.get("completed") is None
    seen = client.get("unscheduled").version
    client.update("unscheduled", payload={"n": 1})
    with pytest.raises(TaskChanged):
        client.delete("unscheduled", version=seen)
    before_deletes(world, monkeypatch, lambda: client.update("unscheduled", payload={"n": 2}))
    with pytest.raises(TaskChanged):
        client.delete("unscheduled", version=client.get("unscheduled").version)
    client.delete("unscheduled", version=client.get("unscheduled").version)
    assert world.store.get("unscheduled") is None
    monkeypatch.setattr(world.store, "delete", lambda task_id, conditions: False)
    with pytest.raises(StoreError, match="cannot delete 'failed': other requests changed it"):
        client.delete("failed")
