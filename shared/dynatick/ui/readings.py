"""What the pages read of the table: counts by the minute, failures, missed ticks, occurrences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import BoundedSemaphore

from dynatick.client import TaskClient, TaskEntry
from dynatick.client.failures import FailureGroup, FailureGroups
from dynatick.client.key_queues import KeyTally
from dynatick.client.operations import IdleTicks, MinuteCounts, MissedTicks, PausedTicks, TickEntry, TickView, Waiting
from dynatick.client.schedule_occurrences import ExpectedOccurrence
from dynatick.client.thread_pool import thread_pool
from dynatick.client.views import Tally
from dynatick.domain.batches import OPEN
from dynatick.domain.buckets import Bucket, instant_of, minute_of
from dynatick.errors import InvalidInput
from dynatick.ui.chart import DUE, MISSED, RECURRING, RETRYING, SCHEDULED, Bar, Pace
from dynatick.ui.kept import KeptHours, Recent

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
WEEK = timedelta(days=7)

_BESIDE_TASKS = 3  # reads for bars, besides that of the tasks: of ticks, schedules and failed attempts
_AT_A_TIME = 6  # ranges that are read
_THREADS = 48  # that read buckets: the client keeps connections for them
_MANY = 100  # tasks of a tick that show how quickly it runs them
_PAST_SECONDS = 600  # for which the ticks of past hours are kept


Ran = tuple[Sequence[TickEntry], Mapping[int, MinuteCounts]]
"""Ticks, and what they ran by minute."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The tasks of consecutive buckets."""

    minutes: Mapping[int, Tally]  # by outcome, or OPEN
    retrying: Mapping[int, int]  # of those that are open: another attempt is to come
    failures: Sequence[FailureGroup]
    keys: KeyTally

    @property
    def is_open(self) -> bool:
        """Whether not all of them have ended."""
        return any(tally.counts[OPEN] for tally in self.minutes.values())

    def total(self) -> Tally:
        total = Tally()
        for tally in self.minutes.values():
            total.update(tally)
        return total


@dataclass(frozen=True, slots=True)
class TickLog:
    """The ticks of a range."""

    entries: Sequence[TickEntry]
    missed: Mapping[int, int]  # occurrences that were not made, by minute
    gaps: Sequence[range]  # minutes of ticks that did not come

    @classmethod
    def of(cls, entries: Sequence[TickEntry]) -> TickLog:
        missed: Counter[int] = Counter()
        gaps: list[range] = []
        for entry in entries:
            match entry:
                case TickView(missed=number) if number:
                    missed[Bucket.parse(entry.tick).minute] += number
                case MissedTicks():
                    gaps.append(range(Bucket.parse(entry.since).minute, Bucket.parse(entry.until).minute + 1))
                case TickView() | IdleTicks() | PausedTicks():
                    pass
        return cls(entries, missed, gaps)

    def is_gap(self, minute: int) -> bool:
        """Whether a tick should have come at that minute, and did not."""
        return any(minute in gap for gap in self.gaps)


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """The attempts that failed, by minute."""

    counted: range  # the minutes for which they are known
    counts: Mapping[int, MinuteCounts]

    def of(self, minutes: range) -> int | None:
        """How many failed in some minutes; None: they are not counted there."""
        if minutes.start not in self.counted:
            return None
        return sum(self.counts[minute].failures for minute in minutes if minute in self.counts)


