"""The occurrences of an expression."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, assert_never

from dynatick.domain import attributes as attr
from dynatick.domain.expressions.model import FIRST_YEAR, LAST_YEAR, At, Cron, Expression, Rate
from dynatick.domain.expressions.parse import EXPRESSION_FIELD
from dynatick.domain.instants import LATEST, format_instant, in_range, require_aware
from dynatick.errors import InvalidInput

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
from itertools import takewhile
from typing import NamedTuple

# -- time zones --------------------------------------------------------------------------------------------------------
#
# By their IANA names, from the pinned package ``tzdata`` only. ``ZoneInfo(name)`` reads the system's files first, which
# differ between machines. To prevent that would need a setting of the whole process, which belongs to the user.

ZONE_FIELD = attr.SCHEDULE_EXPRESSION_TIMEZONE


def check_zone(value: object, field: str = ZONE_FIELD) -> str:
    """The name, if the IANA database has it. Raises InvalidInput, with similar names."""
    if isinstance(value, str) and value in zone_names():
        return value
    raise InvalidInput(field, value, _expected(value))


@cache
def zone_of(name: str) -> tzinfo:
    """The zone of that name. Raises InvalidInput."""
    if check_zone(name) == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # imported here, for fast cold starts without schedules

    with _package().joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@cache
def zone_names() -> frozenset[str]:
    """All names, including the deprecated ones."""
    return frozenset(_package().joinpath("zones").read_text(encoding="ascii").split())


def _package() -> Traversable:
    from importlib.resources import files

    return files("tzdata")


def _expected(value: object) -> str:
    expected = "expected the IANA name of a time zone, such as Europe/Berlin or UTC"
    if not isinstance(value, str) or not value.strip():
        return expected
    close = _close(value.strip())
    return f"{expected}; close to it: {', '.join(close)}" if close else expected


def _close(text: str) -> list[str]:
    from difflib import get_close_matches

    wanted = text[:100].lower().replace(" ", "_")
    folded = {name.lower(): name for name in sorted(zone_names())}
    if wanted in folded:
        return [folded[wanted]]
    by_city = [name for low, name in folded.items() if low.rpartition("/")[2] == wanted.rpartition("/")[2]]
    near = [folded[low] for low in get_close_matches(wanted, folded, n=3, cutoff=0.75)]
    return list(dict.fromkeys([*by_city, *near]))[:3]


# -- occurrences -------------------------------------------------------------------------------------------------------

_MICROSECOND = timedelta(microseconds=1)
_DAY = timedelta(days=1)
_FIRST_DAY = datetime(FIRST_YEAR, 1, 1)  # noqa: DTZ001 (wall time)
_BEFORE_ALL = datetime(FIRST_YEAR - 1, 12, 1, tzinfo=UTC)
_AFTER_ALL = datetime(LAST_YEAR + 1, 2, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One occurrence: its nominal instant, and notes about clock changes since the occurrence before."""

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
    """The nominal instant of the first occurrence strictly after ``after``; None if there is none.

    ``start`` and ``end`` are inclusive. A rate needs a ``start``, which is its first occurrence; ``at`` ignores both.
    Raises InvalidInput for a naive datetime, an unknown zone, and a rate without start.
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
    """Iterates over the occurrences strictly after ``after``; arguments and errors as for :func:`next_after`."""
    after = require_aware(after, "after")
    start = None if start is None else require_aware(start, attr.START_DATE)
    end = None if end is None else require_aware(end, attr.END_DATE)
    match expression:
        case Rate():
            if start is None:
                raise InvalidInput(attr.START_DATE, start, "a rate counts from its start: give one")
            return _until(_rate(expression, after, start), end)
        case At():
            return _at(expression, after, zone_of(zone))
        case Cron():
            begin = after if start is None else max(after, start - _MICROSECOND)
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
    """Whether there is no occurrence after ``after``."""
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
    """The first occurrence after ``after``. Raises InvalidInput, with the reason, if there is none."""
    first = next_after(expression, after, zone=zone, start=start, end=end)
    if first is not None:
        return first
    if isinstance(expression, At) and _instant_of(expression.local, zone_of(zone))[1] == "gap":
        raise InvalidInput(field, expression.text, f"it never runs: in {zone}, {skipped([expression.local])[0]}")
    if not isinstance(expression, At) and end is not None:
        unbounded = next_after(expression, after, zone=zone, start=start)
        if unbounded is not None:
            reason = f"it never runs: its next run, {format_instant(unbounded)}, would be after its end"
            raise InvalidInput(attr.END_DATE, format_instant(end), reason)
    raise InvalidInput(field, expression.text, f"it never runs after {format_instant(after)} ({zone})")


def shortest_gap(expression: Expression) -> timedelta:
    """The shortest time between two occurrences, by the wall clock; ``timedelta.max`` if there are not two.

    A clock change can bring two occurrences of a cron closer together.
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
            instant = in_range(start + number * rate.period, None, attr.START_DATE)
        except (OverflowError, InvalidInput):
            return  # the end of the calendar
        yield Occurrence(instant)
        number += 1


