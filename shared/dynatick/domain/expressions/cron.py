"""Parses the six fields of a cron expression, strictly. Imported when the first cron is parsed.

    minutes        0-59              , - * /
    hours          0-23              , - * /
    day-of-month   1-31              , - * / ? L W
    month          1-12 or JAN-DEC   , - * /
    day-of-week    1-7 or SUN-SAT    , - * / ? L #
    year           1970-2199         , - * /

Exactly one of the two day fields is ``?``. ``L``, ``LW``, ``15W``, ``6L`` and ``2#3`` must be alone in their field. A
range may wrap around the end of its field (``FRI-MON``, ``22-2``), except in the year. The year is optional.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from dynatick.domain.expressions.model import FIRST_YEAR, LAST_YEAR, Cron, InvalidExpression

# -- the days of a month -----------------------------------------------------------------------------------------------
#
# From the day-of-month or the day-of-week of a cron; the other one is ``?``. 1 is Sunday, 7 is Saturday.


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


# -- fields ------------------------------------------------------------------------------------------------------------

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

_WORD = re.compile(r"\S+")
_NUMBER = re.compile(r"\d{1,4}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Field:
    """One of the six fields: its name, its values, and names for values."""

    name: str
    first: int
    last: int
    largest_step: int
    names: Mapping[str, int] = field(default_factory=dict)
    wraps: bool = True

    @property
    def values(self) -> str:
        """The accepted values, for messages."""
        named = list(self.names)
        return f"{self.first}-{self.last}" + (f" or {named[0]}-{named[-1]}" if named else "")


@dataclass(frozen=True, slots=True)
class Word:
    """The text of one field, in upper case, and its position in the expression."""

    text: str
    index: int


MINUTES = Field("minutes", 0, 59, 59)
HOURS = Field("hours", 0, 23, 23)
DAY_OF_MONTH = Field("day-of-month", 1, 31, 31)
MONTH = Field("month", 1, 12, 12, {name: number for number, name in enumerate(MONTHS, 1)})
DAY_OF_WEEK = Field("day-of-week", 1, 7, 7, {name: number for number, name in enumerate(WEEKDAYS, 1)})
YEAR = Field("year", FIRST_YEAR, LAST_YEAR, LAST_YEAR - FIRST_YEAR, wraps=False)


def parse_cron(inner: str, offset: int) -> Cron:
    """The Cron of the text in the brackets of ``cron(…)``. ``offset``: its position. Raises InvalidExpression."""
    words = [Word(match[0].upper(), offset + match.start()) for match in _WORD.finditer(inner)]
    if len(words) == 5:
        if not any("?" in word.text for word in words):
            from dynatick.domain.expressions.unix import answer_to_unix

            raise InvalidExpression(
                answer_to_unix(inner) or "five fields and no '?': one of day-of-month and day-of-week is '?'"
            )
        words.append(Word("*", offset + len(inner)))
    if len(words) != 6:
        raise InvalidExpression(
            f"there are {len(words)} fields, where six are expected: minutes hours day-of-month month day-of-week year",
            words[6].index if len(words) > 6 else None,
        )
    minutes, hours, day_of_month, month, day_of_week, year = words
    numbers = [_numbers(word, kind) for word, kind in ((minutes, MINUTES), (hours, HOURS))]
    days = _days(day_of_month, day_of_week)
    cron = Cron(
        text=f"cron({' '.join(_tidy(word.text) for word in words)})",
        minutes=numbers[0],
        hours=numbers[1],
        days=days,
        months=_numbers(month, MONTH),
        years=_numbers(year, YEAR),
    )
    if not any(days.of(y, m) for y in cron.years for m in cron.months):
        raise InvalidExpression("it never runs: no month of its years has such a day", day_of_month.index)
    return cron


def _days(day_of_month: Word, day_of_week: Word) -> DayRule:
    free = [word.text == "?" for word in (day_of_month, day_of_week)]
    if all(free):
        raise InvalidExpression("day-of-month and day-of-week are both '?'; give one of them", day_of_week.index)
    if not any(free):
        raise InvalidExpression(
            "day-of-month and day-of-week are both given; one of them must be '?' "
            f"({_tidy(day_of_month.text)} and {_tidy(day_of_week.text)})",
            day_of_week.index,
        )
    return _weekdays(day_of_week) if free[0] else _days_of_month(day_of_month)


def _days_of_month(word: Word) -> DayRule:
    if word.text == "L":
        return LastDay()
    if word.text == "LW":
        return LastWorkday()
    if match := re.fullmatch(r"(\d+)W", word.text, re.ASCII):
        return NearestWorkday(_value(Word(match[1], word.index), DAY_OF_MONTH))
    _check_alone(word, "LW", DAY_OF_MONTH, "L, LW or one day with W, such as 15W,")
    return DaysOfMonth(_numbers(word, DAY_OF_MONTH))


def _weekdays(word: Word) -> DayRule:
    if word.text == "L":
        return Weekdays(frozenset({7}))  # the last day of the week
    if match := re.fullmatch(r"(\w+)L", word.text, re.ASCII):
        return LastOfWeekday(_value(Word(match[1], word.index), DAY_OF_WEEK))
    if match := re.fullmatch(r"(\w+)#(\w+)", word.text, re.ASCII):
        if match[2] not in ("1", "2", "3", "4", "5"):
            reason = f"day-of-week: {match[2]!r} is not 1 to 5, the number of the week in its month"
            raise InvalidExpression(reason, word.index + match.start(2))
        return NthOfWeekday(_value(Word(match[1], word.index), DAY_OF_WEEK), int(match[2]))
    _check_alone(word, "L#", DAY_OF_WEEK, "L, a day with L, such as 6L, or with #, such as 2#3,")
    return Weekdays(frozenset(_numbers(word, DAY_OF_WEEK)))


def _check_alone(word: Word, characters: str, kind: Field, what: str) -> None:
    """Refuses these characters in a list, range or step."""
    bare = re.sub("|".join(kind.names) or r"\0", lambda match: "-" * len(match[0]), word.text)
    found = next((index for index, character in enumerate(bare) if character in characters), None)
    if found is not None:
        raise InvalidExpression(f"{kind.name}: {what} stands alone in its field", word.index + found)


def _numbers(word: Word, kind: Field) -> tuple[int, ...]:
    """The values of a field of lists, ranges and steps, in order."""
    found: set[int] = set()
    index = word.index
    for part in word.text.split(","):
        found.update(_range(Word(part, index), kind))
        index += len(part) + 1
    return tuple(sorted(found))


def _range(part: Word, kind: Field) -> list[int]:
    """The values of ``*``, ``5``, ``5-8`` or ``8-5`` (around the end), also with a step; ``5/3`` goes to the end."""
    whole, slash, step_text = part.text.partition("/")
    step = _step(Word(step_text, part.index + len(whole) + 1), kind) if slash else 1
    low, dash, high = whole.partition("-")
    if whole == "*":
        first, last = kind.first, kind.last
    elif dash:
        first = _value(Word(low, part.index), kind)
        last = _value(Word(high, part.index + len(low) + 1), kind)
    else:
        first = _value(Word(whole, part.index), kind)
        last = kind.last if slash else first
    if last < first:
        if not kind.wraps:
            raise InvalidExpression(f"{kind.name}: the range {whole} ends before it begins", part.index)
        size = kind.last - kind.first + 1
        return [kind.first + (value - kind.first) % size for value in range(first, last + size + 1, step)]
    return list(range(first, last + 1, step))


def _step(word: Word, kind: Field) -> int:
    if not _NUMBER.fullmatch(word.text) or int(word.text) < 1:
        raise InvalidExpression(f"{kind.name}: {word.text!r} is not a step, a whole number from 1 on", word.index)
    step = int(word.text)
    if step > kind.largest_step:
        raise InvalidExpression(
            f"{kind.name}: a step of {step} goes beyond the field ({kind.values}), which starts anew each time; "
            "an interval of any length is a rate, such as rate(90 minutes)",
            word.index,
        )
    return step


def _value(word: Word, kind: Field) -> int:
    if word.text in kind.names:
        return kind.names[word.text]
    if not _NUMBER.fullmatch(word.text):
        raise InvalidExpression(f"{kind.name}: {_problem_of(word.text)}; expected {kind.values}", word.index)
    value = int(word.text)
    if not kind.first <= value <= kind.last:
        hint = " (1 is Sunday, 7 Saturday)" if kind is DAY_OF_WEEK else ""
        raise InvalidExpression(f"{kind.name}: {word.text} is not from {kind.values}{hint}", word.index)
    return value


def _problem_of(text: str) -> str:
    if not text:
        return "a value is missing"
    return "'?' stands in day-of-month or day-of-week only, alone" if "?" in text else f"{text!r} is not understood"


def _tidy(text: str) -> str:
    """The text without leading zeros."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", text)
