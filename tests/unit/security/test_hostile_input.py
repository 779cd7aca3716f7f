"""Failure mode 22: what is too much is refused or fails alone, and no error holds anything of a payload."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell, shell, world

from dynatick import InvalidInput, TaskClient
from dynatick.actions import build_actions
from dynatick.client import Refused
from dynatick.domain.task import Row
from dynatick.engine.scheduler import Arrival, assign
from dynatick.store.codec import MAX_DEPTH, MAX_NAME_BYTES, decode

MANY = 400_000
SECRET = "hunter2"

__all__ = ["shell", "world"]  # fixtures


def nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth):
        value = {"in": value}
    return value


TOO_MUCH: dict[str, dict[str, object]] = {
    "too large": {"text": "x" * MANY},
    "too many elements": {"list": [0] * (MANY // 2)},  # of three bytes each
    "too deep": nested(MAX_DEPTH + 1),
    "far too deep": nested(900),
    "a name that is too long": {"n" * (MAX_NAME_BYTES + 1): 1},
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_client_and_command_line_refuse_what_is_too_much(
    world: InProcess, shell: Shell, tmp_path: Path, name: str
) -> None:
    client, tasks = TaskClient(world.store, clock=world.clock), [{"taskId": "x", "payload": TOO_MUCH[name]}]
    with pytest.raises(InvalidInput, match=r"^payload") as refused:
        client.insert("x", payload=TOO_MUCH[name])
    assert len(str(refused.value)) < 600
    with pytest.raises(InvalidInput):
        client.insert("x", attributes={"mine": TOO_MUCH[name]})
    results = list(client.insert_lazily([*tasks, {"taskId": "of the client"}]))
    assert isinstance(results[0], Refused)
    (tmp_path / "payload.json").write_text(json.dumps(TOO_MUCH[name]))
    lines = (json.dumps(task) for task in [*tasks, {"taskId": "of the file"}])
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines))
    for arguments in (["add", "x", "--payload", f"@{tmp_path}/payload.json"], ["import", f"{tmp_path}/tasks.jsonl"]):
        ended = shell("task", *arguments)
        assert ended.code == 3
        assert len(ended.err) < 700
    assert world.store.get("x") is None
    assert world.store.get("of the client") and world.store.get("of the file")


def test_a_record_of_the_stream_that_is_deeper_than_a_table_allows_is_read(world: InProcess) -> None:
    """An emulator may let it in; the batch must not fail for it."""
    value: dict[str, object] = {"S": "x"}
    for n in range(200):
        value = {"L": [value]} if n % 2 else {"M": {"in": value}}
    deep = Arrival("1", decode({"taskId": {"S": "deep"}, "payload": {"M": {"p": value}}}), None)
    assert world.store.create({"taskId": "healthy"})
    assert assign([deep, Arrival("2", {"taskId": "healthy"}, None)], world.placer()).failed == []
    assert world.row("healthy")["status"] == "scheduled"


MALFORMED: dict[str, Row] = {
    "a payload that is no map": {"payload": SECRET},
    "a payload that is a list": {"payload": [SECRET]},
    "a malformed action beside it": {"action": 7, "payload": {"password": SECRET}},
    "a malformed time beside it": {"dueAt": "tomorrow", "payload": {"password": SECRET}},
    "a malformed policy beside it": {"retryPolicy": {"x": 1}, "payload": {"password": SECRET}},
    "no such action": {"action": "nothing", "payload": {"password": SECRET}},
    "a payload that its action refuses": {"action": "webhook", "payload": {"url": f"https://user:{SECRET}@a.example/"}},
}


@pytest.mark.parametrize("name", MALFORMED)
def test_the_error_of_a_row_holds_nothing_of_its_payload(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    world = InProcess()
    monkeypatch.setattr(world, "actions", build_actions(handlers_module=None, clock=world.clock))
    world.tick()
    world.put(taskId="x", **MALFORMED[name])
    world.next_tick()
    row = world.row("x")
    assert row["outcome"] == "failed"
    (letter,) = world.dead_letters.letters
    assert SECRET not in f"{row['error']} {letter.error} {[vars(record) for record in caplog.records]}"
