"""A hundred years of schedules, in every time zone: do they run when they must?

What the product's evaluator lists is compared with what follows from the zone's spans alone: within a span wall times
and instants go together, a wall time that no span has does not run, and one that was shown before does not run again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise, takewhile, zip_longest
from random import Random

from tests.simulate.clocks import DAY, Span, minutes_of, spans
from tests.unit import brute_force

from dynatick.domain.expressions import next_after, parse_expression, upcoming
from dynatick.domain.expressions.occurrence import zone_names

FIRST, LAST = date(2026, 1, 1), date(2125, 12, 31)
QUARTERS = "cron(0/15 * * * ? *)"
EVERY = 10  # years, of which the quarters of one are compared: as many as all the rest of the hundred
EXPRESSIONS = (
    "cron(30 2 * * ? *)",  # daily, at the hour that most clocks skip or repeat
    "cron(0 0 * * ? *)",  # at a midnight that some of them skip
    "cron(45 23 * * ? *)",
    "cron(0 * * * ? *)",
    QUARTERS,
    "cron(0 0/5 * * ? *)",  # every fifth hour of each day
    "cron(59 0-3 * * ? *)",
    "cron(15 1,2 ? * SUN *)",  # on the day of most changes
    "cron(30 2 ? 3,10 1L *)",  # in Europe, on that day only
    "cron(30 2 ? 3,11 1#2 *)",
    "cron(0 9 LW * ? *)",
    "cron(0 0 29 2 ? *)",  # 2100 has none
    "cron(30 1 L * ? *)",
    "cron(5 2 15W */3 ? 2026/7)",
    "cron(0 3 31 * ? *)",
)  # fmt: skip
NEAR = 36 * 60  # minutes around a change
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """``runs``: compared. ``skipped``: wall times of expressions that the clock never shows; ``repeated``: that it
    shows twice."""

    runs: int = 0
    skipped: int = 0
    repeated: int = 0
    problems: tuple[str, ...] = ()

    def __add__(self, other: Compared) -> Compared:
        return Compared(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Zones:
    """How a comparison went. ``clocks``: those of its zones that differ within the hundred years."""

    zones: int
    clocks: int
    changes: int  # of all zones' clocks
    compared: Compared
    cpu_seconds: float


def compare_zones(limit: int | None = None, seed: int = 0, processes: int | None = None) -> Zones:
    """``limit``: the number of clocks whose zones are compared, drawn by ``seed``, instead of all.

    Of the zones with the same clock one is compared for the whole time (with quarters of an hour, a year of each ten),
    and each around each change of its clock.
    """
    clocks: dict[Sequence[Span], list[str]] = {}
    for name in sorted(zone_names()):
        clocks.setdefault(tuple(spans(name, FIRST, LAST)), []).append(name)
    drawn = [*clocks.items()]
    if limit is not None:
        drawn = Random(f"zones {seed}").sample(drawn, min(limit, len(drawn)))
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        found = [*pool.map(_compare_clock, drawn)]
    return Zones(
        zones=sum(len(names) for _, names in drawn),
        clocks=len(drawn),
        changes=sum((len(clock) - 1) * len(names) for clock, names in drawn),
        compared=sum((compared for compared, _ in found), Compared()),
        cpu_seconds=sum(seconds for _, seconds in found),
    )


def _compare_clock(drawn: tuple[Sequence[Span], Sequence[str]]) -> tuple[Compared, float]:
    """Also returns the seconds of CPU."""
    clock, (name, *others) = drawn
    began = time.process_time()
    found = sum((compare(name, text, clock) for text in EXPRESSIONS if text != QUARTERS), Compared())
    for year in range(FIRST.year, LAST.year + 1, EVERY):
        of_year = _between(clock, minutes_of(date(year, 1, 1)), minutes_of(date(year + 1, 1, 1)))
        found += compare(name, QUARTERS, of_year)
    found += sum((compare_near_changes(one, clock, chained=one == name) for one in (name, *others)), Compared())
    return found, time.process_time() - began


def compare(name: str, text: str, clock: Sequence[Span]) -> Compared:
    """All the runs of an expression in a zone."""
    begin, end = clock[0].begin, clock[-1].end
    problems, runs = _differences(f"{text} in {name}", expected(text, clock), listed(text, name, begin, end))
    skipped, repeated = affected(text, clock)
    return Compared(runs=runs, skipped=skipped, repeated=repeated, problems=(*problems,))


def compare_near_changes(name: str, clock: Sequence[Span], *, chained: bool = False) -> Compared:
    """The runs of each expression around each change of the clock. ``chained``: also as a schedule goes on from each of
    its runs to the next."""
    found, number = list[str](), 0
    for after in clock[1:]:
        begin, end = max(after.begin - NEAR, clock[0].begin), min(after.begin + NEAR, clock[-1].end)
        for text in EXPRESSIONS:
            wanted = [one for one in expected(text, _between(clock, begin - DAY, end)) if one >= begin]
            ways = [listed(text, name, begin, end), *([_one_by_one(text, name, begin, end)] if chained else ())]
            for way in ways:
                problems, runs = _differences(f"{text} in {name}", wanted, way)
                found, number = [*found, *problems], number + runs
    return Compared(runs=number, problems=(*found,))


def _between(clock: Sequence[Span], begin: int, end: int) -> Sequence[Span]:
    cut = (Span(max(one.begin, begin), min(one.end, end), one.offset) for one in clock)
    return [one for one in cut if one.begin < one.end]


def expected(text: str, clock: Sequence[Span]) -> Iterator[int]:
    """The minutes since 1970 at which an expression runs, from the spans of a clock."""
    shown = clock[0].begin + clock[0].offset  # until then, by the wall
    for span in clock:
        until = span.end + span.offset
        for wall in wall_times(text, max(shown, span.begin + span.offset), until):
            yield wall - span.offset
        shown = max(shown, until)


def affected(text: str, clock: Sequence[Span]) -> tuple[int, int]:
    """How many wall times of an expression the clock skips, and how many it shows twice."""
    skipped = repeated = 0
    for before, after in pairwise(clock):
        old, new = after.begin + before.offset, after.begin + after.offset
        number = sum(1 for _ in wall_times(text, min(old, new), max(old, new)))
        skipped, repeated = (skipped + number, repeated) if old < new else (skipped, repeated + number)
    return skipped, repeated


def wall_times(text: str, begin: int, end: int) -> Iterator[int]:
    """The minutes of a calendar, counted from 1970, that a cron means."""
    minutes, hours, day_of_month, month, day_of_week, year = text.removeprefix("cron(").removesuffix(")").split()
    of_day = [
        hour * 60 + minute
        for hour in range(24)
        if brute_force.belongs(hours, hour, 0, 23)
        for minute in range(60)
        if brute_force.belongs(minutes, minute, 0, 59)
    ]
    for number in range(begin // DAY, (end - 1) // DAY + 1):
        day = date(1970, 1, 1) + timedelta(days=number)
        if (
            brute_force.belongs(year, day.year, 1970, 2199)
            and brute_force.belongs(month, day.month, 1, 12)
            and (
                brute_force.day_belongs(day_of_month, day)
                if day_of_week == "?"
                else brute_force.weekday_belongs(day_of_week, day)
            )
        ):
            yield from (wall for minute in of_day if begin <= (wall := number * DAY + minute) < end)


def listed(text: str, name: str, begin: int, end: int) -> Iterator[float]:
    """The same, as the product lists it."""
    runs = upcoming(parse_expression(text), _EPOCH + (begin - 1) * _MINUTE, zone=name)
    return takewhile(lambda minute: minute < end, (run.instant.timestamp() / 60 for run in runs))


def _one_by_one(text: str, name: str, begin: int, end: int) -> Iterator[float]:
    """The same, as the product goes from one run to the next."""
    expression, at = parse_expression(text), _EPOCH + (begin - 1) * _MINUTE
    while (run := next_after(expression, at, zone=name)) is not None and (minute := run.timestamp() / 60) < end:
        yield minute
        at = run


def _differences(of: str, wanted: Iterator[int] | Sequence[int], found: Iterator[float]) -> tuple[list[str], int]:
    """The first difference, and the number of runs that were compared."""
    number = 0
    before = None
    for one, other in zip_longest(wanted, found):
        if one != other:
            return [f"{of}: {_text(other)} instead of {_text(one)}, after {_text(before)}"], number
        number, before = number + 1, one
    return [], number


def _text(minute: float | None) -> str:
    return "nothing" if minute is None else f"{_EPOCH + minute * _MINUTE:%Y-%m-%dT%H:%M:%SZ}"
