"""Bars of buckets as SVG: how high each part is, linearly. Pure: the templates draw what is returned here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dynatick.domain.buckets import Bucket, minute_of
from dynatick.ui import links
from dynatick.ui.display import many, number
from dynatick.ui.zone import hour_of, written

DUE = "due"  # and it has not ended
WAITING = "waiting"  # for a completion, until then at the latest
SCHEDULED = "scheduled"
RETRYING = "retrying"  # an attempt failed, and another one is to come
RECURRING = "recurring"  # an occurrence of a schedule that is to come
MISSED = "missed"  # an occurrence that was not made

KINDS = ("completed", "cancelled", DUE, WAITING, SCHEDULED, RETRYING, RECURRING, MISSED, "failed")
"""The parts of a bar from its bottom to its top, where what matters is seen."""

ATTEMPTS = "attempts"
"""The attempts that failed at a time, which have a row of their own below the bars."""

WORDS = {
    "completed": "completed", "cancelled": "cancelled", DUE: "due or running", WAITING: "waiting for a completion",
    SCHEDULED: "scheduled", RETRYING: "retrying", RECURRING: "recurring", MISSED: "missed", "failed": "failed",
    ATTEMPTS: "failed attempts",
}  # fmt: skip

_FILLED = 0.8  # of a step; the rest is between two bars
_FAILURE_SEEN = 3.0  # pixels: a single failure beside thousands
_BELOW = {148: 24, 84: 16, 58: 12, 42: 10}  # of a chart's height, the pixels that failed attempts have
_TALL = 100  # pixels: of lower ones, tenths of a pixel would only be loaded
_BETWEEN = 4  # pixels from the bars to the failed attempts


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """The tasks of some minutes."""

    start: datetime
    minutes: int
    counts: Mapping[str, int]  # by kind
    attempts: int | None = None  # that failed then; None: they are not counted for this time
    is_gap: bool = False  # a tick should have come, and did not

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def is_shown(self) -> bool:
        return bool(self.total or self.attempts or self.is_gap)

    @property
    def end(self) -> datetime:
        return self.start + timedelta(minutes=self.minutes)

    @property
    def all_counts(self) -> Mapping[str, int]:
        """The counts, and the attempts that failed."""
        return {**self.counts, **({ATTEMPTS: self.attempts} if self.attempts else {})}

    @property
    def failures(self) -> int:
        """The attempts that failed; where they are not counted, the tasks that are failed."""
        return self.counts.get("failed", 0) if self.attempts is None else self.attempts

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
            return links.timeline("hour", hour_of(self.start))
        return links.timeline("day", self.start)

    @property
    def words(self) -> str:
        """``12 completed, 1 failed, 2 failed attempts``; these only if they are not those of the failed tasks."""
        words = [f"{number(self.counts[kind])} {WORDS[kind]}" for kind in KINDS if self.counts.get(kind)]
        if self.attempts and self.attempts != self.counts.get("failed", 0):
            words.append(many(self.attempts, "failed attempt"))
        return ", ".join([*words, *(["ticks did not come"] if self.is_gap else [])]) or "nothing"

    @property
    def name(self) -> str:
        """What a screen reader says."""
        return f"{written(self.start, '%H:%M')}: {self.words}"


@dataclass(frozen=True, slots=True)
class Pace:
    """How quickly ticks run tasks when they have many. ``interval``: minutes from tick to tick."""

    per_second: float
    interval: int

    def of(self, minutes: int) -> int:
        """How many tasks the ticks of as many minutes can run. A bar with more delays the next ones."""
        return int(self.per_second * 60 * max(minutes, self.interval))


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a drawn bar: its kind, and its place from the top."""

    kind: str
    y: float
    height: float


