"""The buckets that a bucket's name or a range of time stands for, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from dynatick.client.new_task import Time
from dynatick.domain.buckets import Bucket, Grid, parse_time
from dynatick.domain.task import check_task_id
from dynatick.errors import InvalidInput, InvalidInputs

MAX_DAYS = 31
_EVERY_MINUTE = Grid()


@dataclass(frozen=True, slots=True)
class Position:
    """A place to read from: a bucket, from its beginning or after an id."""

    bucket: Bucket
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """The buckets of every minute in a range: the tick interval may have been different when they were made."""

    minutes: range
    shards: Sequence[int]

    def __contains__(self, bucket: object) -> bool:
        return isinstance(bucket, Bucket) and bucket.minute in self.minutes and bucket.shard in self.shards

    def positions(self, start: Position | None = None) -> Iterator[Position]:
        """Yields the positions in order of time, then shard, from ``start`` on if it is given."""
        first = self.minutes.start
        if start is not None:
            yield start
            first = start.bucket.minute
        for minute in range(first, self.minutes.stop):
            for shard in self.shards:
                if start is None or (minute, shard) > start.bucket:
                    yield Position(Bucket(minute, shard))


def backwards(scope: Scope) -> Iterator[Position]:
    """The positions of a scope, the latest minute first."""
    for minute in reversed(scope.minutes):
        yield from Scope(range(minute, minute + 1), scope.shards).positions()


def scope(bucket: str | Bucket | None, start: Time | None, end: Time | None, shards_ever: int) -> Scope:
    """The scope of one bucket (all its shards, unless one is named), or of the range from ``start`` to before ``end``.

    Raises InvalidInput.
    """
    if bucket is not None:
        if start is not None or end is not None:
            raise InvalidInput("bucket", str(bucket), "expected either a bucket or a range, not both")
        one = bucket if isinstance(bucket, Bucket) else Bucket.parse(bucket, "bucket")
        shards = [one.shard] if one.shard else list(range(shards_ever))
        return Scope(range(one.minute, one.minute + 1), shards)
    if start is None or end is None:
        raise InvalidInput("bucket", None, "expected a bucket, or a range with start and end")
    minutes = minutes_between(start, end)
    if len(minutes) > MAX_DAYS * 1440:
        raise InvalidInput("end", _text(end), f"expected a range of at most {MAX_DAYS} days: split it")
    return Scope(minutes, list(range(shards_ever)))


def minutes_between(start: Time, end: Time) -> range:
    """The minutes that begin at or after ``start`` and before ``end``. Raises InvalidInput."""
    first, last = instants(start, end)
    if last <= first:
        raise InvalidInput("end", _text(end), f"expected a time later than start, {_text(start)}")
    return range(_EVERY_MINUTE.tick_at_or_after(first), _EVERY_MINUTE.tick_at_or_after(last))


def instants(start: Time, end: Time) -> tuple[datetime, datetime]:
    """Both ends of a range. Raises InvalidInput for each invalid one."""
    wrong = InvalidInputs()
    with wrong:
        first = _instant(start, "start")
    with wrong:
        last = _instant(end, "end")
    wrong.raise_all()
    return first, last


def check_prefix(prefix: str | None) -> str | None:
    """Checks the prefix of ids. Raises InvalidInput."""
    try:
        return None if prefix is None else check_task_id(prefix)
    except InvalidInput as error:
        raise InvalidInput("prefix", prefix, error.expected) from None


def _instant(time: Time, field: str) -> datetime:
    found = parse_time(str(time) if isinstance(time, Bucket) else time, field)
    return found.instant if isinstance(found, Bucket) else found


def _text(time: Time) -> str:
    return str(time)
