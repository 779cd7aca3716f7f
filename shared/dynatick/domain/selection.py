"""Which tasks: those of a bucket, of a range of time or of a subject, and of them those that match. The client, the
command line, the HTTP API and the pages select tasks by these arguments, and refuse others by these messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypedDict

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid, Time, instant_of, minute_of, parse_time
from dynatick.domain.durations import duration_of
from dynatick.domain.instants import EPOCH, EXPECTED_RANGE, LATEST, format_instant, relative_time
from dynatick.domain.task import TERMINAL, Status, check_subject, check_task_id
from dynatick.errors import InvalidInput, InvalidInputs

MAX_DAYS = 31
_EVERY_MINUTE = Grid()
_WAITING = (str(Status.SCHEDULED), str(Status.UNSCHEDULED))
EVER = range(minute_of(EPOCH), minute_of(LATEST) + 1)
"""The minutes of a selection by subject alone."""

STATUSES = tuple(map(str, Status))

ErrorFilter = str | Callable[[str], bool]
"""A part of a task's error, ignoring case; or a function that decides by the whole."""


class Selected(TypedDict, total=False):
    """The arguments that select tasks, instead of a bucket or besides it. A new one is added here, and as an attribute
    and an argument of ``Selection``."""

    start: Time | None  # the first instant of a range; also ``now`` and ``-1h``
    end: Time | None  # the range ends before it
    last: timedelta | str | None  # a duration, such as 1h30m, up to the present minute, instead of a range
    next: timedelta | str | None  # a duration from the present minute on, instead of a range, or besides ``last``
    status: Status | str | None
    action: str | None
    schedule_id: str | None
    subject: str | None  # instead of a bucket or a range, or besides them
    prefix: str | None  # how their ids begin
    error: ErrorFilter | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The tasks in the buckets of some minutes and shards that match what is given of the rest.

    With a subject they are found by the index of subjects, in order of id, else by the buckets, in their order.
    """

    minutes: range  # each of them: the tick interval may have been different when the buckets were made
    shards: Sequence[int]
    bucket: Bucket | None = None  # if it is named, and not a range
    present: int | None = None  # of a range up to now, the present minute; its buckets go on to that of the next tick
    statuses: tuple[str, ...] = ()  # one of these, either of ended tasks or of others; none: any
    action: str | None = None
    schedule_id: str | None = None
    subject: str | None = None
    prefix: str | None = None
    error: ErrorFilter | None = None

    @classmethod
    def of(
        cls,
        bucket: str | Bucket | None = None,
        *,
        now: datetime,
        shards_ever: int,
        grid: Grid = _EVERY_MINUTE,
        start: Time | None = None,
        end: Time | None = None,
        last: timedelta | str | None = None,
        next: timedelta | str | None = None,
        status: Status | str | None = None,
        action: str | None = None,
        schedule_id: str | None = None,
        subject: str | None = None,
        prefix: str | None = None,
        error: ErrorFilter | None = None,
    ) -> Selection:
        """The tasks of a bucket (all its shards, unless it names one), of the range from ``start`` to before ``end``,
        or of a subject wherever they are. Raises InvalidInput."""
        _check_prefix(prefix)
        check_error_filter(error)
        if subject is not None:
            check_subject(subject)
        if subject is not None and bucket is start is end is last is next is None:
            named, minutes, present = None, EVER, None
        else:
            named, minutes, present = _buckets(bucket, start, end, last, next, now, grid)
        return cls(
            minutes=minutes,
            shards=(named.shard,) if named is not None and named.shard else range(shards_ever),
            bucket=named,
            present=present,
            statuses=() if status is None else (str(status),),
            action=action,
            schedule_id=schedule_id,
            subject=subject,
            prefix=prefix,
            error=error,
        )

    def check_status(self, allowed: Sequence[str], *, instead: str = "") -> None:
        """Raises InvalidInput for a status that isn't ``allowed``. ``instead``: what may be done with another one."""
        for status in self.statuses:
            if status not in allowed:
                expected = f"expected {'one of ' if len(allowed) > 1 else ''}{', '.join(allowed)}"
                raise InvalidInput(attr.STATUS, status, f"{expected}; {instead}" if instead else expected)

    @property
    def start(self) -> datetime:
        return instant_of(self.minutes.start)

    @property
    def end(self) -> datetime:
        return instant_of(self.minutes.stop)

    @property
    def status(self) -> str | None:
        """The one status that is asked for."""
        return self.statuses[0] if len(self.statuses) == 1 else None

    @property
    def outcome(self) -> str | None:
        """The outcome that the index filters by, if the status is one of ended tasks."""
        return self.status if self.status in TERMINAL else None

    @property
    def open_only(self) -> bool:
        """Whether the index filters out ended tasks."""
        return bool(self.statuses) and self.outcome is None

    @property
    def matches_all(self) -> bool:
        """Whether every task of these buckets matches, by everything but its id."""
        return not self.statuses and self.action is self.schedule_id is self.error is None

    @property
    def is_divisible(self) -> bool:
        """Whether it is a range that is read bucket by bucket, of which a part can be selected."""
        return self.bucket is None and self.subject is None

    @property
    def has_range(self) -> bool:
        """Whether the time decides, too."""
        return self.minutes != EVER

    @property
    def is_all_of_subject(self) -> bool:
        """Whether nothing but a subject is asked for."""
        return self.subject is not None and self.matches_all and self.prefix is None and not self.has_range

    @property
    def is_filtered(self) -> bool:
        """Whether there may be tasks in these buckets that don't match."""
        return not self.matches_all or self.prefix is not None or self.subject is not None

    def fits(self, bucket: str, status: object, action: object, schedule_id: object, error: object) -> bool:
        """Whether a task of these buckets matches, by everything but its id."""
        if self.statuses and status not in self.statuses:
            return False
        # With precision second, or by a run-now, a task has run before its bucket's tick.
        if self.present is not None and status in _WAITING and Bucket.parse(bucket).minute > self.present:
            return False
        if self.action not in (None, action) or self.schedule_id not in (None, schedule_id):
            return False
        if self.error is None:
            return True
        text = error if isinstance(error, str) else ""
        return self.error(text) if callable(self.error) else self.error.casefold() in text.casefold()

    def holds(self, bucket: str) -> bool:
        """Whether a task's bucket is one of these; without a range, one that has no place yet is found, too."""
        return not self.has_range or Bucket.canonical(bucket) in self

    def __contains__(self, bucket: object) -> bool:
        return isinstance(bucket, Bucket) and bucket.minute in self.minutes and bucket.shard in self.shards

    def buckets(self, *, since: Bucket | None = None, latest_first: bool = False) -> Iterator[Bucket]:
        """The buckets in order of time, then shard, from ``since`` on. ``latest_first``: the latest minute first."""
        minutes = self.minutes
        if since is not None:
            minutes = range(minutes.start, since.minute + 1) if latest_first else range(since.minute, minutes.stop)
        for minute in reversed(minutes) if latest_first else minutes:
            for shard in self.shards:
                if since is None or minute != since.minute or shard >= since.shard:
                    yield Bucket(minute, shard)

    def words(self) -> dict[str, str]:
        """The texts that select the same at any time, by the names of options and of a page's parameters."""
        words: dict[str, str | None] = {
            "bucket": None if self.bucket is None else str(self.bucket),
            "subject": self.subject,
            "status": self.status,
            "action": self.action,
            "schedule": self.schedule_id,
            "prefix": self.prefix,
        }
        if self.bucket is None and self.has_range:
            # What waits in later buckets is not selected; what has run there can't be told from it by a range.
            end = self.end if self.present is None else instant_of(self.present + 1)
            words = {"from": format_instant(self.start), "to": format_instant(end), **words}
        return {name: value for name, value in words.items() if value is not None}


