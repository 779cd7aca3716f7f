"""`python -m dynatick_stack.counting`: serves on a free port of this machine and prints its address.

`GET /counts` returns what was counted so far, `GET /records/TABLE` what the table's stream has brought since the last
time. ``--read-milliseconds 50`` lets each read take that long, as from far away. Ends when its standard input does, so
that it never outlives the process that started it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import socket
import sys
import threading
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import uvicorn

from dynatick.ui.loopback import Loopback, Receive, Send
from dynatick_stack.counting.database import Database
from dynatick_stack.counting.rules import Refused

JSON = b"application/x-amz-json-1.0"
READS = ("GetItem", "BatchGetItem", "TransactGetItems", "Query", "Scan")
TYPE = "com.amazonaws.dynamodb.v20120810#"


class Endpoint:
    """The ASGI application. ``read_seconds``: that each read takes, beside others."""

    def __init__(self, read_seconds: float = 0) -> None:
        self._database = Database()
        self._read_seconds = read_seconds

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        body = b""
        while (event := await receive())["type"] == "http.request":
            body += event.get("body", b"")
            if not event.get("more_body", False):
                break
        target = next((value for name, value in scope["headers"] if name == b"x-amz-target"), b"").decode()
        operation = target.rpartition(".")[2]
        if self._read_seconds and operation in READS:
            await asyncio.sleep(self._read_seconds)
        status, answer = self._answer(operation, scope["path"], body)
        headers = [
            (b"content-type", JSON),
            (b"content-length", str(len(answer)).encode()),
            (b"x-amz-crc32", str(zlib.crc32(answer)).encode()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _answer(self, operation: str, path: str, body: bytes) -> tuple[int, bytes]:
        if not operation:
            table = path.removeprefix("/records/")
            return 200, orjson.dumps(self._database.counts.to_json() if table == path else self._database.taken(table))
        try:
            return 200, orjson.dumps(self._database.call(operation, orjson.loads(body)))
        except Refused as error:
            refusal: dict[str, object] = {"__type": TYPE + error.code, "message": str(error)}
            more = {"Item": error.item, "CancellationReasons": error.reasons}
            return 400, orjson.dumps(refusal | {name: value for name, value in more.items() if value})


def application(read_seconds: float = 0) -> Loopback:
    """An endpoint with no tables."""
    return Loopback(Endpoint(read_seconds))


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m dynatick_stack.counting", description=__doc__)
    parser.add_argument("--read-milliseconds", type=int, default=0)
    given = parser.parse_args(arguments)
    # With its protocol named, for only then asyncio turns Nagle's delays off.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()  # before anyone knows the address: uvicorn does it later
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    gc.disable()  # tables hold millions of objects and no cycles: looking for some would only make pauses
    config = uvicorn.Config(
        application(given.read_milliseconds / 1000),
        http="httptools",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
    )
    uvicorn.Server(config).run(sockets=[listening])


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
