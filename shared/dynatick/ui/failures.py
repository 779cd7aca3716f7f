"""Failures: failed tasks grouped by their error, a page for each group, and redriven together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dynatick.client.change_records import counted_in
from dynatick.client.failures import FailureGroup, has_fingerprint
from dynatick.domain import attributes as attr
from dynatick.ui import links, query
from dynatick.ui.changes import Form, change, record_of
from dynatick.ui.chart import FailureBars
from dynatick.ui.jobs import REDRIVEN
from dynatick.ui.readings import HOUR, WEEK, hour_of
from dynatick.ui.site import Site, query_of, readings_of, site_of
from dynatick.ui.task import trace_of

_LONGEST = timedelta(days=7)
_FIRST = 5  # on Now
_LONGEST_COUNTED = timedelta(days=1)  # records of a week would cost more than its tasks
_TRACED = 5  # tasks of a group whose traces are read


def _page(request: Request) -> Response:
    site = site_of(request)
    asked, now = query_of(request), site.clock()
    last = _last(asked)
    counted = min(last, _LONGEST_COUNTED)
    start, end = _range(asked, now, counted)
    step = 1 if counted <= 2 * HOUR else 15
    counts = site.readings.counts(start, now, end if "to" in asked else None)
    failed = FailureBars.of({minute: one.failures for minute, one in counts.items()}, start, end, step)
    return site.page(
        request, "failures.html", "failures", now=now, failed=failed, start=start, end=end, is_shorter=counted < last,
        is_deleted=start < now - WEEK, **_within(asked),
    )  # fmt: skip


def _all_groups(request: Request) -> Response:
    """The groups of tasks that have failed, which the page reads by a request of its own: their errors are in the
    index."""
    site = site_of(request)
    asked, now = query_of(request), site.clock()
    groups, (start, end) = _groups(request, asked, now), _range(asked, now, _last(asked))
    return site.fragment(
        "failures_groups.html", now, groups=groups, new=_new(site, groups, start), deployed=_deployed(site),
        tasks=sum(group.count for group in groups), start=start, end=end, **_within(asked),
    )  # fmt: skip


def _first(request: Request) -> Response:
    """The groups with the most tasks, for Now."""
    site = site_of(request)
    now = site.clock()
    groups = _groups(request, {}, now)
    return site.fragment(
        "failures_first.html", now, groups=groups[:_FIRST], others=len(groups) - _FIRST,
        new=_new(site, groups, _range({}, now, _last({}))[0]), **_within({}),
    )  # fmt: skip


def _group(request: Request) -> Response:
    """The page of a group, which reads the rest by a request of its own."""
    site = site_of(request)
    asked, now = query_of(request), site.clock()
    fingerprint = request.path_params["fingerprint"]
    has_fingerprint(fingerprint)
    _last(asked)
    return site.page(
        request, "failure.html", "failures", now=now, fingerprint=fingerprint, end=query.instant(asked, "to"),
        **_within(asked),
    )  # fmt: skip


def _details(request: Request) -> Response:
    site = site_of(request)
    asked, now = query_of(request), site.clock()
    last = _last(asked)
    fingerprint = request.path_params["fingerprint"]
    found = [one for one in _groups(request, asked, now) if one.fingerprint == fingerprint]
    if not found:
        return site.fragment("failure_gone.html", now, fingerprint=fingerprint, **_within(asked))
    start, end = _range(asked, now, last)
    step = 1 if last <= 2 * HOUR else 15 if last <= timedelta(days=1) else 60
    return site.fragment(
        "failure_details.html", now, group=found[0], failed=FailureBars.of(found[0].minutes, start, end, step),
        start=start, end=end, new=_new(site, found, start), deployed=_deployed(site), traces=_traces(site, found[0]),
        **_within(asked),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trace:
    """Where some of the latest tasks of a group failed."""

    text: str
    tasks: int
    task_id: str  # one of them


def _traces(site: Site, group: FailureGroup) -> Sequence[Trace]:
    """The traces of the latest tasks, the most frequent first. Built-in actions have none."""
    ids = [one.task_id for one in group.tasks[:_TRACED]]
    rows = site.client.store.get_many(ids, consistent=False, only=(attr.ATTEMPTS,))
    found = {task_id: trace for task_id in ids if (trace := trace_of(rows.get(task_id, {}))) is not None}
    first = {trace: task_id for task_id, trace in reversed(found.items())}
    return [Trace(trace, tasks, first[trace]) for trace, tasks in Counter(found.values()).most_common()]


def _deployed(site: Site) -> datetime | None:
    """When a deployment last changed the settings."""
    settings = site.client.settings()
    return None if settings is None else settings.updated_at


def _new(site: Site, groups: Sequence[FailureGroup], since: datetime) -> frozenset[str]:
    """The groups of which none failed before the deployment, if that is in the range, which begins at ``since``."""
    deployed = _deployed(site)
    return frozenset(one.fingerprint for one in groups if one.is_new_since(deployed, since))


def _sample(request: Request) -> Response:
    """The latest task of a group: its payload and its trace."""
    site = site_of(request)
    task = site.client.get(links.of_segment(request.path_params["task"]))
    return site.fragment("failure_sample.html", site.clock(), task=task, trace=trace_of(task.row))


def _dry_run(request: Request) -> Response:
    site = site_of(request)
    asked, now = query_of(request), site.clock()
    groups = _groups(request, asked, now)
    wanted = [one for one in groups if asked.get("fingerprint", one.fingerprint) == one.fingerprint]
    return site.page(
        request, "failures_redrive.html", "failures", now=now, groups=wanted, asked=asked,
        tasks=sum(group.count for group in wanted), back=_back(asked), **_within(asked),
    )  # fmt: skip


def _redrive(request: Request, form: Form) -> Response:
    site = site_of(request)
    now = site.clock()
    start, end = _range(form, now, _last(form))
    fingerprint = form.get("fingerprint")
    is_wanted = None if fingerprint is None else has_fingerprint(fingerprint)
    record = record_of(request)
    redrive = partial(counted_in(site.client, record).redrive_many, start=start, end=end, error=is_wanted)
    asked = {name: form.get(name) for name in ("fingerprint", "last", "to")}
    job = site.jobs.start(
        REDRIVEN,
        redrive,
        query.number(form, "confirmed"),
        back=_back(form),
        again=links.with_query("/failures/redrive", asked),
        record=record,
    )
    return RedirectResponse(links.job(job.id), status_code=303)


def _back(asked: query.Query) -> str:
    """The page that a redrive was asked for on: that of a group, or that of all."""
    within, fingerprint = _within(asked)["within"], asked.get("fingerprint")
    return links.failures(**within) if fingerprint is None else links.failure(fingerprint, **within)


def _last(asked: query.Query) -> timedelta:
    return query.duration(asked, "last", "24h", longest=_LONGEST)


def _groups(request: Request, asked: query.Query, now: datetime) -> list[FailureGroup]:
    return readings_of(request).failures(*_range(asked, now, _last(asked)), now)


def _range(asked: query.Query, now: datetime, last: timedelta) -> tuple[datetime, datetime]:
    """Whole hours, up to the present one or to that of ``to``. Raises InvalidInput."""
    until = query.until(asked, now)
    return hour_of(until - last), hour_of(until) + HOUR


def _within(asked: query.Query) -> dict[str, Any]:
    """What the parts and links of a page have of its range; ``follows_ticks``: it goes on."""
    within = {"last": asked.get("last", "24h"), **({"to": asked["to"]} if "to" in asked else {})}
    return {"last": within["last"], "within": within, "follows_ticks": "to" not in asked}


ROUTES = [
    Route("/failures", _page),
    Route("/failures/groups", _all_groups),
    Route("/failures/first", _first),
    Route("/failures/sample/{task}", _sample),
    Route("/failures/redrive", _dry_run),
    Route("/failures/redrive", change(_redrive), methods=["POST"]),
    Route("/failures/{fingerprint}", _group),
    Route("/failures/{fingerprint}/details", _details),
]