class Readings:
    """Reads through a client, and keeps each answer for ``seconds``; 0: nothing."""

    def __init__(self, client: TaskClient, seconds: float) -> None:
        self._client = client
        self._recent = Recent(seconds)
        self._turns = BoundedSemaphore(_AT_A_TIME)
        # Started once: a start waits for its turn to compute, and an hour would need sixteen.
        self._threads = ThreadPoolExecutor(_THREADS, "dynatick-buckets")
        self._past = Recent(_PAST_SECONDS if seconds else 0)
        self._kept = KeptHours[Reading](lambda reading: reading.is_open) if seconds else None
        self._follows = False

    def following(self) -> Readings:
        """The same for a page that follows ticks: it reads whole hours the less often, the farther they are away."""
        following = copy(self)
        following._follows = True
        return following

    def clear(self) -> None:
        """Forgets everything: something was changed."""
        self._recent.clear()
        if self._kept is not None:
            self._kept.clear()

    def forget_recent(self) -> None:
        """Forgets what the next tick may change; hours that are far away are kept for pages that follow."""
        self._recent.clear()

    def read(self, start: datetime, end: datetime) -> Reading:
        """The tasks of the buckets from ``start`` to before ``end``: a query for each minute and shard."""
        return self._recent.get(("read", start, end), lambda: self._read(start, end))

    def hour(self, start: datetime, now: datetime) -> Reading:
        """The tasks of the 60 buckets from ``start`` on. How late those that have completed began is not in it."""
        kept = self._kept
        if kept is None:
            return self._recent.get(("hour", start), lambda: self._read_hour(start))
        return self._recent.get(
            ("hour", start, self._follows),
            lambda: kept.get(start, now, lambda: self._read_hour(start), anew=not self._follows),
        )

    def recent_ticks(self, start: datetime, end: datetime, now: datetime) -> TickLog:
        """The ticks of a range in the past 24 hours; none of those before, which cost as much as the tasks."""
        is_recent = start <= now and end > hour_of(now) - DAY
        return self.last_day(now) if is_recent else TickLog((), {}, ())

    def last_day(self, now: datetime) -> TickLog:
        """The ticks of the past 24 hours, and of the hour in which they begin. Those of hours that are over are read
        again after a while only: a page that stays open asks for them each minute."""
        (past, _), (late, _) = self._past_day(now), self._ran(hour_of(now) - HOUR)
        return TickLog.of([*past, *late])

    def counts(self, start: datetime, now: datetime, end: datetime | None = None) -> Mapping[int, MinuteCounts]:
        """What ran from ``start`` to before ``end`` (default: now), by minute and action. Hours that are over are read
        again after a while only."""
        recent, first = hour_of(now) - HOUR, hour_of(start)
        if end is not None:
            read = self._past if end <= recent else self._recent
            return read.get(("counts", start, end), lambda: self._client.operations.minute_counts(start=start, end=end))
        past: Mapping[int, MinuteCounts] = {}
        if first in (recent, hour_of(now) - DAY):  # as bars read them
            past = {} if first == recent else self._past_day(now)[1]
            late = self._ran(recent)[1]
        else:
            if first < recent:
                past = self._past.get(
                    ("counts", first, recent), lambda: self._client.operations.minute_counts(start=first, end=recent)
                )
            begin = max(first, recent)
            late = self._recent.get(("counts", begin), lambda: self._client.operations.minute_counts(start=begin))
        return {minute: one for minute, one in {**past, **late}.items() if minute >= minute_of(start)}

    def pace(self, end: datetime, now: datetime) -> Pace | None:
        """How quickly ticks ran tasks in the past 24 hours when they had the most, for a chart that ends then. None: of
        an earlier time, or not known."""
        if end <= hour_of(now) - DAY:
            return None
        return self._past.get(("pace", hour_of(now)), lambda: self._pace(now))

    def waiting(self) -> Mapping[str, Waiting]:
        """What waits, by action."""
        return self._recent.get(("waiting",), self._client.operations.waiting_by_action)

    def forecast(self, until: datetime) -> Sequence[ExpectedOccurrence] | None:
        """The occurrences of schedules from now on; None if there are too many to show."""
        return self._recent.get(("forecast", until), lambda: self._forecast(until))

    def failures(self, start: datetime, end: datetime, now: datetime) -> list[FailureGroup]:
        """The failures of whole hours, by impact."""
        groups = FailureGroups()
        for reading in self._hours(start, end, now):
            groups.update(reading.failures)
        return groups.by_impact()

    def outcomes(self, start: datetime, end: datetime, now: datetime) -> Counter[str]:
        """How many tasks of whole hours ended, by outcome."""
        return _sum(reading.total().counts for reading in self._hours(start, end, now))

    def _hours(self, start: datetime, end: datetime, now: datetime) -> Sequence[Reading]:
        """The tasks of whole hours, several of them read at a time."""
        with thread_pool(_AT_A_TIME, "dynatick-hours") as pool:
            return list(pool.map(lambda hour: self.hour(hour, now), hours(start, end)))

    def bars(
        self,
        start: datetime,
        end: datetime,
        minutes: int,
        now: datetime,
        *,
        readings: Iterable[Reading] | None = None,
        log: TickLog | None = None,
    ) -> list[Bar]:
        """A bar for each ``minutes`` from ``start`` to before ``end``. ``readings`` and ``log``, the ticks: of these
        minutes, if they are read already. With a ``log``, failed attempts are counted for the past 24 hours only."""
        first, last, present = minute_of(start), minute_of(end), minute_of(now)
        counts: dict[int, Counter[str]] = {}
        with thread_pool(_BESIDE_TASKS, "dynatick-bars") as pool:
            reading_log = pool.submit(self._log_of, start, end, now) if log is None else None
            reading_coming = pool.submit(self._coming_of, end, now)
            reading_attempts = pool.submit(self._failed_attempts, start, end, now, of_any_day=log is None)
            for reading in (self.hour(hour, now) for hour in hours(start, end)) if readings is None else readings:
                for minute, tally in reading.minutes.items():
                    counts[minute] = _kinds(tally.counts, reading.retrying.get(minute, 0), minute, present)
            log = reading_log.result() if reading_log is not None else log
            coming, attempts = reading_coming.result(), reading_attempts.result()
        assert log is not None
        for minute, number in log.missed.items():
            counts.setdefault(minute, Counter())[MISSED] += number
        for one in coming:
            counts.setdefault(Bucket.parse(one.bucket).minute, Counter())[RECURRING] += 1
        gaps = {minute for gap in log.gaps for minute in gap if first <= minute < last}
        return [
            Bar(
                start=instant_of(at),
                minutes=minutes,
                counts=_sum(counts.get(minute) for minute in range(at, at + minutes)),
                attempts=attempts.of(range(at, at + minutes)),
                is_gap=any(minute in gaps for minute in range(at, at + minutes)),
            )
            for at in range(first, last, minutes)
        ]

    def coming(self, minute: int, now: datetime) -> Sequence[ExpectedOccurrence]:
        """The occurrences that schedules will have in the buckets of a minute."""
        found = self._coming_of(instant_of(minute + 1), now)
        return [one for one in found if Bucket.parse(one.bucket).minute == minute]

    def _ran(self, start: datetime, end: datetime | None = None) -> Ran:
        """The ticks of a range, and what they ran: of records that are read once, since bars need both."""
        return self._recent.get(
            ("ran", start, end), lambda: self._client.operations.ticks_and_counts(start=start, end=end)
        )

    def _past_day(self, now: datetime) -> Ran:
        """The same of the hours that are over among the past 24, and of the one in which they begin."""
        first, recent = hour_of(now) - DAY, hour_of(now) - HOUR
        return self._past.get(("ran", first), lambda: self._client.operations.ticks_and_counts(start=first, end=recent))

    def _log_of(self, start: datetime, end: datetime, now: datetime) -> TickLog:
        """The ticks of a range that begins at ``start``: those of a whole day, which other parts of a page need too;
        near now, those of this hour and the one before, which are among them."""
        if start > now or start < now - WEEK:  # older records are gone
            return TickLog((), {}, ())
        if start >= hour_of(now) - HOUR:
            return TickLog.of(self._ran(hour_of(now) - HOUR)[0])
        if start >= hour_of(now) - DAY:
            return self.last_day(now)
        return TickLog.of(self._ran(*_day_of(start, end, now))[0])

    def _failed_attempts(self, start: datetime, end: datetime, now: datetime, *, of_any_day: bool) -> FailedAttempts:
        """The attempts that failed in a range: near now, of this hour and the one before; else of the past 24 hours,
        which other parts of a page need too; ``of_any_day``: of an earlier day too, as long as there are records."""
        recent, day_ago = hour_of(now) - HOUR, hour_of(now) - DAY
        if start > now or start < now - WEEK or (end <= day_ago and not of_any_day):
            return FailedAttempts(range(0), {})
        if end > day_ago:
            first = recent if start >= recent else day_ago
            return FailedAttempts(range(minute_of(first), minute_of(now) + 1), self.counts(first, now))
        first, last = _day_of(start, end, now)
        return FailedAttempts(range(minute_of(first), minute_of(last)), self._ran(first, last)[1])

    def _coming_of(self, end: datetime, now: datetime) -> Sequence[ExpectedOccurrence]:
        """The occurrences up to the end of a range, and of the day that it is in."""
        if end <= now:
            return ()
        soon = hour_of(now) + DAY + HOUR
        until = soon if end <= soon else end.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
        return self.forecast(until) or ()

    def _pace(self, now: datetime) -> Pace | None:
        settings = self._client.settings()
        if settings is None:
            return None
        rates = rates_of(self.last_day(now).entries, self.counts(hour_of(now) - DAY, now))
        return Pace(max(rates), settings.grid.tick_minutes) if rates else None

    def _read(self, start: datetime, end: datetime) -> Reading:
        with self._turns:
            reading = _Reading()
            for entry in self._client.iter_listed(start=start, end=end):
                reading.add(entry)
        return reading.read()

    def _read_hour(self, start: datetime) -> Reading:
        with self._turns:
            reading = _Reading()
            for page in self._client.operations.listed_pages(start=start, end=start + HOUR, threads=self._threads):
                for entry in page.entries:
                    reading.add(entry)
                reading.add_counts(page.bucket.minute, page.counts)
        return reading.read()

    def _forecast(self, until: datetime) -> Sequence[ExpectedOccurrence] | None:
        try:
            return self._client.schedules.forecast(until=until)
        except InvalidInput:
            return None


