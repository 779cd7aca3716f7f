"""Which tasks: those of a bucket or of a range of time, and of them those that match. The client, the command line, the
HTTP API and the pages select tasks by these arguments, and refuse others by these messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypedDict

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid, Time, instant_of, minute_of, parse_time
from dynatick.domain.durations import duration_of
from dynatick.domain.instants import EXPECTED_RANGE, format_instant, relative_time
from dynatick.domain.task import TERMINAL, Status, check_task_id
from dynatick.errors import InvalidInput, InvalidInputs

MAX_DAYS = 31
_EVERY_MINUTE = Grid()
STATUSES = tuple(map(str, Status))

ErrorFilter = str | Callable[[str], bool]
"""A part of a task's error, ignoring case; or a function that decides by the whole."""


class Selected(TypedDict, total=False):
    """The arguments that select tasks, instead of a bucket or besides it. A new one is added here, and as an attribute
    and an argument of ``Selection``."""

    start: Time | None  # the first instant of a range; also ``now`` and ``-1h``
    end: Time | None  # the range ends before it
    last: timedelta | str | None  # a duration, such as 1h30m, up to the present minute, instead of a range
    status: Status | str | None
    action: str | None
    schedule_id: str | None
    prefix: str | None  # how their ids begin
    error: ErrorFilter | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The tasks in the buckets of some minutes and shards that match what is given of the rest."""

    minutes: range  # each of them: the tick interval may have been different when the buckets were made
    shards: Sequence[int]
    bucket: Bucket | None = None  # if it is named, and not a range
    statuses: tuple[str, ...] = ()  # one of these, either of ended tasks or of others; none: any
    action: str | None = None
    schedule_id: str | None = None
    prefix: str | None = None
    error: ErrorFilter | None = None

    @classmethod
    def of(
        cls,
        bucket: str | Bucket | None = None,
        *,
        now: datetime,
        shards_ever: int,
        start: Time | None = None,
        end: Time | None = None,
        last: timedelta | str | None = None,
        status: Status | str | None = None,
        action: str | None = None,
        schedule_id: str | None = None,
        prefix: str | None = None,
        error: ErrorFilter | None = None,
    ) -> Selection:
        """The tasks of a bucket (all its shards, unless it names one), or of the range from ``start`` to before
        ``end``. Raises InvalidInput."""
        _check_prefix(prefix)
        if error is not None and not isinstance(error, str) and not callable(error):
            raise InvalidInput("error", error, "expected a part of the error as text, or a function that decides by it")
        named, minutes = _buckets(bucket, start, end, last, now)
        return cls(
            minutes=minutes,
            shards=(named.shard,) if named is not None and named.shard else range(shards_ever),
            bucket=named,
            statuses=() if status is None else (str(status),),
            action=action,
            schedule_id=schedule_id,
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
    def is_filtered(self) -> bool:
        """Whether there may be tasks in these buckets that don't match."""
        return not self.matches_all or self.prefix is not None

    def fits(self, status: object, action: object, schedule_id: object, error: object) -> bool:
        """Whether a task of these buckets matches, by everything but its id."""
        if self.statuses and status not in self.statuses:
            return False
        if self.action not in (None, action) or self.schedule_id not in (None, schedule_id):
            return False
        if self.error is None:
            return True
        text = error if isinstance(error, str) else ""
        return self.error(text) if callable(self.error) else self.error.casefold() in text.casefold()

    def __contains__(self, bucket: object) -> bool:
        return isinstance(bucket, Bucket) and bucket.minute in self.minutes and bucket.shard in self.shards

    def buckets(self, *, since: Bucket | None = None, latest_first: bool = False) -> Iterator[Bucket]:
        """The buckets in order of time, then shard, from ``since`` on. ``latest_first``: the latest minute first."""
        minutes = self.minutes if since is None else range(since.minute, self.minutes.stop)
        for minute in reversed(minutes) if latest_first else minutes:
            for shard in self.shards:
                if since is None or (minute, shard) >= since:
                    yield Bucket(minute, shard)

    def words(self) -> dict[str, str]:
        """The texts that select the same at any time, by the names of options and of a page's parameters."""
        place = (
            {"bucket": str(self.bucket)}
            if self.bucket is not None
            else {"from": format_instant(self.start), "to": format_instant(self.end)}
        )
        filters = {"status": self.status, "action": self.action, "schedule": self.schedule_id, "prefix": self.prefix}
        return place | {name: value for name, value in filters.items() if value is not None}


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
    bucket: str | Bucket | None, start: Time | None, end: Time | None, last: timedelta | str | None, now: datetime
) -> tuple[Bucket | None, range]:
    is_range = start is not None or end is not None
    if bucket is not None:
        if is_range or last is not None:
            raise InvalidInput("bucket", str(bucket), "expected either a bucket or a range, not both")
        named = bucket if isinstance(bucket, Bucket) else Bucket.parse(bucket, "bucket")
        return named, range(named.minute, named.minute + 1)
    if last is not None:
        if is_range:
            raise InvalidInput("last", str(last), "expected either a duration or a range, not both")
        try:
            start, end = now - _length(last), instant_of(minute_of(now) + 1)
        except OverflowError:
            raise InvalidInput("last", str(last), EXPECTED_RANGE) from None
    if start is None or end is None:
        raise InvalidInput("bucket", None, "expected a bucket, or a range with start and end")
    minutes = minutes_between(start, end, now)
    if len(minutes) > MAX_DAYS * 1440:
        field, value = ("end", str(end)) if last is None else ("last", str(last))
        raise InvalidInput(field, value, f"expected a range of at most {MAX_DAYS} days: split it")
    return None, minutes


def _length(last: object) -> timedelta:
    if isinstance(last, timedelta):
        return last
    if not isinstance(last, str):
        raise InvalidInput("last", last, "expected a duration: a timedelta, or a text such as 90s or 1h30m")
    return duration_of(last, "last")


def _check_prefix(prefix: str | None) -> None:
    try:
        if prefix is not None:
            check_task_id(prefix)
    except InvalidInput as error:
        raise InvalidInput("prefix", prefix, error.expected) from None
