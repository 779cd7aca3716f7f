"""`python -m dynatick_stack.counting`: serves on a free port of this machine and prints its address.

Ends when its standard input does, so that it never outlives whoever started it.
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import sys
import threading

import uvicorn

from dynatick_stack.counting.server import Endpoint, InMemory, Upstream


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dynatick_stack.counting", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="a free one, if none is given")
    parser.add_argument("--upstream", metavar="URL", help="ask this endpoint, instead of answering from memory")
    parser.add_argument("--region", default="us-east-1", help="for which requests to --upstream are signed")
    options = parser.parse_args()
    backend = Upstream(options.upstream, options.region) if options.upstream else InMemory()
    # With its protocol named, for only then asyncio turns Nagle's delays off.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", options.port))
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    gc.disable()  # tables hold millions of objects and no cycles: looking for some would only make pauses
    config = uvicorn.Config(
        Endpoint(backend), http="httptools", lifespan="off", log_level="warning", access_log=False, server_header=False
    )
    uvicorn.Server(config).run(sockets=[listening])


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


main()
