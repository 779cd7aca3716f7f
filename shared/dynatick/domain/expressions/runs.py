"""When an expression runs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import assert_never

from dynatick.domain.expressions.model import FIRST_YEAR, LAST_YEAR, At, Cron, Expression, Rate
from dynatick.domain.expressions.parse import EXPRESSION_FIELD
from dynatick.domain.expressions.zones import zone_of
from dynatick.domain.instants import format_instant, in_range, require_aware
from dynatick.errors import InvalidInput

_TICK = timedelta(microseconds=1)
_DAY = timedelta(days=1)
_BEFORE_ALL = datetime(FIRST_YEAR - 1, 12, 1, tzinfo=UTC)
_AFTER_ALL = datetime(LAST_YEAR + 1, 2, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One run: its nominal instant, and what there is to know of the clock's jumps on the way to it."""

    instant: datetime
    notes: tuple[str, ...] = ()


def next_after(
    expression: Expression,
    after: datetime,
    *,
    zone: str = "UTC",
    start: datetime | None = None,
    end: datetime | None = None,
) -> datetime | None:
    """The first nominal instant strictly after ``after``; None if there is none any more.

    ``start`` and ``end`` are themselves part of the schedule's time. A rate needs its ``start``, which is its first
    run; ``at`` ignores both. Naive datetimes are refused by InvalidInput, as is a zone that does not exist.
    """
    found = next(upcoming(expression, after, zone=zone, start=start, end=end), None)
    return None if found is None else found.instant


def upcoming(
    expression: Expression,
    after: datetime,
    *,
    zone: str = "UTC",
    start: datetime | None = None,
    end: datetime | None = None,
) -> Iterator[Occurrence]:
    """The runs strictly after ``after``, one by one as they are asked for; otherwise as :func:`next_after`."""
    after = require_aware(after, "after")
    start = None if start is None else require_aware(start, "startDate")
    end = None if end is None else require_aware(end, "endDate")
    match expression:
        case Rate():
            if start is None:
                raise InvalidInput("startDate", start, "a rate counts from its start: give one")
            return _until(_rate(expression, after, start), end)
        case At():
            return _at(expression, after, zone_of(zone))
        case Cron():
            begin = after if start is None else max(after, start - _TICK)
            return _until(_cron(expression, begin, zone_of(zone)), end)
        case _:
            assert_never(expression)


def never_fires(
    expression: Expression,
    *,
    after: datetime,
    zone: str = "UTC",
    start: datetime | None = None,
    end: datetime | None = None,
) -> bool:
    """Whether nothing runs after ``after`` any more, if anything ever did."""
    return next_after(expression, after, zone=zone, start=start, end=end) is None


def check_fires(
    expression: Expression,
    *,
    after: datetime,
    zone: str = "UTC",
    start: datetime | None = None,
    end: datetime | None = None,
    field: str = EXPRESSION_FIELD,
) -> datetime:
    """The first run after ``after``. Raises InvalidInput, with the reason, if there is none."""
    first = next_after(expression, after, zone=zone, start=start, end=end)
    if first is not None:
        return first
    if isinstance(expression, At) and (missing := _missing(expression.local, zone_of(zone))):
        raise InvalidInput(field, expression.text, f"it never runs: {missing} in {zone}")
    if not isinstance(expression, At) and end is not None:
        unbounded = next_after(expression, after, zone=zone, start=start)
        if unbounded is not None:
            reason = f"it never runs: its next run, {format_instant(unbounded)}, would be after its end"
            raise InvalidInput("endDate", format_instant(end), reason)
    raise InvalidInput(field, expression.text, f"it never runs after {format_instant(after)} ({zone})")


def shortest_gap(expression: Expression) -> timedelta:
    """The least time between two runs, by the wall clock; ``timedelta.max`` where there are no two.

    A jump of the clock may bring two runs of a cron closer together than this, once.
    """
    match expression:
        case Rate():
            return expression.period
        case At():
            return timedelta.max
        case Cron():
            return _shortest_of_cron(expression)
        case _:
            assert_never(expression)


def _until(runs: Iterator[Occurrence], end: datetime | None) -> Iterator[Occurrence]:
    for run in runs:
        if end is not None and run.instant > end:
            return
        yield run


