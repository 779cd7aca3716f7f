"""Which requests a server on this machine answers: those of its programs, and of its own pages if it has any.

A page that a developer has open may be anybody's, and sends requests to this machine without asking, so browsers say
where a request comes from. For the pages, the HTTP API on this machine, the emulator and test servers. This module
imports nothing of ``dynatick``: the emulator's environment has only this file of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

HOST = "127.0.0.1"
PORT = 4580
"""The port of the pages, unless another is chosen."""

_HOSTS = (HOST, "localhost")
_READS = ("GET", "HEAD")

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]
"""An ASGI application."""


class Loopback:
    """An ASGI application that passes on what ``refusal`` lets pass."""

    def __init__(self, app: Application, *, has_pages: bool = False) -> None:
        self._app = app
        self._has_pages = has_pages

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        refused = None
        if scope["type"] in ("http", "websocket"):
            headers = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
            refused = refusal(scope.get("method", ""), headers, has_pages=self._has_pages)
        if refused is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            status, why = refused
            await _read_body(receive)
            text = f"{why}\n".encode()
            lines = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
            await send({"type": "http.response.start", "status": status, "headers": lines})
            await send({"type": "http.response.body", "body": text})


async def _read_body(receive: Receive) -> None:
    """Reads a body and drops it. Servers close a connection with an unread body, which can take the answer with it."""
    while (await receive()).get("more_body"):
        pass


def refusal(method: str, headers: Iterable[tuple[str, str]], *, has_pages: bool = False) -> tuple[int, str] | None:
    """The status and the sentence with which a request is refused; None if it is to be answered.

    ``has_pages``: the server's own pages may call it, and links may lead to them.
    """
    given: dict[str, str] = {}
    for name, value in headers:
        name = name.lower()
        given[name] = f"{given[name]}, {value}" if name in given else value
    host = given.get("host", "")
    if not _is_loopback(host):
        return 421, "This server answers to 127.0.0.1 and localhost only."
    origin, site = given.get("origin"), given.get("sec-fetch-site", "none")
    if origin is None and site == "none":
        return None
    if has_pages and (_is_own(origin, site, host) or _follows_a_link(method, origin, given)):
        return None
    return 403, "This server does nothing for pages of other origins."


def _is_loopback(host: str) -> bool:
    """Whether a request names this machine: a name of another's could lead here, and make his page one of our origin.
    Browsers look up no name below localhost; the emulator has one for each bucket and API."""
    name = host.lower().partition(":")[0]
    return name in _HOSTS or name.endswith(".localhost")


def _is_own(origin: str | None, site: str, host: str) -> bool:
    return origin in (None, f"http://{host}") and site in ("same-origin", "none")


def _follows_a_link(method: str, origin: str | None, given: dict[str, str]) -> bool:
    """Whether the browser shows the answer as a page of its own, which the page with the link can't read."""
    shown = given.get("sec-fetch-mode") == "navigate" and given.get("sec-fetch-dest") == "document"
    return shown and method in _READS and origin is None
