"""``dynatick deadletter``: what it prints, and how it ends."""

from __future__ import annotations

import json
import sys

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell, Terminal, fail

from dynatick import MemoryStore, TaskClient
from dynatick.actions.testing import MemoryDeadLetterQueue
from dynatick.cli import bulk_change
from dynatick.domain.conditional_update import Unknown


@pytest.fixture
def failed(world: InProcess) -> InProcess:
    """Two tasks failed, at 12:01 and 12:02; ``a`` was redriven since."""
    client = TaskClient(world.store, clock=world.clock)
    for name in ("a", "b"):
        world.actions.behaviour[name] = fail
        client.insert(name, delay_seconds=1)
        world.next_tick()
    client.redrive("a")
    return world


def queue_of(world: InProcess) -> MemoryDeadLetterQueue:
    assert isinstance(world.dead_letters, MemoryDeadLetterQueue)
    return world.dead_letters


def test_the_list(shell: Shell, failed: InProcess) -> None:
    ended = shell("deadletter", "list")
    assert (ended.code, ended.err) == (0, "")
    assert ended.lines == [
        "TASK  STATE     NOW        ACTION  FAILED AT             RUN  ATTEMPT  ERROR",
        "a     redriven  scheduled  log     2026-12-31T12:01:00Z    1        1  SMTP: refused [2J",
        "b     failed    failed     log     2026-12-31T12:02:00Z    1        1  SMTP: refused [2J",
    ]
    as_json = shell("deadletter", "list", "-o", "json").json
    lines = [json.loads(line) for line in shell("deadletter", "list", "-o", "jsonl").lines]
    assert as_json == {"complete": True, "messages": 2, "hidden": 0, "deadLetters": lines}
    assert [one["state"] for one in lines] == ["redriven", "failed"]
    sample = shell("deadletter", "list", "--limit", "1")
    assert (len(sample.lines), sample.err) == (2, "A sample: the queue holds about 2 messages; see --limit\n")
    queue_of(failed).receive()  # by another reader
    ended = shell("deadletter", "list")
    assert ended.err == "There are none\nAbout 2 more are hidden, since another reader has just received them\n"


def test_redrive(shell: Shell, failed: InProcess) -> None:
    for other in (("--error", "timeout"), ("--action", "webhook")):
        assert shell("deadletter", "redrive", *other).err == "There are none\n"
    dry = shell("deadletter", "redrive", "--dry-run", "--error", "smtp", "--action", "log")
    assert (dry.code, dry.err, failed.outcome("b")) == (0, "1 to be dropped, 1 to be redriven\n", "failed")
    done = shell("deadletter", "redrive", "-o", "json").json
    assert [(one["taskId"], one["result"], one["state"]) for one in done["deadLetters"]] == [
        ("a", "dropped", "redriven"), ("b", "redriven", "failed"),
    ]  # fmt: skip
    assert (done["counts"], done["complete"]) == ({"dropped": 1, "redriven": 1}, True)
    assert failed.row("b")["run"] == 2
    again = shell("deadletter", "redrive")
    assert (again.code, again.err, again.out) == (0, "There are none\n", "")
    gone = shell("bucket", "show", "2026-12-31#12:02")
    assert gone.err.splitlines()[:2] == [
        "2026-12-31#12:02: nothing is there now",
        "1 ran there, 1 of them failed. Gone elsewhere since: 1 redriven after they had failed",
    ]
    assert shell("bucket", "show", "2026-12-31#12:02", "-o", "json").json["left"] == {"redrivenFailed": 1}


def test_a_redrive_waits_for_its_runs_and_counts_the_task_of_two_letters_once(
    shell: Shell, failed: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    dry = shell("deadletter", "redrive", "--dry-run", "--wait")
    assert (dry.code, dry.err) == (0, "1 to be dropped, 1 to be redriven\n"), "there is nothing to wait for"
    queue = queue_of(failed)
    queue.put(next(one.body for one in queue.visible if '"taskId":"b"' in one.body.replace(" ", "")))
    monkeypatch.setattr("time.sleep", lambda seconds: failed.next_tick())
    again = shell("deadletter", "redrive", "--wait")
    assert again.err.splitlines() == [
        "1 dropped, 2 redriven", "1 redriven: 0 completed, 1 failed again", "error: 1 did not complete",
    ]  # fmt: skip
    assert again.code == 8
    failed.actions.behaviour.clear()
    well = shell("deadletter", "redrive", "--wait", "--timeout", "5m", "--error", "smtp")
    assert well.err.splitlines()[-1] == "2 redriven: 2 completed"
    assert well.code == 0


def test_purge_and_a_message_that_is_no_letter(shell: Shell, failed: InProcess) -> None:
    assert shell("deadletter", "purge", "--dry-run").err == "1 to be dropped, 1 to be purged\n"
    assert shell("deadletter", "purge", "--obsolete").err == "1 dropped\n"
    ended = shell("deadletter", "purge")
    assert ended.err == "1 purged\n"
    assert ended.lines[1].startswith("b     purged  failed  2026-12-31T12:02:00Z  SMTP: refused [2J")
    assert failed.outcome("b") == "failed"
    queue_of(failed).put("hello")
    assert shell("deadletter", "list").lines[1:] == ["      unreadable"]
    assert shell("deadletter", "redrive").err == "1 kept\n"


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (["redrive"], "Redrive the tasks of about 2 messages? [y/N] "), (["purge"], "Purge about 2 messages? [y/N] "),
        (["purge", "--obsolete"], "Purge the obsolete of about 2 messages? [y/N] "),
    ],
)  # fmt: skip
def test_on_a_terminal_it_asks(
    shell: Shell, failed: InProcess, monkeypatch: pytest.MonkeyPatch, arguments: list[str], question: str
) -> None:
    for answer, code in (("n\n", 130), ("y\n", 0)):
        said = Terminal()
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        monkeypatch.setattr(sys, "stderr", said)
        assert shell("deadletter", *arguments).code == code
        assert said.getvalue().startswith(question)
        assert (len(queue_of(failed).visible) == 2) == (code == 130)
    monkeypatch.setattr(sys, "stderr", said := Terminal())
    assert shell("deadletter", *arguments, "--yes").code == 0
    assert "[y/N]" not in said.getvalue()


def test_a_table_that_does_not_answer(shell: Shell, failed: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "write", lambda *_: Unknown("throttled"))
    ended = shell("deadletter", "redrive")
    assert ended.code == 6
    assert ended.err == "1 dropped, 1 unknown\nerror: 1 got no answer; repeat the command\n"
    monkeypatch.setattr(bulk_change, "MAX_FAILURES", 1)
    assert shell("deadletter", "redrive").code == 6
    assert len(queue_of(failed).visible) == 1
