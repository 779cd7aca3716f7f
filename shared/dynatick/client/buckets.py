"""The buckets that a bucket's name or a range of time stands for, in order; and their reading, page by page, several
at a time as more are consumed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime

from dynatick.client.new_task import Time
from dynatick.domain.buckets import Bucket, Grid, parse_time
from dynatick.domain.task import Row, check_task_id
from dynatick.engine.ports import Entry, Store
from dynatick.errors import InvalidInput, InvalidInputs

MAX_DAYS = 31
_EVERY_MINUTE = Grid()

_MAX_AT_A_TIME = 8


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


@dataclass(frozen=True, slots=True)
class BucketPage:
    """A page of a bucket. ``rows``: the rows of entries that had not ended. ``after``: where the next page begins."""

    bucket: Bucket
    entries: Sequence[Entry]
    rows: Mapping[str, Row]
    after: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketReader:
    """Reads pages with these filters and limits."""

    store: Store
    open_only: bool = False
    outcome: str | None = None
    prefix: str | None = None
    limit: int | None = None  # entries in a page
    with_rows: bool = True
    attributes: Collection[str] = ()  # of the rows that are needed; empty: all

    def pages(self, positions: Iterator[Position]) -> Generator[BucketPage, None, None]:
        """All pages at each position, in order.

        The first is read alone. The more the caller consumes, the more are read at a time.
        """
        ahead: deque[tuple[Position, Future[BucketPage] | None]] = deque()
        width = 1
        with ThreadPoolExecutor(_MAX_AT_A_TIME, thread_name_prefix="dynatick-read") as pool:
            try:
                while True:
                    while len(ahead) < width and (position := next(positions, None)) is not None:
                        ahead.append((position, pool.submit(self._read, position)))
                    if not ahead:
                        return
                    position, future = ahead.popleft()
                    page = future.result() if future is not None else self._read(position)
                    if page.after is not None:
                        ahead.appendleft((replace(position, after=page.after), None))
                    yield page
                    width = min(2 * width, _MAX_AT_A_TIME)
            finally:
                for _, pending in ahead:
                    if pending is not None:
                        pending.cancel()

    def _read(self, position: Position) -> BucketPage:
        page = self.store.query_bucket(
            position.bucket,
            after=position.after,
            open_only=self.open_only,
            outcome=self.outcome,
            limit=self.limit,
            prefix=self.prefix,
        )
        rows: Mapping[str, Row] = {}
        if self.with_rows and (not_ended := [entry.task_id for entry in page.entries if entry.outcome is None]):
            rows = self.store.get_many(not_ended, only=self.attributes)
        return BucketPage(position.bucket, page.entries, rows, page.after)
