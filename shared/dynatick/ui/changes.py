"""Changes: forms with the token of this start."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dynatick.client.change_records import ChangeRecord
from dynatick.ui.site import site_of
from dynatick.ui.trail import MadeChange

Form = Mapping[str, str]

_MAX_FORM_BYTES = 64 * 1024


def change(endpoint: Callable[[Request, Form], Response]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that changes something: refuses without the token, and if the pages are read-only."""

    async def checked(request: Request) -> Response:
        site = site_of(request)
        if site.read_only:
            raise HTTPException(403, "These pages are read-only: dynatick ui was started with --read-only.")
        form = await _form(request)
        if not secrets.compare_digest(form.get("token", "").encode(), site.token.encode()):
            raise HTTPException(403, "The form is not of this dynatick ui: load the page again, and repeat the change.")
        return await run_in_threadpool(_noted, endpoint, request, form)

    return checked


def _noted(endpoint: Callable[[Request, Form], Response], request: Request, form: Form) -> Response:
    """Makes a change, and adds it to the trail with what came of it."""
    site = site_of(request)
    made = request.state.made = site.trail.begin(request.url.path, form)
    try:
        answer = endpoint(request, form)
    except Exception as error:
        problem = error.detail if isinstance(error, HTTPException) else str(error)
        site.trail.end(made, problem or type(error).__name__, is_problem=True)
        raise
    notice, job = site.outcome_of(answer)
    if notice is None and job is not None:
        site.trail.end(made, None, job=job)
    else:
        site.trail.end(made, "done" if notice is None else notice.text, is_problem=bool(notice and notice.is_problem))
    return answer


def record_of(request: Request) -> ChangeRecord:
    """The record of the change of many tasks that a request asks for."""
    site = site_of(request)
    made: MadeChange = request.state.made
    return site.trail.record_of(made, site.client)


async def _form(request: Request) -> Form:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Expected the form of a page.")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_FORM_BYTES:
            raise HTTPException(413, "The form is too large.")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=False, max_num_fields=50)
    except ValueError:
        raise HTTPException(400, "The form can't be read.") from None
    return {name: value.strip() for name, value in pairs if value.strip()}
