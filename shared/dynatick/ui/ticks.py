"""Ticks: how late and how long they were, and which did not come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dynatick.client.operations import TickEntry, TickView
from dynatick.client.ticks import MAX_DAYS
from dynatick.domain.buckets import Bucket
from dynatick.ui import links, query
from dynatick.ui.display import NOTHING, duration
from dynatick.ui.site import SLOWLY, TICK, query_of, site_of
from dynatick.ui.zone import written

_SHOWN = 60  # rows of the table
_COLUMNS = 240  # of a chart
_FOLLOWED = timedelta(hours=6)  # more records would cost too much each minute


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A row of the table."""

    kind: str  # pass, idle, missed, paused
    since: datetime
    until: datetime
    shard: int
    ticks: int
    view: TickView | None

    @property
    def took_ms(self) -> float | None:
        view = self.view
        if view is None or view.started_at is None or view.finished_at is None:
            return None
        return (view.finished_at - view.started_at).total_seconds() * 1000

    @property
    def url(self) -> str:
        return links.bucket(links.minute(self.since))


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """The ticks of some time, in a chart: the longest values, and the tick that has each."""

    start: datetime
    lateness_ms: int | None
    took_ms: float | None
    is_gap: bool
    latest: datetime | None = None
    longest: datetime | None = None

    def name(self, what: str) -> str:
        """What a screen reader says: ``12:04: 21 s``. ``what``: lateness or took."""
        at, value = self._of(what)
        shown = [duration(value)] if value is not None else []
        words = ", ".join([*shown, *(["ticks did not come"] if self.is_gap else [])]) or NOTHING
        return f"{written(at, '%d %b %H:%M')}: {words}"

    def value(self, what: str) -> float | None:
        return self._of(what)[1]

    def url(self, what: str) -> str:
        """The bucket of the tick that has the value."""
        return links.bucket(links.minute(self._of(what)[0].replace(second=0, microsecond=0)))

    def _of(self, what: str) -> tuple[datetime, float | None]:
        if what == "lateness":
            return self.latest or self.start, self.lateness_ms
        return self.longest or self.start, self.took_ms


def _page(request: Request) -> Response:
    site = site_of(request)
    asked, now = query_of(request), site.clock()
    last = query.duration(asked, "last", "6h", longest=timedelta(days=MAX_DAYS))
    to = query.instant(asked, "to")
    ticks = site.client.operations
    entries = ticks.ticks(last) if to is None else ticks.ticks(start=to - last, end=to)
    lines = [_line(entry) for entry in entries]
    start = (now if to is None else to) - last
    columns = _columns(lines, start, last / _COLUMNS)
    lateness = [one.lateness_ms for one in columns if one.lateness_ms is not None]
    took = [one.took_ms for one in columns if one.took_ms is not None]
    return site.page(
        request, "ticks.html", "ticks", now=now,
        follows=None if to else TICK if last <= _FOLLOWED else SLOWLY, last=asked.get("last", "6h"), start=start, to=to,
        lines=list(reversed(lines))[:_SHOWN], hidden=max(0, len(lines) - _SHOWN), columns=columns,
        gaps=[line for line in lines if line.kind == "missed"], max_lateness=max(lateness, default=None),
        max_took=max(took, default=None),
    )  # fmt: skip


def _line(entry: TickEntry) -> Line:
    if isinstance(entry, TickView):
        at = Bucket.parse(entry.tick).instant
        return Line(kind=entry.kind, since=at, until=at, shard=entry.shard, ticks=1, view=entry)
    since, until = (Bucket.parse(name).instant for name in (entry.since, entry.until))
    return Line(kind=entry.kind, since=since, until=until, shard=entry.shard, ticks=entry.ticks, view=None)


def _columns(lines: Sequence[Line], start: datetime, width: timedelta) -> list[Column]:
    late: list[list[tuple[int, datetime]]] = [[] for _ in range(_COLUMNS)]
    took: list[list[tuple[float, datetime]]] = [[] for _ in range(_COLUMNS)]
    gaps = [False] * _COLUMNS
    for line in lines:
        first = max(0, min(_COLUMNS - 1, (line.since - start) // width))
        if line.kind == "missed":
            for at in range(first, max(0, min(_COLUMNS - 1, (line.until - start) // width)) + 1):
                gaps[at] = True
        if line.view is not None:
            if line.view.claimed:
                late[first].append((line.view.lateness_max_ms, line.since))
            if line.took_ms is not None:
                took[first].append((line.took_ms, line.since))
    columns: list[Column] = []
    for at in range(_COLUMNS):
        lateness_ms, latest = max(late[at], default=(None, None))
        took_ms, longest = max(took[at], default=(None, None))
        columns.append(
            Column(
                start=start + at * width,
                lateness_ms=lateness_ms,
                took_ms=took_ms,
                is_gap=gaps[at],
                latest=latest,
                longest=longest,
            )
        )
    return columns


ROUTES = [Route("/ticks", _page)]
