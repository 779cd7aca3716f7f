"""Many waiting tasks get another time: each is moved once, wherever it comes to lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.client.support import client_of, world_of
from tests.unit.engine.support import World, bucket_at

from dynatick import TaskClient
from dynatick.client import Changed, Skipped, WouldChange
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import ConditionalUpdate, Result
from dynatick.domain.lifecycle import claim

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


@pytest.mark.parametrize("minutes", [1, 5, 30, 60, -1, -3])
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


def test_a_shift_within_a_tick_is_made_once(world: World, client: TaskClient) -> None:
    world.store.create(scheduled_row("seconds", bucket_at(7), dueAt="2026-12-31T12:06:10Z"))
    for _ in client.reschedule_many(**RANGE, prefix="seconds", shift=timedelta(seconds=20)):
        pass
    row = world.row("seconds")
    assert (row["dueAt"], row["taskDateTime"]) == ("2026-12-31T12:06:30Z", "2026-12-31#12:07")


def test_what_would_have_passed_goes_to_the_next_tick(client: TaskClient) -> None:
    results = list(client.reschedule_many(**RANGE, shift=timedelta(minutes=-32)))
    assert len(results) == len({one.task_id for one in results}) == 3 * len(MINUTES)
    assert {Bucket.parse(client.get(f"t{m:02d}-{n}").bucket).minute for m in (5, 6, 30) for n in range(3)} == {
        bucket_at(1).minute
    }
    assert client.get("t59-0").due_at == NOON + timedelta(minutes=27)


@pytest.mark.parametrize("minute", [1, 30, 45, 200])
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


def test_a_task_that_waits_to_be_tried_again_is_shifted_from_there(world: World, client: TaskClient) -> None:
    world.store.create(scheduled_row("again", bucket_at(40), dueAt="2026-12-31T11:50:00Z", attempt=2))
    for _ in client.reschedule_many(**RANGE, prefix="again", shift=timedelta(minutes=10)):
        pass
    row = world.row("again")
    assert (row["dueAt"], row["attempt"]) == ("2026-12-31T12:50:00Z", 2)


def test_a_dry_run_and_filters(client: TaskClient) -> None:
    before = due(client)
    would = list(client.reschedule_many(**RANGE, prefix="t30-", shift=timedelta(hours=1), dry_run=True))
    assert {type(one) for one in would} == {WouldChange} and len(would) == 3
    assert due(client) == before
    assert len(list(client.reschedule_many(**RANGE, shift=timedelta(hours=1), limit=4))) == 4
    assert {m for m in due(client).values() if m > 100} == {125, 150}  # the latest first


def test_what_others_changed_first_is_left_to_them(
    world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_many = world.store.write_many

    def claim_it() -> None:
        bucket = Bucket.parse(world.row("t30-0")["taskDateTime"])
        until = world.clock() + timedelta(minutes=2)
        world.store.write(claim("t30-0", bucket, token="k", lease_until=until, now=world.clock()))

    others: dict[str, Callable[[], object]] = {
        "t30-0": claim_it,
        "t30-1": lambda: client.reschedule("t30-1", due_at=NOON + timedelta(minutes=80)),
        "t30-2": lambda: world.store.delete("t30-2"),
    }

    def others_first(changes: Sequence[ConditionalUpdate]) -> Sequence[Result]:
        for change in changes:  # just before its own write: shards are read and written side by side
            others[change.task_id]()
        return write_many(changes)

    monkeypatch.setattr(world.store, "write_many", others_first)
    results = {one.task_id: one for one in client.reschedule_many(**RANGE, prefix="t30-", shift=timedelta(hours=1))}
    assert {task_id: type(one) for task_id, one in results.items()} == dict.fromkeys(results, Skipped)
    assert len(results) == 3
    assert client.get("t30-1").due_at == NOON + timedelta(minutes=80)


def test_beyond_the_last_time_a_task_is_left(client: TaskClient) -> None:
    results = list(client.reschedule_many(**RANGE, prefix="t30-", shift=timedelta(days=3_000_000)))
    assert {type(one) for one in results} == {Skipped}
    assert "expected a time between 1970 and 9998" in str(results[0])
