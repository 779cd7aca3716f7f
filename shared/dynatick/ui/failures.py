"""Failures: failed tasks grouped by action and error, and redriven together."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dynatick.client import ConfirmedChange
from dynatick.client.installation import FailureGroup
from dynatick.ui import links, query
from dynatick.ui.changes import Form, change
from dynatick.ui.chart import FailureBars
from dynatick.ui.readings import HOUR, error_pattern, hour_of
from dynatick.ui.site import Site, query_of, site_of
from dynatick.ui.task import trace_of

_LONGEST = timedelta(days=7)
_FIRST = 5  # on Now
_LONGEST_COUNTED = timedelta(days=1)  # records of a week would cost more than its tasks


def _page(request: Request) -> Response:
    site = site_of(request)
    asked, now = query_of(request), site.clock()
    last = query.duration(asked, "last", "24h", longest=_LONGEST)
    counted = min(last, _LONGEST_COUNTED)
    start, _ = _range(now, counted)
    step = 1 if counted <= 2 * HOUR else 15
    counts = site.readings.counts(start, now)
    failed = FailureBars.of({minute: one.failures for minute, one in counts.items()}, start, hour_of(now) + HOUR, step)
    return site.page(
        request, "failures.html", "failures", now=now, failed=failed, last=asked.get("last", "24h"), start=start,
        is_shorter=counted < last,
    )  # fmt: skip


def _all_groups(request: Request) -> Response:
    """The groups of tasks that have failed, which the page reads by a request of its own: their errors are in the
    index."""
    site = site_of(request)
    asked, now = query_of(request), site.clock()
    groups = _groups(site, now, query.duration(asked, "last", "24h", longest=_LONGEST))
    return site.fragment(
        "failures_groups.html", now, groups=groups, last=asked.get("last", "24h"),
        tasks=sum(group.count for group in groups),
    )  # fmt: skip


def _first(request: Request) -> Response:
    """The latest groups, for Now."""
    site = site_of(request)
    now = site.clock()
    groups = _groups(site, now, timedelta(days=1))
    return site.fragment("failures_first.html", now, groups=groups[:_FIRST], others=len(groups) - _FIRST, last="24h")


def _sample(request: Request) -> Response:
    """The latest task of a group: its payload and its trace."""
    site = site_of(request)
    task = site.client.get(links.of_segment(request.path_params["task"]))
    return site.fragment("failure_sample.html", site.clock(), task=task, trace=trace_of(task))


def _dry_run(request: Request) -> Response:
    site = site_of(request)
    asked, now = query_of(request), site.clock()
    last = query.duration(asked, "last", "24h", longest=_LONGEST)
    wanted = [one for one in _groups(site, now, last) if _fits(asked, one.action, one.error)]
    return site.page(
        request, "failures_redrive.html", "failures", now=now, groups=wanted, last=asked.get("last", "24h"),
        asked=asked, tasks=sum(group.count for group in wanted),
    )  # fmt: skip


def _redrive(request: Request, form: Form) -> Response:
    site = site_of(request)
    now = site.clock()
    last = query.duration(form, "last", "24h", longest=_LONGEST)
    start, end = _range(now, last)
    wanted = form.get("error")
    redrive = partial(
        site.client.redrive_many,
        start=start,
        end=end,
        action=form.get("action"),
        error=None if wanted is None else lambda error: error_pattern(error) == wanted,
    )
    asked = {name: form.get(name) for name in ("action", "error", "last")}
    job = site.jobs.start(
        "redriven",
        ConfirmedChange(redrive, query.number(form, "confirmed")),
        back=links.failures(last=form.get("last", "24h")),
        again=links.with_query("/failures/redrive", asked),
    )
    return RedirectResponse(links.job(job.id), status_code=303)


def _fits(asked: query.Query, action: str | None, error: str | None) -> bool:
    return asked.get("action", action) == action and asked.get("error", error) == error


def _groups(site: Site, now: datetime, last: timedelta) -> list[FailureGroup]:
    return site.readings.failures(*_range(now, last))


def _range(now: datetime, last: timedelta) -> tuple[datetime, datetime]:
    """Whole hours, up to the present one."""
    return hour_of(now - last), hour_of(now) + HOUR


ROUTES = [
    Route("/failures", _page),
    Route("/failures/groups", _all_groups),
    Route("/failures/first", _first),
    Route("/failures/sample/{task}", _sample),
    Route("/failures/redrive", _dry_run),
    Route("/failures/redrive", change(_redrive), methods=["POST"]),
]
