"""The server of the pages: in the foreground, and beside another program such as `dynatick dev`."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing

import pytest
import urllib3
import uvicorn
from tests.builders import NOON

from dynatick import MemoryStore, TaskClient
from dynatick.ui import server
from dynatick.ui.loopback import HOST
from dynatick.ui.site import Site


def site(name: str) -> Site:
    return Site(client=TaskClient(MemoryStore(), clock=lambda: NOON), clock=lambda: NOON, name=name)


def page(url: str) -> str:
    """Once the thread has begun to answer: until then a request waits in the listener's queue."""
    return urllib3.request("GET", url, timeout=30).data.decode()


def test_it_listens_on_loopback_and_opens_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, lines, up = list[str](), list[str](), threading.Event()
    servers: list[uvicorn.Server] = []

    class Noted(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            servers.append(self)
            up.set()

    monkeypatch.setattr(server.uvicorn, "Server", Noted)
    monkeypatch.setattr(server.webbrowser, "open", opened.append)
    options = {"opens": True, "say": lines.append}
    thread = threading.Thread(target=server.serve, args=(site("first"), 0), kwargs=options)
    thread.start()
    assert up.wait(20)
    (url,) = opened
    assert url.startswith(f"http://{HOST}:") and url in lines[0]
    assert ">first<" in page(url)
    assert {one.getsockname()[0] for one in servers[0].servers[0].sockets} == {HOST}
    servers[0].should_exit = True
    thread.join(20)
    assert not thread.is_alive()


def test_beside_another_program_it_returns_at_once_and_takes_the_port_or_a_free_one() -> None:
    with closing(socket.create_server((HOST, 0))) as free:
        port = free.getsockname()[1]
    began = time.monotonic()
    url = server.serve_beside(site("second"), port)
    assert time.monotonic() - began < 5
    assert url == f"http://{HOST}:{port}"
    other = server.serve_beside(site("third"), port)
    assert other != url
    assert ">second<" in page(f"{url}/") and ">third<" in page(f"{other}/")
