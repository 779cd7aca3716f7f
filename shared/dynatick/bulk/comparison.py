"""Compares the runs of a converted schedule with those of what it was converted from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile, zip_longest

from dynatick.bulk.conversion import Conversion
from dynatick.domain.expressions import At, Rate, upcoming
from dynatick.domain.instants import format_instant
from dynatick.domain.schedule import Schedule

INSTANTS = 1000
YEARS = 10


@dataclass(frozen=True, slots=True)
class Comparison:
    """``same`` instants at the beginning are the same; ``differs`` says where the next are not."""

    same: int
    in_all: int
    differs: str | None = None

    def __str__(self) -> str:
        if self.differs is not None:
            return f"after {self.same:,} of {self.in_all:,} they differ: {self.differs}"
        return f"{self.same:,} of {self.in_all:,} agree"


def compare(conversion: Conversion, now: datetime) -> Comparison:
    """The next INSTANTS of both, or those of the next YEARS, if these are fewer."""
    assert conversion.row is not None and conversion.original is not None
    schedule = Schedule.from_row(conversion.row)
    end = now + timedelta(days=YEARS * 366)
    theirs = list(
        islice(takewhile(lambda instant: instant <= end, _within(schedule, conversion.original(now))), INSTANTS)
    )
    ours = list(islice(takewhile(lambda instant: instant <= end, occurrences(schedule, now)), INSTANTS))
    for number, (expected, found) in enumerate(zip_longest(theirs, ours)):
        if expected != found:
            first = min(instant for instant in (expected, found) if instant is not None)
            says = "the original runs, this does not" if first == expected else "this runs, the original does not"
            return Comparison(number, max(len(theirs), len(ours)), f"at {format_instant(first)} {says}")
    return Comparison(len(ours), len(theirs))


def _within(schedule: Schedule, instants: Iterator[datetime]) -> Iterator[datetime]:
    """Those between the dates, which an ``at(…)`` has not."""
    for instant in instants:
        if not isinstance(schedule.expression, At):
            if schedule.start is not None and instant < schedule.start:
                continue
            if schedule.end is not None and instant > schedule.end:
                return
        yield instant


def occurrences(schedule: Schedule, now: datetime) -> Iterator[datetime]:
    """Those of the converted schedule, a paused one's too; a rate without a start counts from ``now``."""
    start = schedule.start or (now if isinstance(schedule.expression, Rate) else None)
    found = upcoming(schedule.expression, now, zone=schedule.zone, start=start, end=schedule.end)
    return (one.instant for one in found)
