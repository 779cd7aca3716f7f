"""An independent, slow evaluation of cron expressions: it tries every minute of the clock.

The evaluator of ``dynatick.domain.expressions`` lists the values of each field and goes from wall times to instants.
Here nothing is listed: a day is asked whether it belongs, a minute likewise, straight from the expression's text; and
each minute of UTC is asked what the clock shows then, so a time that the clock skips never comes up. Nothing else of
``dynatick`` is used. Tests compare with it the evaluator, and the schedules that are made of a crontab's lines.
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
_CRONTAB_WEEKDAYS = {name: i for i, name in enumerate(WEEKDAYS)}
_END = date(2199, 12, 31)


def runs(text: str, after: datetime, zone: tzinfo) -> Iterator[datetime]:
    """The instants of a ``cron(…)`` after ``after``, by testing each day and each minute of a matching day."""
    minutes, hours, day_of_month, month, day_of_week, year = text.removeprefix("cron(").removesuffix(")").split()
    years = {number for number in range(1970, 2200) if belongs(year, number, 1970, 2199)}
    months = {number for number in range(1, 13) if belongs(month, number, 1, 12, _MONTHS)}
    shown_hours = [belongs(hours, hour, 0, 23) for hour in range(24)]
    shown_minutes = [belongs(minutes, minute, 0, 59) for minute in range(60)]
    for day in _days(after, zone):
        if (
            day.year in years
            and day.month in months
            and (day_belongs(day_of_month, day) if day_of_week == "?" else weekday_belongs(day_of_week, day))
        ):
            for instant, hour, minute in clock(day, zone):
                if shown_hours[hour] and shown_minutes[minute] and instant > after:
                    yield instant


def crontab_runs(fields: str, after: datetime, zone: tzinfo) -> Iterator[datetime]:
    """The instants after ``after`` of a crontab's five fields, in capitals, as cronie and Debian's cron run them.

    A line with ``*`` for its minute or hour runs whenever the clock shows its time, in autumn twice. Another runs once,
    the first time; in spring, what the clock skips runs at the first minute after.
    """
    minutes, hours, day_of_month, month, day_of_week = fields.split()
    both = day_of_month.startswith("*") or day_of_week.startswith("*")
    repeats = minutes.startswith("*") or hours.startswith("*")
    shown_hours = [belongs(hours, hour, 0, 23) for hour in range(24)]
    shown_minutes = [belongs(minutes, minute, 0, 59) for minute in range(60)]
    wanted = {
        (hour, minute) for hour in range(24) for minute in range(60) if shown_hours[hour] and shown_minutes[minute]
    }
    for day in _days(after, zone):
        weekday = day.isoweekday() % 7
        found = [
            belongs(day_of_month, day.day, 1, 31),
            any(
                belongs(day_of_week, number, 0, 7, _CRONTAB_WEEKDAYS)
                for number in ({0, 7} if weekday == 0 else {weekday})
            ),
        ]
        if belongs(month, day.month, 1, 12, _MONTHS) and (all(found) if both else any(found)):
            shown = all_of_clock(day, zone) if repeats else clock(day, zone)
            times = {instant for instant, hour, minute in shown if (hour, minute) in wanted}
            if not repeats:
                times |= _after_gaps(wanted, shown)
            yield from sorted(instant for instant in times if instant > after)


def _after_gaps(wanted: set[tuple[int, int]], shown: tuple[tuple[datetime, int, int], ...]) -> set[datetime]:
    """The first minute after each wanted time that the clock of the day does not show."""
    if len(shown) == 24 * 60:
        return set()
    skipped = wanted - {(hour, minute) for _, hour, minute in shown}
    later = [[instant for instant, hour, minute in shown if (hour, minute) > time] for time in skipped]
    return {instants[0] for instants in later if instants}


def _days(after: datetime, zone: tzinfo) -> Iterator[date]:
    day = max(after.astimezone(zone).date() - 2 * _DAY, date(1970, 1, 1))
    while day < _END:
        yield day
        day += _DAY
    yield _END


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
    """Whether a day-of-month contains a day."""
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
    """Whether a day-of-week contains a day."""
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
    return tuple(_shown(day, zone, again=False))


def all_of_clock(day: date, zone: tzinfo) -> tuple[tuple[datetime, int, int], ...]:
    """Like ``clock``, and also returns the minutes that the clock shows a second time."""
    return tuple(_shown(day, zone, again=True))


def _shown(day: date, zone: tzinfo, *, again: bool) -> Iterator[tuple[datetime, int, int]]:
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    local = [(midnight + hours * 60 * _MINUTE).astimezone(zone).utcoffset() for hours in (-24, 0, 24, 48)]
    offsets = [offset for offset in local if offset is not None]
    begin, end = midnight - max(offsets), midnight + _DAY - min(offsets)
    while begin < end:
        shown = begin.astimezone(zone)
        if (again or shown.fold == 0) and shown.date() == day:
            yield begin, shown.hour, shown.minute
        begin += _MINUTE
