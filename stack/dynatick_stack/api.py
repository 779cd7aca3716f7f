"""The HTTP API on this machine, without a gateway: for development, with the document to try it by.

An ASGI application that makes of each request the event that API Gateway would, so that the very function runs that is
deployed. Each of several requests at a time has an ``Api`` of its own, as a process of Lambda has one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import Callable
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, quote, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from dynatick.api import Api
from dynatick.api.document import document
from dynatick.api.requests import MAX_BODY_BYTES
from dynatick.client import TaskClient
from dynatick.ui.loopback import Loopback
from dynatick_stack.emulator import HOST

_ASSETS = files("aws_lambda_powertools.event_handler.openapi.swagger_ui")
_TEXT = ("application/json", "application/xml", "application/javascript")
_PAGE = """\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Dynatick</title><link rel="stylesheet" href="/docs/swagger-ui.css"></head>
<body><div id="ui"></div>
<script src="/docs/swagger-ui.js"></script>
<script src="/docs/start.js"></script>
</body></html>
"""
_START = 'SwaggerUIBundle({url: "/openapi.json", dom_id: "#ui", deepLinking: true, validatorUrl: null})\n'
# Swagger UI sets styles of its own, and draws its icons from data.
_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
}


class Application:
    """The API as an ASGI application, with its document at /openapi.json and Swagger UI at /docs."""

    def __init__(self, client: TaskClient, *, api: Callable[[TaskClient], Api] = Api) -> None:
        self._client = client
        self._make = api
        self._idle: list[Api] = []
        self._guarded = Loopback(self._serve, has_pages=True)
        own = {**document(), "servers": [{"url": "/", "description": "This server"}], "security": []}
        self._pages: dict[str, tuple[str, bytes]] = {
            "/openapi.json": ("application/json", json.dumps(own).encode()),
            "/docs": ("text/html; charset=utf-8", _PAGE.encode()),
            "/docs/swagger-ui.css": ("text/css", _ASSETS.joinpath("swagger-ui.min.css").read_bytes()),
            "/docs/start.js": ("text/javascript", _START.encode()),
            "/docs/swagger-ui.js": ("text/javascript", _ASSETS.joinpath("swagger-ui-bundle.min.js").read_bytes()),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guarded(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            answer = await self._answer(Request(scope, receive))
            await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = request.scope["path"]
        if request.method == "GET" and path == "/":
            return RedirectResponse("/docs")
        if request.method == "GET" and path in self._pages:
            kind, content = self._pages[path]
            return Response(content, media_type=kind, headers=_PAGE_HEADERS)
        event = _event(request, await _body(request))
        api = self._idle.pop() if self._idle else self._make(self._client)
        answer = await asyncio.to_thread(api.handle, event, None)  # raises nothing
        self._idle.append(api)
        return Response(str(answer.response["body"]), answer.status, answer.response["headers"])


def serve(client: TaskClient, port: int, *, log_level: str = "info") -> None:
    """Serves the API on loopback until it is interrupted."""
    import uvicorn

    uvicorn.run(Application(client), host=HOST, port=port, log_level=log_level, server_header=False)


def _event(request: Request, body: bytes) -> dict[str, Any]:
    """What API Gateway hands on (payload format 2.0)."""
    query = request.url.query
    headers = {name: ",".join(request.headers.getlist(name)) for name in request.headers}
    path = _decoded(request.scope.get("raw_path") or quote(request.scope["path"]).encode())
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "http": {"method": request.method, "path": path},
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
        try:
            event["body"] = body.decode() if kind.startswith("text/") or kind in _TEXT else None
        except UnicodeDecodeError:
            event["body"] = None
        if event["body"] is None:
            event |= {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
    return event


def _decoded(raw_path: bytes) -> str:
    """Decodes a path like the gateway: twice, up to a ``?``. What it refuses, keeps its ``%``, and the API refuses
    it."""
    try:
        return unquote_to_bytes(unquote_to_bytes(raw_path)).decode("utf-8").partition("?")[0]
    except UnicodeDecodeError:
        return raw_path.decode("latin-1")


async def _body(request: Request) -> bytes:
    """The body; of one that is too large, only so much that it is too large."""
    body = b""
    async for part in request.stream():
        if len(body) <= MAX_BODY_BYTES:
            body += part
    return body
