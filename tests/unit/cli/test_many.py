"""``dynatick task retry`` and ``cancel`` by filter: what they print, and how they end."""

from __future__ import annotations

import json

import pytest
from tests.builders import InProcess, scheduled_row
from tests.unit.cli.conftest import Shell

from dynatick import MemoryStore, PermanentError, TaskClient
from dynatick.cli import many
from dynatick.cli.listing import TOGETHER
from dynatick.domain.buckets import Bucket
from dynatick.domain.change import Change, Result, Unknown

BUCKET = "2026-12-31#12:01"


def fail(*_: object) -> object:
    raise PermanentError("SMTP: refused\x1b[2J")


@pytest.fixture
def failed(world: InProcess) -> InProcess:
    """Three tasks failed at 12:01."""
    client = TaskClient(world.store, clock=world.clock)
    for name in ("a", "b", "c"):
        world.actions.behaviour[name] = fail
        client.insert(name, delay_seconds=1)
    world.next_tick()
    return world


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_a_dry_run_lists_and_changes_nothing(shell: Shell, failed: InProcess) -> None:
    ended = shell("task", "retry", "--from", "2026-12-31T12:00:00Z", "--to", "2026-12-31T13:00:00Z", "--dry-run")
    assert (ended.code, ended.err) == (0, "3 to be retried\n")
    assert lines(ended.out) == [
        "TASK  WHAT           BUCKET            ACTION  WHY",
        *(f"{name}     to be retried  {BUCKET}  log     SMTP: refused [2J" for name in "abc"),
    ]
    assert failed.outcome("a") == "failed"


def test_each_way_of_printing(shell: Shell, failed: InProcess) -> None:
    as_json = shell("task", "retry", "--bucket", BUCKET, "--dry-run", "-o", "json").json
    row = {
        "taskId": "a",
        "result": "to be retried",
        "taskDateTime": BUCKET,
        "action": "log",
        "why": "SMTP: refused [2J",
    }
    assert as_json == {"tasks": [{**row, "taskId": name} for name in "abc"], "counts": {"to be retried": 3}}
    as_lines = shell("task", "retry", "--bucket", BUCKET, "--dry-run", "-o", "jsonl").out.splitlines()
    assert [json.loads(line) for line in as_lines] == as_json["tasks"]
    done = shell("task", "retry", "--bucket", BUCKET, "--error", "smtp", "--action", "log", "-o", "json").json
    assert done["counts"] == {"retried": 3}
    assert done["tasks"][0] == {"taskId": "a", "result": "retried", "taskDateTime": "2026-12-31#12:02", "action": "log"}
    again = shell("task", "retry", "--bucket", BUCKET, "-o", "json")
    assert (again.json, again.code, again.err) == ({"tasks": [], "counts": {}}, 0, "There are none\n")
    assert shell("task", "retry", "--bucket", BUCKET).out == ""


def test_cancelled_ones(shell: Shell, failed: InProcess) -> None:
    shell("task", "add", "later", "--at", "2026-12-31#13:00")
    assert shell("task", "cancel", "--bucket", "2026-12-31#13:00", "--dry-run").err == "1 to be cancelled\n"
    assert shell("task", "cancel", "--bucket", "2026-12-31#13:00").err == "1 cancelled\n"
    assert shell("task", "retry", "--bucket", "2026-12-31#13:00", "--status", "cancelled").err == "1 retried\n"


NEITHER = "name a task, or say which by --bucket, --last, or --from and --to"
BOTH = "a task is named, so --{} says nothing; give one of them only"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["retry"], 2, NEITHER),
        (["cancel", "--action", "log"], 2, NEITHER),
        (["retry", "x", "--bucket", BUCKET], 2, BOTH.format("bucket")),
        (["cancel", "x", "--dry-run"], 2, BOTH.format("dry-run")),
        (["retry", "x", "--status", "failed"], 2, BOTH.format("status")),
        (
            ["retry", "--from", "2026-12-31T12:00:00Z"],
            2,
            "a range needs both its ends; give --to",
        ),
        (
            ["retry", "--bucket", BUCKET, "--status", "running"],
            3,
            "status: 'running' is not accepted; expected one of failed, cancelled",
        ),
    ],
)
def test_refusals(shell: Shell, world: InProcess, arguments: list[str], code: int, message: str) -> None:
    ended = shell("task", *arguments)
    assert (ended.code, ended.out, ended.err) == (code, "", f"error: {message}\n")


def test_a_table_that_does_not_answer(shell: Shell, failed: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(change: Change) -> Result:
        return Unknown("throttled")

    failed.store.write = write  # type: ignore[method-assign]
    ended = shell("task", "retry", "--bucket", BUCKET, "-o", "json")
    assert ended.code == 6
    assert ended.json["counts"] == {"unknown": 3}
    assert ended.json["tasks"][0]["why"] == "cannot change 'a': throttled"
    assert ended.err == "3 unknown\nerror: 3 got no answer; do it again: what is done stays\n"
    monkeypatch.setattr(many, "_PATIENCE", 2)
    assert shell("task", "retry", "--bucket", BUCKET, "-o", "json").json["counts"] == {"unknown": 2}


def test_long_lists_are_printed_as_they_come(shell: Shell, world: InProcess) -> None:
    number = TOGETHER + 20
    assert isinstance(world.store, MemoryStore)
    for n in range(number):
        row = scheduled_row(f"t{n:04d}", Bucket.parse(BUCKET), status="failed", outcome="failed")
        world.store.put(row)
    table = lines(shell("task", "retry", "--bucket", BUCKET, "--dry-run").out)
    assert len(table) == number + 1
    assert sum(line.startswith("TASK") for line in table) == 1
    assert len(shell("task", "retry", "--bucket", BUCKET, "--dry-run", "-o", "json").json["tasks"]) == number
