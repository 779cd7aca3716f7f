"""An independent, slow evaluation of expressions: it tries every minute of the clock.

The evaluator lists the values of each field and goes from wall times to instants. Here nothing is listed: a day is
asked whether it belongs, a minute likewise, straight from the expression's text; and each minute of UTC is asked
what the clock shows then, so a time that the clock skips never comes up, and the second showing (``fold``) is left
out. Nothing of ``dynatick`` is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache

_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MONTHS = {name: i for i, name in enumerate(MONTHS, 1)}
_WEEKDAYS = {name: i for i, name in enumerate(WEEKDAYS, 1)}
_END = date(2199, 12, 31)


def runs(text: str, after: datetime, zone: tzinfo) -> Iterator[datetime]:
    """The instants after ``after``, by testing each day and each minute of a matching day."""
    minutes, hours, day_of_month, month, day_of_week, year = text.removeprefix("cron(").removesuffix(")").split()
    years = {number for number in range(1970, 2200) if belongs(year, number, 1970, 2199)}
    months = {number for number in range(1, 13) if belongs(month, number, 1, 12, _MONTHS)}
    day = max(after.astimezone(zone).date() - 2 * _DAY, date(1970, 1, 1))
    shown_hours = [belongs(hours, hour, 0, 23) for hour in range(24)]
    shown_minutes = [belongs(minutes, minute, 0, 59) for minute in range(60)]
    while True:
        if (
            day.year in years
            and day.month in months
            and (day_belongs(day_of_month, day) if day_of_week == "?" else weekday_belongs(day_of_week, day))
        ):
            for instant, hour, minute in clock(day, zone):
                if shown_hours[hour] and shown_minutes[minute] and instant > after:
                    yield instant
        if day == _END:
            return
        day += _DAY


def belongs(spec: str, value: int, first: int, last: int, names: dict[str, int] | None = None) -> bool:
    """Whether a field of lists, ranges and steps contains a value."""
    return any(_part(part, value, first, last, names or {}) for part in spec.split(","))


def _part(part: str, value: int, first: int, last: int, names: dict[str, int]) -> bool:
    size = last - first + 1
    span, _, step = part.partition("/")
    low, _, high = span.partition("-")
    if low == "*":
        begin, length = first, size - 1
    else:
        begin = names[low] if low in names else int(low)
        end = last if step else begin
        if high:
            end = names[high] if high in names else int(high)
        length = (end - begin) % size
    distance = (value - begin) % size
    return distance <= length and distance % int(step or 1) == 0


def day_belongs(spec: str, day: date) -> bool:
    if spec == "L":
        return (day + _DAY).day == 1
    month = _month(day.year, day.month)
    workdays = [other for other in month if other.weekday() < 5]
    if spec == "LW":
        return day == workdays[-1]
    if spec.endswith("W"):
        wanted = [other for other in month if other.day == int(spec[:-1])]
        return bool(wanted) and day == min(workdays, key=lambda other: abs(other - wanted[0]))
    return belongs(spec, day.day, 1, 31)


def weekday_belongs(spec: str, day: date) -> bool:
    weekday = (day.weekday() + 1) % 7 + 1
    if spec == "L":
        return weekday == 7
    if "#" in spec:
        name, nth = spec.split("#")
        same = [other for other in _month(day.year, day.month) if other.weekday() == day.weekday()]
        return belongs(name, weekday, 1, 7, _WEEKDAYS) and same.index(day) + 1 == int(nth)
    if spec.endswith("L"):
        return belongs(spec[:-1], weekday, 1, 7, _WEEKDAYS) and (day + 7 * _DAY).month != day.month
    return belongs(spec, weekday, 1, 7, _WEEKDAYS)


@lru_cache
def _month(year: int, month: int) -> list[date]:
    first = date(year, month, 1)
    return [first + i * _DAY for i in range(31) if (first + i * _DAY).month == month]


@lru_cache(maxsize=4096)
def clock(day: date, zone: tzinfo) -> tuple[tuple[datetime, int, int], ...]:
    """Each instant at which the zone's clock shows a minute of that day for the first time, with its wall time."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    offsets = [(midnight + hours * 60 * _MINUTE).astimezone(zone).utcoffset() for hours in (-24, 0, 24, 48)]
    begin, end = midnight - max(offsets), midnight + _DAY - min(offsets)
    found = []
    while begin < end:
        shown = begin.astimezone(zone)
        if shown.fold == 0 and shown.date() == day:
            found.append((begin, shown.hour, shown.minute))
        begin += _MINUTE
    return tuple(found)
