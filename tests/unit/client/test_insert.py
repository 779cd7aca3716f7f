"""What an insert writes, with a time and without."""

from __future__ import annotations

from decimal import Decimal

import pytest
from tests.builders import NOON, InProcess
from tests.unit.client.support import client_of, world_of
from tests.unit.engine.support import World

from dynatick import RetryPolicy, TaskClient, TaskExists
from dynatick.client.new_task import Time


@pytest.mark.parametrize(
    ("time", "bucket", "due"),
    [
        ("2026-12-31T12:30:00Z", "2026-12-31#12:30", "2026-12-31T12:30:00Z"),
        ("2026-12-31T12:31:00Z", "2026-12-31#12:35", "2026-12-31T12:31:00Z"),
        (Decimal(int(NOON.timestamp())) + Decimal("60.5"), "2026-12-31#12:05", "2026-12-31T12:01:00.500Z"),
        # past, and the current minute: the next tick
        ("2026-12-31T11:00:00Z", "2026-12-31#12:05", "2026-12-31T11:00:00Z"),
        ("2026-12-31#12:00", "2026-12-31#12:05", "2026-12-31T12:00:00Z"),
    ],
)
def test_a_task_with_a_time_is_written_complete(time: Time, bucket: str, due: str) -> None:
    world = world_of(tick_minutes=5)
    world.clock.forward(seconds=20)
    view = client_of(world).insert("x", due_at=time)
    row = dict(world.row("x"))
    assert (row.pop("taskDateTime"), row.pop("dueAt")) == (bucket, due)
    assert str(row.pop("createdAt")).startswith("2026-12-31T12:00:20")
    assert row == {"taskId": "x", "action": "log", "status": "scheduled", "attempt": 0, "run": 1}
    assert (view.status, view.bucket) == ("scheduled", bucket)


def test_a_task_means_the_same_however_it_came_in() -> None:
    world = world_of(tick_minutes=5, shard_count=4)
    for n, time in enumerate(["2026-12-31T12:31:20Z", "2026-12-31#12:31#2", 1_800_000_000]):
        normalised = dict(world.put(taskId=f"t{n}", taskDateTime=time))
        world.store.delete(f"t{n}")
        client_of(world).insert(f"t{n}", task_date_time=time)
        written = dict(world.row(f"t{n}"))
        assert written.pop("createdAt") and normalised.pop("createdAt")
        assert written == normalised


def test_what_is_given_is_in_the_row(client: TaskClient) -> None:
    payload = {"url": "https://example.com", "ratio": 0.1, "list": [1, None, True], "raw": b"\x00", "tags": {"a", "b"}}
    view = client.insert(
        "x", delay_seconds=90, payload=payload, retry_policy=RetryPolicy(maximum_retry_attempts=1),
        attributes={"tenant": "t1", "größe": 3},
    )  # fmt: skip
    payload["url"] = "changed later"
    shown = client.get("x")
    assert shown.payload == {**payload, "url": "https://example.com"}
    assert shown.attributes == {"tenant": "t1", "größe": 3}
    assert shown.row["retryPolicy"] == {
        "maximumRetryAttempts": 1, "maximumEventAgeInSeconds": 86400, "minBackoffSeconds": 5, "maxBackoffSeconds": 3600,
    }  # fmt: skip
    assert (shown.bucket, shown.row["delaySeconds"]) == ("2026-12-31#12:02", 90)
    assert view.to_row() == shown.to_row()


@pytest.mark.parametrize(
    ("ticks", "row", "bucket"),
    [
        (1, {"payload": {"n": 1}}, "2026-12-31#12:02"),
        (0, {"dueAt": "2026-12-31T13:07:00+01:00", "action": "log"}, "2026-12-31#12:07"),
    ],
    ids=["without a time", "before the first tick"],
)
def test_the_scheduler_completes_a_row_that_the_client_can_not(ticks: int, row: dict[str, str], bucket: str) -> None:
    world = InProcess()
    world.ticks(ticks)
    client = client_of(world)
    assert client.insert_many([{"taskId": "x"} | row]).inserted == 1
    view = client.get("x")
    assert (view.status, view.bucket) == ("unscheduled", None)
    assert world.row("x") == {"taskId": "x"} | row
    world.stream(world.row("x"))
    assert client.get("x").bucket == bucket


def test_tasks_spread_over_the_shards_in_force() -> None:
    world = world_of(shard_count=4)
    client = client_of(world)
    buckets = {client.insert(f"t{n}", due_at="2026-12-31T12:30:00Z").bucket for n in range(50)}
    assert buckets == {f"2026-12-31#12:30{shard}" for shard in ("", "#1", "#2", "#3")}
    assert client.insert("named", task_date_time="2026-12-31#12:30#3").bucket == "2026-12-31#12:30#3"


@pytest.mark.parametrize("delay", [None, 30], ids=["without a time", "with a time"])
def test_an_id_that_is_taken_is_refused_and_nothing_is_written(
    world: World, client: TaskClient, delay: int | None
) -> None:
    before = client.insert("+49 170", delay_seconds=90, payload={"n": 1})
    with pytest.raises(TaskExists) as exists:
        client.insert("+49 170", delay_seconds=delay, payload={"n": 2})
    assert exists.value.task_id == "+49 170"
    assert str(exists.value) == (
        "taskId: a task or schedule '+49 170' exists already; choose another id, or change that one"
    )
    assert client.get("+49 170") == before
