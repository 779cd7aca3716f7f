"""Reads the tasks of a selection page by page: of its buckets, several at a time as more are consumed, or of its
subject."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from enum import Enum

from dynatick.client.thread_pool import many_rows, thread_pool
from dynatick.client.views import text_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.packs import may_be_pack
from dynatick.domain.selection import Selection
from dynatick.domain.task import Row
from dynatick.engine.ports import Counted, Entry, Store
from dynatick.store.codec import encode, entry_of

_MAX_AT_A_TIME = 8
_AT_A_TIME_OF_ALL = 16  # if all will be consumed
_OF_ENTRIES = (
    attr.TASK_DATE_TIME, attr.OUTCOME, attr.ACTION, attr.DUE_AT, attr.FINISHED_AT, attr.ERROR, attr.SCHEDULE_ID,
    attr.NEXT_ATTEMPT_AT, attr.LATE_MILLISECONDS, attr.SUBJECT, attr.LIMIT_KEY,
)  # fmt: skip


def bucket_of(row: Row) -> str:
    """The name of the bucket that a row is listed in; empty if it has none yet."""
    return text_or_none(row.get(attr.TASK_DATE_TIME)) or ""


@dataclass(frozen=True, slots=True)
class Position:
    """A place to read from: a bucket, from its beginning or after an id; or a subject, after an id."""

    bucket: Bucket | None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class BucketPage:
    """A page of a bucket, or of a subject. ``rows``: the rows of entries that had not ended, and of packs. ``after``:
    where the next page begins. ``counted``: tasks that it has besides, if those were only to be counted."""

    bucket: Bucket | None
    entries: Sequence[Entry]
    rows: Mapping[str, Row]
    after: str | None
    counted: int = 0


class _Left(Exception):
    """Of no more pages is there any need."""


def leave(pages: Generator[BucketPage, None, None]) -> None:
    """Ends the reading of pages, and waits for the reads that are under way."""
    with suppress(_Left):
        pages.throw(_Left())


class Rows(Enum):
    """Of which entries the rows are read, too."""

    OPEN = "those that have not ended, and packs"
    PACKS = "packs"
    NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketReader:
    """Reads what the index can select: by outcome, by prefix and by action."""

    store: Store
    selection: Selection
    latest_first: bool = False  # the latest minute
    limit: int | None = None  # entries in a page
    rows: Rows = Rows.OPEN
    is_whole: bool = False  # all pages will be consumed
    attributes: Collection[str] = ()  # of the rows that are needed; empty: all
    count: Counted | None = None  # the tasks that are only counted; of buckets
    threads: Executor | None = None  # of the caller, that read; None: threads of its own

    def pages(self, start: Position | None = None) -> Generator[BucketPage, None, None]:
        """All pages of all buckets, in order, from ``start`` on.

        Unless all will be consumed, the first is read alone; the more the caller consumes, the more are read at a time.
        ``leave`` ends it early.
        """
        if self.selection.subject is not None:
            yield from self._of_subject(self.selection.subject, None if start is None else start.after)
            return
        since = None if start is None else start.bucket
        buckets = self.selection.buckets(since=since, latest_first=self.latest_first)
        positions = (start if start is not None and bucket == since else Position(bucket) for bucket in buckets)
        ahead: deque[tuple[Position, Future[BucketPage] | None]] = deque()
        maximum = _AT_A_TIME_OF_ALL if self.is_whole else _MAX_AT_A_TIME
        width = maximum if self.is_whole else 1
        with nullcontext(self.threads) if self.threads else thread_pool(maximum, "dynatick-read") as pool:
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
                    width = min(2 * width, maximum)
            finally:
                for _, pending in ahead:
                    if pending is not None:
                        pending.cancel()

    def _of_subject(self, subject: str, after: str | None) -> Generator[BucketPage, None, None]:
        attributes = self.attributes and {*self.attributes, *_OF_ENTRIES} if self.rows is Rows.OPEN else _OF_ENTRIES
        while True:
            listing = self.store.listed_by(attr.SUBJECT, subject, after=after, limit=self.limit)
            ids = [task_id for task_id in listing.ids if task_id.startswith(self.selection.prefix or "")]
            rows = self.store.get_many(ids, only=attributes) if ids else {}
            # The index may lag: an id that was deleted can be one of another subject's now.
            found = (rows[one] for one in ids if one in rows and rows[one].get(attr.SUBJECT) == subject)
            entries = [entry for row in found if (entry := self._entry(row)) is not None]
            yield BucketPage(None, entries, rows, listing.after)
            if (after := listing.after) is None:
                return

    def _entry(self, row: Row) -> Entry | None:
        """What the index of buckets would list, if the selection may have it."""
        outcome, bucket = text_or_none(row.get(attr.OUTCOME)), bucket_of(row)
        selection, is_open = self.selection, outcome is None
        if not selection.holds(bucket) or (selection.open_only and not is_open):
            return None
        if selection.outcome not in (None, outcome):
            return None
        listed = {name: row[name] for name in (attr.TASK_ID, *_OF_ENTRIES) if row.get(name) is not None}
        return entry_of(encode({**listed, attr.TASK_DATE_TIME: bucket}))

    def _reads(self, entry: Entry) -> bool:
        if self.rows is Rows.NONE:
            return False
        return may_be_pack(entry.task_id) or (self.rows is Rows.OPEN and entry.outcome is None)

    def _read(self, position: Position) -> BucketPage:
        assert position.bucket is not None
        page = self.store.query_bucket(
            position.bucket,
            after=position.after,
            open_only=self.selection.open_only,
            outcome=self.selection.outcome,
            limit=self.limit,
            prefix=self.selection.prefix,
            count=self.count,
        )
        rows: Mapping[str, Row] = {}
        action = self.selection.action
        entries = [entry for entry in page.entries if action is None or entry.action in (None, action)]
        if read := [entry.task_id for entry in entries if self._reads(entry)]:
            rows = many_rows(self.store, read, only=self.attributes)
        return BucketPage(position.bucket, entries, rows, page.after, page.counted)
