"""The pages as an ASGI application."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dynatick.errors import (
    DynatickError,
    InvalidInput,
    StoreError,
    TaskChanged,
    TaskExists,
    TaskNotFound,
    TransitionRefused,
)
from dynatick.ui import (
    actions,
    batches,
    changes,
    failures,
    links,
    now,
    schedules,
    search,
    selected,
    task,
    tasks,
    ticks,
    timeline,
)
from dynatick.ui.frozen import frozen
from dynatick.ui.loopback import Loopback
from dynatick.ui.site import Site, site_of
from dynatick.ui.trouble import trouble_of
from dynatick.ui.zone import PARAMETER, parameters, zone

_OWN_PAGE = re.compile(r"/(?!/)[^\\\s]*", re.ASCII)

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not no-referrer: with that, browsers name no origin for a form of ours.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def application(site: Site) -> Starlette:
    """The pages of a site. Safe for many requests at a time."""
    app = Starlette(
        routes=[
            *now.ROUTES,
            *timeline.ROUTES,
            *failures.ROUTES,
            *actions.ROUTES,
            *search.ROUTES,
            *selected.ROUTES,
            *tasks.ROUTES,
            *task.ROUTES,
            *batches.ROUTES,
            *schedules.ROUTES,
            *ticks.ROUTES,
            *changes.ROUTES,
            Route("/link", _link),
            Route("/static/{version}/{name}", _asset),
            Route("/favicon.ico", _icon),
        ],
        middleware=[
            Middleware(_Guarded),
            Middleware(Loopback, has_pages=True),
            Middleware(GZipMiddleware, minimum_size=1000),
            Middleware(_AsAddressed),
        ],
        exception_handlers={DynatickError: _problem, HTTPException: _http_problem},  # type: ignore[dict-item]
    )
    app.state.site = site
    return app


class _Guarded:
    """Adds the headers that guard the pages."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower().encode(): value.encode() for name, value in _HEADERS.items()}
                given = {name for name, _ in message["headers"]}
                own.setdefault(b"cache-control", b"no-store")
                message["headers"] = [*message["headers"], *((n, v) for n, v in own.items() if n not in given)]
            await send(message)

        # Routes match the path as it was sent, so that an id may contain a slash.
        raw = scope.get("raw_path")
        await self._app({**scope, "path": raw.decode("ascii", "replace")} if raw else scope, receive, guarded)


class _AsAddressed:
    """Answers in the zone that the URL names, and leads on with it; and nothing to a URL of another installation."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)

        async def keeping(message: Message) -> None:
            if message["type"] == "http.response.start" and parameters():
                message["headers"] = [(name, _kept(name, value)) for name, value in message["headers"]]
            await send(message)

        try:
            with zone(request.query_params.get(PARAMETER)):
                asked = request.query_params
                wanted = {name: asked[name] for name in links.INSTALLATION if asked.get(name)}
                other = await run_in_threadpool(site_of(request).other, request, wanted) if wanted else None
                await (other or self._app)(scope, receive, keeping)
        except InvalidInput as error:  # the name of the zone: others are answered further in
            await _problem(request, error)(scope, receive, send)


def _kept(name: bytes, value: bytes) -> bytes:
    if name.lower() != b"location" or not value.startswith(b"/"):
        return value
    return links.with_missing(value.decode("ascii"), parameters()).encode("ascii")


def _link(request: Request) -> Response:
    """Leads to the address of what a page shows now; ``of``: the page's own. As text, if that is wanted."""
    site = site_of(request)
    page = request.query_params.get("of", "")
    if _OWN_PAGE.fullmatch(page) is None:
        raise HTTPException(404)
    path, _, asked = page.partition("?")
    pairs = parse_qsl(asked)
    is_plain = len(dict(pairs)) == len(pairs)  # not the rows that are selected
    address = frozen(path, dict(pairs), site.clock()) if is_plain else page
    address = links.with_missing(address, {**site.installation(), **parameters()})
    if request.headers.get("accept") == "text/plain":
        return PlainTextResponse(address)
    return RedirectResponse(address, 303)


def _asset(request: Request) -> Response:
    asset = site_of(request).assets.get(request.path_params["name"])
    if asset is None or asset.url != request.url.path:
        raise HTTPException(404)
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(asset.content, media_type=asset.kind, headers=kept)


def _icon(request: Request) -> Response:
    icon = site_of(request).assets["icon.svg"]
    return Response(icon.content, media_type=icon.kind)


def _problem(request: Request, error: DynatickError) -> Response:
    site = site_of(request)
    if isinstance(error, StoreError) and request.method in ("GET", "HEAD"):
        return site.trouble(request, status_of(error), trouble_of(error, site.access))
    return site.problem(request, status_of(error), str(error))


def _http_problem(request: Request, error: HTTPException) -> Response:
    text = "There is no such page." if error.status_code == 404 else error.detail
    return site_of(request).problem(request, error.status_code, text)


def status_of(error: DynatickError) -> int:
    """The HTTP status of an error."""
    match error:
        case InvalidInput():
            return 400
        case TaskNotFound():
            return 404
        case TransitionRefused() | TaskChanged() | TaskExists():
            return 409
        case _:
            return 502
