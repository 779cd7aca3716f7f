"""Reading buckets in order: which ones are meant, and several at a time where there are many."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime

from dynatick.client.new_task import Time
from dynatick.domain.buckets import Bucket, Grid, parse_time
from dynatick.domain.task import Row, check_task_id
from dynatick.engine.ports import Entry, Store
from dynatick.errors import InvalidInput, InvalidInputs

MAX_DAYS = 31
AT_A_TIME = 8
_EVERY_MINUTE = Grid()


@dataclass(frozen=True, slots=True)
class Position:
    """Where to read: a bucket, from its beginning or after an id."""

    bucket: Bucket
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """The buckets that are meant: every minute of a range, for the grid may have been another when they were made."""

    minutes: range
    shards: Sequence[int]

    def __contains__(self, bucket: object) -> bool:
        return isinstance(bucket, Bucket) and bucket.minute in self.minutes and bucket.shard in self.shards

    def positions(self, start: Position | None = None) -> Iterator[Position]:
        """In order of time, then shard; ``start`` is the first, if it is given."""
        first = self.minutes.start
        if start is not None:
            yield start
            first = start.bucket.minute
        for minute in range(first, self.minutes.stop):
            for shard in self.shards:
                if start is None or (minute, shard) > start.bucket:
                    yield Position(Bucket(minute, shard))


@dataclass(frozen=True, slots=True)
class Seen:
    """A part of a bucket. ``rows``: the live rows of those entries that had not ended. ``after``: where it goes on."""

    bucket: Bucket
    entries: Sequence[Entry]
    rows: Mapping[str, Row]
    after: str | None


def backwards(meant: Scope) -> Iterator[Position]:
    """Its positions, the latest minute first."""
    for minute in reversed(meant.minutes):
        yield from Scope(range(minute, minute + 1), meant.shards).positions()


def scope(bucket: str | Bucket | None, start: Time | None, end: Time | None, shards_ever: int) -> Scope:
    """What one bucket (all its shards, unless one is named) or the instants from ``start`` to before ``end`` mean.

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
        raise InvalidInput("end", _text(end), f"expected a range of at most {MAX_DAYS} days; ask for it in parts")
    return Scope(minutes, list(range(shards_ever)))


def minutes_between(start: Time, end: Time) -> range:
    """The minutes that begin at or after ``start`` and before ``end``. Raises InvalidInput."""
    first, last = instants(start, end)
    if last <= first:
        raise InvalidInput("end", _text(end), f"expected it to be later than start, which is {_text(start)}")
    return range(_EVERY_MINUTE.tick_at_or_after(first), _EVERY_MINUTE.tick_at_or_after(last))


def instants(start: Time, end: Time) -> tuple[datetime, datetime]:
    """Both ends of a range. Raises InvalidInput for both, if both are wrong."""
    wrong = InvalidInputs()
    with wrong:
        first = _instant(start, "start")
    with wrong:
        last = _instant(end, "end")
    wrong.raise_all()
    return first, last


def check_prefix(prefix: str | None) -> str | None:
    """How ids begin. Raises InvalidInput."""
    try:
        return None if prefix is None else check_task_id(prefix)
    except InvalidInput as error:
        raise InvalidInput("prefix", prefix, error.expected) from None


def read(
    store: Store,
    position: Position,
    *,
    open_only: bool = False,
    outcome: str | None = None,
    limit: int | None = None,
    prefix: str | None = None,
    only: Collection[str] = (),
) -> Seen:
    """One page of a bucket, with the live rows of what has not ended. ``only``: the attributes of these that count."""
    page = store.query_bucket(
        position.bucket, after=position.after, open_only=open_only, outcome=outcome, limit=limit, prefix=prefix
    )
    unended = [entry.task_id for entry in page.entries if entry.outcome is None]
    rows = store.get_many(unended, only=only) if unended else {}
    return Seen(position.bucket, page.entries, rows, page.after)


def read_ahead(positions: Iterator[Position], read_one: Callable[[Position], Seen]) -> Generator[Seen, None, None]:
    """What is read at each position, in order, all pages.

    The first is read alone; as the caller asks for more, ever more are read at a time.
    """
    ahead: deque[tuple[Position, Future[Seen] | None]] = deque()
    width = 1
    with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="dynatick-read") as pool:
        try:
            while True:
                while len(ahead) < width and (position := next(positions, None)) is not None:
                    ahead.append((position, pool.submit(read_one, position)))
                if not ahead:
                    return
                position, future = ahead.popleft()
                seen = future.result() if future is not None else read_one(position)
                if seen.after is not None:
                    ahead.appendleft((replace(position, after=seen.after), None))
                yield seen
                width = min(2 * width, AT_A_TIME)
        finally:
            for _, pending in ahead:
                if pending is not None:
                    pending.cancel()


def _instant(time: Time, field: str) -> datetime:
    found = parse_time(str(time) if isinstance(time, Bucket) else time, field)
    return found.instant if isinstance(found, Bucket) else found


def _text(time: Time) -> str:
    return str(time)
