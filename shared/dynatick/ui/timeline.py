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
from dynatick.ui.display import clock
from dynatick.ui.query import Query, instant, required_instant
from dynatick.ui.readings import DAY, HOUR, WEEK
from dynatick.ui.site import SLOWLY, TICK, query_of, readings_of, site_of
from dynatick.ui.zone import days_later, hour_of, midnight_of, written

_SPANS = {"hour": HOUR, "day": DAY, "week": WEEK}
_PART = timedelta(hours=6)  # of the strip on Now
_MAX_HALVES = 2 * DAY
_MAX_PART = DAY  # that one request reads


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of a chart that is read by a request of its own. ``delay``: milliseconds, so that near ones come first."""

    start: datetime
    url: str
    delay: int
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
    shown: dict[str, Any] = {"span": span, "wanted": wanted, "end": end}
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
                pace=readings_of(request).pace(start + HOUR, now),
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
                columns = _columns(hour_of(wanted), now) if end is None else _halves(hour_of(wanted), end, now)
            start = hour_of(wanted) if wanted else present - DAY + HOUR
            around = start if wanted else midnight_of(now)
            return site.page(
                request, "timeline_day.html", "timeline", now=now, columns=columns, start=start,
                earlier=days_later(around, -1), later=days_later(around, 1), follows=SLOWLY, **shown,
            )  # fmt: skip
        case _:
            today = midnight_of(now)
            start = midnight_of(wanted) if wanted else midnight_of(now, -3)
            days = [midnight_of(start, n) for n in range(7)]
            near = sorted(days, key=lambda day: abs(day - today))
            rows = [_part("/timeline/day", day, now, 4 * near.index(day)) for day in days]
            return site.page(
                request, "timeline_week.html", "timeline", now=now, rows=rows, start=start, last_day=days[-1],
                earlier=midnight_of(start, -7), later=midnight_of(start, 7), follows=SLOWLY, **shown,
            )  # fmt: skip


def _strip_part(request: Request) -> Response:
    """Some hours, a bar for every 15 minutes."""
    site = site_of(request)
    query, now = query_of(request), site.clock()
    start, end = _range(query)
    readings = readings_of(request)
    bars = readings.bars(start, end, 15, now)
    return site.fragment("strip.html", now, bars=bars, start=start, end=end, pace=readings.pace(end, now))


def _hour_part(request: Request) -> Response:
    """An hour, or two of them, a bar for every minute."""
    site = site_of(request)
    query, now = query_of(request), site.clock()
    starts = [hour_of(required_instant(query, name)) for name in ("from", "and") if name in query or name == "from"]
    readings = readings_of(request)
    shown = [(start, readings.bars(start, start + HOUR, 1, now)) for start in starts]
    return site.fragment(
        "hour.html", now, hours=[(start, bars, summary(bars)) for start, bars in shown],
        pace=readings.pace(max(starts) + HOUR, now),
        live_url=links.with_query(request.url.path, query) if _goes_on(max(starts) + HOUR, now) else None,
    )  # fmt: skip


def _day_part(request: Request) -> Response:
    """A day of a week, a bar for every hour."""
    site = site_of(request)
    start, now = hour_of(required_instant(query_of(request), "from")), site.clock()
    end, readings = days_later(start, 1), readings_of(request)
    bars = readings.bars(start, end, 60, now, log=readings.recent_ticks(start, end, now))
    live_url = links.with_query(request.url.path, query_of(request)) if _goes_on(end, now) else None
    return site.fragment(
        "day.html", now, bars=bars, start=start, sums=summary(bars), live_url=live_url, pace=readings.pace(end, now)
    )


def _goes_on(end: datetime, now: datetime) -> bool:
    """Whether a part that ends then follows ticks: what is older changes by a redrive only."""
    return end > hour_of(now) - DAY


def _columns(start: datetime, now: datetime) -> list[tuple[str, list[Part]]]:
    """The hours of a day from ``start`` on: of a local day 23 to 25, in two columns."""
    hours = -((start - days_later(start, 1)) // HOUR)
    rows = [_rows(start + HOUR * n, HOUR if n + 1 < hours else None, now, n) for n in range(0, hours, 2)]
    if start != midnight_of(start):
        return [("First 12 h", rows[:6]), ("Next 12 h", rows[6:])]
    return [(f"{written(start, '%A, %d %B %Y')}, morning", rows[:6]), ("Afternoon", rows[6:])]


def _halves(start: datetime, end: datetime, now: datetime) -> list[tuple[str, list[Part]]]:
    """The hours of a range, in two columns."""
    hours = -((start - min(end, start + _MAX_HALVES)) // HOUR)
    rows = [_rows(start + HOUR * n, HOUR if n + 1 < hours else None, now, n) for n in range(0, hours, 2)]
    middle = -(-len(rows) // 2)
    return [(clock(part[0].start, now), part) for part in (rows[:middle], rows[middle:]) if part]


def _rows(start: datetime, step: timedelta | None, now: datetime, order: int) -> Part:
    """Two hours by one request: it costs less than two. Without a ``step``: one hour."""
    part = _part("/timeline/hour", start, now, order)
    if step is None:
        return part
    second = start + step
    return replace(part, url=links.with_query(part.url, {"and": links.minute(second)}), second=second)


def _part(path: str, start: datetime, now: datetime, order: int, *, end: datetime | None = None) -> Part:
    url = links.with_query(path, {"from": links.minute(start), "to": end and links.minute(end)})
    return Part(start=start, url=url, delay=order * 30)


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
