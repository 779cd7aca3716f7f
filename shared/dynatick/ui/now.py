"""*Now*: whether the installation runs, what ran and what will run, what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dynatick.client import TaskEntry
from dynatick.client.key_queues import KeyLoad, KeyTally
from dynatick.client.thread_pool import thread_pool
from dynatick.domain.batches import OPEN
from dynatick.domain.buckets import Bucket, instant_of, minute_of
from dynatick.domain.packs import parse_pack_id
from dynatick.domain.task import Status
from dynatick.ui import links
from dynatick.ui.changes import Form, change
from dynatick.ui.display import many
from dynatick.ui.readings import DAY, HOUR, MINUTE, Reading, hour_of
from dynatick.ui.site import Notice, Site, readings_of, site_of
from dynatick.ui.state import state_of
from dynatick.ui.timeline import strip
from dynatick.ui.trail import user

_NEXT = 8
_MAX_ROWS_READ = 500  # of tasks that are due, to see which run
_AHEAD = timedelta(hours=6)  # in which the next tasks are looked for


@dataclass(frozen=True, slots=True)
class UpcomingRun:
    """What runs next: a task, or an occurrence of a schedule."""

    at: datetime
    id: str
    action: str | None
    url: str
    is_recurring: bool


def _page(request: Request) -> Response:
    site = site_of(request)
    now = site.clock()
    with thread_pool(1, "dynatick-now") as pool:
        state = pool.submit(state_of, site.client, now)
        figures = _figures(site, now)
    return site.page(
        request, "now.html", "now", now=now, strip=strip(now), minute=_minute_of(now), bars=(), keys=(),
        state=state.result(), **figures,
    )  # fmt: skip


def _figures_part(request: Request) -> Response:
    site = site_of(request)
    now = site.clock()
    return site.fragment("figures.html", now, **_figures(site, now))


def _minutes(request: Request) -> Response:
    """The minutes around now, and the limit keys for which tasks wait there."""
    site = site_of(request)
    now = site.clock()
    minute = _minute_of(now)
    past, coming = _last_hour(site, now), site.readings.read(minute + MINUTE, minute + HOUR)
    return site.fragment(
        "minutes.html", now, minute=minute, keys=_busiest_keys(site, now, past, coming),
        bars=site.readings.bars(minute - HOUR, minute + HOUR, 1, now, readings=[past, coming]),
        pace=site.readings.pace(minute + HOUR, now),
    )  # fmt: skip


def _day(request: Request) -> Response:
    """What ended in the past 24 hours."""
    site, readings = site_of(request), readings_of(request)
    now = site.clock()
    end = hour_of(now) + HOUR
    return site.fragment("day_figures.html", now, outcomes=readings.outcomes(end - HOUR - DAY, end, now))


def _busiest_keys(site: Site, now: datetime, *readings: Reading) -> Sequence[KeyLoad]:
    """The limit keys for which the most tasks wait. They may lie where their turn is expected."""
    tally = KeyTally()
    for reading in readings:
        tally.update(reading.keys)
    settings = site.client.settings()
    return tally.busiest(site.client.operations.store, None if settings is None else settings.key_limits, now)


def _minute_of(now: datetime) -> datetime:
    return instant_of(minute_of(now))


def _last_hour(site: Site, now: datetime) -> Reading:
    """The tasks of the last hour's buckets, the present one included."""
    minute = _minute_of(now)
    return site.readings.read(minute - HOUR, minute + MINUTE)


def _figures(site: Site, now: datetime) -> dict[str, Any]:
    reading = _last_hour(site, now)
    due = {minute: tally.counts[OPEN] for minute, tally in reading.minutes.items() if tally.counts[OPEN]}
    late = reading.total().lateness_ms()
    return {
        "due_now": sum(due.values()),
        "in_flight": _in_flight(site, due),
        "lateness_p99": late.get("p99"),
        "lateness_max": late.get("max"),
    }


def _in_flight(site: Site, due: Mapping[int, int]) -> int | None:
    """How many of the tasks that are due run; None: there are too many to read each. ``due``: numbers by minute."""
    if not due:
        return 0
    if sum(due.values()) > _MAX_ROWS_READ:
        return None
    start, end = instant_of(min(due)), instant_of(max(due)) + MINUTE
    page = site.client.history(start=start, end=end, status=Status.RUNNING, limit=_MAX_ROWS_READ)
    return sum(1 if one.members is None else one.members.get(Status.RUNNING, 0) for one in page.entries)


def _next(request: Request) -> Response:
    site = site_of(request)
    now = site.clock()
    settings = site.client.settings()
    is_paused = settings is not None and settings.pause is not None
    return site.fragment("next.html", now, coming=_upcoming(site, now), is_paused=is_paused)


def _upcoming(site: Site, now: datetime) -> Sequence[UpcomingRun]:
    """The next tasks and occurrences."""
    listed = site.client.iter_listed(start=now, end=now + _AHEAD)
    found = [
        UpcomingRun(
            _at(entry, now), _name(entry), entry.action, links.task(entry.task_id), False,
        )
        for entry in islice((entry for entry in listed if entry.status == OPEN), _NEXT)
    ]  # fmt: skip
    found += [
        UpcomingRun(one.occurrence_at, one.schedule_id, one.action, links.schedule(one.schedule_id), True)
        for one in (site.readings.forecast(hour_of(now) + 25 * HOUR) or ())[:_NEXT]
    ]
    return sorted(found, key=lambda one: one.at)[:_NEXT]


def _name(entry: TaskEntry) -> str:
    """The id of a task; of a pack, what it has."""
    named = None if entry.members is None else parse_pack_id(entry.task_id)
    return entry.task_id if named is None else f"{many(entry.waiting, 'member')} of {named[0]}"


def _at(entry: TaskEntry, now: datetime) -> datetime:
    """When a task that waits in a bucket to come is to run: a retry's dueAt is over."""
    due_at = entry.due_at
    return due_at if due_at is not None and due_at >= now else Bucket.parse(entry.bucket).instant


def _live(request: Request) -> Response:
    """The state and the last tick, for the head of every page. ``state`` and ``tick``: those that the page shows;
    another tick makes its parts ask again. ``unread``: it could not be read, and is loaded anew."""
    site = site_of(request)
    now, shown = site.clock(), request.query_params
    state = state_of(site.client, now)
    ticked = shown.get("tick", state.tick) != state.tick
    if ticked:
        site.readings.forget_recent()
    answer = site.fragment("live.html", now, state=state, changed=state.word != shown.get("state"), ticked=ticked)
    if "unread" in shown:
        answer.headers["HX-Refresh"] = "true"
    elif ticked:
        answer.headers["HX-Trigger"] = "tick"
    return answer


def _pause(request: Request, form: Form) -> Response:
    site = site_of(request)
    found = site.client.operations.pause(reason=form.get("reason"), by=user())
    by = f" by {found.by}" if found.by else ""
    return site.answer("/", Notice(f"Paused{by}: from the next tick on nothing runs, until it is resumed."))


def _resume(request: Request, form: Form) -> Response:
    site = site_of(request)
    ended = site.client.operations.resume()
    text = "It was not paused." if ended is None else "Resumed: the next tick runs what is due."
    return site.answer("/", Notice(text))


ROUTES = [
    Route("/", _page),
    Route("/now/figures", _figures_part),
    Route("/now/minutes", _minutes),
    Route("/now/day", _day),
    Route("/now/next", _next),
    Route("/live", _live),
    Route("/pause", change(_pause), methods=["POST"]),
    Route("/resume", change(_resume), methods=["POST"]),
]
