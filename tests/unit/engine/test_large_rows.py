"""Rows whose payloads wait undecoded: they run like others, and only as many are in flight as fit into memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from tests.unit.engine.support import World, is_claim, is_record, passed, rules, world

from dynatick.actions.dead_letter import message_of
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.schedule import ScheduleState
from dynatick.domain.task import LargeRow, Row, Task
from dynatick.engine import execution
from dynatick.engine.ports import ActionContext
from dynatick.errors import PermanentError
from dynatick.store import memory
from dynatick.store.codec import decode
from dynatick.store.large import LargeItem

PAYLOAD = {"to": "ada", "values": [1, {"a": []}]}


@pytest.fixture(autouse=True)
def _payloads_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(item: Mapping[str, Mapping[str, Any]]) -> Row:
        large = {name: orjson.dumps(item[name]) for name in ("payload", "mine") if name in item}
        small = {name: dict(value) for name, value in item.items() if name not in large}
        return decode(LargeItem(small, large) if large else item)

    monkeypatch.setattr(memory, "decode", kept)
    monkeypatch.setattr(execution, "RECORD_DELAY_SECONDS", 0.002)


def noting(w: World, *ids: str, fail: bool = False) -> list[tuple[str, object, object]]:
    seen: list[tuple[str, object, object]] = []

    def note(task: Task, context: ActionContext) -> None:
        seen.append((task.task_id, task.payload, task.attributes))
        if fail:
            raise PermanentError("no such address")

    for task_id in ids:
        w.actions.behaviour[task_id] = note
    return seen


def test_an_action_gets_all_of_its_row_whether_it_was_raw_or_its_process_has_died() -> None:
    w = world()
    seen = noting(w, "crashed", "raw", "t")
    w.insert("crashed", "t", payload=PAYLOAD, mine=[1, 2])
    w.put(taskId="raw", payload=PAYLOAD)
    w.claim("crashed", until=w.clock())
    w.until_drained()
    of_row = {"mine": [1, 2]}
    assert sorted(seen) == [("crashed", PAYLOAD, of_row), ("raw", PAYLOAD, {}), ("t", PAYLOAD, of_row)]
    assert {w.outcome(task_id) for task_id in ("crashed", "raw", "t")} == {"completed"}
    assert w.row("t")["payload"] == PAYLOAD


def test_a_dead_letter_has_the_payload() -> None:
    w = world()
    noting(w, "t", fail=True)
    w.insert("t", payload=PAYLOAD)
    w.next_tick()
    assert w.outcome("t") == "failed"
    (letter,) = w.dead_letters.letters
    assert orjson.loads(message_of(letter))["payload"] == PAYLOAD


def test_an_occurrence_takes_its_schedules_payload_as_it_stands() -> None:
    w = world()
    w.put(taskId="s", scheduleExpression="rate(1 minute)", payload=PAYLOAD, mine=[3], endDate="2026-12-31T12:03:00Z")
    schedule = w.row("s")
    assert isinstance(schedule, LargeRow)
    ids = [f"s#1#2026-12-31T12:0{n}:00Z" for n in (1, 2)]
    seen = noting(w, *ids)
    w.ticks(2)
    assert seen == [(task_id, PAYLOAD, {"mine": [3]}) for task_id in ids]
    row = w.row(ids[0])
    assert (row["outcome"], row["payload"], row["mine"]) == ("completed", PAYLOAD, [3])
    assert "scheduleExpression" not in row
    assert w.row("s")["scheduleState"] == str(ScheduleState.ENABLED)


@pytest.mark.parametrize("maximum", [1, 10**9])
def test_what_waits_in_memory_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch, maximum: int) -> None:
    """Beyond the bound nothing is claimed until something was recorded; claims that are under way may pass it."""
    monkeypatch.setattr(execution, "MAX_LARGE_IN_FLIGHT", maximum)
    w = world(rules=rules(threads=2))
    ids = [f"t{n:03}" for n in range(150)]
    w.insert(*ids, payload=PAYLOAD)
    claimed, recorded = set[str](), set[str]()  # a claim may be tried again, and fail
    peak, enough = [0], threading.Event()

    def noted(change: ConditionalUpdate) -> None:
        if is_claim(change):
            claimed.add(change.task_id)
        elif is_record(change):
            recorded.add(change.task_id)
        peak[0] = max(peak[0], len(claimed) - len(recorded))
        if peak[0] >= (2 if maximum == 1 else 4) * execution.BATCH:
            enough.set()

    def waits(task: Task, context: ActionContext) -> None:
        assert enough.wait(20)

    w.actions.behaviour = dict.fromkeys(ids, waits)
    w.rigged.before_write = noted
    assert passed(w.next_tick()).completed == len(ids)
    assert peak[0] == (2 if maximum == 1 else 4) * execution.BATCH
