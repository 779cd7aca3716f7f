"""Tasks, contexts and servers for the tests of the actions."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from types import ModuleType, SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError, ConnectTimeoutError

from dynatick.actions.registry import Registry
from dynatick.domain.buckets import Bucket
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext

NOW = datetime(2026, 12, 31, 12, 0, 7, tzinfo=UTC)

ARN = "arn:aws:{}:eu-west-1:123456789012:{}"
PAYLOADS: dict[str, dict[str, Any]] = {  # one that each built-in action can use
    "eventbridge": {"eventBusArn": ARN.format("events", "event-bus/orders")},
    "lambda": {"functionArn": ARN.format("lambda", "function:report")},
    "sns": {"topicArn": ARN.format("sns", "reminders"), "message": "It is time"},
    "sqs": {"queueArn": ARN.format("sqs", "orders"), "message": {"n": 1}},
    "stepfunctions": {"stateMachineArn": ARN.format("states", "stateMachine:onboarding")},
    "webhook": {"url": "https://example.com/hook"},
}
SDK_ERRORS = [ClientError({"Error": {"Code": "Throttled"}}, "SendMessageBatch"), ConnectTimeoutError(endpoint_url="x")]


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def a_task(payload: Mapping[str, object] | None = None, **values: Any) -> Task:
    known = {
        "task_id": "t-1", "bucket": Bucket.parse("2026-12-31#12:00"), "action": "log",
        "due_at": datetime(2026, 12, 31, 11, 59, 30, tzinfo=UTC), "payload": payload or {}, "attempt": 1,
    }  # fmt: skip
    return Task(**{**known, **values})


def a_context(task: Task | None = None, **values: Any) -> ActionContext:
    task = task or a_task()
    known = {
        "attempt": task.attempt, "run": task.run, "due_at": task.due_at, "idempotency_key": task.idempotency_key,
        "deadline": NOW + timedelta(seconds=60), "schedule_id": task.schedule_id,
    }  # fmt: skip
    return ActionContext(**{**known, **values})


def run(actions: Registry, action: str, payload: Any = None, **values: Any) -> Any:
    task = a_task(payload, action=action, **values)
    return actions.run(task, a_context(task))


def a_module(text: str, **names: object) -> ModuleType:
    """A module of this text, which has ``names`` as if they were imported."""
    module = ModuleType("handlers_of_a_test")
    vars(module).update(names)
    exec(text, vars(module))
    return module


class SecretValues:
    """A client of SSM and of Secrets Manager, with these values."""

    meta = SimpleNamespace(events=SimpleNamespace(register=lambda *_: None))

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    def get_parameter(self, Name: str, WithDecryption: bool) -> dict[str, Any]:
        assert WithDecryption
        return {"Parameter": {"Value": self.values[Name]}}

    def get_secret_value(self, SecretId: str) -> dict[str, Any]:
        return {"SecretString": self.values[SecretId]}


class Sqs:
    """A client whose answers ``judge(body)`` decides: "ok", "fault", "busy" or "lost"."""

    def __init__(self, judge: Callable[[Any], str] = lambda body: "ok") -> None:
        self.judge = judge
        self.calls: list[list[dict[str, Any]]] = []
        self.taken: list[Any] = []  # bodies

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        assert QueueUrl == "https://sqs.example/1/own"
        self.calls.append(Entries)
        answer: dict[str, Any] = {"Successful": [], "Failed": []}
        for entry in Entries:
            body = json.loads(entry["MessageBody"])
            verdict = self.judge(body)
            if verdict == "ok":
                self.taken.append(body)
                answer["Successful"].append({"Id": entry["Id"]})
            elif verdict != "lost":
                answer["Failed"].append({"Id": entry["Id"], "SenderFault": verdict == "fault", "Code": "X"})
        return {name: entries for name, entries in answer.items() if entries}


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes


@dataclass
class Server:
    """A web server on the loopback that answers as its attributes say and remembers what it was asked."""

    port: int = 0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    requests: list[Request] = field(default_factory=list)
    connections: set[tuple[str, int]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


@contextmanager
def a_server(tls: SSLContext | None = None) -> Iterator[Server]:
    running = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body are two writes

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            sent = {name.lower(): value for name, value in self.headers.items()}
            running.requests.append(Request(self.command, self.path, sent, body))
            running.connections.add(self.client_address)
            self.send_response(running.status)
            for name, value in {"Content-Length": str(len(running.body)), **running.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(running.body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        request_queue_size = 128

        def handle_error(self, *_: object) -> None:
            pass  # a client that goes away is what some tests are about

    server = Quiet(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    running.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def a_rude_server(behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that calls ``behave`` with each connection; yields its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(5)
                with suppress(OSError):  # the client has had enough
                    behave(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
    finally:
        over.set()
        thread.join()
        listener.close()


def a_webhook(**options: Any) -> Any:
    """The action, with no secrets to read."""
    from dynatick.actions.secret import Secrets
    from dynatick.actions.webhook import Webhook
    from dynatick.actions.webhook_url import Hosts

    known = {"clock": lambda: NOW, "hosts": Hosts(), "secrets": Secrets(clients=lambda service: None)}
    return Webhook(**{**known, **options})
