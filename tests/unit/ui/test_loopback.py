"""What servers on this machine answer: its programs, and their own pages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dynatick.ui.loopback import Loopback, refusal

MEANT = [
    "127.0.0.1",
    "127.0.0.1:4566",
    "localhost",
    "LocalHost:4566",
    "files.s3.localhost:4566",
    "a.execute-api.localhost",
]
FOREIGN_HOSTS = [
    "", "evil.example", "evil.example:4566", "127.0.0.1.evil.example:80", "localhost.evil.example", "evillocalhost",
    "localhost.", "[::1]:4566", "0.0.0.0:4566", "127.0.0.1, evil.example", "s3.amazonaws.com",
]  # fmt: skip
FOREIGN = [
    {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": ""}, {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://localhost:4566"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": ""}, {"Origin": "http://127.0.0.1:4566", "Sec-Fetch-Site": "cross-site"},
]  # fmt: skip
OWN = [
    {"Sec-Fetch-Site": "same-origin"}, {"Origin": "http://127.0.0.1:4566"},
    {"Origin": "http://127.0.0.1:4566", "Sec-Fetch-Site": "same-origin"},
]  # fmt: skip
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


def status(method: str, headers: dict[str, str], *, has_pages: bool) -> int:
    refused = refusal(method, {"host": "127.0.0.1:4566", **headers}.items(), has_pages=has_pages)
    return 200 if refused is None else refused[0]


@pytest.mark.parametrize("has_pages", [False, True])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
def test_who_is_answered(method: str, has_pages: bool) -> None:
    for host in MEANT:
        assert status(method, {"host": host}, has_pages=has_pages) == 200, host
    for host in FOREIGN_HOSTS:
        assert status(method, {"host": host}, has_pages=has_pages) == 421, host
    assert status(method, {"Sec-Fetch-Site": "none"}, has_pages=has_pages) == 200
    for headers in FOREIGN:
        assert status(method, headers, has_pages=has_pages) == 403, headers
    for headers in OWN:
        assert status(method, headers, has_pages=has_pages) == (200 if has_pages else 403), headers
    may_follow = has_pages and method in ("GET", "HEAD")
    assert status(method, LINK, has_pages=has_pages) == (200 if may_follow else 403)
    for framed in ({**LINK, "Sec-Fetch-Dest": "iframe"}, {**LINK, "Sec-Fetch-Mode": "no-cors"}):
        assert status(method, framed, has_pages=has_pages) == 403


def test_a_header_that_comes_twice_is_no_way_around() -> None:
    host = ("host", "localhost")
    assert refusal("POST", [host, ("Sec-Fetch-Site", "none"), ("sec-fetch-site", "cross-site")]) is not None
    assert refusal("POST", [host, ("Host", "evil.example")]) is not None


def asked(kind: str, *headers: tuple[bytes, bytes]) -> tuple[list[str], list[dict[str, Any]]]:
    """Which of the application's scopes a request reaches, and what is sent back by the guard."""
    reached: list[str] = []
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["type"])

    async def send(message: Any) -> None:
        sent.append(dict(message))

    parts = [{"type": "http.request", "more_body": True}, {"type": "http.request", "more_body": False}]

    async def receive() -> dict[str, Any]:
        assert not sent, "it answers while the body is still coming"
        return parts.pop(0)

    scope = {"type": kind, "headers": [(b"host", b"127.0.0.1"), *headers]} | (
        {"method": "POST"} if kind == "http" else {}
    )
    asyncio.run(Loopback(app)(scope, receive, send))
    assert parts == [] or kind == "websocket" or reached, "a server may close the connection, and the answer be lost"
    return reached, sent


def test_who_hangs_up_is_not_waited_for() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        """Nobody is there."""

    scope = {"type": "http", "headers": [(b"host", b"evil.example")], "method": "POST"}
    asyncio.run(asyncio.wait_for(Loopback(Loopback)(scope, receive, send), 60))  # type: ignore[arg-type]


def test_what_is_refused_does_not_reach_the_application() -> None:
    foreign = (b"Origin", b"https://evil.example")
    for kind in ("http", "websocket", "lifespan"):
        assert asked(kind) == ([kind], [])
    reached, (start, body) = asked("http", foreign)
    assert reached == [] and start["status"] == 403
    assert not [name for name, _ in start["headers"] if name.startswith(b"access-control")]
    assert body["body"] == b"This server does nothing for pages of other origins.\n"
    assert asked("websocket", foreign) == ([], [{"type": "websocket.close", "code": 1008}])
