"""The command line's page of docs/reference says what `--help` says of every command, option and exit code."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
import typer
from tests.unit.cli.conftest import Shell
from tests.unit.reference_page import text

from dynatick.cli import bucket, expr, schedule, task, tick
from dynatick.cli.exit_code import ExitCode
from dynatick.cli.session import Session

TEXT = text("cli.md")


def commands(app: typer.Typer) -> set[str]:
    named = (one.name or getattr(one.callback, "__name__", "") for one in app.registered_commands)
    return {f"dynatick {app.info.name} {name}" for name in named}


def test_every_command_has_its_section() -> None:
    known = {name for app in (task.app, bucket.app, schedule.app, tick.app, expr.app) for name in commands(app)}
    sections = set(re.findall(r"^## (dynatick .+)$", TEXT, re.MULTILINE))
    assert known < sections and "dynatick doctor" in sections and "dynatick local up" in sections
    for section in sections:
        assert f"(#{section.replace(' ', '-')})" in TEXT


def test_every_shared_option_is_there_once() -> None:
    shared = TEXT.partition("## What comes out")[0]
    for option in fields(Session):
        name = f"`--{option.name.replace('_', '-')}"
        assert len(re.findall(rf"^\| {name}[ `]", shared, re.MULTILINE)) == 1
    assert "`--output`, `-o` `table\\|json\\|jsonl` | How to print data. Default: `table`." in TEXT


def test_every_exit_code_is_there() -> None:
    assert re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE) == [str(code.value) for code in ExitCode]


@pytest.mark.parametrize("path", re.findall(r"^## dynatick (.+)$", TEXT, re.MULTILINE))
def test_every_command_explains_itself(shell: Shell, path: str) -> None:
    ended = shell(*path.split(), "--help")
    assert ended.code == 0 and "\x1b" not in ended.out
