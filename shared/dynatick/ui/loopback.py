"""Which requests a server on loopback answers: those that name this machine, and no changes for pages of others.

For the pages, and for the HTTP API on this machine. A request is an ASGI scope.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HOST = "127.0.0.1"
PORT = 4580
"""The port of the pages, unless another is chosen."""

_HOSTS = (HOST, "localhost")
_READS = ("GET", "HEAD")

Scope = Mapping[str, Any]


def refusal(scope: Scope) -> tuple[int, str] | None:
    """The status and the sentence with which a request is refused; None if it is to be answered."""
    if not _is_meant(scope):
        return 421, "This server answers to 127.0.0.1 and localhost only."
    if _is_foreign(scope):
        return 403, "This server does nothing for pages of other origins."
    return None


def header(scope: Scope, wanted: bytes) -> str:
    """The first of that name; empty if there is none."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name.lower() == wanted), "")


def _is_meant(scope: Scope) -> bool:
    """Whether the request names this machine: another's page could reach it by a name of its own."""
    host = header(scope, b"host")
    return host.rpartition(":")[0] in _HOSTS or host in _HOSTS


def _is_foreign(scope: Scope) -> bool:
    """Whether a page of another origin has sent a request. Browsers say so, in one of two headers; a link that is
    followed to a page of ours may come from anywhere."""
    if scope["method"] in _READS:
        return False
    origin, site = header(scope, b"origin"), header(scope, b"sec-fetch-site")
    return site not in ("", "same-origin", "none") or origin not in ("", f"http://{header(scope, b'host')}")
