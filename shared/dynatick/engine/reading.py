"""Reads the pages of buckets ahead of whoever works on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from datetime import datetime

from dynatick.domain.buckets import Bucket
from dynatick.engine.ports import Clock, Page, Store
from dynatick.engine.report import Resume

PAGE = 2000  # entries: as many as fit into DynamoDB's 1 MB are four times that, twice over, and then as objects
LOOKAHEAD = 6  # buckets whose first page is read ahead; what is read waits in memory


def read_ahead(
    store: Store,
    clock: Clock,
    executor: Executor,
    shard: int,
    minutes: Iterable[int],
    resume: Resume | None,
    began: Callable[[int, datetime], None],
) -> Iterator[tuple[int, Page]]:
    """(minute, page) of each bucket, in order, all pages.

    ``resume`` says where to begin in its bucket. ``began`` is told when the look at a bucket began, before its first
    page comes. Raises what the store raises.
    """
    coming = iter(minutes)
    ahead: deque[tuple[int, bool, Future[tuple[datetime, Page]]]] = deque()

    def fetch(minute: int, after: str | None) -> Future[tuple[datetime, Page]]:
        def read() -> tuple[datetime, Page]:
            now = clock()
            return now, store.look(Bucket(minute, shard), after=after, limit=PAGE)

        return executor.submit(read)

    while True:
        while len(ahead) < LOOKAHEAD and (minute := next(coming, None)) is not None:
            after = resume.after if resume is not None and minute == resume.minute else None
            ahead.append((minute, True, fetch(minute, after)))
        if not ahead:
            return
        minute, is_first, future = ahead.popleft()
        now, page = future.result()
        if is_first:
            began(minute, now)
        if page.after is not None:
            ahead.appendleft((minute, False, fetch(minute, page.after)))
        yield minute, page
