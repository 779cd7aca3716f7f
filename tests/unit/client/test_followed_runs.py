"""What comes of redriven tasks: counted until their runs have ended, and no run is taken for another."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.engine.support import World, fails, ids

from dynatick import TaskClient
from dynatick.client import change_records
from dynatick.client.change_records import FollowedRuns

ONCE = {"maximumRetryAttempts": 0}


@pytest.fixture
def failed(world: World, client: TaskClient) -> list[str]:
    names = list(ids(5))
    world.actions.behaviour = dict.fromkeys(names, fails)
    for name in names:
        client.insert(name, delay_seconds=30, retry_policy=ONCE)
    world.next_tick()
    assert {client.get(name).status for name in names} == {"failed"}
    return names


def redriven(client: TaskClient, names: list[str]) -> FollowedRuns:
    runs = FollowedRuns()
    for name in names:
        runs.add(client.redrive(name))
    return runs


def test_runs_are_followed_until_they_have_ended(world: World, client: TaskClient, failed: list[str]) -> None:
    runs = redriven(client, failed)
    runs.refresh(client.store)
    assert str(runs.counts()) == "0 completed, 5 waiting"
    client.cancel(failed[0])
    del world.actions.behaviour[failed[1]], world.actions.behaviour[failed[2]]
    world.next_tick()
    assert not runs.has_ended, "nothing was read since"
    runs.refresh(client.store)
    assert str(runs.counts()) == "2 completed, 2 failed again, 1 cancelled"
    assert runs.has_ended
    assert runs.counts().to_row() == {
        "followed": 5, "completed": 2, "failed": 2, "cancelled": 1, "changed": 0, "waiting": 0
    }  # fmt: skip


def test_another_run_or_a_task_that_is_gone_counts_as_changed(
    world: World, client: TaskClient, failed: list[str]
) -> None:
    runs = redriven(client, failed[:3])
    world.next_tick()
    client.redrive(failed[0])
    client.delete(failed[1])
    runs.refresh(client.store)
    assert str(runs.counts()) == "0 completed, 1 failed again, 2 changed since"


def test_no_more_rows_are_read_at_a_time_than_the_bound_and_all_come_by_turns(
    world: World, client: TaskClient, failed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_records, "_MAX_READ", 2)
    monkeypatch.setattr(change_records, "MAX_FOLLOWED", 4)
    runs = redriven(client, failed)
    assert (runs.followed, runs.not_followed) == (4, 1)
    runs.refresh(client.store)
    world.actions.behaviour.clear()
    world.next_tick()
    seen = []
    while not runs.has_ended:
        runs.refresh(client.store)
        seen.append(runs.counts().completed)
    assert seen == [2, 4]


def test_waiting_ends_with_the_last_run_or_when_the_time_is_up(
    world: World, client: TaskClient, failed: list[str]
) -> None:
    world.actions.behaviour.clear()
    counts = redriven(client, failed[:2]).wait(client.store, timeout=None, pause=lambda seconds: world.next_tick())
    assert (counts.completed, counts.waiting) == (2, 0)
    assert redriven(client, failed[2:]).wait(client.store, timeout=timedelta()).waiting == 3
