"""Many waiting tasks get another time: each is moved once, wherever it comes to lie."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.client.support import client_of, world_of
from tests.unit.engine.support import World, bucket_at

from dynatick import TaskClient
from dynatick.client import Changed, Skipped, WouldChange
from dynatick.domain.buckets import Bucket, Grid

RANGE = {"start": "2026-12-31T12:00:00Z", "end": "2026-12-31T14:00:00Z"}
MINUTES = (5, 6, 30, 35, 59, 65, 90)


@pytest.fixture(params=[1, 3])
def world(request: pytest.FixtureRequest) -> World:
    """Three tasks at each of several minutes after noon, and one that has ended."""
    world = world_of(shard_count=request.param)
    client = client_of(world)
    for minute in MINUTES:
        for n in range(3):
            client.insert(f"t{minute:02d}-{n}", due_at=NOON + timedelta(minutes=minute))
    client.insert("ended", due_at=NOON + timedelta(minutes=30))
    client.cancel("ended")
    return world


def due(client: TaskClient) -> dict[str, float]:
    """Minutes after noon, by id."""
    found = {f"t{minute:02d}-{n}": client.get(f"t{minute:02d}-{n}").due_at for minute in MINUTES for n in range(3)}
    return {task_id: (at - NOON).total_seconds() / 60 for task_id, at in found.items() if at is not None}


@pytest.mark.parametrize("minutes", [1, 30, -3])
def test_each_is_shifted_once(world: World, client: TaskClient, minutes: int) -> None:
    results = list(client.reschedule_many(**RANGE, shift=timedelta(minutes=minutes)))
    assert Counter(type(one) for one in results) == {Changed: 3 * len(MINUTES)}
    assert len({one.task_id for one in results}) == 3 * len(MINUTES)
    assert due(client) == {f"t{m:02d}-{n}": m + minutes for m in MINUTES for n in range(3)}
    for one in results:
        assert isinstance(one, Changed) and one.task == client.get(one.task_id)
        assert one.task.bucket == str(
            Grid(shard_count=world.rules.grid.shard_count).bucket_of(one.task_id, one.task.due_at)
        )  # type: ignore[arg-type]
    assert client.get("ended").status == "cancelled"


@pytest.mark.parametrize(
    ("row", "shift", "due_at", "bucket"),
    [
        # within a tick
        (scheduled_row("x", bucket_at(7), dueAt="2026-12-31T12:06:10Z"), timedelta(seconds=20), "12:06:30", "12:07"),
        # waiting to be tried again: from there
        (scheduled_row("x", bucket_at(40), dueAt="2026-12-31T11:50:00Z", attempt=2), timedelta(minutes=10),
         "12:50:00", "12:50"),
    ],
)  # fmt: skip
def test_a_shift_counts_from_the_time_that_a_task_waits_for(
    world: World, client: TaskClient, row: dict[str, object], shift: timedelta, due_at: str, bucket: str
) -> None:
    world.store.create(row)
    assert [one.task_id for one in client.reschedule_many(**RANGE, prefix="x", shift=shift)] == ["x"]
    moved = world.row("x")
    assert (moved["dueAt"], moved["attempt"]) == (f"2026-12-31T{due_at}Z", row["attempt"])
    assert str(moved["taskDateTime"])[:16] == f"2026-12-31#{bucket}"


def test_what_would_have_passed_goes_to_the_next_tick(client: TaskClient) -> None:
    results = list(client.reschedule_many(**RANGE, shift=timedelta(minutes=-32)))
    assert len(results) == len({one.task_id for one in results}) == 3 * len(MINUTES)
    assert {Bucket.parse(client.get(f"t{m:02d}-{n}").bucket).minute for m in (5, 6, 30) for n in range(3)} == {
        bucket_at(1).minute
    }
    assert client.get("t59-0").due_at == NOON + timedelta(minutes=27)


@pytest.mark.parametrize("minute", [30, 200])
def test_all_get_one_time_once(client: TaskClient, minute: int) -> None:
    to = NOON + timedelta(minutes=minute)
    results = list(client.reschedule_many(**RANGE, due_at=to))
    meant = [m for m in MINUTES if m != minute]  # the others are there already
    assert sorted(one.task_id for one in results) == [f"t{m:02d}-{n}" for m in meant for n in range(3)]
    assert set(due(client).values()) == {minute}
    assert list(client.reschedule_many(**RANGE, due_at=to)) == []


def test_a_delay_counts_from_one_instant_for_all(client: TaskClient) -> None:
    for _ in client.reschedule_many(**RANGE, delay_seconds=600):
        pass
    assert len(set(due(client).values())) == 1
    list(client.reschedule_many(**RANGE, due_at=NOON - timedelta(days=1)))  # it has passed: the next tick
    assert {Bucket.parse(client.get(f"t05-{n}").bucket).minute for n in range(3)} == {bucket_at(1).minute}


def test_a_dry_run_and_filters(client: TaskClient) -> None:
    before = due(client)
    would = list(client.reschedule_many(**RANGE, prefix="t30-", shift=timedelta(hours=1), dry_run=True))
    assert {type(one) for one in would} == {WouldChange} and len(would) == 3
    assert due(client) == before
    assert len(list(client.reschedule_many(**RANGE, shift=timedelta(hours=1), limit=4))) == 4
    assert {m for m in due(client).values() if m > 100} == {125, 150}  # the latest first


def test_beyond_the_last_time_a_task_is_left(client: TaskClient) -> None:
    results = list(client.reschedule_many(**RANGE, prefix="t30-", shift=timedelta(days=3_000_000)))
    assert {type(one) for one in results} == {Skipped}
    assert "expected a time between 1970 and 9998" in str(results[0])