def parts(bar: Bar, height: float, largest: int) -> Sequence[Part]:
    """The parts of a bar, from the bottom up. Linear: ``largest`` tasks have the whole height."""
    drawn: list[Part] = []
    through, digits = 0, 1 if height > _TALL else 0
    for kind in (kind for kind in KINDS if bar.counts.get(kind)):
        through += bar.counts[kind]
        part = height * bar.counts[kind] / largest
        drawn.append(Part(kind, round(height * (1 - through / largest), digits), round(part, digits)))
    return drawn


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """Bars side by side, and below them a row of the attempts that failed. Both are linear, each from zero, and the
    largest number has the whole height. Charts that are loaded apart are scaled to the largest of all by the page."""

    bars: Sequence[Bar]
    step: int
    height: int  # pixels, with the row below
    pace: Pace | None = None  # None: not known, or of another time

    @property
    def width(self) -> int:
        return len(self.bars) * self.step

    @property
    def largest(self) -> int:
        """Tasks of the highest bar."""
        return max((bar.total for bar in self.bars), default=0)

    @property
    def most_failures(self) -> int:
        return max((bar.failures for bar in self.bars), default=0)

    @property
    def below(self) -> int:
        return _BELOW[self.height]

    @property
    def bars_height(self) -> int:
        return self.height - self.below - _BETWEEN

    @property
    def capacity(self) -> int | None:
        """The tasks that the ticks of a bar can run. The page draws a line there, if a bar has more."""
        return None if self.pace is None or not self.bars else self.pace.of(self.bars[0].minutes)

    @property
    def middle(self) -> float:
        """Where the axis has a number between zero and the largest, from the top."""
        value = middle(self.largest)
        return self.bars_height if value is None else round(self.bars_height * (1 - value / self.largest), 1)

    @property
    def shown(self) -> Sequence[tuple[int, Bar]]:
        """The bars that have something, each with its place."""
        return [(round(offset(bar, self.bars[0], self.step)), bar) for bar in self.bars if bar.is_shown]

    @property
    def links(self) -> Sequence[tuple[int | None, Bar]]:
        """The same, without the place of a bar that follows another one, in charts that the page loads by itself: it
        places them, and an hour of full minutes has a seventh fewer bytes."""
        if not self.is_compact:
            return self.shown
        places = [x for x, _ in self.shown]
        after = [None, *(x + self.step for x in places)]
        return [(None if x == follows else x, bar) for (x, bar), follows in zip(self.shown, after, strict=False)]

    @property
    def is_compact(self) -> bool:
        """Whether the page loads it by itself, and draws it from fewer bytes."""
        return self.bars_height <= _TALL

    @property
    def lines(self) -> Mapping[str, str]:
        """What to draw of the bars, for each kind: as the data of a path, thick lines; if it is compact, in a form of
        our own. The page draws a bar that is too low to be seen a little higher."""
        drawn: dict[str, list[tuple[int, float, float]]] = {}
        for x, bar in self._middles():
            for part in parts(bar, self.bars_height, self.largest) if bar.total else ():
                drawn.setdefault(part.kind, []).append((x, round(part.y + part.height, 1), part.y))
        return {kind: self._written(drawn[kind], self.bars_height) for kind in KINDS if kind in drawn}

    @property
    def failures(self) -> str:
        """The row of failed attempts, in the same form. One among thousands is seen, too."""
        largest = self.most_failures
        heights = [
            (x, max(_FAILURE_SEEN, self.below * bar.failures / largest)) for x, bar in self._middles() if bar.failures
        ]
        lines = [(x, float(self.height), round(self.height - height, 1)) for x, height in heights]
        return self._written(lines, self.height)

    def _written(self, lines: Sequence[tuple[int, float, float]], base: float) -> str:
        """Lines, each from its bottom to its top: ``M4 120V60M14 120V90``. Compact: ``4:14 20 44:27-9``, without a
        place that follows the one before, and without a bottom that is the base."""
        if not self.is_compact:
            return "".join(f"M{x} {bottom:g}V{top:g}" for x, bottom, top in lines)
        words, after = [], None
        for x, bottom, top in lines:
            place, begin = "" if x == after else f"{x}:", "" if bottom == base else f"{bottom:g}-"
            words.append(f"{place}{begin}{top:g}")
            after = x + self.step
        return " ".join(words)

    def place_of(self, instant: datetime) -> float | None:
        """Where an instant is; None: not in this chart."""
        start, end = self.bars[0].start, self.bars[-1].end
        return round(self.width * ((instant - start) / (end - start)), 1) if start <= instant < end else None

    def _middles(self) -> Sequence[tuple[int, Bar]]:
        return [(round(x + self.step * _FILLED / 2), bar) for x, bar in self.shown]


def offset(bar: Bar, first: Bar, step: float) -> float:
    """Where a bar begins, if each has ``step`` and the chart begins with ``first``."""
    return (bar.start - first.start).total_seconds() / 60 / bar.minutes * step


def middle(largest: int) -> int | None:
    """The roundest number near the middle of an axis, a multiple of 1, 2 or 5 times a power of ten: 300 of 505, 1,000
    of 2,408. None: there is no number between."""
    if largest < 2:
        return None
    power: int = 10 ** (len(str(largest)) - 1)
    while power:
        for step in (5 * power, 2 * power, power):
            value = step * ((largest + step) // (2 * step))
            if 2 * largest <= 5 * value <= 3 * largest:
                return value
        power //= 10
    return 2  # of 3


def summary(bars: Sequence[Bar]) -> Mapping[str, int]:
    """The sums of some bars, by kind, and of the attempts that failed."""
    counts = [bar.all_counts for bar in bars]
    return {kind: total for kind in (*KINDS, ATTEMPTS) if (total := sum(one.get(kind, 0) for one in counts))}


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
        return f"{written(at, '%d %b %H:%M')}: {many(self.numbers[place], 'failed attempt')}"