def _at(at: At, after: datetime, zone: tzinfo) -> Iterator[Occurrence]:
    instant, kind = _instant_of(at.local, zone)
    if kind != "gap" and instant > after:
        yield Occurrence(instant, twice([at.local]) if kind == "fold" else ())


def _cron(cron: Cron, after: datetime, zone: tzinfo) -> Iterator[Occurrence]:
    """The occurrences of a cron, by iterating over its wall times.

    An existing wall time has the first of its instants, so instants and wall times have the same order, and the
    occurrences after an instant are among the wall times from that instant's own on.
    """
    if after >= _AFTER_ALL:
        return
    begin = max(after, _BEFORE_ALL).astimezone(zone).replace(tzinfo=None)
    missing: list[datetime] = []
    for local in wall_times(cron, begin.replace(second=0, microsecond=0)):
        instant, kind = _instant_of(local, zone)
        if kind == "gap":
            missing.append(local)
        elif instant > after:
            yield Occurrence(instant, (*skipped(missing), *(twice([local]) if kind == "fold" else ())))
            missing.clear()


def wall_times(cron: Cron, begin: datetime) -> Iterator[datetime]:
    """The wall times that a cron matches, from ``begin`` (a whole minute) on, in order."""
    for day in _days(cron, begin):
        today = day.date() == begin.date()
        hours = cron.hours[bisect_left(cron.hours, begin.hour) :] if today else cron.hours
        for hour in hours:
            first = bisect_left(cron.minutes, begin.minute) if today and hour == begin.hour else 0
            for minute in cron.minutes[first:]:
                yield day.replace(hour=hour, minute=minute)


def _days(cron: Cron, begin: datetime) -> Iterator[datetime]:
    """The days that a cron matches, from that of ``begin`` on, as naive midnights."""
    for year in cron.years[bisect_left(cron.years, begin.year) :]:
        for month in cron.months:
            if (year, month) < (begin.year, begin.month):
                continue
            first = begin.day if (year, month) == (begin.year, begin.month) else 1
            for day in cron.days.of(year, month):
                if day >= first:
                    yield datetime(year, month, day)  # noqa: DTZ001 (wall time)


def _instant_of(local: datetime, zone: tzinfo) -> tuple[datetime, str]:
    """The first instant of a wall time, and whether it comes ``once``, twice (``fold``) or never (``gap``)."""
    if zone is UTC:
        return local.replace(tzinfo=UTC), "once"
    aware = local.replace(tzinfo=zone)
    first, second = aware.utcoffset(), aware.replace(fold=1).utcoffset()
    assert first is not None and second is not None  # every zone of the database has an offset at any time
    kind = "once" if first == second else "fold" if first > second else "gap"
    return aware.astimezone(UTC), kind


def skipped(missing: Sequence[datetime]) -> tuple[str, ...]:
    """Notes about wall times that do not exist, one for each day."""
    return tuple(
        f"{times[0]} does not exist on {day}: skipped"
        if len(times) == 1
        else f"{times[0]} to {times[-1]} do not exist on {day}: {len(times)} runs skipped"
        for day, times in _by_day(missing)
    )


def twice(repeated: Sequence[datetime]) -> tuple[str, ...]:
    """Notes about wall times that come twice, one for each day."""
    return tuple(
        f"{times[0]} comes twice on {day}: runs once, at the first {times[0]}"
        if len(times) == 1
        else f"{times[0]} to {times[-1]} come twice on {day}: {len(times)} runs, each once, at the first"
        for day, times in _by_day(repeated)
    )


def _by_day(times: Sequence[datetime]) -> list[tuple[date, list[str]]]:
    days = groupby(times, key=datetime.date)
    return [(day, [f"{local:%H:%M:%S}".removesuffix(":00") for local in found]) for day, found in days]


def _shortest_of_cron(cron: Cron) -> timedelta:
    times = [timedelta(hours=hour, minutes=minute) for hour in cron.hours for minute in cron.minutes]
    within = min((later - earlier for earlier, later in pairwise(times)), default=timedelta.max)
    over_night = times[0] - times[-1]  # negative: the days are added below
    days = _shortest_of_days(cron)
    return within if days is None else min(within, days * _DAY + over_night)


def _shortest_of_days(cron: Cron) -> int | None:
    """The smallest number of days between two days that a cron matches."""
    shortest: int | None = None
    for earlier, later in pairwise(_days(cron, _FIRST_DAY)):
        days = (later - earlier).days
        if shortest is None or days < shortest:
            shortest = days
            if shortest == 1:
                break
    return shortest


# -- clock changes -----------------------------------------------------------------------------------------------------

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
    last = first + min(within, LATEST - first)  # no datetime might be so late
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
