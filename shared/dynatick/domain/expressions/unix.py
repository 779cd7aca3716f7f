"""Unix cron: the five fields of a crontab's line, as a ``cron(…)``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from dynatick.domain.expressions.cron import MONTHS, WEEKDAYS, parse_cron
from dynatick.domain.expressions.model import InvalidExpression
from dynatick.errors import InvalidInput

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PART = re.compile(r"(?:(?P<all>\*)|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>\d+))?", re.ASCII)
_LINE = "line"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A field: its name, its first and last value, and names for values."""

    name: str
    first: int
    last: int
    names: Mapping[str, int] = field(default_factory=dict)


_MINUTE, _HOUR, _DAY = _Kind("minute", 0, 59), _Kind("hour", 0, 23), _Kind("day of month", 1, 31)
_MONTH = _Kind("month", 1, 12, {name: number for number, name in enumerate(MONTHS, 1)})
_WEEKDAY = _Kind("day of week", 0, 7, {name: number for number, name in enumerate(WEEKDAYS)})


def answer_to_unix(text: str) -> str | None:
    """The message for a Unix cron expression, with its translation; None for any other text."""
    fields = MACROS.get(text.lower(), text)
    if len(fields.split()) != 5:
        return None
    try:
        inner, _ = cron_of(fields)
        return f"that is Unix cron; write {parse_cron(inner, 0).text}"
    except InvalidExpression:  # it never runs
        return None
    except InvalidInput as error:
        return f"that is Unix cron; {error.expected}" if error.field == _LINE else None


def cron_of(fields: str) -> tuple[str, bool]:
    """The text for the brackets of a ``cron(…)``, and whether cron runs the five fields in each hour that passes.

    Raises InvalidInput for a field that cron does not take, and for a line whose days a ``cron(…)`` can't name.
    """
    texts = fields.upper().split()
    minute, hour, day, month = (
        _values(text, kind) for text, kind in zip(texts[:4], (_MINUTE, _HOUR, _DAY, _MONTH), strict=True)
    )
    weekday = {number % 7 for number in _values(texts[4], _WEEKDAY)}
    every_day, every_weekday = len(day) == 31, len(weekday) == 7
    start = f"{_written(minute, _MINUTE)} {_written(hour, _HOUR)}"
    by_day = f"{_written(day, _DAY)} {_written(month, _MONTH)} ?"
    by_weekday = f"? {_written(month, _MONTH)} {_written_weekdays(weekday)}"
    if texts[2].startswith("*") or texts[4].startswith("*"):  # both have to be right
        if not every_day and not every_weekday:
            expected = (
                "expected '*' for day of month or day of week: as one of them begins with '*', cron runs the line on "
                "days that both name, and a cron(…) takes one of them"
            )
            raise InvalidInput(_LINE, fields, expected)
        days = by_weekday if every_day and not every_weekday else by_day
    elif every_day or every_weekday:  # one of them is enough
        days = f"* {_written(month, _MONTH)} ?"
    else:
        expected = (
            "expected '*' for day of month or day of week: cron runs the line on days that either names, and a cron(…) "
            f"takes one of them; cron({start} {by_day} *) and cron({start} {by_weekday} *) would run it twice on days "
            "that both name"
        )
        raise InvalidInput(_LINE, fields, expected)
    repeats = texts[0].startswith("*") or texts[1].startswith("*")  # also in the hour that the clock shows twice
    return f"{start} {days} *", repeats and len(hour) == 24 and days == "* * ?"


def _values(text: str, kind: _Kind) -> set[int]:
    """The values of a field. Raises InvalidInput."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise InvalidInput(
                kind.name, text, f"expected numbers from {kind.first} to {kind.last}, as in 1,5-10 or */2"
            )
        first, last = kind.first, kind.last
        if not match["all"]:
            first = _value(match["low"], text, kind)
            last = first if match["high"] is None else _value(match["high"], text, kind)
            if match["step"] and match["high"] is None:
                raise InvalidInput(kind.name, text, "expected a range or '*' before the step, as in 5-59/10")
            if last < first:
                raise InvalidInput(kind.name, text, "expected a range that ends after it begins")
        step = int(match["step"] or 1)
        if step < 1:
            raise InvalidInput(kind.name, text, "expected a step from 1 on")
        found.update(range(first, last + 1, step))
    return found


def _value(word: str, text: str, kind: _Kind) -> int:
    if word in kind.names:
        return kind.names[word]
    if not word.isdecimal() or not kind.first <= int(word) <= kind.last:
        raise InvalidInput(kind.name, text, f"expected numbers from {kind.first} to {kind.last}")
    return int(word)


def _written(values: Collection[int], kind: _Kind) -> str:
    """A field of a ``cron(…)``: ``*``, a range, a range with a step, or a list."""
    listed = sorted(values)
    if len(listed) == kind.last - kind.first + 1:
        return "*"
    steps = {later - earlier for earlier, later in pairwise(listed)}
    if len(listed) < 3 or len(steps) > 1:
        return ",".join(map(str, listed))
    step = steps.pop()
    if step == 1:
        return f"{listed[0]}-{listed[-1]}"
    return f"{listed[0]}/{step}" if listed[-1] + step > kind.last else f"{listed[0]}-{listed[-1]}/{step}"


def _written_weekdays(values: Collection[int]) -> str:
    """A day of week by names: a range, or a list."""
    names = [WEEKDAYS[number] for number in sorted(values)]
    is_range = len(names) > 2 and max(values) - min(values) == len(names) - 1
    return f"{names[0]}-{names[-1]}" if is_range else ",".join(names)
