"""Cancel, reschedule, redrive, run now: from each state, and against another client who is faster."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.builders import key_of
from tests.unit.client.support import be_first, each_state
from tests.unit.engine.support import World

from dynatick import TaskClient, TransitionRefused
from dynatick.client import TaskView
from dynatick.domain.conditional_update import Lost
from dynatick.errors import StoreError

Wish = Callable[[TaskClient, str], TaskView]
WISHES: dict[str, Wish] = {
    "cancel": lambda client, task_id: client.cancel(task_id),
    "reschedule": lambda client, task_id: client.reschedule(task_id, due_at="2026-12-31T14:00:00Z"),
    "redrive": lambda client, task_id: client.redrive(task_id),
    "run": lambda client, task_id: client.run_now(task_id),
}
ALLOWED = {
    "cancel": ["unscheduled", "scheduled"],
    "reschedule": ["unscheduled", "scheduled"],
    "redrive": ["failed", "cancelled"],
    "run": ["unscheduled", "scheduled", "completed", "failed", "cancelled"],
}


@pytest.fixture
def world() -> World:
    return each_state()


@pytest.mark.parametrize("state", ["unscheduled", "scheduled", "running", "completed", "failed", "cancelled"])
@pytest.mark.parametrize("wish", WISHES)
def test_what_is_possible_from_each_state(world: World, client: TaskClient, wish: str, state: str) -> None:
    before = world.row(state)
    if state in ALLOWED[wish]:
        view = WISHES[wish](client, state)
        assert view == client.get(state)
        assert view.status == ("cancelled" if wish == "cancel" else "scheduled")
        return
    with pytest.raises(TransitionRefused) as refused:
        WISHES[wish](client, state)
    assert refused.value.status == state
    assert str(refused.value) == (
        f"cannot {wish} task '{state}': it is {state}; possible only while it is {' or '.join(ALLOWED[wish])}"
    )
    assert world.row(state) == before


def test_a_rescheduled_task_runs_then_and_only_then(world: World, client: TaskClient) -> None:
    before = world.row("scheduled")
    view = client.reschedule("scheduled", due_at="2026-12-31T12:10:30Z")
    assert (view.bucket, str(view.due_at)) == ("2026-12-31#12:11", "2026-12-31 12:10:30+00:00")
    after = world.row("scheduled")
    world.stream(after, before)
    assert world.row("scheduled") == after  # our own move needs no second thought
    world.ticks(9)
    assert world.actions.times("scheduled") == 0
    world.ticks(1)
    assert world.actions.times("scheduled") == 1
    client.redrive("cancelled")
    assert client.reschedule("cancelled", due_at="2026-12-31T11:00:00Z").bucket == "2026-12-31#12:12", "the next tick"


@pytest.mark.parametrize("streamed", [True, False], ids=["seen by the scheduler", "seen by the processor"])
def test_a_raw_row_is_completed_after_its_change(world: World, client: TaskClient, streamed: bool) -> None:
    before = world.row("unscheduled")
    client.run_now("unscheduled")
    if streamed:
        world.stream(world.row("unscheduled"), before)
        assert client.get("unscheduled").action == "log"
    world.ticks(2)
    view = client.get("unscheduled")
    assert (view.status, view.error, world.actions.times("unscheduled")) == ("completed", None, 1)


def test_a_redriven_task_is_another_run(world: World, client: TaskClient) -> None:
    del world.actions.behaviour["failed"]
    view = client.redrive("failed")
    assert (view.status, view.run, view.attempt, view.error, view.finished_at) == ("scheduled", 2, 0, None, None)
    assert (view.bucket, view.expires_at) == ("2026-12-31#12:02", None)
    world.next_tick()
    assert client.get("failed").status == "completed"
    assert world.actions.keys[-1] == key_of(world.row("failed"), 2)


def test_a_malformed_row_can_be_redriven_once_it_is_repaired_by_its_new_time(world: World, client: TaskClient) -> None:
    world.put(taskId="february", dueAt="2027-02-31T12:00:00Z")
    world.put(taskId="hopeless", payload="no map")
    for task_id in ("february", "hopeless"):
        assert client.get(task_id).status == "failed"
        client.redrive(task_id)
    world.ticks(2)
    assert client.get("february").status == "completed"
    view = client.get("hopeless")
    assert view.status == "failed"
    assert view.error == "payload: 'a str' is not accepted; expected a map of names to values"


def test_run_now_comes_before_the_planned_time(world: World, client: TaskClient) -> None:
    view = client.run_now("scheduled")
    assert (view.bucket, view.run) == ("2026-12-31#12:02", 1)
    assert client.run_now("completed").run == 2
    world.next_tick()
    assert (world.actions.times("scheduled"), world.actions.times("completed")) == (1, 2)


def test_an_id_too_long_for_the_index_can_be_looked_up(world: World, client: TaskClient) -> None:
    world.put(taskId="i" * 1500)
    assert client.get("i" * 1500).status == "failed"


def test_who_was_overtaken_tries_again_on_the_row_as_it_is(world: World, client: TaskClient) -> None:
    be_first(world, lambda: client.reschedule("scheduled", due_at="2026-12-31T15:00:00Z"))
    assert client.cancel("scheduled").bucket == "2026-12-31#15:00"
    be_first(world, lambda: (world.clock.forward(seconds=1), client.redrive("scheduled")))
    with pytest.raises(TransitionRefused, match="it is scheduled"):
        client.redrive("scheduled")
    assert client.get("scheduled").run == 2


def test_a_change_whose_answer_got_lost_is_seen_in_the_row(world: World, client: TaskClient) -> None:
    world.rigged.unanswered = lambda change: True
    assert client.cancel("scheduled").status == "cancelled"


def test_a_change_that_got_no_answer_and_was_not_made_is_an_error(world: World, client: TaskClient) -> None:
    world.rigged.throttled = lambda change: True
    with pytest.raises(StoreError, match="cannot change 'scheduled': "):
        client.cancel("scheduled")
    assert client.get("scheduled").status == "scheduled"


def test_a_row_that_never_holds_still(world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.store, "write", lambda change: Lost())
    with pytest.raises(StoreError, match="other requests changed it 20 times"):
        client.cancel("scheduled")
