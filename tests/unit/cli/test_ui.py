"""``dynatick ui``: what it serves, and where. The commands of docs/how-to/dashboard.md are run, without a browser."""

from __future__ import annotations

import re
import shlex
import socket
from pathlib import Path

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell

from dynatick.cli.exit_code import ExitCode
from dynatick.cli.session import Session
from dynatick.ui import server
from dynatick.ui.loopback import HOST
from dynatick.ui.site import Site

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "dashboard.md"
COMMANDS = re.findall(r"^dynatick (ui .*?)(?:\s+#.*)?$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_commands_and_options_of_the_page(shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[Site, int, bool]] = []  # the port, and whether a browser is opened
    monkeypatch.setattr(server, "serve", lambda site, port, *, opens, say: served.append((site, port, opens)))
    assert shell("ui", "--table", "t", "--port", "0", "--read-only", "--no-open").code == ExitCode.OK
    monkeypatch.setattr(Session, "_table", lambda session: "the-table")
    assert len(COMMANDS) == 2
    for command in COMMANDS:
        assert shell(*shlex.split(command)).code == ExitCode.OK
    found = [(site.name, site.read_only, port, opens) for site, port, opens in served]
    assert found[0] == ("t", True, 0, False)
    names = ["reminders" if "--stack" in command else "the-table" for command in COMMANDS]
    assert found[1:] == [(name, False, 4580, True) for name in names]


def test_a_port_that_is_taken_is_named(shell: Shell, world: InProcess) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = shell("ui", "--table", "t", "--port", str(port), "--no-open")
    assert ended.code == ExitCode.USAGE
    assert f"{port} can't be used" in ended.err and "--port" in ended.err
