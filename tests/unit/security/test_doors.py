"""Failure mode 22, doors: what is too much is refused where it comes in, or fails alone where nobody could refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell, shell, world

from dynatick import InvalidInput, MemoryStore, TaskClient
from dynatick.client import Refused
from dynatick.engine.assign import Arrival, assign
from dynatick.store.codec import MAX_DEPTH, MAX_NAME_BYTES, decode

MANY = 400_000

__all__ = ["shell", "world"]  # fixtures


def nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth):
        value = {"in": value}
    return value


TOO_MUCH: dict[str, dict[str, object]] = {
    "too large": {"text": "x" * MANY},
    "too many elements": {"list": [0] * MANY},
    "too deep": nested(MAX_DEPTH + 1),
    "far too deep": nested(900),
    "a name that is too long": {"n" * (MAX_NAME_BYTES + 1): 1},
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_the_client_refuses_it(world: InProcess, name: str) -> None:
    client = TaskClient(world.store, clock=world.clock)
    with pytest.raises(InvalidInput, match=r"^payload") as refused:
        client.insert("x", payload=TOO_MUCH[name])
    assert len(str(refused.value)) < 600
    with pytest.raises(InvalidInput):
        client.insert("x", attributes={"mine": TOO_MUCH[name]})
    results = list(client.insert_lazily([{"taskId": "x", "payload": TOO_MUCH[name]}, {"taskId": "healthy"}]))
    assert isinstance(results[0], Refused)
    assert world.store.get("x") is None
    assert world.store.get("healthy") is not None


@pytest.mark.parametrize("name", TOO_MUCH)
def test_the_command_line_refuses_it(world: InProcess, shell: Shell, tmp_path: Path, name: str) -> None:
    (tmp_path / "payload.json").write_text(json.dumps(TOO_MUCH[name]))
    (tmp_path / "tasks.jsonl").write_text(
        json.dumps({"taskId": "x", "payload": TOO_MUCH[name]}) + "\n" + json.dumps({"taskId": "healthy"}) + "\n"
    )
    for arguments in (["add", "x", "--payload", f"@{tmp_path}/payload.json"], ["import", f"{tmp_path}/tasks.jsonl"]):
        ended = shell("task", *arguments)
        assert ended.code == 3
        assert len(ended.err) < 700
    assert world.store.get("x") is None
    assert world.store.get("healthy") is not None


def test_a_raw_row_that_leaves_no_room_fails_and_says_why(world: InProcess) -> None:
    """Nobody could refuse it; the place that an outcome needs is won from the payload."""
    row = {"taskId": "full", "delaySeconds": 1, "payload": {"text": "x" * (400 * 1024 - 60)}}
    assert isinstance(world.store, MemoryStore)
    world.put(**row)
    world.put(taskId="healthy")
    ended = world.row("full")
    assert ended["outcome"] == "failed"
    assert "payload" not in ended
    assert ended["error"] == (
        "the row is too large, or its taskId too long to be indexed; its payload was dropped to say so"
    )
    assert [letter.row["taskId"] for letter in world.dead_letters.letters] == ["full"]
    world.next_tick()
    assert world.outcome("healthy") == "completed"


def test_a_record_of_the_stream_that_is_deeper_than_a_table_allows_is_read(world: InProcess) -> None:
    """An emulator may let it in; the batch must not fail for it."""
    value: dict[str, object] = {"S": "x"}
    for n in range(200):
        value = {"L": [value]} if n % 2 else {"M": {"in": value}}
    image = {"taskId": {"S": "deep"}, "payload": {"M": {"p": value}}}
    arrival = Arrival("1", decode(image), None)
    healthy = Arrival("2", {"taskId": "healthy"}, None)
    assert world.store.create({"taskId": "healthy"})
    assert assign([arrival, healthy], world.placer()).failed == []
    assert world.row("healthy")["status"] == "scheduled"
