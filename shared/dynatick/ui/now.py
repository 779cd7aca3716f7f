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

from dynatick.client import TickView
from dynatick.domain.buckets import Bucket
from dynatick.ui import links
from dynatick.ui.changes import Form, change
from dynatick.ui.chart import WAITING, summary
from dynatick.ui.readings import HOUR
from dynatick.ui.site import Notice, Site, site_of
from dynatick.ui.state import state_of
from dynatick.ui.timeline import strip

_NEXT = 8
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
    return site.page(request, "now.html", "now", now=now, strip=strip(now), **_present(site, now))


def _minutes(request: Request) -> Response:
    """The figures and the minutes around now, anew."""
    site = site_of(request)
    now = site.clock()
    return site.fragment("minutes.html", now, **_present(site, now))


def _present(site: Site, now: datetime) -> dict[str, Any]:
    minute = now.replace(second=0, microsecond=0)
    bars = site.readings.bars(minute - HOUR, minute + HOUR, 1, now)
    passes = [entry for entry in site.readings.last_day(now).entries if isinstance(entry, TickView)]
    recent = [one for one in passes if one.claimed and Bucket.parse(one.tick).instant > now - HOUR]
    return {
        "bars": bars,
        "due_now": summary(bars).get(WAITING, 0),
        "failed": sum(one.failed for one in passes),
        "completed": sum(one.completed for one in passes),
        "lateness_p99": max((one.lateness_p99_ms for one in recent), default=None),
        "lateness_max": max((one.lateness_max_ms for one in recent), default=None),
    }


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
    Route("/now/minutes", _minutes),
    Route("/now/next", _next),
    Route("/live", _live),
    Route("/pause", change(_pause), methods=["POST"]),
    Route("/resume", change(_resume), methods=["POST"]),
]
