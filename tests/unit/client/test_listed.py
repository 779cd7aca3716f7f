"""The tasks of the index without their rows, and the occurrences that are to come."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.builders import NOON
from tests.unit.client.support import client_of, each_state

from dynatick import InvalidInput
from dynatick.client import ExpectedOccurrence
from dynatick.testing.virtual_installation import VirtualInstallation


def test_listed_tasks_have_the_outcome_that_the_index_has_and_are_open_otherwise() -> None:
    world = each_state()
    client = client_of(world)
    client.schedules.insert("schedule", "rate(1 minute)")
    range_ = {"start": NOON, "end": NOON + timedelta(hours=2)}
    statuses = {entry.task_id: entry.status for entry in client.iter_listed(**range_)}
    ended = {entry.task_id: entry for entry in client.iter_history(**range_) if entry.status != "scheduled"}
    assert statuses == {
        "completed": "completed", "failed": "failed", "cancelled": "cancelled",
        "waits-for-its-retry": "open", "scheduled": "open", "running": "open",
    }  # fmt: skip
    failed = next(entry for entry in client.iter_listed(**range_) if entry.task_id == "failed")
    assert failed == ended["failed"]


def test_listing_reads_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    world = each_state()
    client = client_of(world)
    client.settings()
    monkeypatch.setattr(world.store, "get_many", lambda *_, **__: pytest.fail("it read rows"))
    assert len(list(client.iter_listed(start=NOON, end=NOON + timedelta(hours=2)))) == 6


def test_a_forecast_lists_the_occurrences_of_all_schedules_in_order() -> None:
    installation = VirtualInstallation(None, start=NOON)
    schedules = installation.client.schedules
    schedules.insert("often", "rate(20 minutes)", action="log")
    schedules.insert("daily", "cron(30 12 * * ? *)")
    schedules.insert("paused", "rate(1 minute)", enabled=False)
    (due,) = schedules.forecast(until=NOON + timedelta(minutes=2))
    assert due.occurrence_at == schedules.get("often").next_occurrence_at, "it begins with what is due"
    installation.advance(minutes=1)
    assert schedules.forecast(until=NOON + timedelta(minutes=45), limit=4) == [
        ExpectedOccurrence("often", NOON + timedelta(minutes=21), "2026-12-31#12:21", "log"),
        ExpectedOccurrence("daily", NOON + timedelta(minutes=30), "2026-12-31#12:30", "log"),
        ExpectedOccurrence("often", NOON + timedelta(minutes=41), "2026-12-31#12:41", "log"),
    ]
    with pytest.raises(InvalidInput, match="until"):
        schedules.forecast(until=NOON + timedelta(minutes=45), limit=2)
