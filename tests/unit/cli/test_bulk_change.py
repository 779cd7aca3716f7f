"""Verbs for several tasks, by their ids or by a filter: what they print, what they ask, and how they end."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from tests.builders import InProcess, scheduled_row
from tests.unit.cli.conftest import Ended, Shell, Terminal, fail

from dynatick import MemoryStore
from dynatick.cli import bulk_change
from dynatick.cli.exit_code import ExitCode
from dynatick.cli.output import BATCH
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Unknown

BUCKET = "2026-12-31#12:01"


@pytest.fixture
def failed(world: InProcess, shell: Shell) -> InProcess:
    """Three tasks failed at 12:01."""
    for name in "abc":
        world.actions.behaviour[name] = fail
        shell("task", "add", name, "--delay", "1")
    world.next_tick()
    return world


@pytest.fixture
def waiting(world: InProcess, shell: Shell) -> InProcess:
    """Three tasks at 12:30."""
    for name in ("w1", "w2", "w3"):
        shell("task", "add", name, "--at", "2026-12-31#12:30")
    return world


def due(world: InProcess) -> list[str]:
    return [str(world.row(name)["dueAt"])[11:16] for name in ("w1", "w2", "w3")]


def test_each_is_done_once_in_order_and_a_failure_does_not_stop_the_others(shell: Shell, waiting: InProcess) -> None:
    first = shell("task", "cancel", "w2", "w2", "-o", "json")
    assert (first.code, first.err) == (0, "1 cancelled\n")
    row = {"taskId": "w2", "result": "cancelled", "taskDateTime": "2026-12-31#12:30", "action": "log"}
    assert first.json == {"tasks": [row], "counts": {"cancelled": 1}}
    ended = shell("task", "cancel", "w3", "w2", "nope", "w1", "w3")
    assert [line.split()[:2] for line in ended.lines] == [
        ["TASK", "WHAT"], ["w3", "cancelled"], ["w2", "refused"], ["nope", "refused"], ["w1", "cancelled"],
    ]  # fmt: skip
    assert "cannot cancel task 'w2': it is cancelled" in ended.out
    assert ended.err == "2 cancelled, 2 refused\nerror: 2 of 4 not cancelled\n"
    assert ended.code == 5  # the highest of those of the failures
    assert shell("task", "cancel", "nope", "nope2").code == 4
    assert shell("task", "redrive", "w3", "w1").err.startswith("2 refused\n")
    again = shell("task", "restore", "w3", "w1", "-o", "jsonl")
    assert [json.loads(line)["result"] for line in again.lines] == ["restored", "restored"]
    assert due(waiting) == ["12:30", "12:30", "12:30"]


def test_ids_from_stdin(shell: Shell, waiting: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(text: str, *arguments: str) -> Ended:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return shell("task", *arguments)

    ended = typed("w1\r\n\n  \nw2\n", "reschedule", "-", "--delay", "2h")
    assert (ended.code, ended.err, due(waiting)) == (0, "2 rescheduled\n", ["14:00", "14:00", "12:30"])
    assert typed("w1\n", "run", "-", "w3").err == "2 set to run\n"
    assert (typed("", "cancel", "-").err, waiting.row("w1")["status"]) == ("There are none\n", "scheduled")
    only = typed("w1", "get", "-", "-o", "json")  # a list, although of one
    assert only.json["tasks"][0]["taskId"] == "w1"


def test_reading_several(shell: Shell, waiting: InProcess) -> None:
    shell("task", "cancel", "w2")
    ended = shell("task", "get", "w1", "nope", "w2")
    assert [block.splitlines()[0].split() for block in ended.out.split("\n\n")] == [["id", "w1"], ["id", "w2"]]
    assert ended.err == "error: taskId: there is no task 'nope'\nerror: 1 of 3 could not be shown\n"
    assert ended.code == 4
    assert [task["taskId"] for task in shell("task", "get", "w1", "w2", "-o", "json").json["tasks"]] == ["w1", "w2"]
    lines = shell("task", "get", "w1", "w2", "-o", "jsonl").lines
    assert [json.loads(line)["status"] for line in lines] == ["scheduled", "cancelled"]


def test_several_schedules(shell: Shell, world: InProcess) -> None:
    for name in ("s1", "s2"):
        shell("schedule", "add", name, "rate(1 hour)", "--start-date", "2026-12-31T12:30:00Z")
    ended = shell("schedule", "pause", "s1", "s2", "nope", "--reason", "holidays")
    assert [line.split()[:3] for line in ended.lines[1:3]] == [[name, "paused", "DISABLED"] for name in ("s1", "s2")]
    assert (ended.code, ended.err) == (4, "2 paused, 1 refused\nerror: 1 of 3 not paused\n")
    assert shell("schedule", "get", "s2", "-o", "json").json["stateReason"] == "holidays"
    resumed = shell("schedule", "resume", "s1", "s2", "-o", "json").json["schedules"]
    assert [(one["taskId"], one["scheduleState"]) for one in resumed] == [("s1", "ENABLED"), ("s2", "ENABLED")]
    assert shell("schedule", "run", "s1", "s2").err == "2 to run\n"
    assert shell("schedule", "delete", "s1", "s2").err == "2 deleted\n"
    assert (world.store.get("s1"), world.store.get("s2")) == (None, None)


def test_each_way_of_printing(shell: Shell, failed: InProcess) -> None:
    redrive = ("task", "redrive", "--bucket", BUCKET)
    dry = shell(*redrive, "--dry-run")
    assert (dry.code, dry.err) == (0, "3 to be redriven\n")
    assert dry.lines == [
        "TASK  WHAT            BUCKET            ACTION  WHY",
        *(f"{name}     to be redriven  {BUCKET}  log     SMTP: refused [2J" for name in "abc"),
    ]
    row = {"result": "to be redriven", "taskDateTime": BUCKET, "action": "log", "why": "SMTP: refused [2J"}
    rows = [{"taskId": name, **row} for name in "abc"]
    assert shell(*redrive, "--dry-run", "-o", "json").json == {"tasks": rows, "counts": {"to be redriven": 3}}
    assert [json.loads(line) for line in shell(*redrive, "--dry-run", "-o", "jsonl").lines] == rows
    done = shell(*redrive, "--error", "smtp", "--action", "log", "-o", "json").json
    redriven = {"result": "redriven", "taskDateTime": "2026-12-31#12:02", "action": "log"}
    assert done == {"tasks": [{"taskId": name, **redriven} for name in "abc"], "counts": {"redriven": 3}}
    again = shell(*redrive, "-o", "json")
    assert (again.json, again.code, again.err) == ({"tasks": [], "counts": {}}, 0, "There are none\n")
    assert shell(*redrive).out == ""


def test_a_table_that_does_not_answer(shell: Shell, failed: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive = ("task", "redrive", "--bucket", BUCKET, "-o", "json")
    monkeypatch.setattr(MemoryStore, "write", lambda *_: Unknown("throttled"))
    ended = shell(*redrive)
    assert ended.code == 6
    assert ended.json["counts"] == {"unknown": 3}
    assert ended.json["tasks"][0]["why"] == "cannot change 'a': throttled"
    assert ended.err == "3 unknown\nerror: 3 got no answer; repeat the command\n"
    monkeypatch.setattr(bulk_change, "MAX_FAILURES", 2)
    assert shell(*redrive).json["counts"] == {"unknown": 2}
    by_id = shell("task", "redrive", "a", "b", "c")
    assert (by_id.code, by_id.err) == (6, "2 unknown\nerror: 2 of 3 not redriven\n")


def test_a_shift_is_not_to_be_repeated(shell: Shell, waiting: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command would shift a second time those that it has shifted."""
    write = MemoryStore.write
    monkeypatch.setattr(
        MemoryStore, "write", lambda store, change: Unknown("no") if change.task_id == "w2" else write(store, change)
    )
    ended = shell("task", "reschedule", "--bucket", "2026-12-31#12:30", "--by", "+1h")
    assert (ended.code, due(waiting)) == (6, ["13:30", "12:30", "13:30"])
    then = "see which were rescheduled, and name the others: the command again shifts all once more"
    assert ended.err == f"2 rescheduled, 1 unknown\nerror: 1 got no answer; {then}\n"


