"""Search: the tasks whose ids begin with a text, looked for from now on in both directions, part by part; ``at``: from
then on, for a link that shows the same tomorrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dynatick.client import TaskEntry
from dynatick.domain.buckets import Bucket, instant_of, minute_of
from dynatick.domain.row import RECURRING
from dynatick.errors import InvalidInput, TaskNotFound
from dynatick.ui import links, query
from dynatick.ui.readings import DAY, HOUR
from dynatick.ui.site import Site, query_of, site_of

_MAX_FOUND = 50
_FIRST_HOURS, _HOURS = 2, 4  # each way, on one shard: what is read in a second or three
_LONGEST = timedelta(days=366)  # each way


def _page(request: Request) -> Response:
    """Leads to the task, the schedule or the occurrence of an id, else to the tasks of a subject; else the page of what
    is found by how ids begin, which reads that part by part."""
    site = site_of(request)
    asked = query_of(request)
    text, at = asked.get("q", ""), query.instant(asked, "at")
    leads_to = "/tasks" if not text else None if at is not None else _leads_to(site, text)
    if leads_to is not None:
        return RedirectResponse(leads_to, 303)
    site.client.select(start="now", end="+1m", prefix=text)  # refuses what no id begins with
    begin = links.with_query("/search/part", {"q": text, "at": at and links.minute(at)})
    return site.page(request, "search.html", "tasks", now=site.clock(), text=text, at=at, begin=begin)


def _leads_to(site: Site, text: str) -> str | None:
    try:
        found = site.client.get(text)
        return links.schedule(text) if found.status == RECURRING else links.task(text)
    except InvalidInput:
        pass
    except TaskNotFound:
        if site.client.operations.explain(text).schedule_id is not None:
            return links.task(text)  # which says why there is none
    return links.tasks(subject=text) if _is_subject(site, text) else None


def _is_subject(site: Site, text: str) -> bool:
    try:
        return bool(site.client.history(subject=text, limit=1).entries)
    except InvalidInput:
        return False


@dataclass(frozen=True, slots=True)
class Part:
    """What was found in a part of the search, the nearest first, and what was looked through with it."""

    entries: Sequence[TaskEntry]
    since: datetime
    until: datetime
    found: int  # with all parts before
    has_more: bool  # some of this part were left out: there are too many
    goes_on: bool  # by itself
    is_all: bool  # no time is left to look through


def _part(request: Request) -> Response:
    site = site_of(request)
    asked, now = query_of(request), site.clock()
    at = query.instant(asked, "at")
    around = now if at is None else at
    part = _read_on(site, asked, around)
    text = asked.get("q", "")
    following = {
        "q": text, "at": at and links.minute(at), "since": links.minute(part.since), "until": links.minute(part.until),
        "found": part.found or None,
    }  # fmt: skip
    earlier, days = query.number(asked, "earlier"), max(part.until - around, around - part.since) // DAY + 1
    return site.fragment(
        "search_part.html", now, part=part, text=text,
        more=links.with_query("/search/part", {**following, "days": asked.get("days"), "earlier": earlier}),
        further=links.with_query("/search/part", {**following, "days": days, "earlier": part.found or None}),
        listed=links.tasks(prefix=text, **{"from": links.minute(part.since), "to": links.minute(part.until)}),
    )  # fmt: skip


def _read_on(site: Site, asked: query.Query, around: datetime) -> Part:
    """Looks on from what was looked through: ``since`` and ``until``. Raises InvalidInput."""
    middle = instant_of(minute_of(around))
    since, until = query.instant(asked, "since") or middle, query.instant(asked, "until") or middle
    settings = site.client.settings()
    shards = 1 if settings is None else settings.shards_ever
    hours = max(1, (_FIRST_HOURS if since == until else _HOURS) // shards)
    first, last = max(middle - _LONGEST, since - hours * HOUR), min(middle + _LONGEST, until + hours * HOUR)
    entries: list[TaskEntry] = []
    has_more = False
    for start, end in ((first, since), (until, last)):
        if start < end:
            page = site.client.history(start=start, end=end, prefix=asked.get("q"), limit=_MAX_FOUND)
            entries += page.entries
            has_more = has_more or page.next_page_token is not None
    found = (query.number(asked, "found") or 0) + len(entries)
    days = (query.number(asked, "days") or 1) * DAY
    enough = (query.number(asked, "earlier") or 0) + _MAX_FOUND  # earlier: found before someone asked to go on
    is_far = middle - first >= days and last - middle >= days
    is_all = first == middle - _LONGEST and last == middle + _LONGEST
    return Part(
        entries=sorted(entries, key=lambda one: abs(Bucket.parse(one.bucket).instant - around)),
        since=first,
        until=last,
        found=found,
        has_more=has_more,
        goes_on=not has_more and found < enough and not is_far and not is_all,
        is_all=is_all,
    )


ROUTES = [Route("/search", _page), Route("/search/part", _part)]
