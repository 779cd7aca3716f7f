"""``dynatick ui``: what it serves, and where. The commands of docs/how-to/dashboard.md are run, without a browser."""

from __future__ import annotations

import re
import shlex
import socket
import threading
from pathlib import Path

import pytest
import urllib3
import uvicorn
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell

from dynatick import TaskClient
from dynatick.cli.exit_code import ExitCode
from dynatick.cli.session import Session
from dynatick.ui import server
from dynatick.ui.loopback import HOST
from dynatick.ui.site import Site

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "dashboard.md"
COMMANDS = re.findall(r"^dynatick (ui .*?)(?:\s+#.*)?$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Site, int, bool]]:
    """What would be served: site, port, and whether a browser is opened."""
    found: list[tuple[Site, int, bool]] = []
    monkeypatch.setattr(server, "serve", lambda site, port, *, opens, say: found.append((site, port, opens)))
    return found


def test_the_commands_of_the_page(
    shell: Shell, world: InProcess, served: list[tuple[Site, int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "_table", lambda session: "the-table")
    assert len(COMMANDS) == 2
    for command in COMMANDS:
        assert shell(*shlex.split(command)).code == ExitCode.OK
        site, port, opens = served.pop()
        assert (port, opens, site.read_only) == (4580, True, False)
        assert site.name == ("reminders" if "--stack" in command else "the-table")


def test_its_options(shell: Shell, world: InProcess, served: list[tuple[Site, int, bool]]) -> None:
    assert shell("ui", "--table", "t", "--port", "0", "--read-only", "--no-open").code == ExitCode.OK
    ((site, port, opens),) = served
    assert (site.name, site.read_only, port, opens) == ("t", True, 0, False)


def test_a_port_that_is_taken_is_named(shell: Shell, world: InProcess) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = shell("ui", "--table", "t", "--port", str(port), "--no-open")
    assert ended.code == ExitCode.USAGE
    assert f"{port} can't be used" in ended.err and "--port" in ended.err


def test_it_listens_on_loopback_and_opens_its_address(monkeypatch: pytest.MonkeyPatch, world: InProcess) -> None:
    opened: list[str] = []
    said: list[str] = []
    servers: list[uvicorn.Server] = []
    up = threading.Event()

    class Kept(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            servers.append(self)
            up.set()

    monkeypatch.setattr(server.uvicorn, "Server", Kept)
    monkeypatch.setattr(server.webbrowser, "open", opened.append)
    site = Site(client=TaskClient(world.store, clock=world.clock), clock=world.clock, name="t")
    thread = threading.Thread(target=server.serve, args=(site, 0), kwargs={"opens": True, "say": said.append})
    thread.start()
    assert up.wait(20)
    (url,) = opened
    assert url.startswith(f"http://{HOST}:") and url in said[0]
    assert urllib3.request("GET", url).status == 200
    assert {one.getsockname()[0] for one in servers[0].servers[0].sockets} == {HOST}
    servers[0].should_exit = True
    thread.join(20)
    assert not thread.is_alive()
