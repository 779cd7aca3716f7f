"""Cancel, reschedule, retry, run now: from each state, and against another client who is faster."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.builders import NOON, InProcess, key_of

from dynatick import MemoryStore, PermanentError, TaskClient, TransitionRefused
from dynatick.client import TaskView
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate, Lost, Result, Unknown, Written
from dynatick.domain.lifecycle import claim
from dynatick.domain.normalise import Defaults
from dynatick.engine.rules import Rules
from dynatick.errors import StoreError

Wish = Callable[[TaskClient, str], TaskView]


def fail(*_: object) -> object:
    raise PermanentError("no")


@pytest.fixture
def world() -> InProcess:
    """At 12:01:00.2, with a task in each state, named after it."""
    world = InProcess()
    client = TaskClient(world.store, clock=world.clock)
    world.actions.behaviour["failed"] = fail
    world.tick()
    for state in ("completed", "failed"):
        client.insert(state, delay_seconds=1)
    world.next_tick()
    client.insert("cancelled", delay_seconds=3600)
    client.cancel("cancelled")
    client.insert("scheduled", delay_seconds=3600)
    client.insert("running", task_date_time="2026-12-31#13:00")
    world.store.write(
        claim("running", Bucket.parse("2026-12-31#13:00"), token="t", lease_until=NOON + timedelta(days=1), now=NOON)
    )
    client.insert("unscheduled")
    return world


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


@pytest.mark.parametrize("state", ["unscheduled", "scheduled", "running", "completed", "failed", "cancelled"])
@pytest.mark.parametrize("wish", WISHES)
def test_what_is_possible_from_each_state(world: InProcess, wish: str, state: str) -> None:
    client = TaskClient(world.store, clock=world.clock)
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


def test_a_cancelled_task_stays_as_long_as_the_installation_keeps_tasks() -> None:
    world = InProcess(rules=Rules(defaults=Defaults(retention_days=7)))
    world.tick()
    client = TaskClient(world.store, clock=world.clock)
    client.insert("x", delay_seconds=600)
    view = client.cancel("x")
    assert view.status == "cancelled" and view.finished_at is not None and view.expires_at is not None
    assert timedelta(days=7) - timedelta(seconds=1) < view.expires_at - view.finished_at <= timedelta(days=7)
    world.ticks(15)
    assert world.actions.ran == []


def test_a_rescheduled_task_runs_then_and_only_then(world: InProcess) -> None:
    client = TaskClient(world.store, clock=world.clock)
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


@pytest.mark.parametrize("time", ["2026-12-31T11:00:00Z", "2026-12-31T12:01:00Z", "2026-12-31#12:01"])
def test_rescheduled_into_the_past_means_the_next_tick(world: InProcess, time: str) -> None:
    client = TaskClient(world.store, clock=world.clock)
    before = world.row("scheduled")
    assert client.reschedule("scheduled", due_at=time).bucket == "2026-12-31#12:02"
    after = world.row("scheduled")
    world.stream(after, before)
    assert world.row("scheduled") == after
    world.next_tick()
    assert client.get("scheduled").status == "completed"


@pytest.mark.parametrize("wish", ["reschedule", "run"])
@pytest.mark.parametrize("streamed", [True, False], ids=["seen by the scheduler", "seen by the processor"])
def test_a_raw_row_is_completed_after_its_change(world: InProcess, wish: str, streamed: bool) -> None:
    client = TaskClient(world.store, clock=world.clock)
    before = world.row("unscheduled")
    WISHES[wish](client, "unscheduled")
    if streamed:
        world.stream(world.row("unscheduled"), before)
        assert client.get("unscheduled").action == "log"
    world.ticks(120)
    view = client.get("unscheduled")
    assert (view.status, view.error, world.actions.times("unscheduled")) == ("completed", None, 1)


def test_a_retried_task_is_another_run(world: InProcess) -> None:
    client = TaskClient(world.store, clock=world.clock)
    del world.actions.behaviour["failed"]
    view = client.redrive("failed")
    assert (view.status, view.run, view.attempt, view.error, view.finished_at) == ("scheduled", 2, 0, None, None)
    assert (view.bucket, view.expires_at) == ("2026-12-31#12:02", None)
    world.next_tick()
    assert client.get("failed").status == "completed"
    assert world.actions.keys[-1] == key_of(world.row("failed"), 2)


def test_a_malformed_row_can_be_retried_once_it_is_repaired_by_its_new_time(world: InProcess) -> None:
    client = TaskClient(world.store, clock=world.clock)
    world.put(taskId="february", dueAt="2027-02-31T12:00:00Z")
    world.put(taskId="hopeless", payload="no map")
    assert (client.get("february").status, client.get("hopeless").status) == ("failed", "failed")
    client.redrive("february")
    client.redrive("hopeless")
    world.ticks(2)
    assert client.get("february").status == "completed"
    view = client.get("hopeless")
    assert (view.status, view.error) == (
        "failed",
        "payload: 'a str' is not accepted; expected a map of names to values",
    )


def test_run_now_comes_before_the_planned_time(world: InProcess) -> None:
    client = TaskClient(world.store, clock=world.clock)
    view = client.run_now("scheduled")
    assert (view.bucket, view.run) == ("2026-12-31#12:02", 1)
    assert client.run_now("completed").run == 2
    world.next_tick()
    assert (world.actions.times("scheduled"), world.actions.times("completed")) == (1, 2)


def test_an_id_too_long_for_the_index_can_be_looked_up(world: InProcess) -> None:
    long = "i" * 1500
    world.put(taskId=long)
    view = TaskClient(world.store, clock=world.clock).get(long)
    assert view.status == "failed"


class Overtaken(MemoryStore):
    """Lets another client in, once, between a read and a write."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Callable[[], object] | None = None

    def write(self, change: ConditionalUpdate) -> Result:
        if self.first is not None:
            first, self.first = self.first, None
            first()
        return super().write(change)