def _day_of(start: datetime, end: datetime, now: datetime) -> tuple[datetime, datetime]:
    """The range of the ticks that are read for one before the past 24 hours: its whole day, as far as there are
    records."""
    day = start.replace(hour=0, minute=0, second=0, microsecond=0)
    return max(day, hour_of(now) - WEEK + HOUR), max(day + DAY, end)


def hours(start: datetime, end: datetime) -> Iterator[datetime]:
    """The whole hours that a range touches."""
    at = hour_of(start)
    while at < end:
        yield at
        at += HOUR


def hour_of(instant: datetime) -> datetime:
    """The whole hour that an instant is in."""
    return instant.replace(minute=0, second=0, microsecond=0)


def rates_of(entries: Iterable[TickEntry], counts: Mapping[int, MinuteCounts]) -> Sequence[float]:
    """How many attempts a second each tick with many tasks ended, in all shards and with what it had started. What
    wake-ups have run is not counted, and ticks with wake-ups are left out. Pure."""
    times: dict[int, tuple[datetime, datetime]] = {}
    for entry in entries:
        if isinstance(entry, TickView) and entry.started_at is not None and entry.finished_at is not None:
            minute = Bucket.parse(entry.tick).minute
            begin, end = times.get(minute, (entry.started_at, entry.finished_at))
            times[minute] = min(begin, entry.started_at), max(end, entry.finished_at)
    rates = []
    for minute, (begin, end) in times.items():
        found = counts.get(minute)
        ended = 0 if found is None or found.has_wake_ups else found.completed + found.failures
        if ended >= _MANY and end > begin:
            rates.append(ended / (end - begin).total_seconds())
    return rates


