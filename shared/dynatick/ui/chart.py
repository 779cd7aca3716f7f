"""Bars of buckets as SVG: how high each part is. Pure: the templates draw what is returned here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dynatick.domain.buckets import Bucket, minute_of
from dynatick.ui import links
from dynatick.ui.display import many, number

DUE = "due"  # and it has not ended
WAITING = "waiting"  # for a completion, until then at the latest
SCHEDULED = "scheduled"
RECURRING = "recurring"  # an occurrence of a schedule that is to come
MISSED = "missed"  # an occurrence that was not made

KINDS = ("completed", "cancelled", DUE, WAITING, SCHEDULED, RECURRING, MISSED, "failed")
"""The parts of a bar from its bottom to its top, where what matters is seen."""

WORDS = {
    "completed": "completed", "cancelled": "cancelled", DUE: "due or running", WAITING: "waiting for a completion",
    SCHEDULED: "scheduled", RECURRING: "recurring", MISSED: "missed", "failed": "failed",
}  # fmt: skip

_FLOOR = 0.2  # the height of a single task
_CEILING = 1000  # tasks a minute of a full bar
_FILLED = 0.8  # of a step; the rest is between two bars
_SEEN = 0.1  # the height that a part has at least


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """The tasks of some minutes."""

    start: datetime
    minutes: int
    counts: Mapping[str, int]  # by kind
    is_gap: bool = False  # a tick should have come, and did not

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def end(self) -> datetime:
        return self.start + timedelta(minutes=self.minutes)

    @property
    def bucket(self) -> str:
        """The name of its bucket; of several, the first."""
        return str(Bucket(minute_of(self.start)))

    @property
    def url(self) -> str:
        """Where its tasks are."""
        if self.minutes == 1:
            return links.bucket(links.minute(self.start))
        if self.minutes <= 60:
            return links.timeline("hour", self.start.replace(minute=0))
        return links.timeline("day", self.start)

    @property
    def words(self) -> str:
        """``12 completed, 1 failed``."""
        parts = [f"{number(self.counts[kind])} {WORDS[kind]}" for kind in KINDS if self.counts.get(kind)]
        return ", ".join([*parts, *(["ticks did not come"] if self.is_gap else [])]) or "nothing"

    @property
    def name(self) -> str:
        """What a screen reader says."""
        return f"{self.start:%H:%M}: {self.words}"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a drawn bar: its kind, and its place from the top."""

    kind: str
    y: float
    height: float


def height_of(tasks: int, minutes: int = 1) -> float:
    """The height of a bar, from 0 to 1. It grows with the logarithm, so that one task is seen beside thousands and
    bars of different charts compare."""
    if tasks < 1:
        return 0.0
    return min(1.0, _FLOOR + (1 - _FLOOR) * math.log(tasks) / math.log(_CEILING * minutes))


def parts(bar: Bar, height: float) -> Sequence[Part]:
    """The parts of a bar, from the bottom up. Each can be seen, however small its share."""
    counts = bar.counts
    present = [kind for kind in KINDS if counts.get(kind)]
    total = sum(counts[kind] for kind in present)
    full = height_of(total, bar.minutes)
    shares = [max(_SEEN, full * counts[kind] / total) for kind in present]
    scale = height * max(full, min(1.0, _SEEN * len(present))) / sum(shares) if shares else 0.0
    drawn: list[Part] = []
    bottom = height
    for kind, share in zip(present, shares, strict=True):
        bottom -= share * scale
        drawn.append(Part(kind, round(bottom, 1), round(share * scale, 1)))
    return drawn


def offset(bar: Bar, first: Bar, step: float) -> float:
    """Where a bar begins, if each has ``step`` and the chart begins with ``first``."""
    return (bar.start - first.start).total_seconds() / 60 / bar.minutes * step


def lines(bars: Sequence[Bar], step: float, height: float) -> Mapping[str, str]:
    """What to draw of some bars, as the data of a path for each kind: thick lines, in a fifth of the bytes that a
    rectangle for each part takes."""
    drawn: dict[str, list[str]] = {}
    for bar in bars:
        x = round(offset(bar, bars[0], step) + step * _FILLED / 2)
        for part in parts(bar, height):
            drawn.setdefault(part.kind, []).append(f"M{x} {round(part.y + part.height)}V{round(part.y)}")
    return {kind: "".join(drawn[kind]) for kind in KINDS if kind in drawn}


def summary(bars: Sequence[Bar]) -> Mapping[str, int]:
    """The sums of some bars, by kind."""
    return {kind: total for kind in KINDS if (total := sum(bar.counts.get(kind, 0) for bar in bars))}


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureBars:
    """The attempts that failed, for good or to be made again, in consecutive times of ``minutes`` from ``start``. Drawn
    linearly: the largest number has the whole height."""

    start: datetime
    minutes: int
    numbers: Sequence[int]

    @classmethod
    def of(cls, failures: Mapping[int, int], start: datetime, end: datetime, minutes: int) -> FailureBars:
        """``failures``: by minute."""
        first, last = minute_of(start), minute_of(end)
        numbers = [sum(failures.get(at, 0) for at in range(n, n + minutes)) for n in range(first, last, minutes)]
        return cls(start=start, minutes=minutes, numbers=numbers)

    @property
    def largest(self) -> int:
        return max(self.numbers, default=0)

    @property
    def total(self) -> int:
        return sum(self.numbers)

    @property
    def bars(self) -> Sequence[tuple[int, Bar, float]]:
        """The times in which an attempt failed: place, as a bar, and height from 0 to 1."""
        return [
            (
                n,
                Bar(start=self.start + timedelta(minutes=n * self.minutes), minutes=self.minutes, counts={}),
                number_failed / self.largest,
            )
            for n, number_failed in enumerate(self.numbers)
            if number_failed
        ]

    def name(self, place: int) -> str:
        """What a screen reader says of a time."""
        at = self.start + timedelta(minutes=place * self.minutes)
        return f"{at:%d %b %H:%M}: {many(self.numbers[place], 'failed attempt')}"


_SHORTEST_MS, _LONGEST_MS = 1, 600_000


def height_of_milliseconds(value: float | None) -> float:
    """The height of a duration, from 0 to 1, with its logarithm: a millisecond to ten minutes."""
    if value is None:
        return 0.0
    return 0.02 + 0.98 * min(1.0, math.log(max(value, _SHORTEST_MS)) / math.log(_LONGEST_MS))
