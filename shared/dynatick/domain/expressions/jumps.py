"""Which of an expression's wall times the zone's clock will skip or show twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import takewhile
from typing import NamedTuple

from dynatick.domain.expressions.model import At, Cron, Expression, Rate
from dynatick.domain.expressions.runs import skipped, twice, wall_times
from dynatick.domain.expressions.zones import zone_of
from dynatick.domain.instants import require_aware

_STEP = timedelta(hours=6)
_SECOND = timedelta(seconds=1)
_YEAR = timedelta(days=366)


class Jump(NamedTuple):
    """An instant at which a zone's offset changes. Naive values are the wall clock's."""

    instant: datetime
    before: datetime  # what the clock would show without the jump
    after: datetime  # what it shows

    @property
    def affected(self) -> tuple[datetime, datetime]:
        """The wall times, first and end, that do not come, or that come twice."""
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
    """What the clock's jumps do to an expression: a sentence for each that it meets in the year after ``after``.

    Empty where there is none, as always for a rate. This is for whoever sets a schedule up; the notes of an
    Occurrence are for whoever looks at single runs.
    """
    first = require_aware(after, "after")
    first = first if start is None else max(first, require_aware(start, "startDate"))
    last = first + within
    last = last if end is None else min(last, require_aware(end, "endDate"))
    if isinstance(expression, Rate):
        return []
    found: list[str] = []
    for jump in jumps(zone_of(zone), first, last):
        times = _affected(expression, jump)
        found.extend(skipped(times) if jump.before < jump.after else twice(times))
    return found


def jumps(zone: tzinfo, first: datetime, last: datetime) -> Iterator[Jump]:
    """The jumps of a zone's clock after ``first`` and up to ``last``, to the second."""
    if zone is UTC:
        return
    low = first
    while low < last:
        high = min(low + _STEP, last)
        if _offset(low, zone) != _offset(high, zone):
            yield _narrowed(low, high, zone)
        low = high


def _narrowed(low: datetime, high: datetime, zone: tzinfo) -> Jump:
    old, new = _offset(low, zone), _offset(high, zone)
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        if _offset(middle, zone) == old:
            low = middle
        else:
            high = middle
    instant = high.replace(microsecond=0)
    return Jump(instant, (instant + old).replace(tzinfo=None), (instant + new).replace(tzinfo=None))


def _offset(instant: datetime, zone: tzinfo) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None  # a zone of the database has one at any time
    return offset


def _affected(expression: At | Cron, jump: Jump) -> list[datetime]:
    begin, end = jump.affected
    if isinstance(expression, At):
        return [expression.local] if begin <= expression.local < end else []
    times = wall_times(expression, begin.replace(second=0, microsecond=0))
    return [local for local in takewhile(lambda local: local < end, times) if local >= begin]
