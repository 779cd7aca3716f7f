"""Several ids for a verb: all are tried, also after one has failed, and the exit code says whether any failed."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell

from dynatick import MemoryStore
from dynatick.cli import bulk_change
from dynatick.domain.conditional_update import Unknown


@pytest.fixture
def tasks(world: InProcess, shell: Shell) -> InProcess:
    """Three that wait, and one that was cancelled."""
    for name in "abcd":
        assert shell("task", "add", name, "--at", "2026-12-31#13:00").code == 0
    shell("task", "cancel", "d")
    return world


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a text to stdin."""
    return lambda text: monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_one_failure_does_not_stop_the_others(shell: Shell, tasks: InProcess) -> None:
    ended = shell("task", "cancel", "a", "d", "nope", "b")
    assert [line.split()[:2] for line in ended.lines] == [
        ["TASK", "WHAT"], ["a", "cancelled"], ["d", "refused"], ["nope", "refused"], ["b", "cancelled"],
    ]  # fmt: skip
    assert "cannot cancel task 'd': it is cancelled" in ended.out
    assert ended.err == "2 cancelled, 2 refused\nerror: 2 of 4 not cancelled\n"
    assert ended.code == 5  # the highest of those of the failures
    assert [tasks.row(name)["status"] for name in "abc"] == ["cancelled", "cancelled", "scheduled"]
    assert shell("task", "cancel", "nope", "nope2").code == 4


def test_each_is_done_once_and_in_order(shell: Shell, tasks: InProcess) -> None:
    ended = shell("task", "cancel", "c", "a", "c", "-o", "json")
    assert (ended.code, ended.err) == (0, "2 cancelled\n")
    row = {"result": "cancelled", "taskDateTime": "2026-12-31#13:00", "action": "log"}
    assert ended.json == {"tasks": [{"taskId": "c", **row}, {"taskId": "a", **row}], "counts": {"cancelled": 2}}
    again = shell("task", "redrive", "c", "a", "-o", "jsonl")
    assert [json.loads(line)["result"] for line in again.out.splitlines()] == ["redriven", "redriven"]


def test_ids_from_stdin(shell: Shell, tasks: InProcess, typed: Callable[[str], None]) -> None:
    typed("a\r\n\n  \nb\n")
    ended = shell("task", "reschedule", "-", "--delay", "2h")
    assert (ended.code, ended.err) == (0, "2 rescheduled\n")
    for name in "ab":
        assert str(tasks.row(name)["dueAt"]).startswith("2026-12-31T14:00")
    typed("a\n")
    assert shell("task", "run", "-", "c").err == "2 to run\n"
    typed("")
    assert (shell("task", "cancel", "-").err, tasks.row("a")["status"]) == ("There are none\n", "scheduled")
    typed("a")  # a list, although of one
    assert shell("task", "get", "-", "-o", "json").json["tasks"][0]["taskId"] == "a"


def test_reading_several(shell: Shell, tasks: InProcess) -> None:
    ended = shell("task", "get", "a", "nope", "d")
    blocks = ended.out.split("\n\n")
    assert [block.splitlines()[0].split() for block in blocks] == [["id", "a"], ["id", "d"]]
    assert ended.err == "error: taskId: there is no task 'nope'\nerror: 1 of 3 could not be shown\n"
    assert ended.code == 4
    assert [task["taskId"] for task in shell("task", "get", "a", "d", "-o", "json").json["tasks"]] == ["a", "d"]
    lines = shell("task", "get", "a", "d", "-o", "jsonl").out.splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["scheduled", "cancelled"]


def test_schedules(shell: Shell, world: InProcess) -> None:
    for name in ("s1", "s2"):
        shell("schedule", "add", name, "rate(1 hour)", "--start-date", "2026-12-31T12:30:00Z")
    ended = shell("schedule", "pause", "s1", "s2", "nope", "--reason", "holidays")
    assert [line.split()[:3] for line in ended.out.splitlines()[1:3]] == [
        ["s1", "paused", "DISABLED"], ["s2", "paused", "DISABLED"],
    ]  # fmt: skip
    assert (ended.code, ended.err) == (4, "2 paused, 1 refused\nerror: 1 of 3 not paused\n")
    assert shell("schedule", "get", "s2", "-o", "json").json["stateReason"] == "holidays"
    resumed = shell("schedule", "resume", "s1", "s2", "-o", "json").json["schedules"]
    assert [(one["taskId"], one["scheduleState"]) for one in resumed] == [("s1", "ENABLED"), ("s2", "ENABLED")]
    assert shell("schedule", "run", "s1", "s2").err == "2 to run\n"
    assert shell("schedule", "delete", "s1", "s2").err == "2 deleted\n"
    assert (world.store.get("s1"), world.store.get("s2")) == (None, None)


def test_a_table_that_does_not_answer(shell: Shell, tasks: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "write", lambda *_: Unknown("throttled"))
    monkeypatch.setattr(bulk_change, "MAX_FAILURES", 2)
    ended = shell("task", "cancel", "a", "b", "c")
    assert (ended.code, ended.err) == (6, "2 unknown\nerror: 2 of 3 not cancelled\n")
