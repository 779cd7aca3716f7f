"""docs/reference/cli.md names every command, every shared option and every exit code."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import typer

from dynatick.cli import bucket, expr, task, tick
from dynatick.cli.exits import ExitCode
from dynatick.cli.session import Session

TEXT = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def commands(app: typer.Typer) -> set[str]:
    named = (one.name or getattr(one.callback, "__name__", "") for one in app.registered_commands)
    return {f"{app.info.name} {name}" for name in named}


def test_every_command_is_there_and_no_other() -> None:
    known = {name for app in (task.app, bucket.app, tick.app, expr.app) for name in commands(app)}
    assert set(re.findall(r"`dynatick ((?:task|bucket|tick|expr) [a-z]+)", TEXT)) == known
    assert "| `dynatick doctor` |" in TEXT


def test_every_shared_option_is_there() -> None:
    for option in fields(Session):
        assert f"`--{option.name.replace('_', '-')}" in TEXT


def test_every_exit_code_is_there() -> None:
    assert re.findall(r"^\| (\d) \|", TEXT, re.MULTILINE) == [str(code.value) for code in ExitCode]
