"""The runs of a schedule, as a client sees them: those to come, and the end of those that were due."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.builders import NOON, FakeClock

from dynatick import MemoryStore, TaskClient


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def client(clock: FakeClock) -> TaskClient:
    return TaskClient(MemoryStore(), clock=clock)


def test_of_a_raw_rate_that_the_scheduler_has_not_seen(client: TaskClient) -> None:
    """It has no start yet, so it had no runs; those to come count from the next tick, as they will."""
    client.store.create({"taskId": "s", "scheduleExpression": "rate(2 minutes)"})
    assert list(client.schedules.backfill("s", start=NOON - timedelta(hours=1), end=NOON)) == []
    assert client.schedules.history("s") == []
    assert [run.instant for run in client.schedules.preview("s", 2)] == [
        NOON + timedelta(minutes=1),
        NOON + timedelta(minutes=3),
    ]
