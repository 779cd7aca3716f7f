"""Whole rows of the tasks of a bucket or a range, as they are consumed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from dynatick.client.bucket_scope import Position, Scope, Seen, read_ahead
from dynatick.client.history import Wanted
from dynatick.domain.buckets import Bucket
from dynatick.domain.lifecycle import state_of
from dynatick.domain.schedule import is_listed_as_schedule, is_schedule
from dynatick.domain.task import TERMINAL, Row, check_task_id
from dynatick.engine.ports import Entry, Store
from dynatick.errors import InvalidInput

_TOGETHER = 25  # rows that are fetched by one request: they may be large
_AT_A_TIME = 8  # such requests; no more rows than theirs are held


def export(store: Store, scope: Scope, wanted: Wanted, *, after: tuple[str, str] | None = None) -> Iterator[Row]:
    """In order of time, shard and id. Raises InvalidInput."""
    return _rows(store, scope, wanted, None if after is None else _position(after, scope, wanted))


def _position(after: tuple[str, str], scope: Scope, wanted: Wanted) -> Position:
    bucket = Bucket.parse(after[0], "after")
    if bucket not in scope:
        raise InvalidInput("after", after[0], "expected a bucket of those that are exported")
    if not after[1].startswith(wanted.prefix or ""):
        raise InvalidInput("after", after[1], f"expected an id that begins with {wanted.prefix}")
    return Position(bucket, check_task_id(after[1]))


def _rows(store: Store, scope: Scope, wanted: Wanted, start: Position | None) -> Iterator[Row]:
    status = wanted.status
    ended = status in TERMINAL
    look = partial(
        _look,
        store,
        open_only=status is not None and not ended,
        outcome=str(status) if ended else None,
        prefix=wanted.prefix,
    )
    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="dynatick-export") as pool:
        fetched: deque[tuple[Sequence[Entry], Future[Mapping[str, Row]]]] = deque()
        for entries in _parts(scope, look, start):
            fetched.append((entries, pool.submit(store.get_many, [entry.task_id for entry in entries])))
            if len(fetched) == _AT_A_TIME:
                yield from _meant(*fetched.popleft(), wanted)
        while fetched:
            yield from _meant(*fetched.popleft(), wanted)


def _look(store: Store, position: Position, *, open_only: bool, outcome: str | None, prefix: str | None) -> Seen:
    page = store.query_bucket(
        position.bucket, after=position.after, open_only=open_only, outcome=outcome, prefix=prefix
    )
    return Seen(position.bucket, page.entries, {}, page.after)


def _parts(scope: Scope, look: partial[Seen], start: Position | None) -> Iterator[Sequence[Entry]]:
    for seen in read_ahead(scope.positions(start), look):
        for first in range(0, len(seen.entries), _TOGETHER):
            yield seen.entries[first : first + _TOGETHER]


def _meant(entries: Sequence[Entry], rows: Future[Mapping[str, Row]], wanted: Wanted) -> Iterator[Row]:
    found = rows.result()
    for entry in entries:
        row = found.get(entry.task_id)
        # Ineligible, or in another bucket by now, which lists it; or no task.
        if row is None or row.get("taskDateTime") != entry.bucket:
            continue
        if is_listed_as_schedule(entry.task_id, entry.schedule_id) or is_schedule(row) or "scheduleState" in row:
            continue
        if wanted.fits(state_of(row), row.get("action"), row.get("scheduleId")):
            yield row
