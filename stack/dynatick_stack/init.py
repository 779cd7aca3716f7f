"""``dynatick init``: writes a project to begin with. Never overwrites a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick_stack.folders import PROJECT_FILE
from dynatick_stack.project import STACK_NAME

app = typer.Typer(add_completion=False, rich_markup_mode=None)

HANDLERS = """\
from dataclasses import dataclass

from dynatick import task


@dataclass
class Mail:
    to: str
    text: str


@task("send-reminder")
def send_reminder(mail: Mail) -> None:
    print(f"To {mail.to}: {mail.text}")
"""

PROJECT = """\
[stack]
name = "{name}"

[handlers]
module = "handlers"
"""

TEST = """\
from datetime import timedelta

from handlers import Mail, send_reminder


def test_the_reminder_comes_after_two_hours(dynatick):
    send_reminder.schedule(Mail("ada@example.com", "It is time"), delay=timedelta(hours=2))
    dynatick.advance(hours=1)
    assert dynatick.executed == []
    dynatick.advance(hours=1)
    assert [(one.action, one.payload.to) for one in dynatick.executed] == [("send-reminder", "ada@example.com")]
"""

NEXT = """\
Wrote handlers.py, dynatick.toml and test_handlers.py. Next:
  dynatick dev
and in another shell, in this folder:
  dynatick task add first --local --action send-reminder \\
    --payload '{"to": "ada@example.com", "text": "It is time"}'"""


def write_project(folder: Path) -> None:
    """Writes the three files. Raises CommandFailed if one of them is there, and then writes none."""
    files = {
        "handlers.py": HANDLERS,
        PROJECT_FILE: PROJECT.format(name=stack_name(folder.name)),
        "test_handlers.py": TEST,
    }
    present = [name for name in files if (folder / name).exists()]
    if present:
        verb = "is" if len(present) == 1 else "are"
        raise CommandFailed(ExitCode.CONFLICT, f"{', '.join(present)} {verb} there already; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(text)


def stack_name(folder: str) -> str:
    """A folder's name as the name of a stack: what that can't have becomes a hyphen."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", folder).strip("-")[:64]
    return name if STACK_NAME.fullmatch(name) else f"stack-{name}".rstrip("-")[:64]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The project's folder.", show_default="this one")] = Path(),
) -> None:
    """Write a project to begin with: handlers.py, dynatick.toml and test_handlers.py."""
    try:
        write_project(folder.resolve())
    except OSError as error:
        raise CommandFailed(ExitCode.UNEXPECTED, f"cannot write to {folder}: {error.strerror}") from error
    typer.echo(NEXT, err=True)
