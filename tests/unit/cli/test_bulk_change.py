"""``dynatick task redrive`` and ``cancel`` by filter: what they print, and how they end."""

from __future__ import annotations

import json
import sys

import pytest
from tests.builders import InProcess, scheduled_row
from tests.unit.cli.conftest import Ended, Shell, Terminal

from dynatick import MemoryStore, PermanentError, TaskClient
from dynatick.cli import bulk_change
from dynatick.cli.listing import BATCH
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Unknown

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


def test_a_dry_run_lists_and_changes_nothing(shell: Shell, failed: InProcess) -> None:
    ended = shell("task", "redrive", "--from", "2026-12-31T12:00:00Z", "--to", "2026-12-31T13:00:00Z", "--dry-run")
    assert (ended.code, ended.err) == (0, "3 to be redriven\n")
    assert ended.lines == [
        "TASK  WHAT            BUCKET            ACTION  WHY",
        *(f"{name}     to be redriven  {BUCKET}  log     SMTP: refused [2J" for name in "abc"),
    ]
    assert failed.outcome("a") == "failed"


def test_each_way_of_printing(shell: Shell, failed: InProcess) -> None:
    redrive = ("task", "redrive", "--bucket", BUCKET)
    row = {"result": "to be redriven", "taskDateTime": BUCKET, "action": "log", "why": "SMTP: refused [2J"}
    rows = [{"taskId": name, **row} for name in "abc"]
    dry = shell(*redrive, "--dry-run", "-o", "json")
    assert dry.json == {"tasks": rows, "counts": {"to be redriven": 3}}
    assert [json.loads(line) for line in shell(*redrive, "--dry-run", "-o", "jsonl").lines] == rows
    done = shell(*redrive, "--error", "smtp", "--action", "log", "-o", "json").json
    assert done["counts"] == {"redriven": 3}
    redriven = {"result": "redriven", "taskDateTime": "2026-12-31#12:02", "action": "log"}
    assert done["tasks"] == [{"taskId": name, **redriven} for name in "abc"]
    again = shell(*redrive, "-o", "json")
    assert (again.json, again.code, again.err) == ({"tasks": [], "counts": {}}, 0, "There are none\n")
    assert shell(*redrive).out == ""


NEITHER = "name a task, or select tasks by --bucket, --last, or --from and --to"
BOTH = "--{} has no effect on named tasks; use one of them only"


def test_a_table_that_does_not_answer(shell: Shell, failed: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "write", lambda *_: Unknown("throttled"))
    ended = shell("task", "redrive", "--bucket", BUCKET, "-o", "json")
    assert ended.code == 6
    assert ended.json["counts"] == {"unknown": 3}
    assert ended.json["tasks"][0]["why"] == "cannot change 'a': throttled"
    assert ended.err == "3 unknown\nerror: 3 got no answer; repeat the command\n"
    monkeypatch.setattr(bulk_change, "MAX_FAILURES", 2)
    assert shell("task", "redrive", "--bucket", BUCKET, "-o", "json").json["counts"] == {"unknown": 2}


def test_long_lists_are_printed_as_they_come(shell: Shell, world: InProcess) -> None:
    number = BATCH + 20
    assert isinstance(world.store, MemoryStore)
    for n in range(number):
        row = scheduled_row(f"t{n:04d}", Bucket.parse(BUCKET), status="failed", outcome="failed")
        world.store.put(row)
    table = shell("task", "redrive", "--bucket", BUCKET, "--dry-run").lines
    assert len(table) == number + 1
    assert sum(line.startswith("TASK") for line in table) == 1
    assert len(shell("task", "redrive", "--bucket", BUCKET, "--dry-run", "-o", "json").json["tasks"]) == number


@pytest.fixture
def waiting(world: InProcess, shell: Shell) -> InProcess:
    """Three tasks at 12:30."""
    for name in ("w1", "w2", "w3"):
        shell("task", "add", name, "--at", "2026-12-31#12:30")
    return world


