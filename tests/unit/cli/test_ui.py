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


@pytest.mark.parametrize(
    ("options", "environment", "region"),
    [
        (("--region", "eu-west-1"), {"AWS_REGION": "eu-north-1"}, "eu-west-1"),
        ((), {"AWS_REGION": "eu-north-1", "AWS_DEFAULT_REGION": "us-east-2"}, "eu-north-1"),
        ((), {"AWS_DEFAULT_REGION": "us-east-2"}, "us-east-2"),
        (("--profile", "ops"), {}, "eu-central-1"),
        ((), {}, None),
    ],
)  # fmt: skip
def test_the_pages_know_their_region(
    shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: tuple[str, ...],
    environment: dict[str, str], region: str | None,
) -> None:  # fmt: skip
    (tmp_path / "config").write_text("[profile ops]\nregion = eu-central-1\n")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"AWS_CONFIG_FILE": str(tmp_path / "config"), **environment}.items():
        monkeypatch.setenv(name, value)
    served: list[Site] = []
    monkeypatch.setattr(server, "serve", lambda site, port, *, opens, say: served.append(site))
    assert shell("ui", "--table", "t", *options).code == ExitCode.OK
    assert served[0].region == region


def test_a_port_that_is_taken_is_named(shell: Shell, world: InProcess) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = shell("ui", "--table", "t", "--port", str(port), "--no-open")
    assert ended.code == ExitCode.USAGE
    assert f"{port} can't be used" in ended.err and "--port" in ended.err
