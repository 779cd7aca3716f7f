"""Serves the pages on loopback."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import Callable
from contextlib import closing
from threading import Thread

import uvicorn

from dynatick.errors import ConfigurationError
from dynatick.ui.application import application
from dynatick.ui.loopback import HOST
from dynatick.ui.site import Site

_MAX_HEAD_BYTES = 256 * 1024
"""Of a request: its URL may name the 50 tasks of a page, each by an id of 1,024 bytes, of which each takes three."""


def serve(site: Site, port: int, *, opens: bool, say: Callable[[str], object]) -> None:
    """Serves until it is interrupted. ``opens``: shows the first page in a browser.

    Raises ConfigurationError if the port is taken.
    """
    with closing(_listening(port)) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}/"
        say(f"{site.name} at {url}{' (read-only)' if site.read_only else ''}; Ctrl-C ends it")
        if opens:
            webbrowser.open(url)
        _server(site).run(sockets=[listener])


def serve_beside(site: Site, port: int) -> str:
    """Serves in a thread for as long as the process lives; on a free port if this one is taken. Returns the URL."""
    try:
        listener = _listening(port)
    except ConfigurationError:
        listener = _listening(0)
    Thread(target=_server(site).run, kwargs={"sockets": [listener]}, name="dynatick-ui", daemon=True).start()
    return f"http://{HOST}:{listener.getsockname()[1]}"


def _server(site: Site) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            application(site), log_level="warning", server_header=False, lifespan="off",
            http="h11", h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        )
    )  # fmt: skip


def _listening(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            "port", f"{port} can't be used: {error.strerror}; choose another with --port"
        ) from error
    return listener
