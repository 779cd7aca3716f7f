"""The evaluator against an oracle of our own, croniter and cronsim.

``make test`` takes the same few hundred expressions each time, ``make test-long`` more, ``make search`` others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random

import pytest
from croniter import CroniterBadDateError, croniter
from cronsim import CronSim
from tests.search.seed import search_seed
from tests.unit import brute_force as oracle
from tests.unit.domain.expressions import generator

from dynatick.domain.expressions import next_after, parse_expression, upcoming
from dynatick.domain.expressions.occurrence import clock_changes, zone_of
from dynatick.errors import InvalidInput

# So that several processes share the work.
CHUNKS = [n if n < 4 else pytest.param(n, marks=pytest.mark.long) for n in range(12)]
EXPRESSIONS = 83  # of each chunk

# Where things happen: ends of months and years, leap days and their absence, jumps of clocks, both ends of all years.
MOMENTS = tuple(
    datetime(*moment, tzinfo=UTC)
    for moment in (
        (1970, 1, 1), (1972, 2, 28, 23, 59), (1999, 12, 31, 23, 59), (2000, 2, 28, 12), (2011, 12, 29, 9),
        (2024, 2, 28, 20), (2026, 3, 7, 20), (2026, 3, 28, 23), (2026, 4, 4, 12), (2026, 9, 5, 20), (2026, 10, 3, 12),
        (2026, 10, 24, 23), (2026, 11, 1, 8, 45), (2026, 12, 31, 22), (2027, 2, 27), (2028, 2, 29), (2096, 2, 28),
        (2099, 12, 31, 12), (2100, 2, 28, 12), (2198, 12, 31, 23), (2199, 11, 3, 8), (2199, 12, 31, 12),
    )
)  # fmt: skip


# The clock's jumps, and the zones that have them.
JUMPS = tuple(
    (zone, datetime(*jump, tzinfo=UTC))
    for zone, jumps in {
        "America/Los_Angeles": [(2026, 3, 8, 10), (2026, 11, 1, 9)],
        "Europe/Berlin": [(2027, 3, 28, 1), (2027, 10, 31, 1)],
        "Europe/Dublin": [(2026, 3, 29, 1), (2026, 10, 25, 1)],  # summer is the standard time there
        "Australia/Lord_Howe": [(2026, 4, 4, 15), (2026, 10, 3, 15, 30)],  # half an hour
        "America/Santiago": [(2026, 4, 5, 3), (2026, 9, 6, 4)],  # at midnight
        "Pacific/Apia": [(2011, 12, 30, 10)],  # 2011-12-30 is missing
        "Africa/Casablanca": [(2026, 2, 15, 2), (2026, 3, 22, 2)],  # four jumps a year
        "Africa/Cairo": [(2026, 4, 23, 22), (2026, 10, 29, 21)],  # at midnight
        "Antarctica/Troll": [(2026, 3, 29, 1), (2026, 10, 25, 1)],  # two hours
        "America/New_York": [(2198, 3, 11, 7), (2198, 11, 4, 6)],
    }.items()
    for jump in jumps
)
ZONES = ("UTC", "UTC", *dict(JUMPS), "Asia/Kathmandu", "America/St_Johns")


def case(rng: Random) -> tuple[str, datetime, str]:
    """An expression, an instant and a zone; a third of them close to a clock change."""
    if rng.random() < 0.33:
        zone, jump = rng.choice(JUMPS)
        return generator.nightly(rng), jump - timedelta(seconds=rng.randint(-7200, 130_000)), zone
    return generator.cron(rng), moment(rng), rng.choice(ZONES)


def moment(rng: Random) -> datetime:
    near = rng.choice(MOMENTS) + timedelta(seconds=rng.randint(-86_400, 86_400))
    anywhere = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randrange(230 * 365 * 86_400))
    return near if rng.random() < 0.9 else anywhere


def draws(name: object) -> Random:
    """Draws the same for a name each time, or what a search draws for it."""
    return Random(f"expressions {name}" if (seed := search_seed()) is None else f"expressions {name} {seed}")


@pytest.mark.draws
@pytest.mark.parametrize("chunk", CHUNKS)
def test_occurrences_are_those_of_brute_force(chunk: int) -> None:
    rng = draws(chunk)
    seen: Counter[str] = Counter()
    for _ in range(EXPRESSIONS):
        text, after, name = case(rng)
        zone = zone_of(name)
        try:
            expression = parse_expression(text)
        except InvalidInput as refused:
            assert "never runs" in str(refused), refused
            assert next(oracle.runs(text, datetime(1969, 12, 1, tzinfo=UTC), UTC), None) is None, text
            seen["never"] += 1
            continue
        expected = list(islice(oracle.runs(text, after, zone), 3))
        found = list(islice(upcoming(expression, after, zone=name), 3))
        assert [one.instant for one in found] == expected, (text, after.isoformat(), name)
        seen.update(word for one in found for note in one.notes for word in ("not exist", "twice") if word in note)
        assert next_after(expression, after, zone=name) == (expected[0] if expected else None)
        seen["runs" if expected else "over"] += 1
    if search_seed() is None:  # a seed may draw too few of these
        assert seen["runs"] > seen["over"] > 0 < seen["not exist"] + seen["twice"], seen


@pytest.mark.parametrize(("zone", "instant"), JUMPS)
def test_clock_changes_are_found_to_the_second(zone: str, instant: datetime) -> None:
    # Not a whole number of the steps in which it searches.
    found = clock_changes(zone_of(zone), instant - timedelta(days=9, seconds=4321), instant + timedelta(days=9))
    assert [change.instant for change in found] == [instant]


def in_numbers(text: str) -> list[str]:
    """The fields for croniter and cronsim: lists of numbers, and weekdays from 0, where steps and ranges would begin at
    another day."""
    minutes, hours, day_of_month, month, day_of_week, year = text.removeprefix("cron(").removesuffix(")").split()
    for number, name in enumerate(oracle.MONTHS, 1):
        month = month.replace(name, str(number))
    for number, name in enumerate(oracle.WEEKDAYS, 1):
        day_of_week = day_of_week.replace(name, str(number))
    if day_of_week == "L":
        day_of_week = "6"
    elif day_of_week[-1] == "L" or "#" in day_of_week:
        day_of_week = f"{int(day_of_week[0]) - 1}{day_of_week[1:]}"
    elif day_of_week != "?":
        day_of_week = ",".join(str(day - 1) for day in range(1, 8) if oracle.belongs(day_of_week, day, 1, 7))
    days = day_of_month if day_of_month[-1] in "LW?" else _listed(day_of_month, 1, 31)
    days, day_of_week = days.replace("?", "*"), day_of_week.replace("?", "*")
    return [_listed(minutes, 0, 59), _listed(hours, 0, 23), days, _listed(month, 1, 12), day_of_week, year]


def _listed(spec: str, first: int, last: int) -> str:
    found = [value for value in range(first, last + 1) if oracle.belongs(spec, value, first, last)]
    return "*" if len(found) == last - first + 1 else ",".join(map(str, found))


def with_croniter(text: str, after: datetime) -> datetime | None:
    """The next occurrence; None if the expression has another meaning there (docs/decisions/0014)."""
    minutes, hours, days, month, day_of_week, year = in_numbers(text)
    years = [number for number in range(1970, 2100) if oracle.belongs(year, number, 1970, 2199)]
    if days == "LW" or (days.endswith("W") and int(days[:-1]) > 28) or not years or not 1970 < after.year < 2090:
        return None
    days, day_of_week = days.replace("L", "l"), f"L{day_of_week[0]}" if day_of_week.endswith("L") else day_of_week
    try:
        fields = f"{minutes} {hours} {days} {month} {day_of_week} 0 {','.join(map(str, years))}"
        return croniter(fields, after).get_next(datetime)
    except CroniterBadDateError:
        return None  # it does not look beyond fifty years


def with_cronsim(text: str, after: datetime) -> datetime | None:
    """The next occurrence; None if the expression has another meaning there."""
    *fields, year = in_numbers(text)
    # It knows no year, so no end of years either.
    if year != "*" or (fields[2] != "LW" and fields[2].endswith("W")) or not 1970 < after.year < 2140:
        return None
    return next(CronSim(" ".join(fields), after))


@pytest.mark.draws
@pytest.mark.parametrize("other", [with_croniter, with_cronsim])
def test_occurrences_are_those_of_other_evaluators(other: Callable[[str, datetime], datetime | None]) -> None:
    rng = draws(other.__name__)
    compared = 0
    while compared < 400:
        text, after = generator.cron(rng), moment(rng).replace(second=0)
        try:
            expression = parse_expression(text)
        except InvalidInput:
            continue
        expected = other(text, after.replace(tzinfo=None))
        if expected is None:
            continue
        assert next_after(expression, after) == expected.replace(tzinfo=UTC), (text, after.isoformat())
        compared += 1
