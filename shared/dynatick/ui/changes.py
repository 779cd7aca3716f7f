"""Changes: forms with the token of this start, and the pages of what was changed, by whom, and what has come of it; of
many tasks while they go on.

Shows what these pages did, and what the table tells of others: changes of many tasks, pauses, the last deployment."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dynatick.client.change_records import ChangeRecord
from dynatick.client.operations import ChangeView
from dynatick.domain.instants import format_instant
from dynatick.errors import TransitionRefused
from dynatick.ui import links, query
from dynatick.ui.jobs import Job
from dynatick.ui.site import TICK, Notice, Site, query_of, site_of
from dynatick.ui.trail import MadeChange

Form = Mapping[str, str]

_MAX_FORM_BYTES = 1_300_000  # the largest payload, of which each byte takes three
_SOON = timedelta(minutes=1)  # from the click to the write
_REFRESHED = 5  # jobs whose runs the list reads again

_LISTED = 50  # changes of many tasks

_NONE = "There is no such change; those of many tasks are kept for 31 days."


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


def record_of(request: Request, *, can_abort: bool = True) -> ChangeRecord:
    """The record of the change of many tasks that a request asks for. ``can_abort``: a job makes it."""
    site = site_of(request)
    made: MadeChange = request.state.made
    return site.trail.record_of(made, site.client, can_abort=can_abort)


async def _form(request: Request) -> Form:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Expected the form of a page.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_FORM_BYTES:
            raise HTTPException(413, "The form is too large.")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=False, max_num_fields=50)
    except ValueError:
        raise HTTPException(400, "The form can't be read.") from None
    return query.trimmed(pairs)


def _page(request: Request) -> Response:
    site, to = site_of(request), query.instant(query_of(request), "to")
    return site.page(request, "changes.html", "changes", now=site.clock(), to=to, changes=_changes(site, to))


def _rows(request: Request) -> Response:
    site, to = site_of(request), query.instant(query_of(request), "to")
    return site.fragment("changes_rows.html", site.clock(), to=to, changes=_changes(site, to))


def _changes(site: Site, to: datetime | None) -> list[MadeChange]:
    """All that is known, or what was before ``to``; the latest first."""
    _refresh(site)
    records = {one.change_id: one for one in site.client.operations.changes.list(until=to, limit=_LISTED)}
    own = [replace(one, record=records.pop(one.change_id or "", None)) for one in site.trail]
    others = [_of_record(one) for one in records.values()]
    others += [one for one in _of_settings(site) if not any(_is_same(one, made) for made in own)]
    found = sorted([*own, *others], key=lambda one: one.at, reverse=True)
    return [one for one in found if to is None or one.at < to]


def _of_record(one: ChangeView) -> MadeChange:
    given = {name: value for name, value in one.given.items() if name != "of"}
    return MadeChange(
        at=one.at, who=one.by or "unknown", what=one.change, about=one.given.get("of", "many tasks"),
        link=links.job(one.change_id), given=given, record=one,
    )  # fmt: skip


def _of_settings(site: Site) -> Iterator[MadeChange]:
    """What the settings row keeps: the last pauses, and when a deployment last changed it."""
    settings = site.client.settings()
    if settings is None:
        return
    for pause in (*settings.pauses, *([] if settings.pause is None else [settings.pause])):
        if pause.since is not None:
            until = "In force" if pause.until is None else f"Until {format_instant(pause.until)}"
            given = {} if pause.reason is None else {"reason": pause.reason}
            yield MadeChange(
                at=pause.since, who=pause.by or "unknown", what="pause", about="everything", link="/", given=given,
                result=until,
            )  # fmt: skip
    if settings.updated_at is not None:
        yield MadeChange(
            at=settings.updated_at, who="a deployment", what="settings", about="everything", link="/", given={},
            result="The last one that changed the settings",
        )  # fmt: skip


def _is_same(one: MadeChange, own: MadeChange) -> bool:
    """Whether a pause is one that these pages made."""
    is_pause = one.what == own.what == "pause" and one.about == own.about and not own.is_problem
    return is_pause and timedelta() <= one.at - own.at <= _SOON


def _refresh(site: Site) -> None:
    jobs = (made.job for made in site.trail if made.job is not None and made.job.goes_on)
    for job in islice(jobs, _REFRESHED):
        job.refresh(site.client)


def _job(request: Request) -> Response:
    site = site_of(request)
    job = _job_of(request)
    if job is None:
        found = site.client.operations.changes.get(links.of_segment(request.path_params["job"]))
        if found is None:
            return site.problem(request, 404, _NONE)
        follows = TICK if found.ended_at is None else None
        return site.page(request, "change_record.html", "changes", now=site.clock(), change=found, follows=follows)
    job.refresh(site.client)
    if "hx-request" in request.headers:
        return site.fragment("job_part.html", site.clock(), job=job)
    return site.page(request, "job.html", "changes", now=site.clock(), job=job)


def _abort(request: Request, form: Form) -> Response:
    site = site_of(request)
    job = _job_of(request)
    if job is None:
        return _abort_elsewhere(request, links.of_segment(request.path_params["job"]))
    if job.ended.is_set():
        return site.answer(links.job(job.id), Notice("It has ended already.", is_problem=True))
    job.aborted.set()
    return site.answer(links.job(job.id), Notice("It ends after the tasks that are being changed now."))


def _abort_elsewhere(request: Request, change_id: str) -> Response:
    """Aborts a change that another process makes, by its record, at which pages look while they change tasks."""
    site, page = site_of(request), links.job(change_id)
    try:
        asked = site.client.operations.changes.abort(change_id, by=site.trail.who)
    except TransitionRefused as error:
        return site.answer(page, Notice(f"Nothing was changed: {error}", is_problem=True))
    if asked is None:
        return site.problem(request, 404, _NONE)
    return site.answer(page, Notice("Its process is asked to end it after the tasks that are being changed now."))


def _job_of(request: Request) -> Job | None:
    return site_of(request).jobs.get(links.of_segment(request.path_params["job"]))


ROUTES = [
    Route("/changes", _page),
    Route("/changes/rows", _rows),
    Route("/jobs/{job}", _job),
    Route("/jobs/{job}/abort", change(_abort), methods=["POST"]),
]