VERBS = [
    (["cancel"], "Cancel 3 tasks? [y/N] ", "3 cancelled\n"),
    (["reschedule", "--by", "+1h"], "Reschedule 3 tasks? [y/N] ", "3 rescheduled\n"),
    (["redrive", "--status", "cancelled"], "Redrive 3 tasks? [y/N] ", "3 redriven\n"),
]


@pytest.mark.parametrize("confirmed", [("y\n",), ("n\n", "--yes")])
@pytest.mark.parametrize(("verb", "question", "done"), VERBS)
def test_it_is_asked_on_a_terminal_unless_that_changes_nothing_or_is_answered_already(
    shell: Shell, waiting: InProcess, monkeypatch: pytest.MonkeyPatch, verb: list[str], question: str, done: str,
    confirmed: tuple[str, ...],
) -> None:  # fmt: skip
    if verb[0] == "redrive":
        shell("task", "cancel", "w1", "w2", "w3")

    def answered(answer: str, *options: str) -> Ended:
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        return shell("task", *verb, "--bucket", "2026-12-31#12:30", *options)

    before = {name: waiting.row(name) for name in ("w1", "w2", "w3")}
    assert answered("n\n", "--dry-run").err == f"3 to be {done[2:]}"
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda stream: True)
    for answer in ("n\n", "\n", ""):  # the last is the end of the input
        assert answered(answer) == Ended(130, "", f"{question}error: nothing was changed\n")
    assert {name: waiting.row(name) for name in before} == before
    ended = answered(*confirmed)
    assert (ended.code, ended.err) == (0, done if "--yes" in confirmed else question + done)
    assert answered("").err == "There are none\n", "and nothing to ask"


def test_so_many_are_not_counted_to_the_end(shell: Shell, waiting: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_change, "_MAX_COUNTED", 2)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda stream: True)
    ended = shell("task", "cancel", "--bucket", "2026-12-31#12:30")
    assert ended.err == "Cancel more than 2 tasks? [y/N] 3 cancelled\n"


def test_many_get_another_time(shell: Shell, waiting: InProcess) -> None:
    def due() -> list[str]:
        return [str(waiting.row(name)["dueAt"])[11:16] for name in ("w1", "w2", "w3")]

    span = ("--from", "now", "--to", "+2h")
    dry = shell("task", "reschedule", *span, "--by", "+1h", "--dry-run", "-o", "json").json
    assert (dry["counts"], due()) == ({"to be rescheduled": 3}, ["12:30", "12:30", "12:30"])
    done = shell("task", "reschedule", *span, "--by", "+1h", "--prefix", "w1", "--status", "scheduled", "-o", "json")
    assert (done.json["tasks"][0]["taskDateTime"], due()) == ("2026-12-31#13:30", ["13:30", "12:30", "12:30"])
    assert shell("task", "reschedule", *span, "--by", "-10m", "--action", "log").err == "3 rescheduled\n"
    assert due() == ["13:20", "12:20", "12:20"]
    assert shell("task", "reschedule", *span, "--at", "2026-12-31#12:20").err == "1 rescheduled\n"
    assert shell("task", "reschedule", *span, "--delay", "45m").err == "3 rescheduled\n"
    assert len(set(due())) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["redrive"], 2, NEITHER),
        (["cancel", "--action", "log"], 2, NEITHER),
        (["redrive", "x", "--bucket", BUCKET], 2, BOTH.format("bucket")),
        (["cancel", "x", "--dry-run"], 2, BOTH.format("dry-run")),
        (["reschedule", "x", "--by", "+1h"], 2, BOTH.format("by")),
        (["redrive", "--bucket", BUCKET, "--status", "running"], 3,
         "status: 'running' is not accepted; expected one of failed, cancelled"),
        (["reschedule", "--last", "1h"], 2, "give a time: --at, --delay or --by"),
        (["reschedule", "--last", "1h", "--by", "+1h", "--at", "now"], 2,
         "--at and --delay have no effect with --by; use one of them only"),
    ],
)  # fmt: skip
def test_refusals(shell: Shell, world: InProcess, arguments: list[str], code: int, message: str) -> None:
    ended = shell("task", *arguments)
    assert (ended.code, ended.out, ended.err) == (code, "", f"error: {message}\n")