def test_long_lists_are_printed_as_they_come(shell: Shell, world: InProcess) -> None:
    for n in range(BATCH + 20):
        world.store.create(scheduled_row(f"t{n:04d}", Bucket.parse(BUCKET), status="failed", outcome="failed"))
    redrive = ("task", "redrive", "--bucket", BUCKET, "--dry-run")
    table = shell(*redrive).lines
    assert [line.split()[0] for line in table] == ["TASK", *(f"t{n:04d}" for n in range(BATCH + 20))]
    assert len(shell(*redrive, "-o", "json").json["tasks"]) == BATCH + 20


VERBS = [
    (["cancel"], "Cancel 3 tasks? [y/N] ", "3 cancelled\n"),
    (["reschedule", "--by", "+1h"], "Reschedule 3 tasks? [y/N] ", "3 rescheduled\n"),
    (["restore"], "Restore 3 tasks? [y/N] ", "3 restored\n"),
    (["run"], "Run 3 tasks? [y/N] ", "3 set to run\n"),
    (["run", "--status", "cancelled"], "Run 3 tasks? [y/N] ", "3 set to run\n"),
]


@pytest.mark.parametrize("confirmed", [("y\n",), ("n\n", "--yes")])
@pytest.mark.parametrize(("verb", "question", "done"), VERBS)
def test_it_asks_on_a_terminal_unless_it_changes_nothing_or_yes_is_given(
    shell: Shell, waiting: InProcess, monkeypatch: pytest.MonkeyPatch, verb: list[str], question: str, done: str,
    confirmed: tuple[str, ...],
) -> None:  # fmt: skip
    if verb[0] == "restore" or "cancelled" in verb:
        shell("task", "cancel", "w1", "w2", "w3")

    def answered(answer: str, *options: str) -> Ended:
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        return shell("task", *verb, "--bucket", "2026-12-31#12:30", *options)

    assert answered("n\n", "--dry-run").err == f"3 to be {done[2:]}"
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda stream: True)
    for answer in ("n\n", "\n", ""):  # the last is the end of the input
        assert answered(answer) == Ended(130, "", f"{question}error: nothing was changed\n")
    with monkeypatch.context() as counting:
        counting.setattr(bulk_change, "_MAX_COUNTED", 2)
        assert answered("n\n").err.startswith(question.replace("3", "more than 2"))
    ended = answered(*confirmed)
    assert (ended.code, ended.err) == (0, done if "--yes" in confirmed else question + done)
    assert answered("").err == "There are none\n", "and nothing to ask"


