"""Reads the buckets of a selection page by page, several at a time as more are consumed."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from dynatick.domain.buckets import Bucket
from dynatick.domain.selection import Selection
from dynatick.domain.task import Row
from dynatick.engine.ports import Entry, Store

_MAX_AT_A_TIME = 8


@dataclass(frozen=True, slots=True)
class Position:
    """A place to read from: a bucket, from its beginning or after an id."""

    bucket: Bucket
    after: str | None = None


@dataclass(frozen=True, slots=True)
class BucketPage:
    """A page of a bucket. ``rows``: the rows of entries that had not ended. ``after``: where the next page begins."""

    bucket: Bucket
    entries: Sequence[Entry]
    rows: Mapping[str, Row]
    after: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketReader:
    """Reads what the index can select: by outcome and by prefix."""

    store: Store
    selection: Selection
    latest_first: bool = False  # the latest minute
    limit: int | None = None  # entries in a page
    with_rows: bool = True
    attributes: Collection[str] = ()  # of the rows that are needed; empty: all

    def pages(self, start: Position | None = None) -> Generator[BucketPage, None, None]:
        """All pages of all buckets, in order, from ``start`` on.

        The first is read alone. The more the caller consumes, the more are read at a time.
        """
        since = None if start is None else start.bucket
        buckets = self.selection.buckets(since=since, latest_first=self.latest_first)
        positions = (start if start is not None and bucket == since else Position(bucket) for bucket in buckets)
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
            open_only=self.selection.open_only,
            outcome=self.selection.outcome,
            limit=self.limit,
            prefix=self.selection.prefix,
        )
        rows: Mapping[str, Row] = {}
        if self.with_rows and (not_ended := [entry.task_id for entry in page.entries if entry.outcome is None]):
            rows = self.store.get_many(not_ended, only=self.attributes)
        return BucketPage(position.bucket, page.entries, rows, page.after)
