"""docs/how-to/operate.md: a section for each alarm, a row for each kind, and commands that work."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from tests.builders import InProcess

from dynatick import MemoryStore, RetryableError, TaskClient, cli
from dynatick.actions.dead_letter import message_of
from dynatick.actions.testing import MemoryDeadLetterQueue
from dynatick.cli.session import Session
from dynatick.client import LetterState, explanation
from dynatick.domain.task import Task
from dynatick.engine.reconcile import Kind
from dynatick_stack import template

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "operate.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines()]


def test_each_alarm_has_its_section_in_the_templates_order() -> None:
    resources = template.load()["Resources"]
    alarms = [name for name, one in resources.items() if "AlarmActions" in one["Properties"]]
    assert re.findall(r"^### (\w+)$", TEXT, re.MULTILINE) == alarms


def test_each_kind_and_each_state_of_a_letter_has_its_row() -> None:
    doctor, dead_letters = TEXT.split("## Dead letters")
    assert re.findall(r"^\| `([a-z-]+)` \|", doctor, re.MULTILINE) == [str(kind) for kind in Kind]
    states = re.findall(r"^\| `([a-z-]+)` \|", dead_letters, re.MULTILINE)
    assert sorted(states) == sorted(map(str, LetterState))


def test_the_section_of_lost_invocations_names_each_sender_to_the_failure_queue() -> None:
    section = TEXT.split("### InvocationsLostAlarm")[1].split("### ")[0]
    kinds = ("OnFailure", "DeadLetterConfig")
    senders = {
        name for name, one in template.load()["Resources"].items() if any(f"'{kind}'" in str(one) for kind in kinds)
    }
    assert set(re.findall(r"`(\w+(?:Function|Rule))`", section)) == senders
    assert section.index("Drop the file again") < section.index("Purge the queue")


def test_the_log_words_are_the_codes() -> None:
    root = Path(__file__).parents[2]
    folders = (root / "shared" / "dynatick", root / "functions")
    code = "".join(path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py"))
    for word in re.findall(r"`(\w+_(?:ended|settled|failed|refused|unsent))`", TEXT):
        assert f'"{word}"' in code, word


def test_the_runbook_quotes_what_explain_says() -> None:
    said = Path(explanation.__file__).read_text(encoding="utf-8")
    runbook = TEXT.split("## A task did not run")[1].split("### 2.")[0]
    quoted = [
        text for row in re.findall(r"^\| (`.*?) \|", runbook, re.MULTILINE) for text in re.findall(r"`(.*?)`", row)
    ]
    assert len(quoted) > 15
    assert [text for text in quoted if text not in said] == []


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> InProcess:
    """An installation after four attempts of a task that failed, as the example shows it."""

    def fail(task: Task, context: object) -> object:
        raise RetryableError("the mail service did not answer")

    monkeypatch.chdir(tmp_path)
    for name in ("waiting", "schedules"):  # that a command before has exported
        (tmp_path / f"{name}.ndjson").touch()
    queue = MemoryDeadLetterQueue()
    world = InProcess(dead_letters=queue)
    world.tick()
    client = TaskClient(world.store, clock=world.clock, check_actions=False)
    world.actions.behaviour["mail-7"] = fail
    at_once = {"minBackoffSeconds": 0, "maxBackoffSeconds": 0}
    payload = {"to": "ada@example.com"}
    client.insert("mail-7", delay_seconds=1, action="send-reminder", payload=payload, retry_policy=at_once)
    client.insert("later", task_date_time="2026-12-31#13:00", action="log")
    client.schedules.insert("nightly-report", "cron(0 4 * * ? *)", action="log")
    world.ticks(8)
    assert world.outcome("mail-7") == "failed"
    world.actions.behaviour.clear()  # the cause is repaired
    monkeypatch.setattr("time.sleep", lambda seconds: world.next_tick() and None)  # what waits, waits for ticks
    monkeypatch.setattr(Session, "client", lambda session: client)
    monkeypatch.setattr(Session, "dead_letter_queue", lambda session, queue_url: queue)
    return world


@pytest.mark.parametrize("command", commands())
def test_each_command_works(world: InProcess, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, *arguments = shlex.split(command, comments=True)
    assert program == "dynatick"
    assert cli.run(arguments) == 0, capsys.readouterr().err


def test_the_commands_do_what_is_said(world: InProcess) -> None:
    assert isinstance(world.store, MemoryStore)
    for command in commands():
        cli.run(shlex.split(command, comments=True)[1:])
    assert (world.row("mail-7")["status"], world.row("mail-7")["run"]) == ("completed", 2)
    assert world.outcome("later") == "cancelled"


def test_the_message_has_the_form_that_is_shown(world: InProcess) -> None:
    (example,) = (json.loads(block) for block in blocks("json"))
    (letter,) = world.dead_letters.letters
    message = json.loads(message_of(letter))
    assert list(message) == list(example)
    assert {name: type(value) for name, value in message.items()} == {
        name: type(value) for name, value in example.items()
    }
    assert message["attempt"] == 4
    assert [entry["attempt"] for entry in message["attempts"]] == [1, 2, 3]
    assert set(message["attempts"][0]) == set(example["attempts"][0])
