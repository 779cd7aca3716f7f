"""Ports that a test must know before a program takes them."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port on loopback where nothing listens, and that only a program which asks for its number can take.

    A socket has it, and does not listen: what sets SO_REUSEADDR, as servers do, may listen there. Systems other than
    Linux refuse that: there it is free, and could be given to another program.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        if sys.platform != "linux":
            holder.close()
        yield port
