"""Reads the whole rows of the tasks of a bucket or a range, as they are consumed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from dynatick.client.bucket_reader import BucketReader
from dynatick.client.bucket_scope import Position, Scope
from dynatick.client.history import HistoryFilter
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.lifecycle import state_of
from dynatick.domain.schedule import is_listed_as_schedule, is_schedule
from dynatick.domain.task import Row, check_task_id
from dynatick.engine.ports import Entry, Store
from dynatick.errors import InvalidInput

_BATCH = 25  # rows to a request: they may be large
_MAX_AT_A_TIME = 8  # requests; memory holds no more rows than theirs


def export(
    store: Store, scope: Scope, filter_: HistoryFilter, *, after: tuple[str, str] | None = None
) -> Iterator[Row]:
    """Yields rows in order of time, shard and id. Raises InvalidInput."""
    return _rows(store, scope, filter_, None if after is None else _position(after, scope, filter_))


def _position(after: tuple[str, str], scope: Scope, filter_: HistoryFilter) -> Position:
    bucket = Bucket.parse(after[0], "after")
    if bucket not in scope:
        raise InvalidInput("after", after[0], "expected a bucket within the export")
    if not after[1].startswith(filter_.prefix or ""):
        raise InvalidInput("after", after[1], f"expected an id that begins with {filter_.prefix}")
    return Position(bucket, check_task_id(after[1]))


def _rows(store: Store, scope: Scope, filter_: HistoryFilter, start: Position | None) -> Iterator[Row]:
    reader = BucketReader(
        store=store, open_only=filter_.open_only, outcome=filter_.outcome, prefix=filter_.prefix, with_rows=False
    )
    with ThreadPoolExecutor(_MAX_AT_A_TIME, thread_name_prefix="dynatick-export") as pool:
        fetched: deque[tuple[Sequence[Entry], Future[Mapping[str, Row]]]] = deque()
        for entries in _batches(reader, scope.positions(start)):
            fetched.append((entries, pool.submit(store.get_many, [entry.task_id for entry in entries])))
            if len(fetched) == _MAX_AT_A_TIME:
                yield from _matching(*fetched.popleft(), filter_)
        while fetched:
            yield from _matching(*fetched.popleft(), filter_)


def _batches(reader: BucketReader, positions: Iterator[Position]) -> Iterator[Sequence[Entry]]:
    for page in reader.pages(positions):
        for first in range(0, len(page.entries), _BATCH):
            yield page.entries[first : first + _BATCH]


def _matching(entries: Sequence[Entry], rows: Future[Mapping[str, Row]], filter_: HistoryFilter) -> Iterator[Row]:
    found = rows.result()
    for entry in entries:
        row = found.get(entry.task_id)
        # Deleted, in another bucket now, or a schedule.
        if row is None or row.get(attr.TASK_DATE_TIME) != entry.bucket:
            continue
        if is_listed_as_schedule(entry.task_id, entry.schedule_id) or is_schedule(row) or attr.SCHEDULE_STATE in row:
            continue
        if filter_.fits(state_of(row), row.get(attr.ACTION), row.get(attr.SCHEDULE_ID)):
            yield row
