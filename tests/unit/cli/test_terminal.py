"""What a task holds does nothing to a terminal, nor to a shell into which a suggested command is pasted."""

from __future__ import annotations

import ast
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.builders import NOON, InProcess
from tests.unit.cli.conftest import Shell

from dynatick.bulk.eventbridge_scheduler import read_eventbridge_scheduler
from dynatick.bulk.record import FileFormat
from dynatick.cli.exporting import export_tasks
from dynatick.cli.installation import _group
from dynatick.client.operations import FailureGroup
from dynatick.domain.terminal_text import suggested
from dynatick_stack.dev.display import Display
from dynatick_stack.logs import LogLine
from dynatick_stack.template import ROOT

HOSTILE = ["x; touch pwned #", "$(touch pwned)", "`touch pwned`", "a' b\"c", "-rf", "a\nb", "\x1b[2J", "ä b", "!x", ""]
ATTACK = "\x1b[2J\x1b]0;owned\x07\x9b2J\r\u202e"


OURS = {"port + 1", "project.folder", "error"}
"""What messages put behind a command without quoting it: numbers, and what is not part of the command."""

_COMMAND = re.compile(r"\b(dynatick|aws|sam) [a-z]|(^|\s)--[a-z-]+ $")
_MAY_SUGGEST = re.compile(r"\b(dynatick|aws|sam) [a-z]|--[a-z-]+ [{\"]")  # to parse fewer files


def test_messages_put_no_text_behind_a_command_but_by_the_function_that_quotes_it() -> None:
    found = {
        ast.unparse(value.value)
        for folder in ("shared", "stack")
        for path in (ROOT / folder).rglob("*.py")
        if not path.is_relative_to(ROOT / "stack" / "dynatick_stack" / "demo")  # these are arguments, not suggestions
        if _MAY_SUGGEST.search(source := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.JoinedStr)
        for value in _behind_a_command(node)
    }
    assert {text for text in found if not text.startswith(("quoted(", "suggested("))} == OURS
    assert any(text.startswith("quoted(") for text in found)


def test_pages_put_no_text_behind_a_command_but_by_the_filter_that_quotes_it() -> None:
    found = [
        value
        for path in (ROOT / "shared" / "dynatick" / "ui" / "templates").glob("*.html")
        for line in path.read_text(encoding="utf-8").splitlines()
        for value in re.findall(r"\bdynatick [a-z][^{<]*\{\{ (.*?) \}\}", line)
    ]
    assert found
    assert [value for value in found if not value.endswith("|quoted")] == []


def _behind_a_command(text: ast.JoinedStr) -> Iterator[ast.FormattedValue]:
    named = False
    for part in text.values:
        if isinstance(part, ast.FormattedValue) and named:
            yield part
        named = named or (isinstance(part, ast.Constant) and bool(_COMMAND.search(str(part.value))))


@pytest.mark.parametrize("schedule_id", ["x; touch pwned #", "$(touch pwned)", "a' b\"c", "a  b"])
def test_the_token_of_the_next_page_is_one_argument(shell: Shell, world: InProcess, schedule_id: str) -> None:
    world.tick()
    for name in (schedule_id, "zz"):
        assert shell("schedule", "add", name, "rate(1 hour)", "--action", "log").code == 0
    first = shell("schedule", "list", "--limit", "1")
    option, token = shlex.split(first.err.removeprefix("There are more: "))
    assert option == "--page-token"
    assert "zz" in shell("schedule", "list", "--page-token", token).out


@pytest.mark.parametrize("name", HOSTILE[:-1])
def test_a_command_that_asks_for_a_schedule_of_eventbridge_has_its_name_as_one_argument(
    name: str, tmp_path: Path
) -> None:
    listed = json.dumps({"Schedules": [{"Name": name, "GroupName": name}]})
    (conversion,) = read_eventbridge_scheduler(listed)
    command = str(conversion.error).partition("import what ")[2].removesuffix(" prints")
    assert command.startswith("aws scheduler get-schedule --name ")
    program = f"aws() {{ printf '%s\\n' \"$#\"; }}; {command}"
    ran = subprocess.run(["sh", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "6\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("task_id", HOSTILE)
def test_a_suggested_command_is_one_command_with_the_id_as_its_argument(task_id: str, tmp_path: Path) -> None:
    group = FailureGroup(
        fingerprint="0" * 10, count=1, action="a", actions={"a": 1}, error="e", task_id=task_id, first=NOON, last=NOON
    )
    command = _group(group, NOON).partition("   (")[2].removesuffix(")")
    assert command == suggested("dynatick task explain", task_id)
    assert command.isprintable()
    argument = shlex.split(command)[-1]
    if task_id.isprintable():
        assert argument == task_id
    program = f"dynatick() {{ printf '%s\\n' \"$#\"; }}; {command}"
    ran = subprocess.run(["sh", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == ("4\n" if task_id.startswith("-") else "3\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "record"),
    [
        (f"printed {ATTACK}", None),
        (
            "",
            {"level": "ERROR", "action": "x", "message": ATTACK, "task_id": ATTACK, "exception": f"Trace\n  {ATTACK}"},
        ),
    ],
)
def test_log_lines_hold_no_control_characters(text: str, record: dict[str, object] | None, tmp_path: Path) -> None:
    line = LogLine(at=datetime(2026, 12, 31, tzinfo=UTC), function="processor", text=text, record=record)
    for shown in (str(line), *Display(folder=tmp_path).show([line], {})):
        assert all(part.isprintable() for part in shown.split("\n")), repr(shown)
        assert "owned" in shown


@pytest.mark.parametrize("is_terminal", [True, False])
def test_an_export_to_a_terminal_holds_no_control_characters_and_to_a_pipe_what_is_there(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Out(io.TextIOWrapper):
        def isatty(self) -> bool:
            return is_terminal

    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Out(written, encoding="utf-8", write_through=True))
    row = {"taskId": ATTACK, "taskDateTime": "2026-12-31#12:00"}
    export_tasks(lambda after: [row], "-", FileFormat.CSV, {})
    shown = written.getvalue().decode()
    assert ("\x1b" in shown) is not is_terminal
    assert "owned" in shown
