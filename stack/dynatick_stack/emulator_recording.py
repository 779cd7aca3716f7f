"""Runs inside the emulator: records the requests that reach its tables and queues, and which invocation sent each.

The emulator gives each invocation a trace id, as Lambda does for X-Ray, and the SDK of the function sends it along. A
recording is JSON lines: an invocation or an action begins or ends, or a request was answered, with payloads as sent.
``python -m tests.deployed_trace`` of a clone makes the trace of it that docs/proof.md describes.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from ministack.core import lambda_runtime
from ministack.services import dynamodb, sqs

SETTINGS = ("DYNATICK_TABLE", "DYNATICK_DEAD_LETTER_QUEUE_URL", "DYNATICK_KEY_LIMITS", "DYNATICK_ACTION_RATE_LIMITS")
LEFT_OUT = ("BatchGet", "Describe", "Get", "List", "Receive")  # operations: what they read is in no trace
TRACE_ID = "x-amzn-trace-id"
EXECUTIONS = "/_dynatick/execution"  # where worker_recording.py says what it sees
IN_WORKER = Path(__file__).with_name("worker_recording.py")


class Recording:
    def __init__(self, path: str) -> None:
        self._file = Path(path).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115 - while it runs
        self._lock = threading.Lock()
        self._last = 0.0

    def note(self, **line: Any) -> None:
        with self._lock:
            self._last = max(self._last, time.time())  # it does not go back, whatever the machine's clock does
            self._file.write(json.dumps({"at": self._last, **line}) + "\n")

    def over(self, service: Any) -> None:
        """Records the requests of a service. DynamoDB's are carried out one after the other, in the order of lines."""
        real = service.handle_request

        async def recorded(method: str, path: str, headers: dict[str, str], body: bytes, query: Any) -> Any:
            operation = headers.get("x-amz-target", "").rpartition(".")[2]
            answered = await real(method, path, headers, body, query)
            if operation and not operation.startswith(LEFT_OUT):
                status, _, content = answered
                self.note(
                    by=headers.get(TRACE_ID),
                    operation=operation,
                    body=json.loads(body or b"{}"),
                    status=status,
                    answer=json.loads(content or b"{}"),
                )
            return answered

        service.handle_request = recorded

    def over_invocations(self) -> None:
        real = lambda_runtime.Worker.invoke

        def recorded(worker: Any, event: Any, request_id: str, *, trace_id: str | None = None, **more: Any) -> Any:
            lambda_runtime.ensure_spawned(worker)  # the function's time begins when its process is there
            number = trace_id or _trace_id()
            settings = (worker.config.get("Environment") or {}).get("Variables") or {}
            self.note(
                invocation=number,
                service=settings.get("POWERTOOLS_SERVICE_NAME", ""),
                environment=worker._proc.pid,
                until=time.time() + float(worker.config.get("Timeout", 30)),
                event=event,
                settings={name: settings.get(name, "") for name in SETTINGS},
            )
            answered: dict[str, Any] = {}
            try:
                answered = real(worker, event, request_id, trace_id=number, **more)
                return answered
            finally:
                # The emulator ends the process of an invocation that failed.
                self.note(ended=number, died=answered.get("status") != "ok")

        lambda_runtime.Worker.invoke = recorded

    def over_executions(self, app: Any) -> Any:
        """The ASGI application of the emulator, that records what its workers tell."""
        before = f"import runpy\nrunpy.run_path({str(IN_WORKER)!r})['record_executions']()\n"
        lambda_runtime._PYTHON_WORKER_SCRIPT = before + lambda_runtime._PYTHON_WORKER_SCRIPT

        async def recorded(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http" or scope["path"] != EXECUTIONS:
                await app(scope, receive, send)
                return
            body, more = b"", True
            while more:
                message = await receive()
                body, more = body + message.get("body", b""), message.get("more_body", False)
            self.note(**json.loads(body))
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        return recorded


def _trace_id() -> str:
    return f"Root=1-{int(time.time()):08x}-{uuid.uuid4().hex[:24]};Parent={uuid.uuid4().hex[:16]};Sampled=0"


def record(app: Any, path: str) -> Any:
    """Records all that happens from now on into this file. Returns the emulator's application to serve instead."""
    recording = Recording(path)
    recording.over(dynamodb)
    recording.over(sqs)
    recording.over_invocations()
    return recording.over_executions(app)
