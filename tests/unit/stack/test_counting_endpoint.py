"""The endpoint that counts units, as its own process starts it."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import MutableMapping
from typing import Any
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


def test_from_far_away_each_read_takes_its_time_and_no_write_does(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    answers: list[MutableMapping[str, Any]] = []

    async def note(seconds: float) -> None:
        waited.append(seconds)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: MutableMapping[str, Any]) -> None:
        answers.append(message)

    def call(of: endpoint.Endpoint, operation: str) -> list[float]:
        waited.clear()
        headers = [(b"x-amz-target", f"DynamoDB_20120810.{operation}".encode())]
        asyncio.run(of({"type": "http", "path": "/", "headers": headers}, receive, send))
        return list(waited)

    monkeypatch.setattr(endpoint.asyncio, "sleep", note)
    monkeypatch.setattr(endpoint.Database, "call", lambda self, operation, given: {})
    far, near = endpoint.Endpoint(0.05), endpoint.Endpoint()
    assert [call(far, name) for name in ("Query", "GetItem", "BatchGetItem")] == [[0.05]] * 3
    assert call(far, "PutItem") == call(far, "UpdateItem") == call(near, "Query") == []
    assert [one["status"] for one in answers if "status" in one] == [200] * 6
