"""*Now*: whether the installation runs, what ran and what will run, what failed."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dynatick.domain.buckets import Bucket
from dynatick.domain.task import Status
from dynatick.ui import links
from dynatick.ui.changes import Form, change
from dynatick.ui.chart import WAITING, Bar
from dynatick.ui.readings import DAY, HOUR, hour_of
from dynatick.ui.site import Notice, Site, site_of
from dynatick.ui.state import state_of
from dynatick.ui.timeline import strip

_NEXT = 8
_MAX_ROWS_READ = 500  # of tasks that are due, to see which run
_AHEAD = timedelta(hours=6)  # in which the next tasks are looked for


@dataclass(frozen=True, slots=True)
class Coming:
    """What runs next: a task, or an occurrence of a schedule."""

    at: datetime
    id: str
    action: str | None
    url: str
    is_recurring: bool


def _page(request: Request) -> Response:
    site = site_of(request)
    now = site.clock()
    return site.page(
        request, "now.html", "now", now=now, strip=strip(now), bars=_bars(site, now), **_figures(site, now)
    )


def _figures_part(request: Request) -> Response:
    site = site_of(request)
    now = site.clock()
    return site.fragment("figures.html", now, **_figures(site, now))


def _minutes(request: Request) -> Response:
    """The minutes around now."""
    site = site_of(request)
    now = site.clock()
    return site.fragment("minutes.html", now, bars=_bars(site, now))


def _day(request: Request) -> Response:
    """What ended in the past 24 hours."""
    site = site_of(request)
    now = site.clock()
    end = hour_of(now) + HOUR
    return site.fragment("day_figures.html", now, outcomes=site.readings.outcomes(end - HOUR - DAY, end))


def _bars(site: Site, now: datetime) -> list[Bar]:
    minute = now.replace(second=0, microsecond=0)
    return site.readings.bars(minute - HOUR, minute + HOUR, 1, now)


def _figures(site: Site, now: datetime) -> dict[str, Any]:
    minute = now.replace(second=0, microsecond=0)
    bars = _bars(site, now)
    due = [bar for bar in bars if bar.counts.get(WAITING)]
    lateness = site.readings.lateness(minute - HOUR, minute + HOUR)
    return {
        "due_now": sum(bar.counts[WAITING] for bar in due),
        "in_flight": _in_flight(site, due),
        "lateness_p99": lateness.percentile(99) if lateness.count else None,
        "lateness_max": lateness.max,
    }


def _in_flight(site: Site, due: Sequence[Bar]) -> int | None:
    """How many of the tasks that are due run; None: there are too many to read each."""
    if not due:
        return 0
    if sum(bar.counts[WAITING] for bar in due) > _MAX_ROWS_READ:
        return None
    page = site.client.history(start=due[0].start, end=due[-1].end, status=Status.RUNNING, limit=_MAX_ROWS_READ)
    return len(page.entries)


def _next(request: Request) -> Response:
    site = site_of(request)
    now = site.clock()
    return site.fragment("next.html", now, coming=_coming(site, now))


def _coming(site: Site, now: datetime) -> Sequence[Coming]:
    """The next tasks and occurrences."""
    tasks = islice(site.client.iter_listed(start=now, end=now + _AHEAD), _NEXT)
    found = [
        Coming(
            entry.due_at or Bucket.parse(entry.bucket).instant, entry.task_id, entry.action,
            links.task(entry.task_id), False,
        )
        for entry in tasks
        if entry.status == "open"
    ]  # fmt: skip
    found += [
        Coming(one.occurrence_at, one.schedule_id, one.action, links.schedule(one.schedule_id), True)
        for one in (site.readings.forecast(now.replace(minute=0, second=0, microsecond=0) + 25 * HOUR) or ())[:_NEXT]
    ]
    return sorted(found, key=lambda one: one.at)[:_NEXT]


def _live(request: Request) -> Response:
    """The state and the last tick, for the head of every page. ``state``: the one that the page shows."""
    site = site_of(request)
    now = site.clock()
    state = state_of(site.client, now)
    return site.fragment("live.html", now, state=state, changed=state.word != request.query_params.get("state"))


def _pause(request: Request, form: Form) -> Response:
    site = site_of(request)
    found = site.client.pause(reason=form.get("reason"), by=_user())
    return site.answer("/", Notice(f"Paused{_by(found.by)}: from the next tick on nothing runs, until it is resumed."))


def _resume(request: Request, form: Form) -> Response:
    site = site_of(request)
    ended = site.client.resume()
    text = "It was not paused." if ended is None else "Resumed: the next tick runs what is due."
    return site.answer("/", Notice(text))


def _by(name: str | None) -> str:
    return f" by {name}" if name else ""


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return None


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
