"""Reads buckets page by page, in order, and several at a time as more are consumed."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from dynatick.client.bucket_scope import Position
from dynatick.domain.buckets import Bucket
from dynatick.domain.task import Row
from dynatick.engine.ports import Entry, Store

_MAX_AT_A_TIME = 8


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
