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
    last, now = _last(request), site.clock()
    return site.page(
        request, "actions.html", "actions", now=now, last=query_of(request).get("last", "24h"),
        found=_actions(site, now, last, None),
    )  # fmt: skip


def _rows(request: Request) -> Response:
    site = site_of(request)
    now = site.clock()
    found = _actions(site, now, _last(request), site.readings.waiting())
    return site.fragment("actions_rows.html", now, found=found)


def _last(request: Request) -> timedelta:
    return query.duration(query_of(request), "last", "24h", longest=_LONGEST)


def _actions(site: Site, now: datetime, last: timedelta, waiting: Mapping[str, Waiting] | None) -> ActionList:
    counts = site.readings.counts(now + MINUTE - 2 * last, now)
    return action_list(counts, minute_of(now - last) + 1, waiting, site.client.settings())


ROUTES = [Route("/actions", _page), Route("/actions/rows", _rows)]
