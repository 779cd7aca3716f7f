"""What docs/schedules.md shows of ``dynatick expr``: each command, to the letter."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Shell

PAGE = Path(__file__).parents[3] / "docs" / "schedules.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown() -> list[tuple[str, list[str]]]:
    """Each command with the lines that follow it."""
    found: list[tuple[str, list[str]]] = []
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ dynatick "), []))
            else:
                found[-1][1].append(line)
    return found


@pytest.mark.parametrize(("command", "said"), shown(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_command_says_what_the_page_shows(shell: Shell, command: str, said: list[str]) -> None:
    ended = shell(*shlex.split(command))
    assert [line.rstrip() for line in (ended.out + ended.err).splitlines()] == said


def test_there_are_some() -> None:
    assert len(shown()) >= 4