class _Reading:
    """Adds up a reading."""

    def __init__(self) -> None:
        self._minutes: dict[int, Tally] = {}
        self._retrying: Counter[int] = Counter()
        self._failures = FailureGroups()
        self._keys = KeyTally()
        self._name, self._tally = "", Tally()  # of the last bucket: entries of one follow each other

    def add(self, entry: TaskEntry) -> None:
        if entry.bucket != self._name:
            self._name, self._tally = entry.bucket, self._of(Bucket.parse(entry.bucket).minute)
        self._tally.add(entry)
        if entry.is_retrying:
            self._retrying[Bucket.parse(self._name).minute] += 1
        self._failures.add(entry)
        self._keys.add(entry)

    def add_counts(self, minute: int, counts: Mapping[str, int]) -> None:
        if counts:
            self._of(minute).counts.update(counts)

    def read(self) -> Reading:
        return Reading(self._minutes, self._retrying, self._failures.by_impact(), self._keys)

    def _of(self, minute: int) -> Tally:
        return self._minutes.setdefault(minute, Tally())


def _kinds(found: Counter[str], retrying: int, minute: int, present: int) -> Counter[str]:
    """Counts as the chart has them: what has not ended is due since its minute, or is to come, perhaps once more."""
    counts = Counter(found)
    rest = counts.pop(OPEN, 0)
    parts = {DUE: rest} if minute <= present else {SCHEDULED: rest - retrying, RETRYING: retrying}
    return counts + Counter(parts)


def _sum(counts: Iterable[Counter[str] | None]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in counts:
        if one:
            total.update(one)
    return total