def _rate(rate: Rate, after: datetime, start: datetime) -> Iterator[Occurrence]:
    number = 0 if after < start else (after - start) // rate.period + 1
    while True:
        try:
            instant = in_range(start + number * rate.period, None, "startDate")
        except (OverflowError, InvalidInput):
            return  # the end of the calendar
        yield Occurrence(instant)
        number += 1


def _at(at: At, after: datetime, zone: tzinfo) -> Iterator[Occurrence]:
    instant, kind = _placed(at.local, zone)
    if kind != "gap" and instant > after:
        yield Occurrence(instant, (_twice(at.local),) if kind == "fold" else ())


def _cron(cron: Cron, after: datetime, zone: tzinfo) -> Iterator[Occurrence]:
    """Each wall time in turn, put on the line of instants.

    An existing wall time stands for its first instant, so instants rise as wall times do; the runs after an instant
    are therefore among the wall times from its own on.
    """
    if after >= _AFTER_ALL:
        return
    begin = max(after, _BEFORE_ALL).astimezone(zone).replace(tzinfo=None)
    skipped: list[datetime] = []
    for local in wall_times(cron, begin.replace(second=0, microsecond=0)):
        instant, kind = _placed(local, zone)
        if kind == "gap":
            skipped.append(local)
        elif instant > after:
            notes = _skipped(skipped)
            yield Occurrence(instant, (*notes, _twice(local)) if kind == "fold" else notes)
            skipped.clear()


def wall_times(cron: Cron, begin: datetime) -> Iterator[datetime]:
    """The naive local minutes that a cron names, from ``begin`` on, in order."""
    for year in cron.years[bisect_left(cron.years, begin.year) :]:
        for month in cron.months:
            if (year, month) < (begin.year, begin.month):
                continue
            for day in cron.days.of(year, month):
                midnight = datetime(year, month, day)  # noqa: DTZ001 (wall time)
                if midnight + _DAY <= begin:
                    continue
                for hour in cron.hours:
                    for minute in cron.minutes:
                        local = midnight.replace(hour=hour, minute=minute)
                        if local >= begin:
                            yield local


def _placed(local: datetime, zone: tzinfo) -> tuple[datetime, str]:
    """The (first) instant of a wall time, and whether it is ``once``, twice (``fold``) or never (``gap``) shown."""
    if zone is UTC:
        return local.replace(tzinfo=UTC), "once"
    aware = local.replace(tzinfo=zone)
    first, second = aware.utcoffset(), aware.replace(fold=1).utcoffset()
    assert first is not None and second is not None  # a zone of the database has an offset at any time
    kind = "once" if first == second else "fold" if first > second else "gap"
    return aware.astimezone(UTC), kind


def _missing(local: datetime, zone: tzinfo) -> str | None:
    return f"{local:%H:%M:%S} does not exist on {local:%Y-%m-%d}" if _placed(local, zone)[1] == "gap" else None


def _twice(local: datetime) -> str:
    return f"{local:%H:%M} comes twice on {local:%Y-%m-%d}: runs once, at the first {local:%H:%M}"


def _skipped(gone: list[datetime]) -> tuple[str, ...]:
    """A line for each day on which something was skipped."""
    notes: list[str] = []
    for day in dict.fromkeys(local.date() for local in gone):
        times = [f"{local:%H:%M}" for local in gone if local.date() == day]
        if len(times) == 1:
            notes.append(f"{times[0]} does not exist on {day}: skipped")
        else:
            notes.append(f"{times[0]} to {times[-1]} do not exist on {day}: {len(times)} runs skipped")
    return tuple(notes)


def _shortest_of_cron(cron: Cron) -> timedelta:
    times = [timedelta(hours=hour, minutes=minute) for hour in cron.hours for minute in cron.minutes]
    within = min((later - earlier for earlier, later in pairwise(times)), default=timedelta.max)
    over_night = times[0] - times[-1]  # and a whole number of days
    days = _shortest_of_days(cron, enough=1 if len(times) > 1 else None)
    return within if days is None else min(within, days * _DAY + over_night)


def _shortest_of_days(cron: Cron, enough: int | None) -> int | None:
    """The least number of days between two of a cron's days."""
    shortest: int | None = None
    before: int | None = None
    for year in cron.years:
        for month in cron.months:
            for day in cron.days.of(year, month):
                number = datetime(year, month, day).toordinal()  # noqa: DTZ001 (a day, not an instant)
                if before is not None and (shortest is None or number - before < shortest):
                    shortest = number - before
                    if shortest == 1:
                        return shortest
                before = number
    return shortest
