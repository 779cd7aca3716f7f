"""Does what a newcomer does, with the commands of docs/tutorial.md, and says how long that takes (`make newcomer`).

In an empty folder with nothing but the wheel and a Python; caches are empty, too. Ends with 1 if it takes more than
five commands, twenty lines of one's own or five minutes until the outcome of the first task is on the terminal.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.programs import Running

from dynatick_stack.scratch import run_in_scratch

ROOT = Path(__file__).parents[1]
TUTORIAL = ROOT / "docs" / "tutorial.md"
FIRST = "## Five commands"
OWN_FILES = ("handlers.py", "dynatick.toml")  # what init wrote counts as one's own: it is there to be read and changed
MAX_COMMANDS, MAX_LINES, MAX_SECONDS = 5, 20, 300
READY, OUTCOME = r"^Handlers: ", r"^[\d:]{8}  completed +send-reminder +first "
WAIT_SECONDS = 300.0
_OURS = ("AWS_", "DYNATICK_", "MAKE", "PIP_TARGET", "PYTEST_", "PYTHON", "VIRTUAL_ENV")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Counts and times until the outcome of the first task."""

    commands: int
    lines: int
    seconds: float

    @property
    def is_short(self) -> bool:
        return self.commands <= MAX_COMMANDS and self.lines <= MAX_LINES

    @property
    def is_good(self) -> bool:
        """Short, and quick: which says something on a machine that does nothing else only."""
        return self.is_short and self.seconds <= MAX_SECONDS

    def __str__(self) -> str:
        return (
            f"{self.commands} commands (of {MAX_COMMANDS}), {self.lines} lines of one's own (of {MAX_LINES}), "
            f"{self.seconds:.0f} seconds (of {MAX_SECONDS})"
        )


def blocks() -> tuple[list[str], list[str]]:
    """The tutorial's commands until the first outcome, and its later blocks of commands."""
    before, _, after = TUTORIAL.read_text(encoding="utf-8").partition(FIRST)
    first, _, later = after.partition("\n## ")
    assert first and "```sh" not in before
    return [line for block in _of_shell(first) for line in block.splitlines()], _of_shell(later)


def _of_shell(text: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def walk(folder: Path, say: Callable[[str], object], *, to_the_end: bool = False) -> Measured:
    """Works through the tutorial in a new folder. ``to_the_end``: its later blocks, too. Raises
    CalledProcessError or AssertionError."""
    project = folder / "reminders"
    project.mkdir(parents=True)
    wheel = build_wheel(folder / "dist")
    shutil.copy(wheel, project)
    environment = environment_without_checkout(folder)
    commands, later = blocks()
    began = time.monotonic()
    (dev,) = [command for command in commands if command.endswith("dynatick dev")]
    at = commands.index(dev)
    for command in commands[:at]:
        run(command, project, environment, say)
    say(f"$ {dev}")
    running = Running("bash", "-c", f"exec {dev}", cwd=project, environ=environment, say=lambda line: say(f"  {line}"))
    try:
        running.shows(READY, within=WAIT_SECONDS)
        for command in commands[at + 1 :]:
            run(command, project, environment, say)
        running.shows(OUTCOME, within=WAIT_SECONDS)
        measured = Measured(commands=len(commands), lines=_lines(project), seconds=time.monotonic() - began)
        for block in later if to_the_end else ():
            run(block, project, environment, say)
    finally:
        running.end(signal.SIGINT)
    return measured


def run(command: str, project: Path, environment: dict[str, str], say: Callable[[str], object]) -> str:
    """Runs a shell's command, and returns what it printed. Raises CalledProcessError."""
    say(f"$ {command}")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=WAIT_SECONDS, check=False,
    )  # fmt: skip
    for line in done.stdout.splitlines():
        say(f"  {line}")
    done.check_returncode()
    return done.stdout


def environment_without_checkout(folder: Path) -> dict[str, str]:
    """Returns an environment without this checkout; its ``python3`` is the interpreter that runs this."""
    programs = folder / "bin"
    programs.mkdir()
    python = programs / "python3"
    python.write_text(f'#!/bin/sh\nexec "{Path(sys.executable).resolve()}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    path = [part for part in os.environ["PATH"].split(os.pathsep) if not Path(part).is_relative_to(ROOT)]
    return kept | {
        "PATH": os.pathsep.join([str(programs), *path]),
        "XDG_CACHE_HOME": str(folder / "cache"),  # pip's too
        "PYTHONUNBUFFERED": "1",
    }


def _lines(project: Path) -> int:
    return sum(bool(line.strip()) for name in OWN_FILES for line in (project / name).read_text("utf-8").splitlines())


def main() -> int:
    return run_in_scratch("newcomer", _measure)


def _measure(folder: Path) -> int:
    def say(text: str) -> None:
        print(text, flush=True)

    try:
        measured = walk(folder, say)
    except (subprocess.CalledProcessError, AssertionError) as error:
        say(f"This failed: {error}")
        return 1
    say(str(measured))
    return 0 if measured.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
