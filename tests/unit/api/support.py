"""A caller of the API in this process: requests as API Gateway hands them on, over the in-memory store."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.builders import FakeClock

from dynatick.actions.testing import MemoryDeadLetterQueue
from dynatick.api import Answer, Api
from dynatick.client import TaskClient
from dynatick.domain.buckets import Grid
from dynatick.domain.normalise import Defaults
from dynatick.engine.settings import publish_settings
from dynatick.store.memory import MemoryStore

ACTIONS = ("log", "webhook")


def event(
    method: str, path: str, body: object = None, *, query: str = "", request_id: str = "request-1", **headers: str
) -> dict[str, Any]:
    """A request in payload format 2.0. ``path`` as the caller writes it; the gateway decodes it twice."""
    made: dict[str, Any] = {
        "version": "2.0", "routeKey": "$default", "rawPath": unquote(unquote(path)).partition("?")[0],
        "rawQueryString": query, "headers": {name.replace("_", "-"): value for name, value in headers.items()},
        "requestContext": {"http": {"method": method, "path": path}, "requestId": request_id, "stage": "$default"},
        "isBase64Encoded": False,
    }  # fmt: skip
    if query:
        made["queryStringParameters"] = {
            name: ",".join(values) for name, values in parse_qs(query, keep_blank_values=True).items()
        }
    if isinstance(body, bytes):
        made |= {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
    elif body is not None:
        made["body"] = body if isinstance(body, str) else json.dumps(body)
        made["headers"] = {"content-type": "application/json"} | made["headers"]
    return made


class Time:
    """A clock that goes on while an answer waits. ``after``: what happens after a given number of waits."""

    def __init__(self) -> None:
        self.now, self.waits, self.after = 0.0, list[float](), dict[int, Callable[[], object]]()

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.waits.append(seconds)
        self.after.get(len(self.waits), lambda: None)()


@dataclass
class Caller:
    """An API with a table of its own, noon its time."""

    store: MemoryStore = field(default_factory=MemoryStore)
    clock: FakeClock = field(default_factory=FakeClock)
    seconds: Callable[[], float] = lambda: 0.0  # no answer runs out of time
    dead_letters: MemoryDeadLetterQueue = field(default_factory=MemoryDeadLetterQueue)
    client: TaskClient = field(init=False)
    api: Api = field(init=False)

    def __post_init__(self) -> None:
        self.client = TaskClient(self.store, clock=self.clock, dead_letter_queue=self.dead_letters)
        self.api = Api(self.client, seconds=self.seconds)

    def publish_settings(self, **grid: int) -> None:
        """Publishes what the first tick publishes."""
        publish_settings(self.store, Grid(**grid), now=self.clock(), actions=ACTIONS, defaults=Defaults())

    def send(self, method: str, path: str, body: object = None, *, query: str = "", **headers: str) -> Answer:
        return self.api.handle(event(method, path, body, query=query, **headers), None)

    def ask(self, method: str, path: str, body: object = None, *, query: str = "", **headers: str) -> Any:
        """The answer's body, of a request that succeeds."""
        answer = self.send(method, path, body, query=query, **headers)
        assert answer.status < 300, answer.response["body"]
        return read(answer)

    def parts(self, path: str, query: str = "", *, start: str | None = None) -> Iterator[Any]:
        """The answers to a request and to to those that go on where it ended: by page, or from a ``start``."""
        by, following = ("pageToken", "nextPageToken") if start is None else ("start", "nextStart")
        at = start or ""
        while at is not None:
            answer = self.ask("GET", path, query="&".join(part for part in (query, at and f"{by}={at}") if part))
            yield answer
            at = answer[following]

    def refused_fields(self, method: str, path: str, body: object = None, **how: Any) -> list[str]:
        """The fields, as pointers or names of parameters, that a request is refused for."""
        return fields(self.refused("invalid-input", method, path, body, **how))

    def refused(self, code: str, method: str, path: str, body: object = None, **how: Any) -> Mapping[str, Any]:
        """The problem that a request is answered with, which must be this one."""
        answer = self.send(method, path, body, **how)
        problem: Mapping[str, Any] = read(answer)
        assert answer.response["headers"]["Content-Type"] == "application/problem+json"
        assert (problem["code"], problem["status"], problem["requestId"]) == (code, answer.status, "request-1")
        assert problem["type"].endswith(code)
        assert answer.response["headers"]["X-Request-Id"] == "request-1"
        return problem


def read(answer: Answer) -> Any:
    return json.loads(answer.response["body"])


def fields(problem: Mapping[str, Any]) -> list[str]:
    return [error.get("pointer") or error["parameter"] for error in problem["errors"]]
