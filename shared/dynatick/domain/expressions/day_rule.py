"""Rules for the days of a month, from the day-of-month or the day-of-week of a cron; the other one is ``?``.

Weekdays are numbered as in cron: 1 is Sunday, 7 is Saturday. Imported when the first cron is parsed.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class DaysOfMonth:
    """``1,15``: these days, if the month has them."""

    days: tuple[int, ...]

    def of(self, year: int, month: int) -> tuple[int, ...]:
        length = monthrange(year, month)[1]
        return self.days if self.days[-1] <= length else tuple(day for day in self.days if day <= length)


@dataclass(frozen=True, slots=True)
class LastDay:
    """``L``: the last day of the month."""

    def of(self, year: int, month: int) -> tuple[int, ...]:
        return (monthrange(year, month)[1],)


@dataclass(frozen=True, slots=True)
class LastWorkday:
    """``LW``: the last Monday-to-Friday of the month."""

    def of(self, year: int, month: int) -> tuple[int, ...]:
        length = monthrange(year, month)[1]
        return (length - {7: 1, 1: 2}.get(weekday_of(year, month, length), 0),)


@dataclass(frozen=True, slots=True)
class NearestWorkday:
    """``15W``: the Monday-to-Friday nearest to this day, within its month; none where the month has no such day."""

    day: int

    def of(self, year: int, month: int) -> tuple[int, ...]:
        length = monthrange(year, month)[1]
        if self.day > length:
            return ()
        weekday = weekday_of(year, month, self.day)
        if weekday == 7:
            return (self.day - 1 if self.day > 1 else 3,)
        if weekday == 1:
            return (self.day + 1 if self.day < length else self.day - 2,)
        return (self.day,)


@dataclass(frozen=True, slots=True)
class Weekdays:
    """``MON-FRI``: these days of each week."""

    weekdays: frozenset[int]

    def of(self, year: int, month: int) -> tuple[int, ...]:
        first, length = weekday_of(year, month, 1) - 1, monthrange(year, month)[1]
        return tuple(day for day in range(1, length + 1) if (first + day - 1) % 7 + 1 in self.weekdays)


@dataclass(frozen=True, slots=True)
class LastOfWeekday:
    """``6L``: the last Friday of the month."""

    weekday: int

    def of(self, year: int, month: int) -> tuple[int, ...]:
        length = monthrange(year, month)[1]
        return (length - (weekday_of(year, month, length) - self.weekday) % 7,)


@dataclass(frozen=True, slots=True)
class NthOfWeekday:
    """``2#5``: the fifth Monday of the month; none where the month has only four."""

    weekday: int
    nth: int

    def of(self, year: int, month: int) -> tuple[int, ...]:
        day = 1 + (self.weekday - weekday_of(year, month, 1)) % 7 + 7 * (self.nth - 1)
        return (day,) if day <= monthrange(year, month)[1] else ()


DayRule = DaysOfMonth | LastDay | LastWorkday | NearestWorkday | Weekdays | LastOfWeekday | NthOfWeekday


def weekday_of(year: int, month: int, day: int) -> int:
    """1 is Sunday, 7 is Saturday."""
    return date(year, month, day).isoweekday() % 7 + 1
