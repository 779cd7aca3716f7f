"""Cancelling and redriving the tasks of a bucket in batches, with every store, while other processes change them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from tests.builders import NOON, FakeClock, scheduled_row

from dynatick import TaskClient
from dynatick.client import Changed, Skipped
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import ConditionalUpdate, Result
from dynatick.domain.lifecycle import claim
from dynatick.domain.normalise import Defaults
from dynatick.domain.task import is_own_row
from dynatick.engine.installation_settings import publish_settings
from dynatick.engine.ports import Store
from dynatick.store.dynamodb import DynamoStore

pytestmark = pytest.mark.long

BUCKET = "2026-12-31#13:00"
TASKS = 230


def test_change_many_while_others_change_the_tasks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_settings(store, Grid(), now=NOON, actions=("log",), defaults=Defaults())
    clock, own = FakeClock(NOON + timedelta(minutes=1)), FakeClock()
    client, another = TaskClient(store, clock=own), TaskClient(store, clock=clock)
    assert {type(one).__name__ for one in client.insert_lazily(
        {"taskId": f"t{n:03d}", "taskDateTime": BUCKET, "action": "log"} for n in range(TASKS)
    )} == {"Inserted"}  # fmt: skip
    store.create({"taskId": "raw", "taskDateTime": BUCKET, "lease": None})
    write_many = store.write_many
    seen: list[int] = []

    def others_first(changes: Sequence[ConditionalUpdate]) -> Sequence[Result]:
        seen.append(len(changes))
        if any(change.task_id == "t001" for change in changes):
            lease_until = clock() + timedelta(minutes=2)
            store.write(claim("t001", Bucket.parse(BUCKET), token="k", lease_until=lease_until, now=clock()))
            store.delete("t002")
            another.cancel("t003")
            another.update("t004", payload={"n": 1})
            store.write(ConditionalUpdate(task_id="t005", set={"lease": "of an earlier run"}))
        return write_many(changes)

    monkeypatch.setattr(store, "write_many", others_first)
    results = {one.task_id: one for one in client.cancel_many(BUCKET)}
    assert list(results) == sorted(["raw", *(f"t{n:03d}" for n in range(TASKS))])
    assert {task_id: one for task_id, one in results.items() if not isinstance(one, Changed)} == {
        "t001": Skipped("t001", "it is running now"),
        "t002": Skipped("t002", "it was deleted"),
        "t003": Skipped("t003", "it is cancelled now"),
    }
    assert (sum(seen), max(seen)) == (TASKS + 1, 25)
    assert store.get("t002") is None
    assert client.get("t001").status == "running"
    assert client.get("t004").payload == {"n": 1}
    for task_id, result in results.items():
        if isinstance(result, Changed):
            assert (result.task.status, result.task) == ("cancelled", client.get(task_id))

    own.forward(minutes=2)
    again = list(client.redrive_many(BUCKET, status="cancelled"))
    assert {type(one) for one in again} == {Changed}
    assert [one.task_id for one in again] == [task_id for task_id in results if task_id not in ("t001", "t002")]
    assert {client.get(one.task_id).run for one in again} == {2}


def failed_row(task_id: str) -> dict[str, object]:
    """With the attributes that a redrive removes."""
    return {
        **scheduled_row(task_id, Bucket.parse(BUCKET), status="failed", outcome="failed"),
        "finishedAt": "2026-12-31T12:50:00Z", "expiresAt": 1798725000, "error": "it broke", "result": {"n": 1},
        "lease": "k1", "leaseUntil": "2026-12-31T12:55:00Z", "delaySeconds": 60, "deferrals": 2, "attempt": 3,
        "run": 4, "attempts": [{"run": 4, "attempt": 3, "error": "it broke"}], 'tenant\'s "own"': "kept",
    }  # fmt: skip


def test_redrives_are_sent_25_in_a_call(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_settings(store, Grid(), now=NOON, actions=("log",), defaults=Defaults())
    client = TaskClient(store, clock=FakeClock(NOON + timedelta(hours=1)))
    store.create_many([failed_row(f"t{n:03d}") for n in range(TASKS)])
    write, write_many = store.write, store.write_many
    alone: list[str] = []
    together: list[int] = []

    def note_one(change: ConditionalUpdate) -> Result:
        alone.append(change.task_id)
        return write(change)

    def note_many(changes: Sequence[ConditionalUpdate]) -> Sequence[Result]:
        together.append(sum(not is_own_row(change.task_id) for change in changes))  # not what their bucket has seen
        return write_many(changes)

    def is_batched() -> bool:
        return isinstance(store, DynamoStore) and store._batched

    if is_batched():
        monkeypatch.setattr(store, "write", note_one)
    monkeypatch.setattr(store, "write_many", note_many)
    results = list(client.redrive_many(BUCKET))
    assert {type(one) for one in results} == {Changed} and len(results) == TASKS
    assert (sum(together), max(together)) == (TASKS, 25)
    assert alone == []
    for result in results:
        assert isinstance(result, Changed) and result.task == client.get(result.task_id)


def test_a_redrive_in_a_batch_equals_a_single_one(store: Store) -> None:
    publish_settings(store, Grid(), now=NOON, actions=("log",), defaults=Defaults())
    client = TaskClient(store, clock=FakeClock(NOON + timedelta(hours=1)))
    store.create_many([failed_row(task_id) for task_id in ("alone", "b1", "b2", "b3")])
    store.create({**failed_row("by-hand"), "action": None})
    client.redrive("alone")
    results = {one.task_id: one for one in client.redrive_many(BUCKET)}
    assert {task_id: type(one) for task_id, one in results.items()} == dict.fromkeys(
        ("b1", "b2", "b3", "by-hand"), Changed
    )
    rows = {task_id: dict(store.get(task_id) or {}) for task_id in ("alone", *results)}
    assert "attempt" not in rows.pop("by-hand")
    for row in rows.values():
        assert str(row.pop("dueAt")).startswith("2026-12-31T13:0")
        assert (row["run"], row["attempt"], row['tenant\'s "own"']) == (5, 0, "kept")
        assert not row.keys() & {"outcome", "finishedAt", "expiresAt", "error", "result", "lease", "leaseUntil"}
        assert row.pop("taskId")
    assert rows["b1"] == rows["b2"] == rows["b3"] == rows["alone"]
