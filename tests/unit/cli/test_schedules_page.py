"""What docs/schedules.md shows of ``dynatick expr``: each command, to the letter."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.unit.cli.conftest import Shell

PAGE = Path(__file__).parents[3] / "docs" / "schedules.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_commands_say_what_the_page_shows(shell: Shell) -> None:
    commands = "".join(BLOCK.findall(PAGE.read_text(encoding="utf-8"))).split("$ dynatick ")[1:]
    assert len(commands) >= 4
    for command, *said in (text.splitlines() for text in commands):
        ended = shell(*shlex.split(command))
        assert [line.rstrip() for line in (ended.out + ended.err).splitlines()] == said, command
