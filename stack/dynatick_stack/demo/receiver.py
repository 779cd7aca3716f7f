"""A webhook receiver on loopback: answers as the path says, and keeps what came."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

from dynatick.ui.loopback import HOST, refusal


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request that came."""

    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    at: datetime
    method: str = "POST"

    @property
    def task_id(self) -> str:
        return unquote(self.headers.get("x-dynatick-task-id", ""))

    @property
    def attempt(self) -> str:
        return self.headers.get("x-dynatick-attempt", "")

    @property
    def key(self) -> str:
        return self.headers.get("idempotency-key", "")


Answer = int | tuple[int, Mapping[str, str]]
"""A status, or one with headers."""


def answer(call: Call, earlier: int) -> Answer:
    """The status to answer with. ``earlier``: how many calls with the same idempotency key came before."""
    match call.path.split("/")[1]:
        case "broken":
            return 500
        case "gone":
            return 410
        case "flaky" if earlier == 0:
            return 503
        case _:
            return 204


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # many tasks call at the same moment


class Receiver:
    """Listens from construction to ``close``, on a port of its own."""

    def __init__(self, answers: Callable[[Call, int], Answer] = answer) -> None:
        self._answers = answers
        self._calls: list[Call] = []
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if refused := refusal(self.command, self.headers.items()):
                    self.send_error(*refused)
                    return
                headers = {name.lower(): value for name, value in self.headers.items()}
                call = Call(path=self.path, headers=headers, body=body, at=datetime.now(UTC), method=self.command)
                answered = receiver._receive(call)
                status, more = (answered, {}) if isinstance(answered, int) else answered
                self.send_response(status)
                for name, value in {"Content-Length": "0", **more}.items():
                    self.send_header(name, value)
                self.end_headers()

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET = _answer

            def log_message(self, format: str, *args: Any) -> None:
                """What came is shown as a table, not as lines."""

        # The address in figures: a name would be looked up, and might not mean this machine.
        self._server = _Server((HOST, 0), Handler)
        self.url = f"http://{HOST}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()

    @property
    def calls(self) -> list[Call]:
        """What came so far, in order."""
        with self._lock:
            return list(self._calls)

    def of(self, task_id: str) -> list[Call]:
        return [call for call in self.calls if call.task_id == task_id]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self, call: Call) -> Answer:
        with self._lock:
            earlier = sum(1 for one in self._calls if one.key == call.key)
            self._calls.append(call)
        return self._answers(call, earlier)
