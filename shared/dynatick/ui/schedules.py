"""Schedules: what each one ran and will run, and pause, resume, run now."""

from __future__ import annotations

from datetime import datetime, tzinfo

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dynatick.domain.expressions.occurrence import zone_of
from dynatick.domain.schedule import ScheduleState
from dynatick.errors import InvalidInput, TaskChanged, TaskExists, TransitionRefused
from dynatick.ui import links, query
from dynatick.ui.changes import Form, change
from dynatick.ui.display import clock
from dynatick.ui.site import TICK, Notice, Site, query_of, site_of

_STATES = tuple(map(str, ScheduleState))
_PAGE = 50
_PAST, _COMING = 30, 10  # occurrences
_STRIP_PAST, _STRIP_COMING = 12, 4


def _page(request: Request) -> Response:
    site = site_of(request)
    asked, now = query_of(request), site.clock()
    state = query.choice(asked, "state", _STATES)
    found = site.client.schedules.list(state, limit=_PAGE, page_token=asked.get("page"))
    token = found.next_page_token
    return site.page(
        request, "schedules.html", "schedules", now=now,
        follows=TICK, schedules=found.schedules, states=_STATES, wanted=state,
        next_page=None if token is None else links.with_query("/schedules", {**asked, "page": token}),
    )  # fmt: skip


def _strip(request: Request) -> Response:
    """The last and the next occurrences of a schedule."""
    site = site_of(request)
    schedule_id = links.of_segment(request.path_params["schedule"])
    schedules = site.client.schedules
    return site.fragment(
        "schedule_strip.html",
        site.clock(),
        past=schedules.history(schedule_id, limit=_STRIP_PAST),
        coming=schedules.preview(schedule_id, _STRIP_COMING),
        schedule_id=schedule_id,
    )


def _schedule(request: Request) -> Response:
    site = site_of(request)
    schedule_id = links.of_segment(request.path_params["schedule"])
    now, schedules = site.clock(), site.client.schedules
    schedule = schedules.get(schedule_id)
    past = schedules.history(schedule_id, limit=_PAST)
    coming = schedules.preview(schedule_id, _COMING)
    return site.page(
        request, "schedule.html", "schedules", now=now,
        follows=TICK, schedule=schedule, past=past, coming=coming,
        is_open=schedule.state not in (ScheduleState.COMPLETED, ScheduleState.FAILED),
        is_paused=schedule.state == ScheduleState.DISABLED, zone=_zone(schedule.timezone),
    )  # fmt: skip


def _zone(name: str) -> tzinfo | None:
    try:
        return zone_of(name)
    except InvalidInput:
        return None


def _change(request: Request, form: Form) -> Response:
    site = site_of(request)
    schedule_id = links.of_segment(request.path_params["schedule"])
    try:
        notice = _do(site, schedule_id, request.path_params["change"], form, site.clock())
    except (TransitionRefused, TaskChanged, TaskExists, InvalidInput) as error:
        notice = Notice(f"Nothing was changed: {error}", is_problem=True)
    return site.answer(links.schedule(schedule_id), notice)


def _do(site: Site, schedule_id: str, do: str, form: Form, now: datetime) -> Notice:
    schedules = site.client.schedules
    match do:
        case "pause":
            schedules.pause(schedule_id, form.get("reason"))
            return Notice("Paused: no further occurrence falls due from now on.")
        case "resume":
            schedule = schedules.resume(schedule_id)
            return Notice(f"Resumed: its next occurrence is at {clock(schedule.next_occurrence_at, now)}.")
        case "run-now":
            task = schedules.run_now(schedule_id)
            return Notice("An extra occurrence runs at the next tick.", link=links.task(task.task_id))
        case _:
            raise HTTPException(404)


ROUTES = [
    Route("/schedules", _page),
    Route("/schedules/{schedule}", _schedule),
    Route("/schedules/{schedule}/strip", _strip),
    Route("/schedules/{schedule}/{change}", change(_change), methods=["POST"]),
]
