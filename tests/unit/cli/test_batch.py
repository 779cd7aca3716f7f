"""``dynatick batch``: what it prints, and how it ends."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Ended, Shell, documented, fail

from dynatick import TaskClient

DUE = ("--due", "2026-12-31T12:30:00Z")
NEWS = ("--id", "news", "--action", "log")


def test_the_commands_of_the_page(
    shell: Shell, world: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mails.ndjson").write_text("".join(f'{{"to": "{n}@example.com"}}\n' for n in range(1200)))
    for command, *lines in documented("how-to/batches.md"):
        _, *arguments = shlex.split(command)
        ended = shell(*arguments)
        printed = ended.out + ended.err
        assert [line.rstrip() for line in printed.splitlines()] == lines, command


def put_file(folder: Path, name: str, number: int) -> str:
    path = folder / name
    if name.endswith(".csv"):
        lines = ["to,copies:json", *(f"{n}@example.com,{n}" for n in range(number))]
    else:
        lines = [json.dumps({"to": f"{n}@example.com", "copies": n}) for n in range(number)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


@pytest.mark.parametrize("name", ["a.ndjson", "a.jsonl", "a.json", "a.csv"])
def test_a_file_becomes_a_batch(shell: Shell, world: InProcess, tmp_path: Path, name: str) -> None:
    file = put_file(tmp_path, name, 700)
    ended = shell("batch", "add", file, *NEWS, *DUE)
    assert (ended.code, ended.out, ended.err) == (0, "", "news: 700 members, due 2026-12-31T12:30:00Z\n")
    assert shell("batch", "add", file, *NEWS, *DUE).code == 0, "the same call goes on"
    assert shell("task", "get", "news/000000502", "-o", "json").json["payload"] == {
        "to": "502@example.com",
        "copies": 502,
    }
    other = shell("batch", "add", put_file(tmp_path, "b.ndjson", 701), *NEWS, *DUE)
    assert (other.code, other.err) == (
        5,
        "error: batchId: a batch 'news' exists already, and its members is 700, not 701; insert it as it was begun, "
        "or choose another id\n",
    )


def test_a_csv_file_has_payloads_and_not_tasks(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("dueAt,delaySeconds,payload\n20261231,n/a,hello\n")
    assert shell("batch", "add", str(file), *NEWS, *DUE).code == 0
    payload = {"dueAt": "20261231", "delaySeconds": "n/a", "payload": "hello"}
    assert shell("task", "get", "news/000000000", "-o", "json").json["payload"] == payload


@pytest.mark.parametrize(("due", "at"), [("+1h", "13:00:00"), ("now", "12:00:00"), (" +30m", "12:30:00")])
def test_the_same_command_goes_on_later_from_a_relative_time(
    shell: Shell, world: InProcess, tmp_path: Path, due: str, at: str
) -> None:
    file = put_file(tmp_path, "a.ndjson", 3)
    for _ in range(2):
        ended = shell("batch", "add", file, *NEWS, "--due", due)
        assert (ended.code, ended.err) == (0, f"news: 3 members, due 2026-12-31T{at}Z\n")
        world.clock.forward(seconds=7)
    both = shell("batch", "add", file, *NEWS, "--due", due, "--delay", "1h")
    assert (both.code, "expected one time only" in both.err) == (3, True)


def test_a_batch_with_a_limit_key(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    file = put_file(tmp_path, "a.ndjson", 3)
    assert shell("batch", "add", file, *NEWS, *DUE, "--limit-key", "customer:4711").code == 0
    assert "limit key  customer:4711" in shell("batch", "show", "news").out
    assert shell("task", "get", "news/000000002", "-o", "json").json["limitKey"] == "customer:4711"
    refused = shell("batch", "add", file, "--id", "b", "--action", "log", "--limit-key", "nothing")
    assert refused.code != 0 and "limitKey: 'nothing'" in refused.err


def test_over_a_time_and_then(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    file = put_file(tmp_path, "a.ndjson", 1000)
    then = '{"action": "log", "payload": {"of": "news"}}'
    added = shell("batch", "add", file, *NEWS, "--delay", "30m", "--over", "1h", "--then", then, "-o", "json").json
    assert added == {
        "batchId": "news", "action": "log", "dueAt": "2026-12-31T12:30:00Z", "lastDueAt": "2026-12-31T13:30:00Z",
        "members": 1000, "packsWritten": 2,
    }  # fmt: skip
    assert world.row("news/000000500-000000999")["dueAt"] == "2026-12-31T13:00:00Z"


def test_payloads_of_stdin(shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin(io.TextIOWrapper):
        pass

    def typed(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", Stdin(io.BytesIO(text.encode())))

    typed('{"n": 1}\n{"n": 2}\n')
    assert shell("batch", "add", "-", *NEWS, *DUE).err == "news: 2 members, due 2026-12-31T12:30:00Z\n"
    typed('{"n": 1}\n')
    ended = shell("batch", "add", "-", "--id", "b", "--action", "log", "--over", "1h")
    assert (ended.code, "total: " in ended.err) == (3, True)
    typed('{"n": 1}\n')
    ended = shell("batch", "add", "-", "--id", "b", "--action", "log", "--over", "1h", "--total", "1")
    assert ended.err == "b: 1 member, due 2026-12-31T12:00:00Z to 2026-12-31T13:00:00Z\n"


def test_a_pipe_is_read_once(shell: Shell, world: InProcess) -> None:
    """As the shell gives it: <(command)."""

    def add(*more: str) -> Ended:
        reading, writing = os.pipe()
        os.write(writing, b'{"n": 1}\n{"n": 2}\n')
        os.close(writing)
        try:
            return shell("batch", "add", f"/dev/fd/{reading}", "--format", "ndjson", *NEWS, "--over", "1h", *more)
        finally:
            os.close(reading)

    refused = add()
    assert (refused.code, "total: " in refused.err) == (3, True)
    assert shell("batch", "show", "news").code == 4, "nothing was written"
    assert add("--total", "2").code == 0
    missing = shell("batch", "add", "none.ndjson", *NEWS, "--over", "1h")
    assert "none.ndjson" in missing.err


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"n": 1}\nx\n', "line 2: 'x' is not accepted; expected JSON"),
        ('{"n": 1}\n[1]\n', "line 2: "),
        ('{"n": 1}\n{"n": {"": 1}}\n', "payloads[1].n: '' is not accepted"),
    ],
)
def test_a_line_that_is_no_payload(shell: Shell, world: InProcess, tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "a.ndjson").write_text(lines)
    ended = shell("batch", "add", str(tmp_path / "a.ndjson"), *NEWS, *DUE)
    assert ended.code == 3 and ended.err.startswith(f"error: {message}")
    assert world.store.get("news/000000000-000000001") is None


def test_what_can_not_be_read(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    assert shell("batch", "add", str(tmp_path / "none.ndjson"), *NEWS).code == 4
    assert shell("batch", "add", put_file(tmp_path, "a.txt", 1), *NEWS).code == 3
    for command in ("show", "members", "cancel", "wait"):
        ended = shell("batch", command, "none")
        assert (ended.code, ended.err) == (4, "error: batchId: there is no batch 'none'\n")


def test_how_a_batch_stands(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    world.actions.behaviour["news/000000001"] = fail
    shell("batch", "add", put_file(tmp_path, "a.ndjson", 4), *NEWS, "--then", '{"action": "log"}')
    client = TaskClient(world.store, clock=world.clock)
    client.cancel("news/000000002")
    assert shell("batch", "show", "news").lines == [
        "batchId    news",
        "status     running",
        "action     log",
        "due        2026-12-31T12:00:00Z",
        "members    ██████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  1 of 4 have ended",
        "cancelled  1",
        "open       3",
        "then       news/then",
    ]
    world.ticks(5)
    found: Any = shell("batch", "show", "news", "-o", "json").json
    assert (found["status"], found["counts"]) == ("completed", {"completed": 2, "failed": 1, "cancelled": 1})
    listed = shell("batch", "members", "news")
    assert [line.split()[:2] for line in listed.lines[1:]] == [
        ["news/000000000", "completed"],
        ["news/000000001", "failed"],
        ["news/000000002", "cancelled"],
        ["news/000000003", "completed"],
    ]
    assert "SMTP: refused" in listed.out
    failed = [json.loads(line) for line in shell("batch", "members", "news", "--status", "failed", "-o", "jsonl").lines]
    assert [one["taskId"] for one in failed] == ["news/000000001"]
    ended = shell("batch", "wait", "news")
    assert (ended.code, ended.err) == (8, "error: 2 members did not complete\n")
    assert "finished" in ended.out


def test_batches_are_listed(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    assert shell("batch", "list").err == "There are none\n"
    file = put_file(tmp_path, "a.ndjson", 3)
    shell("batch", "add", file, "--id", "old", "--action", "log")
    shell("batch", "add", file, *NEWS, *DUE)
    world.ticks(5)
    assert shell("batch", "list").lines == [
        "BATCH  STATUS     ACTION  DUE                   MEMBERS  ENDED  FAILED",
        "news   scheduled  log     2026-12-31T12:30:00Z        3",
        "old    completed  log     2026-12-31T12:00:00Z        3      3       0",
    ]
    first = shell("batch", "list", "--limit", "1")
    (token,) = shlex.split(first.err.removeprefix("There are more: --page-token "))
    assert [line.split()[0] for line in first.lines] == ["BATCH", "news"]
    assert [line.split()[0] for line in shell("batch", "list", "--page-token", token).lines] == ["BATCH", "old"]
    found: Any = shell("batch", "list", "--last", "1h", "-o", "json").json
    assert [(one["batchId"], one["ended"], one["counts"]) for one in found["batches"]] == [("old", 3, {"completed": 3})]
    assert shell("batch", "list", "--from", "-1h").err == "error: a range has two ends; give --to\n"
    assert shell("batch", "list", "--limit", "0").err.startswith("error: limit: 0 is not accepted")


def test_a_list_of_tasks_shows_a_pack_as_members(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    world.actions.behaviour["news/000000001"] = fail
    shell("batch", "add", put_file(tmp_path, "a.ndjson", 502), *NEWS)
    world.ticks(2)
    listed = shell("task", "list", "--bucket", "2026-12-31#12:01", "--action", "log")
    assert [line.split("  ")[0] for line in listed.lines[1:]] == [
        "500 members of news", "news/000000001", "2 members of news",
    ]  # fmt: skip
    assert "499 completed" in listed.lines[1] and "2 completed" in listed.lines[3]
    found: Any = shell("task", "list", "--bucket", "2026-12-31#12:01", "--action", "log", "-o", "json").json
    assert found["tasks"][0]["taskId"] == "news/000000000-000000499"
    assert found["tasks"][0]["members"] == {"completed": 499}


def test_a_batch_that_is_not_all_in(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text("{}\n" * 500 + "x\n")
    assert shell("batch", "add", str(tmp_path / "a.ndjson"), *NEWS, *DUE).code == 3
    assert "members  not all are in yet" in shell("batch", "show", "news").out
    ended = shell("batch", "wait", "news", "--timeout", "0s")
    assert (ended.code, ended.err) == (9, "error: batch 'news' has not ended in time\n")


def test_reschedule_and_redrive(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    shell("batch", "add", put_file(tmp_path, "a.ndjson", 1200), *NEWS, *DUE, "--over", "1h")
    moved = shell("batch", "reschedule", "news", "--due", "2026-12-31T12:03:00Z")
    assert moved.err == "1,200 members due 2026-12-31T12:03:00Z to 2026-12-31T13:03:00Z; 0 run already\n"
    assert shell("batch", "reschedule", "news", "--delay", "10m", "-o", "json").json == {
        "batchId": "news", "dueAt": "2026-12-31T12:10:00Z", "lastDueAt": "2026-12-31T13:10:00Z", "rescheduled": 1200,
        "running": 0,
    }  # fmt: skip
    assert shell("batch", "reschedule", "news").code == 3
    assert shell("batch", "redrive", "news").err == "0 members redriven\n"
    shell("batch", "cancel", "news")
    assert shell("batch", "reschedule", "news", "--delay", "10m").code == 5


def test_cancel(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    shell("batch", "add", put_file(tmp_path, "a.ndjson", 1200), *NEWS, *DUE)
    ended = shell("batch", "cancel", "news")
    assert (ended.code, ended.err) == (0, "1,200 members cancelled; 0 that run end by themselves\n")
    assert shell("change", "list").lines[1].split()[2:] == ["cancel", "batch", "1200", "done", "batch=news", "ada"]
    again = shell("batch", "cancel", "news", "-o", "json").json
    assert again == {"batchId": "news", "cancelled": 0, "running": 0}
    ended = shell("batch", "wait", "news")
    assert (ended.code, ended.err) == (8, "error: 1,200 members did not complete\n")
    assert shell("task", "cancel", "news/000000007").code == 5