@pytest.fixture
def overtaken() -> InProcess:
    world = InProcess(store=Overtaken())
    world.tick()
    TaskClient(world.store, clock=world.clock).insert("x", delay_seconds=600)
    return world


def be_first(world: InProcess, does: Callable[[], object]) -> None:
    assert isinstance(world.store, Overtaken)
    world.store.first = does


@pytest.mark.parametrize("wish", ["cancel", "reschedule", "run"])
def test_who_loses_against_a_claim_is_told(overtaken: InProcess, wish: str) -> None:
    world, client = overtaken, TaskClient(overtaken.store, clock=overtaken.clock)
    bucket = Bucket.parse(world.row("x")["taskDateTime"])
    until = world.clock() + timedelta(minutes=2)

    def claimed() -> None:
        assert isinstance(
            world.store.write(claim("x", bucket, token="t", lease_until=until, now=world.clock())), Written
        )

    be_first(world, claimed)
    with pytest.raises(TransitionRefused, match="it is running"):
        WISHES[wish](client, "x")
    assert world.row("x")["lease"] == "t"


def test_a_claim_that_loses_against_a_cancel_does_not_run(overtaken: InProcess) -> None:
    world, client = overtaken, TaskClient(overtaken.store, clock=overtaken.clock)
    bucket = Bucket.parse(world.row("x")["taskDateTime"])
    until = world.clock() + timedelta(minutes=2)
    be_first(world, lambda: client.cancel("x"))
    assert isinstance(world.store.write(claim("x", bucket, token="t", lease_until=until, now=world.clock())), Lost)
    assert client.get("x").status == "cancelled"


def test_who_was_overtaken_tries_again_on_the_row_as_it_is(overtaken: InProcess) -> None:
    world, client = overtaken, TaskClient(overtaken.store, clock=overtaken.clock)
    be_first(world, lambda: client.reschedule("x", due_at="2026-12-31T15:00:00Z"))
    assert client.cancel("x").bucket == "2026-12-31#15:00"
    be_first(world, lambda: (world.clock.forward(seconds=1), client.redrive("x")))
    with pytest.raises(TransitionRefused, match="it is scheduled"):
        client.redrive("x")
    assert client.get("x").run == 2


class Mute(MemoryStore):
    """Does what it is reported and does not answer."""

    def __init__(self, *, lose: bool) -> None:
        super().__init__()
        self.lose = lose
        self.mute = False

    def write(self, change: ConditionalUpdate) -> Result:
        if not self.mute:
            return super().write(change)
        if not self.lose:
            super().write(change)
        return Unknown("the connection broke off")


@pytest.mark.parametrize("lose", [True, False])
def test_an_answer_that_got_lost(lose: bool) -> None:
    world = InProcess(store=Mute(lose=lose))
    world.tick()
    client = TaskClient(world.store, clock=world.clock)
    client.insert("x", delay_seconds=600)
    assert isinstance(world.store, Mute)
    world.store.mute = True
    if lose:
        with pytest.raises(StoreError, match="cannot change 'x': the connection broke off"):
            client.cancel("x")
        assert client.get("x").status == "scheduled"
    else:
        assert client.cancel("x").status == "cancelled"


def test_a_row_that_never_holds_still() -> None:
    class Restless(MemoryStore):
        def write(self, change: ConditionalUpdate) -> Result:
            return Lost() if change.task_id == "x" else super().write(change)

    world = InProcess(store=Restless())
    world.tick()
    client = TaskClient(world.store, clock=world.clock)
    client.insert("x", delay_seconds=600)
    with pytest.raises(StoreError, match="other requests changed it 20 times"):
        client.cancel("x")