def minutes_between(start: Time, end: Time, now: datetime) -> range:
    """The minutes that begin at or after ``start`` and before ``end``. Raises InvalidInput."""
    first, last = instants(start, end, now)
    if last <= first:
        raise InvalidInput("end", str(end), f"expected a time later than start, {start}")
    return range(_EVERY_MINUTE.tick_at_or_after(first), _EVERY_MINUTE.tick_at_or_after(last))


def instants(start: Time, end: Time, now: datetime) -> tuple[datetime, datetime]:
    """Both ends of a range. Raises InvalidInput for each invalid one."""
    wrong = InvalidInputs()
    with wrong:
        first = instant(start, "start", now)
    with wrong:
        last = instant(end, "end", now)
    wrong.raise_all()
    return first, last


def instant(time: Time, field: str, now: datetime) -> datetime:
    """The instant of a time, which may be relative to ``now``. Raises InvalidInput."""
    value = str(time) if isinstance(time, Bucket) else time
    found = parse_time(relative_time(value, field, now) if isinstance(value, str) else value, field)
    return found.instant if isinstance(found, Bucket) else found


def _buckets(
    bucket: str | Bucket | None,
    start: Time | None,
    end: Time | None,
    last: timedelta | str | None,
    ahead: timedelta | str | None,
    now: datetime,
    grid: Grid,
) -> tuple[Bucket | None, range, int | None]:
    is_range = start is not None or end is not None
    lengths = {"last": last, "next": ahead}
    field, length = next(((name, one) for name, one in lengths.items() if one is not None), ("last", None))
    if bucket is not None:
        if is_range or length is not None:
            raise InvalidInput("bucket", str(bucket), "expected either a bucket or a range, not both")
        named = bucket if isinstance(bucket, Bucket) else Bucket.parse(bucket, "bucket")
        return named, range(named.minute, named.minute + 1), None
    if length is not None:
        if is_range:
            raise InvalidInput(field, str(length), "expected either a duration or a range, not both")
        start = now if last is None else _away(now, last, "last")
        end = "now" if ahead is None else _away(now, ahead, "next")
    if start is None or end is None:
        raise InvalidInput("bucket", None, "expected a bucket, a range with start and end, or a subject")
    present = minute_of(now) if isinstance(end, str) and end.strip() == "now" else None
    through = end if present is None else instant_of(grid.tick_after(present) + 1)
    if present is not None and instant(start, "start", now) > now:
        raise InvalidInput("end", str(end), f"expected a time later than start, {start}")
    minutes = minutes_between(start, through, now)
    if len(minutes) > MAX_DAYS * 1440 + (0 if present is None else grid.tick_minutes + 1):
        field, value = ("end", str(end)) if length is None else (field, str(length))
        raise InvalidInput(field, value, f"expected a range of at most {MAX_DAYS} days: split it")
    return None, minutes, present


def _away(now: datetime, length: object, field: str) -> datetime:
    """The instant of a length before now, or after it (``next``)."""
    try:
        return now + _length(length, field) * (1 if field == "next" else -1)
    except OverflowError:
        raise InvalidInput(field, str(length), EXPECTED_RANGE) from None


def _length(length: object, field: str) -> timedelta:
    if not isinstance(length, (timedelta, str)):
        raise InvalidInput(field, length, "expected a duration: a timedelta, or a text such as 90s or 1h30m")
    duration = duration_of(length, field) if isinstance(length, str) else length
    if duration <= timedelta():
        raise InvalidInput(field, str(length), "expected a duration above 0")
    return duration


def check_error_filter(error: ErrorFilter | None) -> None:
    """Raises InvalidInput. Empty text would be a part of every error."""
    if error is not None and not (error and isinstance(error, str)) and not callable(error):
        expected = "expected a part of the error as text, not empty, or a function that decides by it"
        raise InvalidInput("error", error, expected)


def _check_prefix(prefix: str | None) -> None:
    try:
        if prefix is not None:
            check_task_id(prefix)
    except InvalidInput as error:
        raise InvalidInput("prefix", prefix, error.expected) from None
