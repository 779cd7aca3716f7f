"""Waiting for tasks and buckets, in scripts."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.builders import NOON
from tests.unit.engine.support import World, fails, world

from dynatick import TaskClient
from dynatick.errors import TaskNotFound, WaitTimedOut

MINUTE = timedelta(minutes=1)


@pytest.fixture
def w() -> World:
    return world()


@pytest.fixture
def client(w: World) -> TaskClient:
    return TaskClient(w.store, clock=w.clock)


def test_a_task_is_waited_for_until_it_has_ended(w: World, client: TaskClient) -> None:
    client.insert("t", due_at=NOON + 3 * MINUTE)
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        w.next_tick()

    assert client.wait("t", pause=pause).status == "completed"
    assert (len(waits), waits == sorted(waits)) == (3, True)
    assert client.wait("t", pause=lambda seconds: pytest.fail("it has ended")).status == "completed"


def test_time_is_up(w: World, client: TaskClient) -> None:
    client.insert("t", due_at=NOON + timedelta(hours=1))
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        w.clock.forward(seconds=seconds)

    with pytest.raises(WaitTimedOut, match="task 't' has not ended in time"):
        client.wait("t", timeout=timedelta(seconds=30), pause=pause)
    assert 29 < sum(waited) < 31
    assert max(waited) == 5.0
    with pytest.raises(TaskNotFound):
        client.wait("nobody")


def test_a_bucket(w: World, client: TaskClient) -> None:
    w.actions.behaviour["bad"] = fails
    for task_id in ("good", "bad"):
        client.insert(task_id, due_at=NOON + 2 * MINUTE, retry_policy={"maximumRetryAttempts": 0})
    with pytest.raises(WaitTimedOut, match="bucket 2026-12-31#12:02"):
        client.wait_for_bucket("2026-12-31#12:02", timeout=timedelta())
    found = client.wait_for_bucket("2026-12-31#12:02", pause=lambda seconds: w.next_tick() and None)
    assert found.counts == {"completed": 1, "failed": 1}
    assert client.wait_for_bucket("2026-12-31#12:30").counts == {}
