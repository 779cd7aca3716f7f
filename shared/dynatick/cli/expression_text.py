"""Schedule expressions in plain words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from dynatick.domain.expressions import At, Cron, Expression, Rate
from dynatick.domain.expressions.day_rule import DaysOfMonth, Weekdays
from dynatick.domain.expressions.model import FIRST_YEAR, LAST_YEAR
from dynatick.domain.expressions.time_zone import zone_of

_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_RANGE = re.compile(r"\w+-\w+")
_STEP = re.compile(r"(\*|\d+)/(\d+)")


def in_words(expression: Expression, zone: str) -> str:
    """One sentence without its full stop."""
    match expression:
        case Rate():
            return f"Every {expression.text[5:-1].removeprefix('1 ')}, counted from the schedule's start"
        case At():
            local = expression.local
            return f"Once, on {local:%A} {local.day} {local:%B %Y} at {local:%H:%M:%S} ({zone})"
        case Cron():
            return f"{_of_cron(expression)} ({zone})"
        case _:
            assert_never(expression)


def wall_time(instant: datetime, zone: str) -> str:
    """What the clock of a zone shows, with weekday and offset, and seconds only where there are any."""
    local = instant.astimezone(zone_of(zone))
    clock = f"{local:%H:%M:%S}".removesuffix(":00")
    return f"{local:%a %Y-%m-%d} {clock} {local.isoformat()[-6:]}"


def _of_cron(cron: Cron) -> str:
    from cron_descriptor import Options, get_description

    options = Options()
    options.locale_code = "en_US"
    options.day_of_week_start_index_zero = False
    options.use_24hour_time_format = True
    options.verbose = True
    minutes, hours, day_of_month, month, day_of_week, year = cron.text[5:-1].split()
    if isinstance(cron.days, DaysOfMonth):
        day_of_month = _plain(day_of_month, cron.days.days, 31)
    if isinstance(cron.days, Weekdays):
        names = [_WEEKDAYS[number - 1] for number in sorted(cron.days.weekdays)]
        day_of_week = _plain(day_of_week, names, 7)
    fields = (
        "0",
        _plain(minutes, cron.minutes, 60, steps=True),
        _plain(hours, cron.hours, 24, steps=True),
        day_of_month,
        _plain(month, cron.months, 12),
        day_of_week,
        _plain(year, cron.years, LAST_YEAR - FIRST_YEAR + 1),
    )
    return str(get_description(" ".join(fields), options))


def _plain(text: str, values: Sequence[int | str], size: int, *, steps: bool = False) -> str:
    """A field as the library describes it well: as it stands if it is simple, else as a list of its values.

    A step stays one if it goes round evenly, as every 20 minutes does and every 25 does not.
    """
    if len(values) == size:
        return "*"
    if _RANGE.fullmatch(text) and len(values) > 1:
        return text
    step = _STEP.fullmatch(text)
    first = values[0]
    if (
        steps
        and step
        and len(values) > 1
        and size % int(step[2]) == 0
        and isinstance(first, int)
        and first < int(step[2])
    ):
        return text
    return ",".join(str(value) for value in values)
