"""The server that runs beside another program: `dynatick dev`."""

from __future__ import annotations

import socket
import time
from contextlib import closing

import urllib3
from tests.builders import NOON

from dynatick import MemoryStore, TaskClient
from dynatick.ui.loopback import HOST
from dynatick.ui.server import serve_beside
from dynatick.ui.site import Site


def site(name: str) -> Site:
    return Site(client=TaskClient(MemoryStore(), clock=lambda: NOON), clock=lambda: NOON, name=name)


def page(url: str) -> str:
    """Once the thread has begun to answer: until then a request waits in the listener's queue."""
    return urllib3.request("GET", f"{url}/", timeout=30).data.decode()


def test_it_serves_on_the_port_that_is_wished_and_returns_at_once() -> None:
    with closing(socket.create_server((HOST, 0))) as free:
        port = free.getsockname()[1]
    began = time.monotonic()
    url = serve_beside(site("reminders"), port)
    assert time.monotonic() - began < 5
    assert url == f"http://{HOST}:{port}"
    assert ">reminders<" in page(url)


def test_it_takes_a_free_port_if_another_program_has_the_one_that_is_wished() -> None:
    with closing(socket.create_server((HOST, 0))) as taken:
        url = serve_beside(site("second"), taken.getsockname()[1])
        assert not url.endswith(f":{taken.getsockname()[1]}")
        assert ">second<" in page(url)