def test_no_more_are_changed_than_the_question_named(
    shell: Shell, waiting: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Terminal):
        """A person during whose thought two more tasks come."""

        def readline(self, *size: int) -> str:
            for n in (1, 2):
                assert waiting.store.create({**waiting.row("w1"), "taskId": f"w9{n}"})
            return super().readline(*size)

    monkeypatch.setattr(type(sys.stderr), "isatty", lambda stream: True)
    monkeypatch.setattr(sys, "stdin", Slow("y\n"))
    ended = shell("task", "cancel", "--bucket", "2026-12-31#12:30")
    assert ended.err == (
        "Cancel 3 tasks? [y/N] 3 cancelled\n"
        "More tasks match by now, and were not cancelled: repeat the command for them\n"
    )
    assert [waiting.row(name)["status"] for name in ("w1", "w2", "w3", "w91", "w92")] == (
        ["cancelled"] * 3 + ["scheduled"] * 2
    )


def test_the_question_names_only_those_that_would_be_changed(
    shell: Shell, waiting: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is cancelled by a command of its own."""
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda stream: True)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert waiting.store.create({**waiting.row("w1"), "taskId": "a-batch", "action": "dynatick.batch"})
    cancel = ("task", "cancel", "--bucket", "2026-12-31#12:30")
    assert shell(*cancel).err == "Cancel 3 tasks? [y/N] 1 skipped, 3 cancelled\n"
    assert {waiting.row(name)["status"] for name in ("w1", "w2", "w3")} == {"cancelled"}
    ended = shell(*cancel)
    assert ended.err == "1 skipped\n", "and nothing to ask"
    assert "cancel it with its members" in " ".join(ended.out.split())


def test_the_members_of_a_batch_are_counted(
    shell: Shell, waiting: InProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (payloads := tmp_path / "a.ndjson").write_text("{}\n" * 700)
    shell("batch", "add", str(payloads), "--id", "a", "--action", "log", "--due", "2026-12-31T12:30:00Z")
    cancel = ("task", "cancel", "--bucket", "2026-12-31#12:30")
    assert shell(*cancel, "--dry-run", "-o", "json").json["counts"] == {"to be cancelled": 703, "skipped": 1}
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda stream: True)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert shell(*cancel).err == "Cancel 703 tasks? [y/N] 1 skipped, 703 cancelled\n"


def test_many_get_another_time(shell: Shell, waiting: InProcess) -> None:
    span = ("task", "reschedule", "--from", "now", "--to", "+2h")
    dry = shell(*span, "--by", "+1h", "--dry-run", "-o", "json").json
    assert (dry["counts"], due(waiting)) == ({"to be rescheduled": 3}, ["12:30", "12:30", "12:30"])
    done = shell(*span, "--by", "+1h", "--prefix", "w1", "--status", "scheduled", "-o", "json").json
    assert (done["tasks"][0]["taskDateTime"], due(waiting)) == ("2026-12-31#13:30", ["13:30", "12:30", "12:30"])
    for options, changed, then in (
        (("--by", "-10m", "--action", "log"), 3, ["13:20", "12:20", "12:20"]),
        (("--at", "2026-12-31#12:20"), 1, ["12:20", "12:20", "12:20"]), (("--delay", "45m"), 3, ["12:45"] * 3),
    ):  # fmt: skip
        assert (shell(*span, *options).err, due(waiting)) == (f"{changed} rescheduled\n", then)


def test_the_tasks_of_a_subject_are_listed_cancelled_and_deleted(world: InProcess, shell: Shell) -> None:
    for name, subject in (("a1", "customer:ada"), ("a2", "customer:ada"), ("b1", "customer:bob")):
        shell("task", "add", name, "--delay", "90d", "--subject", subject)
    shell("schedule", "add", "weekly", "rate(7 days)", "--subject", "customer:ada")
    of_ada = ("--subject", "customer:ada")
    assert [one["taskId"] for one in shell("task", "list", *of_ada, "-o", "json").json["tasks"]] == ["a1", "a2"]
    assert [one["taskId"] for one in shell("schedule", "list", *of_ada, "-o", "json").json["schedules"]] == ["weekly"]
    assert [json.loads(line)["taskId"] for line in shell("task", "export", *of_ada).lines] == ["a1", "a2"]
    assert [json.loads(line)["taskId"] for line in shell("schedule", "export", *of_ada).lines] == ["weekly"]
    assert shell("task", "cancel", *of_ada, "--prefix", "a1", "--yes").err.strip() == "1 cancelled"
    assert shell("task", "delete", *of_ada, "--dry-run", "-o", "json").json["counts"] == {"to be deleted": 3}
    assert shell("task", "delete", *of_ada, "--yes").err.strip() == "3 deleted"
    assert shell("task", "list", *of_ada, "-o", "json").json["tasks"] == []
    assert world.row("b1")["subject"] == "customer:bob"
    refused = shell("task", "list", "--subject", "x" * 257)
    assert refused.code == ExitCode.INVALID
    assert "subject: " in refused.err and "expected at most 256 bytes in UTF-8, this has 257" in refused.err
