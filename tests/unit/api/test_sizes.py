"""Answers end where a function's do: what does not fit comes with the next request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from tests.builders import InProcess
from tests.unit.api.support import Caller

from dynatick.api import buckets, sizes, ticks
from dynatick.domain.task import Row
from dynatick.engine.rules import Rules

LAMBDA_BYTES = 6 * 1024 * 1024


def test_schedules_with_large_payloads(caller: Caller) -> None:
    """Quotation marks take the most room: the gateway's form has them as text of JSON once more."""
    for n in range(20):
        row = {"taskId": f"s{n:02}", "scheduleExpression": "rate(1 day)", "payload": {"text": '"' * 370_000}}
        caller.ask("POST", "/v1/schedules", row)
    pages = list(caller.parts("/v1/schedules", "limit=1000"))
    assert [one["taskId"] for page in pages for one in page["schedules"]] == [f"s{n:02}" for n in range(20)]
    assert all(len(json.dumps({"body": json.dumps(page)})) < LAMBDA_BYTES - 1000 for page in pages)


def test_the_largest_task_fits(caller: Caller) -> None:
    caller.client.insert("a", payload={"text": "\x01" * 390_000})
    answer = caller.send("GET", "/v1/tasks/a")
    assert (answer.status, len(json.dumps(answer.response)) < LAMBDA_BYTES) == (200, True)


def passes(*answers: Any) -> list[tuple[str, int]]:
    return [(one["tick"], one["shard"]) for answer in answers for one in answer["ticks"] if one["kind"] == "pass"]


@pytest.fixture
def ticked(caller: Caller) -> Caller:
    """After six ticks, each with something to do in one of two shards."""
    caller.publish_settings(shard_count=2)
    world = InProcess(store=caller.store, clock=caller.clock, rules=Rules(grid=caller.client.settings().grid))  # type: ignore[union-attr]
    for n in range(6):
        caller.client.insert(f"t{n}", delay_seconds=1)
        world.next_tick(1)
    return caller


def test_ticks_minute_by_minute(ticked: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ticked.ask("GET", "/v1/ticks")
    assert whole["nextStart"] is None
    assert len(passes(whole)) >= 6
    monkeypatch.setattr(sizes, "MAX_CHARACTERS", 1500)
    pages = list(ticked.parts("/v1/ticks", start="2026-12-31T12:00:00Z"))
    assert all(0 < len(page["ticks"]) < len(whole["ticks"]) for page in pages)
    assert passes(*pages) == passes(whole)


def test_ticks_of_many_shards_and_days_are_read_in_parts(ticked: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked for, one request reads no more than the gateway waits for."""
    whole = ticked.ask("GET", "/v1/ticks")
    monkeypatch.setattr(ticks, "MAX_RECORDS", 5)  # two minutes of two shards
    asked: list[int] = []
    get_many = ticked.store.get_many

    def counted(task_ids: Iterable[str], **how: Any) -> Mapping[str, Row]:
        asked.append(len(ids := list(task_ids)))
        return get_many(ids, **how)

    monkeypatch.setattr(ticked.store, "get_many", counted)
    pages = ticked.parts("/v1/ticks", "end=2026-12-31T12:07:00Z", start="2026-12-31T12:00:00Z")
    assert passes(*pages) == passes(whole)
    assert len(asked) > 4 and max(asked) <= 5


def test_very_many_tasks_and_buckets_come_in_smaller_pages(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(10):
        caller.client.insert(f"t{n}", task_date_time=f"2026-12-31#13:0{n // 2}")
    monkeypatch.setattr(buckets, "MAX_BUCKETS", 2)
    span = "end=2026-12-31T13:05:00Z", "start=2026-12-31T13:00:00Z"
    pages = caller.parts("/v1/buckets", span[0], start="2026-12-31T13:00:00Z")
    assert [[one["bucket"][-1] for one in page["buckets"]] for page in pages] == [["0", "1"], ["2", "3"], ["4"]]
    monkeypatch.setattr(sizes, "MAX_CHARACTERS", 500)
    pages = list(caller.parts("/v1/tasks", "&".join(span)))
    assert all(0 < len(page["tasks"]) < 6 for page in pages)
    assert [one["taskId"] for page in pages for one in page["tasks"]] == [f"t{n}" for n in range(10)]
