"""A waiting task's time and payload, changed only if it is the task that was seen; changes of many, up to a limit."""

from __future__ import annotations

import pytest
from tests.builders import NOON, FakeClock

from dynatick import MemoryStore, TaskChanged, TaskClient, TaskNotFound, TransitionRefused
from dynatick.client import Changed
from dynatick.domain.buckets import Grid
from dynatick.domain.normalise import Defaults
from dynatick.engine.installation_settings import publish_settings

BUCKET = "2026-12-31#13:00"


@pytest.fixture
def client() -> TaskClient:
    client = TaskClient(MemoryStore(), clock=FakeClock())
    client.insert("a", task_date_time=BUCKET, payload={"n": 1}, attributes={"own": [1.5, None, {"x", "y"}]})
    return client


def test_time_and_payload_in_one_write_and_what_is_left_out_stays(client: TaskClient) -> None:
    moved = client.update("a", due_at="2026-12-31T14:00:00Z", payload={"n": 2})
    assert (moved.bucket, moved.payload, moved.status) == ("2026-12-31#14:00", {"n": 2}, "scheduled")
    assert client.get("a") == moved
    less = client.update("a", payload={})
    assert (less.payload, less.bucket, less.due_at) == ({}, moved.bucket, moved.due_at)
    assert client.update("a", delay_seconds=60).payload == {}


def test_a_version_names_a_row_as_it_stands(client: TaskClient) -> None:
    seen = client.get("a").version
    assert client.get("a").version == seen
    changed = client.update("a", payload={"n": 2}, version=seen)
    assert changed.version == client.get("a").version != seen
    with pytest.raises(TaskChanged, match="'a' has changed"):
        client.update("a", payload={"n": 3}, version=seen)
    assert client.get("a").payload == {"n": 2}


@pytest.mark.parametrize("attribute", ["payload", "lease"])
def test_any_change_of_others_is_seen_at_the_write(
    client: TaskClient, attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = client.get("a").version
    write = client.store.write

    def late(change: object) -> object:
        monkeypatch.undo()
        row = dict(client.store.get("a") or {})
        client.store.delete("a")
        client.store.create({**row, attribute: {"other": True}})
        return write(change)  # type: ignore[arg-type]

    monkeypatch.setattr(client.store, "write", late)
    with pytest.raises(TaskChanged):
        client.update("a", payload={"mine": True}, version=seen)
    assert client.get("a").payload != {"mine": True}


def test_not_what_has_ended(client: TaskClient) -> None:
    client.cancel("a")
    with pytest.raises(TransitionRefused, match="cannot change task 'a': it is cancelled"):
        client.update("a", payload={})
    with pytest.raises(TaskNotFound):
        client.update("none", payload={})


def test_a_limit_is_of_all_shards_together(client: TaskClient) -> None:
    publish_settings(client.store, Grid(shard_count=4), now=NOON, actions=("log",), defaults=Defaults())
    sharded = TaskClient(client.store, clock=FakeClock())
    for n in range(60):
        sharded.insert(f"t{n:02}", task_date_time=BUCKET)
    assert len(list(sharded.cancel_many(BUCKET, limit=25))) == 25
    assert len(list(sharded.cancel_many(start="2026-12-31T12:30:00Z", end="2026-12-31T13:30:00Z", limit=25))) == 25
    assert [type(one) for one in sharded.cancel_many(BUCKET, limit=25)] == [Changed] * 11
