"""Reads the pages of buckets ahead of their use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from dynatick.domain.buckets import Bucket
from dynatick.engine.invocation import Execution
from dynatick.engine.pools import executor
from dynatick.engine.ports import Page
from dynatick.engine.window import Segment

PAGE = 500  # entries: DynamoDB's 1 MB holds thousands, which would take too much memory as objects
LOOKAHEAD = 6  # segments whose first page is read ahead, all at once; the pages wait in memory


@dataclass(slots=True)
class _Read:
    """One page, requested or read."""

    segment: Segment
    is_first: bool  # of its segment
    began: datetime | None = None
    page: Page | None = None
    error: Exception | None = None

    def finish(self, began: datetime, page: Page | None, error: Exception | None) -> None:
        self.began, self.page, self.error = began, page, error


class PageReader:
    """The pages of one shard's buckets. While the coordinator waits for one, it handles events."""

    def __init__(self, execution: Execution, shard: int) -> None:
        self._execution, self._shard = execution, shard
        self._ahead: deque[_Read] = deque()
        in_one_thread = execution.services.rules.in_one_thread
        self._pool = executor(LOOKAHEAD, "dynatick-poll", in_one_thread=in_one_thread)

    def pages(
        self, segments: Iterable[Segment], began: Callable[[int, datetime], None], waits: Callable[[], None]
    ) -> Iterator[tuple[Segment, Page | None]]:
        """(segment, page) of each segment in order, all pages. Once time is up, the page is None, and it ends.

        ``began`` is called with the time at which the poll of a segment began, before its first page; ``waits``
        again and again while a page has not come. If one can't be read, it ends; the execution keeps the error.
        """
        coming = iter(segments)
        ahead = self._ahead
        ahead.clear()
        while True:
            while len(ahead) < LOOKAHEAD and (segment := next(coming, None)) is not None:
                ahead.append(self._ask(_Read(segment, True), segment.after))
            if not ahead:
                return
            read = ahead.popleft()
            while read.began is None:
                if not self._execution.may_begin():
                    yield read.segment, None
                    return
                self._execution.handle_events()
                waits()
            if read.is_first:
                began(read.segment.minute, read.began)
            if read.error is not None:
                self._execution.keep_fault(read.error)
            if read.page is None:
                return
            if read.page.after is not None:
                ahead.appendleft(self._ask(_Read(read.segment, False), read.page.after))
            yield read.segment, read.page

    def read_next(self, segment: Segment) -> None:
        """Lets ``pages`` read this segment next. Its poll has begun before."""
        self._ahead.appendleft(self._ask(_Read(segment, False), segment.after))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, read: _Read, after: str | None) -> _Read:
        self._pool.submit(self._poll, read, after)
        return read

    def _poll(self, read: _Read, after: str | None) -> None:
        """Reads a page of the index, in a thread of the pool."""
        services = self._execution.services
        began, page, error = services.clock(), None, None
        try:
            bucket = Bucket(read.segment.minute, self._shard)
            page = cut(services.store.query_bucket(bucket, after=after, limit=PAGE), read.segment.through)
        except Exception as raised:  # the coordinator raises it once everything in flight is recorded
            error = raised
        self._execution.events.put(partial(read.finish, began, page, error))


def cut(page: Page, through: str | None) -> Page:
    """The page without what comes after an id."""
    if through is None:
        return page
    is_last = page.after is None or page.after >= through
    return Page([entry for entry in page.entries if entry.task_id <= through], None if is_last else page.after)
