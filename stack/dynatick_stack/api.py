"""The HTTP API on this machine, without a gateway: for development, with the document to try it by.

An ASGI application that makes of each request the event that API Gateway would, so that the very function runs that is
deployed. Each of several requests at a time has an ``Api`` of its own, as a process of Lambda has one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, quote, unquote_to_bytes

from dynatick.api import Api
from dynatick.api.document import document
from dynatick.api.requests import MAX_BODY_BYTES
from dynatick.client import TaskClient
from dynatick.ui.loopback import refusal
from dynatick_stack.emulator import HOST

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_ASSETS = files("aws_lambda_powertools.event_handler.openapi.swagger_ui")
_TEXT = ("application/json", "application/xml", "application/javascript")
_PAGE = """\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Dynatick</title><link rel="stylesheet" href="/docs/swagger-ui.css"></head>
<body><div id="ui"></div>
<script src="/docs/swagger-ui.js"></script>
<script>SwaggerUIBundle({url: "/openapi.json", dom_id: "#ui", deepLinking: true, validatorUrl: null})</script>
</body></html>
"""


class Application:
    """The API as an ASGI application, with its document at /openapi.json and Swagger UI at /docs."""

    def __init__(self, client: TaskClient) -> None:
        self._client = client
        self._idle: list[Api] = []
        own = {**document(), "servers": [{"url": "/", "description": "This server"}], "security": []}
        self._pages: dict[str, tuple[str, bytes]] = {
            "/openapi.json": ("application/json", json.dumps(own).encode()),
            "/docs": ("text/html; charset=utf-8", _PAGE.encode()),
            "/docs/swagger-ui.css": ("text/css", _ASSETS.joinpath("swagger-ui.min.css").read_bytes()),
            "/docs/swagger-ui.js": ("text/javascript", _ASSETS.joinpath("swagger-ui-bundle.min.js").read_bytes()),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            status, headers, body = await self._answer(scope, receive)
            coded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
            await send({"type": "http.response.start", "status": status, "headers": coded})
            await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, dict[str, str], bytes]:
        refused = refusal(scope)
        if refused is not None:
            status, why = refused
            return status, {"Content-Type": "text/plain"}, f"{why}\n".encode()
        if scope["path"] == "/" and scope["method"] == "GET":
            return 307, {"Location": "/docs"}, b""
        page = self._pages.get(scope["path"])
        if page is not None and scope["method"] == "GET":
            return 200, {"Content-Type": page[0]}, page[1]
        event = _event(scope, await _body(receive))
        api = self._idle.pop() if self._idle else Api(self._client)
        answer = await asyncio.to_thread(api.handle, event, None)  # raises nothing
        self._idle.append(api)
        return answer.status, answer.response["headers"], str(answer.response["body"]).encode()


def serve(client: TaskClient, port: int, *, log_level: str = "info") -> None:
    """Serves the API on loopback until it is interrupted."""
    import uvicorn

    uvicorn.run(Application(client), host=HOST, port=port, log_level=log_level, server_header=False)


def _event(scope: Scope, body: bytes) -> dict[str, Any]:
    """What API Gateway hands on (payload format 2.0)."""
    query = scope.get("query_string", b"").decode("latin-1")
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]},{text}" if key in headers else text
    path = _decoded(scope.get("raw_path") or quote(scope["path"]).encode())
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "http": {"method": scope["method"], "path": path},
            "requestId": str(uuid.uuid4()),
            "stage": "$default",
        },
        "isBase64Encoded": False,
    }
    if query:
        parsed = parse_qs(query, keep_blank_values=True)
        event["queryStringParameters"] = {name: ",".join(values) for name, values in parsed.items()}
    if body:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        as_text = (kind.startswith("text/") or kind in _TEXT) and _is_utf8(body)
        event["body"] = body.decode() if as_text else base64.b64encode(body).decode()
        event["isBase64Encoded"] = not as_text
    return event


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decoded(raw_path: bytes) -> str:
    """As the gateway decodes a path: twice, up to a ``?``. What it refuses, keeps its ``%``, and the API refuses it."""
    try:
        return unquote_to_bytes(unquote_to_bytes(raw_path)).decode("utf-8").partition("?")[0]
    except UnicodeDecodeError:
        return raw_path.decode("latin-1")


async def _body(receive: Receive) -> bytes:
    """The body; of one that is too large, only so much that it is too large."""
    body = b""
    while True:
        message = await receive()
        if len(body) <= MAX_BODY_BYTES:
            body += message.get("body", b"")
        if not message.get("more_body", False):
            return body


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
