"""Actions: what waits, what ran, how much of it failed and how late it was, today beside yesterday."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dynatick.client.operations import ActionSummary, Waiting, summaries
from dynatick.domain.action_counts import CountsByAction
from dynatick.domain.buckets import minute_of
from dynatick.ui import query
from dynatick.ui.readings import MINUTE
from dynatick.ui.site import Site, query_of, site_of

_LONGEST = timedelta(days=1)  # twice as much is read


def _page(request: Request) -> Response:
    """The page, without what waits: that is read by a request of its own."""
    site = site_of(request)
    last, now = _last(request), site.clock()
    return site.page(
        request, "actions.html", "actions", now=now, last=query_of(request).get("last", "24h"),
        actions=_summaries(site, now, last, None), wake_ups=_wake_ups(site, now, last),
    )  # fmt: skip


def _rows(request: Request) -> Response:
    site = site_of(request)
    now = site.clock()
    found = _summaries(site, now, _last(request), site.readings.waiting())
    return site.fragment("actions_rows.html", now, actions=found)


def _last(request: Request) -> timedelta:
    return query.duration(query_of(request), "last", "24h", longest=_LONGEST)


def _summaries(
    site: Site, now: datetime, last: timedelta, waiting: Mapping[str, Waiting] | None
) -> Sequence[ActionSummary]:
    middle = minute_of(now - last) + 1
    counts = site.readings.counts(now + MINUTE - 2 * last, now)
    return summaries(
        CountsByAction.sum(one.by_action for minute, one in counts.items() if minute >= middle),
        CountsByAction.sum(one.by_action for minute, one in counts.items() if minute < middle),
        waiting,
    )


def _wake_ups(site: Site, now: datetime, last: timedelta) -> bool:
    """Whether wake-ups ran tasks, whose completions are not counted."""
    return any(one.has_wake_ups for one in site.readings.counts(now + MINUTE - 2 * last, now).values())


ROUTES = [Route("/actions", _page), Route("/actions/rows", _rows)]
