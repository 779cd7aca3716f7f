"""Answers end where a function's do: what does not fit comes with the next request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pytest
from tests.builders import InProcess
from tests.unit.api.support import Caller, read

from dynatick.api import buckets, sizes, ticks
from dynatick.domain.task import Row
from dynatick.engine.rules import Rules

LAMBDA_BYTES = 6 * 1024 * 1024


def test_schedules_with_large_payloads(caller: Caller) -> None:
    """Quotation marks take the most room: the gateway's form has them as text of JSON once more."""
    for n in range(20):
        row = {"taskId": f"s{n:02}", "scheduleExpression": "rate(1 day)", "payload": {"text": '"' * 370_000}}
        caller.ask("POST", "/v1/schedules", row)
    found, query = [], "limit=1000"
    while True:
        answer = caller.send("GET", "/v1/schedules", query=query)
        assert len(json.dumps(answer.response)) < LAMBDA_BYTES
        page = read(answer)
        found += [one["taskId"] for one in page["schedules"]]
        if page["nextPageToken"] is None:
            break
        query = f"limit=1000&pageToken={page['nextPageToken']}"
    assert found == [f"s{n:02}" for n in range(20)]


def test_the_largest_task_fits(caller: Caller) -> None:
    caller.client.insert("a", payload={"text": "\x01" * 390_000})
    answer = caller.send("GET", "/v1/tasks/a")
    assert (answer.status, len(json.dumps(answer.response)) < LAMBDA_BYTES) == (200, True)


def test_lists_in_smaller_pages(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(10):
        caller.client.insert(f"t{n}", task_date_time="2026-12-31#13:00")
    monkeypatch.setattr(sizes, "MAX_CHARACTERS", 500)
    pages = list(caller.parts("/v1/tasks", "bucket=2026-12-31%2313:00", "pageToken", "nextPageToken"))
    assert all(0 < len(page["tasks"]) < 6 for page in pages)
    assert [one["taskId"] for page in pages for one in page["tasks"]] == [f"t{n}" for n in range(10)]


def test_ticks_minute_by_minute(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    caller.publish_settings(shard_count=2)
    world = InProcess(store=caller.store, clock=caller.clock, rules=Rules(grid=caller.client.settings().grid))  # type: ignore[union-attr]
    for n in range(8):
        caller.client.insert(f"t{n}", delay_seconds=1)
        caller.client.insert(f"u{n}", delay_seconds=1)
        world.next_tick(1)
    whole = caller.ask("GET", "/v1/ticks")
    assert whole["nextStart"] is None
    passes = [(one["tick"], one["shard"]) for one in whole["ticks"] if one["kind"] == "pass"]
    assert len(passes) >= 8
    monkeypatch.setattr(sizes, "MAX_CHARACTERS", 1500)
    found, start = [], "2026-12-31T12:00:00Z"
    while start:
        page = caller.ask("GET", "/v1/ticks", query=f"start={start}")
        assert 0 < len(page["ticks"]) < len(whole["ticks"])
        found += [(one["tick"], one["shard"]) for one in page["ticks"] if one["kind"] == "pass"]
        start = page["nextStart"]
    assert found == passes


def test_ticks_of_many_shards_and_days_are_read_in_parts(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked for, one request reads no more than the gateway has patience for."""
    caller.publish_settings(shard_count=2)
    world = InProcess(store=caller.store, clock=caller.clock, rules=Rules(grid=caller.client.settings().grid))  # type: ignore[union-attr]
    for n in range(6):
        caller.client.insert(f"t{n}", delay_seconds=1)
        world.next_tick(1)
    whole = caller.ask("GET", "/v1/ticks")
    passes = [(one["tick"], one["shard"]) for one in whole["ticks"] if one["kind"] == "pass"]
    assert len(passes) >= 6
    monkeypatch.setattr(ticks, "MAX_RECORDS", 5)  # two minutes of two shards
    asked: list[int] = []
    get_many = caller.store.get_many

    def counted(task_ids: Iterable[str], *, consistent: bool = True) -> Mapping[str, Row]:
        ids = list(task_ids)
        asked.append(len(ids))
        return get_many(ids, consistent=consistent)

    monkeypatch.setattr(caller.store, "get_many", counted)
    found, start = [], "2026-12-31T12:00:00Z"
    while start:
        page = caller.ask("GET", "/v1/ticks", query=f"start={start}&end=2026-12-31T12:07:00Z")
        found += [(one["tick"], one["shard"]) for one in page["ticks"] if one["kind"] == "pass"]
        start = page["nextStart"]
    assert found == passes
    assert len(asked) > 4
    assert max(asked) <= 5


def test_very_many_buckets(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    for minute in range(5):
        caller.client.insert(f"t{minute}", task_date_time=f"2026-12-31#13:0{minute}")
    monkeypatch.setattr(buckets, "MAX_BUCKETS", 2)
    numbers, start = [], "2026-12-31T13:00:00Z"
    while start:
        page = caller.ask("GET", "/v1/buckets", query=f"start={start}&end=2026-12-31T13:05:00Z")
        numbers.append([one["bucket"][-1] for one in page["buckets"]])
        start = page["nextStart"]
    assert numbers == [["0", "1"], ["2", "3"], ["4"]]
