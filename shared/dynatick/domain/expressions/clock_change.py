"""Clock changes of a time zone, and the wall times of an expression that they skip or repeat."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import takewhile
from typing import NamedTuple

from dynatick.domain import attributes as attr
from dynatick.domain.expressions.model import At, Cron, Expression, Rate
from dynatick.domain.expressions.occurrence import skipped, twice, wall_times
from dynatick.domain.expressions.time_zone import zone_of
from dynatick.domain.instants import require_aware

_STEP = timedelta(hours=6)
_SECOND = timedelta(seconds=1)
_YEAR = timedelta(days=366)


class ClockChange(NamedTuple):
    """An instant at which a zone's offset changes. Naive datetimes are wall times."""

    instant: datetime
    before: datetime  # the wall time by the old offset
    after: datetime  # the wall time by the new offset

    @property
    def affected(self) -> tuple[datetime, datetime]:
        """The range [begin, end) of wall times that are skipped or come twice."""
        return min(self.before, self.after), max(self.before, self.after)


def clock_warnings(
    expression: Expression,
    after: datetime,
    *,
    zone: str = "UTC",
    start: datetime | None = None,
    end: datetime | None = None,
    within: timedelta = _YEAR,
) -> list[str]:
    """Warnings about the clock changes that affect an expression in the time ``within`` after ``after``.

    Always empty for a rate. For the creation of a schedule; the notes of an Occurrence are for single occurrences.
    """
    first = require_aware(after, "after")
    first = first if start is None else max(first, require_aware(start, attr.START_DATE))
    last = first + within
    last = last if end is None else min(last, require_aware(end, attr.END_DATE))
    if isinstance(expression, Rate):
        return []
    found: list[str] = []
    for change in clock_changes(zone_of(zone), first, last):
        times = _affected(expression, change)
        found.extend(skipped(times) if change.before < change.after else twice(times))
    return found


def clock_changes(zone: tzinfo, first: datetime, last: datetime) -> Iterator[ClockChange]:
    """The clock changes of a zone after ``first`` and up to ``last``, exact to the second."""
    if zone is UTC:
        return
    low = first
    while low < last:
        high = min(low + _STEP, last)
        if _offset(low, zone) != _offset(high, zone):
            yield _narrowed(low, high, zone)
        low = high


def _narrowed(low: datetime, high: datetime, zone: tzinfo) -> ClockChange:
    old, new = _offset(low, zone), _offset(high, zone)
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        if _offset(middle, zone) == old:
            low = middle
        else:
            high = middle
    instant = high.replace(microsecond=0)
    return ClockChange(instant, (instant + old).replace(tzinfo=None), (instant + new).replace(tzinfo=None))


def _offset(instant: datetime, zone: tzinfo) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None  # every zone of the database has an offset at any time
    return offset


def _affected(expression: At | Cron, change: ClockChange) -> list[datetime]:
    begin, end = change.affected
    if isinstance(expression, At):
        return [expression.local] if begin <= expression.local < end else []
    times = wall_times(expression, begin.replace(second=0, microsecond=0))
    return [local for local in takewhile(lambda local: local < end, times) if local >= begin]
