"""The timeline: what ran and what will run, by the minute. Its parts are read as the page shows them, nearest first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dynatick.errors import InvalidInput
from dynatick.ui import links
from dynatick.ui.chart import summary
from dynatick.ui.query import Query, instant, required_instant
from dynatick.ui.readings import DAY, HOUR, WEEK, hour_of
from dynatick.ui.site import SLOWLY, TICK, query_of, readings_of, site_of

_SPANS = {"hour": HOUR, "day": DAY, "week": WEEK}
_PART = timedelta(hours=6)  # of the strip on Now
_MAX_PART = DAY  # that one request reads


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of a chart that is read by a request of its own. ``delay``: milliseconds, so that near ones come first."""

    start: datetime
    url: str
    delay: int
    is_past: bool
    second: datetime | None = None  # another hour, shown after it


def strip(now: datetime) -> list[Part]:
    """The past and the next 24 hours, in order of time."""
    present = hour_of(now)
    parts = [(n, present + _PART * n) for n in range(-4, 4)]
    return [_part("/timeline/strip", start, now, abs(n), end=start + _PART) for n, start in parts]


def _page(request: Request) -> Response:
    site = site_of(request)
    query, now = query_of(request), site.clock()
    span = query.get("span", "day")
    if span not in _SPANS:
        raise InvalidInput("span", span, f"expected one of {', '.join(_SPANS)}")
    wanted = instant(query, "from")
    end = instant(query, "to")
    if wanted is not None and end is not None and "span" not in query:
        span = next((name for name, length in _SPANS.items() if end - wanted <= length), "week")
    shown: dict[str, Any] = {"span": span, "wanted": wanted, "now_hour": hour_of(now)}
    match span:
        case "hour":
            start = hour_of(wanted or now)
            bars = readings_of(request).bars(start, start + HOUR, 1, now)
            return site.page(
                request,
                "timeline_hour.html",
                "timeline",
                now=now,
                start=start,
                bars=bars,
                sums=summary(bars),
                follows=TICK if _goes_on(start + HOUR, now) else SLOWLY,
                **shown,
            )
        case "day":
            present = hour_of(now)
            if wanted is None:  # around now: nearest hour first, backwards and forwards
                past = [_rows(present - HOUR * n, -HOUR, now, 2 * n + 1) for n in range(0, 24, 2)]
                coming = [_rows(present + HOUR * (n + 1), HOUR, now, 2 * n) for n in range(0, 24, 2)]
                columns = [("Past 24 h", past), ("Next 24 h", coming)]
            else:
                start = hour_of(wanted)
                rows = [_rows(start + HOUR * n, HOUR, now, n) for n in range(0, 24, 2)]
                columns = [(f"{start:%A, %d %B %Y}, morning" if not start.hour else "First 12 h", rows[:6]),
                           ("Afternoon" if not start.hour else "Next 12 h", rows[6:])]  # fmt: skip
            start = hour_of(wanted) if wanted else present - DAY + HOUR
            return site.page(
                request, "timeline_day.html", "timeline", now=now, columns=columns, start=start, follows=SLOWLY, **shown
            )
        case _:
            today = now.replace(hour=0, minute=0, second=0, microsecond=0)
            start = (wanted or today - 3 * DAY).replace(hour=0, minute=0, second=0, microsecond=0)
            days = [start + DAY * n for n in range(7)]
            near = sorted(days, key=lambda day: abs(day - today))
            rows = [_part("/timeline/day", day, now, 4 * near.index(day)) for day in days]
            return site.page(
                request, "timeline_week.html", "timeline", now=now, rows=rows, start=start, follows=SLOWLY, **shown
            )


def _strip_part(request: Request) -> Response:
    """Some hours, a bar for every 15 minutes."""
    site = site_of(request)
    query, now = query_of(request), site.clock()
    start, end = _range(query)
    return site.fragment("strip.html", now, bars=readings_of(request).bars(start, end, 15, now), start=start, end=end)


def _hour_part(request: Request) -> Response:
    """An hour, or two of them, a bar for every minute."""
    site = site_of(request)
    query, now = query_of(request), site.clock()
    starts = [hour_of(required_instant(query, name)) for name in ("from", "and") if name in query or name == "from"]
    readings = readings_of(request)
    shown = [(start, readings.bars(start, start + HOUR, 1, now)) for start in starts]
    return site.fragment(
        "hour.html", now, hours=[(start, bars, summary(bars)) for start, bars in shown],
        live_url=links.with_query(request.url.path, query) if _goes_on(max(starts) + HOUR, now) else None,
    )  # fmt: skip


def _day_part(request: Request) -> Response:
    """A day of a week, a bar for every hour."""
    site = site_of(request)
    start, now = hour_of(required_instant(query_of(request), "from")), site.clock()
    end, readings = start + DAY, readings_of(request)
    bars = readings.bars(start, end, 60, now, log=readings.recent_ticks(start, end, now))
    live_url = links.with_query(request.url.path, query_of(request)) if _goes_on(end, now) else None
    return site.fragment("day.html", now, bars=bars, start=start, sums=summary(bars), live_url=live_url)


def _goes_on(end: datetime, now: datetime) -> bool:
    """Whether a part that ends then follows ticks: what is older changes by a redrive only."""
    return end > hour_of(now) - DAY


def _rows(start: datetime, step: timedelta, now: datetime, order: int) -> Part:
    """Two hours by one request: it costs less than two."""
    part, second = _part("/timeline/hour", start, now, order), start + step
    return replace(part, url=links.with_query(part.url, {"and": links.minute(second)}), second=second)


def _part(path: str, start: datetime, now: datetime, order: int, *, end: datetime | None = None) -> Part:
    url = links.with_query(path, {"from": links.minute(start), "to": end and links.minute(end)})
    return Part(start=start, url=url, delay=order * 30, is_past=start <= now)


def _range(query: Query) -> tuple[datetime, datetime]:
    start, end = hour_of(required_instant(query, "from")), required_instant(query, "to")
    if not timedelta() < end - start <= _MAX_PART:
        raise InvalidInput("to", query["to"], "expected a time within a day after from")
    return start, end


ROUTES = [
    Route("/timeline", _page),
    Route("/timeline/strip", _strip_part),
    Route("/timeline/hour", _hour_part),
    Route("/timeline/day", _day_part),
]
