"""Actions: what waits, what ran, how much of it failed and how late it was, today beside yesterday."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dynatick.client.operations import ActionList, Waiting, action_list
from dynatick.domain.buckets import minute_of
from dynatick.ui import query
from dynatick.ui.readings import MINUTE
from dynatick.ui.site import Site, query_of, site_of

_LONGEST = timedelta(days=1)  # twice as much is read


def _page(request: Request) -> Response:
    """The page, without what waits: that is read by a request of its own."""
    site = site_of(request)
    asked, last, now = query_of(request), _last(request), site.clock()
    to = query.instant(asked, "to")
    return site.page(
        request, "actions.html", "actions", now=now, last=asked.get("last", "24h"), to=to,
        found=_actions(site, asked, now, last, None),
    )  # fmt: skip


def _rows(request: Request) -> Response:
    site = site_of(request)
    now = site.clock()
    found = _actions(site, query_of(request), now, _last(request), site.readings.waiting())
    return site.fragment("actions_rows.html", now, found=found, to=None)


def _last(request: Request) -> timedelta:
    return query.duration(query_of(request), "last", "24h", longest=_LONGEST)


def _actions(
    site: Site, asked: query.Query, now: datetime, last: timedelta, waiting: Mapping[str, Waiting] | None
) -> ActionList:
    until = query.until(asked, now)
    counts = site.readings.counts(until + MINUTE - 2 * last, now, until + MINUTE if "to" in asked else None)
    return action_list(counts, minute_of(until - last) + 1, waiting, site.client.settings())


ROUTES = [Route("/actions", _page), Route("/actions/rows", _rows)]
