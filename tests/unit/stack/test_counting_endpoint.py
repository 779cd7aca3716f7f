"""The endpoint that counts units, as its own process starts it."""

from __future__ import annotations

import gc
import socket
from urllib.parse import urlsplit

import pytest
import uvicorn

from dynatick_stack.counting import __main__ as endpoint


def test_whoever_reads_its_address_can_connect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However long uvicorn takes to begin."""
    connected: list[int] = []

    def has_not_begun(self: uvicorn.Server, sockets: list[socket.socket]) -> None:
        port = urlsplit(capsys.readouterr().out.strip()).port
        assert port is not None
        with socket.create_connection(("127.0.0.1", port), timeout=60):
            connected.append(port)
        for listening in sockets:
            listening.close()

    monkeypatch.setattr(uvicorn.Server, "run", has_not_begun)
    monkeypatch.setattr(endpoint, "_end_with_stdin", lambda: None)
    monkeypatch.setattr(gc, "disable", lambda: None)
    endpoint.main()
    assert connected
