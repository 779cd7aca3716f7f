"""Deleting a task: what may go, what a race does, and that nothing runs that is gone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.builders import NOON, InProcess
from tests.unit.engine.support import RiggedStore

from dynatick import (
    PermanentError,
    RetryableError,
    StoreError,
    TaskChanged,
    TaskClient,
    TaskNotFound,
    TransitionRefused,
)
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Lost
from dynatick.domain.lifecycle import claim
from dynatick.store.memory import MemoryStore

AT_ONE = "2026-12-31#13:00"


def fail(*_: object) -> object:
    raise PermanentError("no")


def fail_for_now(*_: object) -> object:
    raise RetryableError("later", retry_after=3600)


@pytest.fixture
def world() -> InProcess:
    """With a task in each state, named after it."""
    world = InProcess(store=RiggedStore())
    client = TaskClient(world.store, clock=world.clock)
    world.actions.behaviour |= {"failed": fail, "waits-for-its-retry": fail_for_now}
    world.tick()
    for name in ("completed", "failed", "waits-for-its-retry"):
        client.insert(name, delay_seconds=1)
    world.next_tick()
    client.insert("cancelled", delay_seconds=3600)
    client.cancel("cancelled")
    client.insert("scheduled", delay_seconds=3600)
    client.insert("running", task_date_time=AT_ONE)
    start(world, "running")
    client.insert("unscheduled")
    return world


def start(world: InProcess, task_id: str) -> None:
    """As a tick does that finds it in its bucket."""
    row = world.store.get(task_id)
    assert row is not None
    bucket = Bucket.parse(row["taskDateTime"])
    world.store.write(claim(task_id, bucket, token="t", lease_until=NOON + timedelta(days=1), now=NOON))


def client_of(world: InProcess) -> TaskClient:
    return TaskClient(world.store, clock=world.clock)


@pytest.mark.parametrize(
    "task_id", ["unscheduled", "scheduled", "completed", "failed", "cancelled", "waits-for-its-retry"]
)
def test_a_task_that_does_not_run_is_removed_without_a_trace(world: InProcess, task_id: str) -> None:
    client_of(world).delete(task_id)
    assert world.store.get(task_id) is None
    before = world.actions.times(task_id)
    world.clock.forward(hours=3)
    world.ticks(2)
    assert world.actions.times(task_id) == before
    assert world.store.get(task_id) is None
    with pytest.raises(TaskNotFound):
        client_of(world).delete(task_id)


def test_a_task_that_runs_stays_and_it_is_said_what_to_do(world: InProcess) -> None:
    with pytest.raises(TransitionRefused) as refused:
        client_of(world).delete("running")
    assert str(refused.value) == (
        "cannot delete task 'running': it is running; an attempt can't be stopped: wait until it has ended; "
        "if the task is retried, cancel it then"
    )
    assert refused.value.status == "running"
    assert world.store.get("running") is not None


def test_a_schedule_is_deleted_as_one(world: InProcess) -> None:
    client_of(world).schedules.insert("nightly", "rate(1 day)")
    with pytest.raises(TransitionRefused, match="it is a schedule; delete it as a schedule"):
        client_of(world).delete("nightly")
    assert world.store.get("nightly") is not None


@pytest.mark.parametrize("task_id", ["_dynatick#settings", "_dynatick#cursor#0", "none"])
def test_what_is_no_task_is_left_alone(world: InProcess, task_id: str) -> None:
    there = world.store.get(task_id)
    with pytest.raises((TaskNotFound, ValueError)):
        client_of(world).delete(task_id)
    assert world.store.get(task_id) == there


class Raced(RiggedStore):
    """``first`` happens between the read and the first delete."""

    first: Callable[[], object] | None = None

    def delete(self, task_id: str, conditions: object = ()) -> bool:
        first, self.first = self.first, None
        if first is not None:
            first()
        return MemoryStore.delete(self, task_id, conditions)  # type: ignore[arg-type]


def raced() -> tuple[InProcess, Raced]:
    store = Raced()
    world = InProcess(store=store)
    world.tick()
    client_of(world).insert("t", task_date_time=AT_ONE)
    return world, store


def test_a_claim_that_was_faster_is_not_undone() -> None:
    world, store = raced()
    store.first = lambda: start(world, "t")
    with pytest.raises(TransitionRefused, match="it is running"):
        client_of(world).delete("t")
    row = store.get("t")
    assert row is not None and row["lease"] == "t"


def test_a_claim_that_was_slower_finds_nothing() -> None:
    world, store = raced()
    client_of(world).delete("t")
    late = claim("t", Bucket.parse(AT_ONE), token="t", lease_until=NOON + timedelta(days=1), now=NOON)
    assert isinstance(store.write(late), Lost)
    world.clock.to(Bucket.parse(AT_ONE).instant)
    store.create({"taskId": "another", "taskDateTime": AT_ONE})  # so that the pass has something to do
    world.next_tick()
    assert world.actions.times("t") == 0
    assert store.get("t") is None


def test_a_change_by_others_meanwhile_is_looked_at_again() -> None:
    world, store = raced()
    store.first = lambda: client_of(world).cancel("t")
    client_of(world).delete("t")
    assert store.get("t") is None


def test_a_delete_by_another_meanwhile_is_what_was_asked() -> None:
    world, store = raced()
    store.first = lambda: MemoryStore.delete(store, "t")
    client_of(world).delete("t")
    assert store.get("t") is None


def test_a_row_that_never_holds_still_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    world, store = raced()
    monkeypatch.setattr(store, "delete", lambda task_id, conditions: False)
    with pytest.raises(StoreError, match="cannot delete 't': other requests changed it"):
        client_of(world).delete("t")


def test_only_the_version_that_was_seen() -> None:
    world, store = raced()
    client = client_of(world)
    seen = client.get("t").version
    client.update("t", payload={"n": 1})
    with pytest.raises(TaskChanged):
        client.delete("t", version=seen)
    now = client.get("t").version
    store.first = lambda: client.update("t", payload={"n": 2})
    with pytest.raises(TaskChanged):
        client.delete("t", version=now)
    client.delete("t", version=client.get("t").version)
    assert store.get("t") is None


def test_a_task_inserted_again_under_its_id_has_a_key_of_its_own() -> None:
    world, _ = raced()
    client = client_of(world)
    world.clock.to(Bucket.parse(AT_ONE).instant)
    world.next_tick()
    client.delete("t")
    client.insert("t", delay_seconds=1)
    world.next_tick(2)
    first, second = world.actions.keys
    assert first != second
    assert client.get("t").run == 1
