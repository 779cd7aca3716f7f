"""Runs command lines in this process, on a table in memory."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.builders import InProcess, scheduled_row

from dynatick import PermanentError, TaskClient, cli
from dynatick.actions.testing import MemoryDeadLetterQueue
from dynatick.cli.session import Session
from dynatick.client import doctor
from dynatick.domain.buckets import Bucket


@dataclass(frozen=True)
class Ended:
    """The output of a command line and how it ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The data, line by line."""
        return [line.rstrip() for line in self.out.splitlines()]

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def fail(*_: object) -> object:
    """An action that fails for good, with a control character in its error."""
    raise PermanentError("SMTP: refused\x1b[2J")


def run_reminders(world: InProcess, *task_ids: str, failing: Sequence[str] = ()) -> InProcess:
    """Tasks of the action send-reminder have run at 12:01. ``failing``: those that have failed."""
    world.tick()
    for task_id in task_ids:
        world.store.create(scheduled_row(task_id, Bucket.parse("2026-12-31#12:01"), action="send-reminder"))
    world.actions.behaviour |= dict.fromkeys(failing, fail)
    world.next_tick()
    return world


def documented(page: str) -> list[list[str]]:
    """The commands that a page of docs/ shows in consoles, each with the lines that it prints."""
    text = (Path(__file__).parents[3] / "docs" / page).read_text(encoding="utf-8")
    shown = "".join(re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    return [command.splitlines() for command in shown.split("$ ")[1:]]


class Terminal(io.StringIO):
    """A terminal: of stdin, with what is typed there."""

    def isatty(self) -> bool:
        return True


Shell = Callable[..., Ended]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Runs ``shell("task", "get", "x")`` as one would type it."""

    def run(*arguments: str) -> Ended:
        return Ended(cli.run(arguments), *capsys.readouterr())

    for name in ("TABLE", "STACK", "DEAD_LETTER_QUEUE_URL", "STATE_DIR"):
        monkeypatch.delenv(f"DYNATICK_{name}", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    return run


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> InProcess:
    """Scheduler and processor over the table in memory that the commands talk to, after the first tick."""
    queue = MemoryDeadLetterQueue()
    world = InProcess(dead_letters=queue)
    world.tick()

    def client(session: Session) -> TaskClient:
        return TaskClient(world.store, clock=world.clock, caller=session.caller, interface="command line")

    monkeypatch.setattr(Session, "client", client)
    monkeypatch.setattr(Session, "dead_letter_queue", lambda session, queue_url: queue)
    monkeypatch.setattr(Session, "caller", lambda session: "ada")
    monkeypatch.setattr(Session, "clock", lambda session: world.clock())
    # The doctor reads again what it finds, after a pause.
    monkeypatch.setattr("dynatick.client.operations.examine", partial(doctor.examine, pause=lambda seconds: None))
    return world
