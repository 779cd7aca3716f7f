"""The endpoint over HTTP: an ASGI application that answers from memory, or asks another endpoint, and counts."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol

import orjson
import urllib3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.session import Session

from dynatick_stack.counting.counts import Counts, is_read
from dynatick_stack.counting.errors import Refused
from dynatick_stack.counting.operations import Database

JSON = "application/x-amz-json-1.0"
EXAMPLES = 1000
TYPE = "com.amazonaws.dynamodb.v20120810#"

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Backend(Protocol):
    """What answers requests."""

    async def answer(self, target: str, request: dict[str, Any]) -> tuple[int, bytes, Mapping[str, Any], float]:
        """Status, body, the body understood, and units that the body does not tell of."""


class InMemory:
    """Answers from tables in this process."""

    def __init__(self) -> None:
        self._database = Database()

    async def answer(self, target: str, request: dict[str, Any]) -> tuple[int, bytes, Mapping[str, Any], float]:
        try:
            answer = self._database.call(target.rpartition(".")[2], request)
            return 200, orjson.dumps(answer), answer, 0
        except Refused as error:
            refusal: dict[str, Any] = {"__type": TYPE + error.code, "message": str(error)}
            if error.item is not None:
                refusal["Item"] = error.item
            return 400, orjson.dumps(refusal), refusal, error.units


class Upstream:
    """Asks another endpoint, in the caller's stead: the request is changed, so it is signed afresh."""

    def __init__(self, url: str, region: str) -> None:
        self._url, self._region = url.rstrip("/") + "/", region
        self._pool = urllib3.PoolManager(maxsize=64, retries=False)
        self._credentials = Session().get_credentials()

    async def answer(self, target: str, request: dict[str, Any]) -> tuple[int, bytes, Mapping[str, Any], float]:
        return await asyncio.to_thread(self._ask, target, request)

    def _ask(self, target: str, request: dict[str, Any]) -> tuple[int, bytes, Mapping[str, Any], float]:
        headers = {"Content-Type": JSON, "X-Amz-Target": target}
        signed = AWSRequest("POST", self._url, data=orjson.dumps(request), headers=headers)
        service = "dynamodb"
        assert self._credentials is not None, "there are no AWS credentials"
        SigV4Auth(self._credentials, service, self._region).add_auth(signed)
        answer = self._pool.request("POST", self._url, body=signed.data, headers=dict(signed.headers))
        understood = orjson.loads(answer.data)
        # An error does not tell what it cost: at least one unit, if it was a condition that did not hold.
        failed = str(understood.get("__type", "")).endswith("ConditionalCheckFailedException")
        return answer.status, answer.data, understood, float(failed)


class Endpoint:
    """The application. ``GET /counts`` tells what was counted so far, this process's CPU seconds, and each kind of
    PartiQL statement that came, with the latest example of it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._counts = Counts({})
        self._examples: dict[str, Mapping[str, Any]] = {}

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        body = b""
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            body += event.get("body", b"")
            if not event.get("more_body", False):
                break
        if scope["method"] == "GET":
            told = {"counts": self._counts.to_json(), "cpu_seconds": time.process_time()}
            told["examples"] = list(self._examples.values())
            await _respond(send, 200, orjson.dumps(told))
            return
        target = next((value for name, value in scope["headers"] if name == b"x-amz-target"), b"").decode()
        request = orjson.loads(body)
        operation = target.rpartition(".")[2]
        counted = is_read(operation, request) is not None
        if counted:
            request["ReturnConsumedCapacity"] = "INDEXES"
        status, answer, understood, units = await self._backend.answer(target, request)
        if counted:
            for statement in request.get("Statements", ())[:1]:
                if statement["Statement"] in self._examples or len(self._examples) < EXAMPLES:
                    self._examples[statement["Statement"]] = statement
            self._counts.note(operation, request, understood, len(body), len(answer), units)
        await _respond(send, status, answer)


async def _respond(send: Send, status: int, body: bytes) -> None:
    headers = [
        (b"content-type", JSON.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"x-amz-crc32", str(zlib.crc32(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
