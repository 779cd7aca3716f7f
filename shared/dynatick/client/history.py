"""Lists the tasks of a bucket or of a range of time, page by page, counts them, and reads their whole
rows for an export.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from datetime import datetime
from itertools import islice

from dynatick.client.buckets import BucketPage, BucketReader, Position, Rows, bucket_of, leave
from dynatick.client.task_update import MAX_KEY_BYTES
from dynatick.client.thread_pool import thread_pool
from dynatick.client.views import (
    BucketCounts,
    HistoryPage,
    ListedPage,
    Tally,
    TaskCounts,
    TaskEntry,
    instant_or_none,
    number_or,
    status_of,
    text_or_none,
)
from dynatick.domain import attributes as attr
from dynatick.domain.batches import OPEN, members_by_status, standing_of_pack
from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.lifecycle import state_of
from dynatick.domain.schedule import is_listed_as_schedule, is_schedule
from dynatick.domain.selection import Selection
from dynatick.domain.task import Row, Status, check_task_id
from dynatick.engine.counts import Departures, read_departures
from dynatick.engine.ports import Counted, Entry, Store
from dynatick.errors import InvalidInput

MAX_LIMIT = 1000
MAX_POLLS = 1500  # for one page: a day of minutes on one shard
_FILTERED_ENTRIES = 1000  # to a poll, with a filter that few entries may match
_SHOWN = (
    attr.TASK_DATE_TIME, attr.STATUS, attr.OUTCOME, attr.ACTION, attr.DUE_AT, attr.FINISHED_AT, attr.ERROR,
    attr.ATTEMPT, attr.SCHEDULE_ID, attr.PACK, *attr.RECURRENCE,
)  # fmt: skip
_ITERATION_LIMIT = 200  # entries in a page of an iteration

_BATCH = 25  # rows to a request: they may be large
_MAX_AT_A_TIME = 8  # requests; memory holds no more rows than theirs


def history(
    store: Store,
    selection: Selection,
    *,
    limit: int,
    page_token: str | None,
    attempts: bool = False,
) -> HistoryPage:
    """One page, in order of time, shard and id. ``attempts``: of ended tasks, too. Raises InvalidInput."""
    page = _history(store, selection, limit, page_token)
    return _with_attempts(store, page) if attempts else page


def _history(store: Store, selection: Selection, limit: int, page_token: str | None) -> HistoryPage:
    check_limit(limit)
    start = None if page_token is None else _position(page_token, selection)
    reader = BucketReader(
        store=store,
        selection=selection,
        limit=limit if selection.matches_all else max(limit, _FILTERED_ENTRIES),
        attributes=_SHOWN,
    )
    found: list[TaskEntry] = []
    pages = reader.pages(start)
    for polls, page in enumerate(pages, 1):
        for n, entry in enumerate(page.entries):
            task = _entry(entry, page)
            if task is None or not _fits(selection, task):
                continue
            found.append(task)
            if len(found) == limit:
                more = n + 1 < len(page.entries) or page.after is not None
                leave(pages)
                return _page(found, selection, page, entry.task_id if more else None)
        if polls >= MAX_POLLS:
            leave(pages)
            return _page(found, selection, page, page.after)
    return HistoryPage(entries=tuple(found))


def every_entry(store: Store, selection: Selection) -> Iterator[TaskEntry]:
    """All entries of a history; pages are read as they are consumed."""
    token = None
    while True:
        page = history(store, selection, limit=_ITERATION_LIMIT, page_token=token)
        yield from page.entries
        if (token := page.next_page_token) is None:
            return


def bucket_counts(store: Store, selection: Selection, listed: HistoryPage | None = None) -> Iterator[BucketCounts]:
    """How many tasks of each status each bucket holds, over all shards, and how late they began; without empty
    buckets. ``listed``: the first page of the history, which is read already, of one bucket."""
    tallies: dict[int, Tally] = {}
    name = _named_shard(selection)
    reader = BucketReader(store=store, selection=selection, attributes=_SHOWN)
    if listed is None:
        pages: Iterable[BucketPage] = reader.pages()
    else:
        for read in listed.entries:
            _add(tallies, read)
        token = listed.next_page_token
        pages = () if token is None else reader.pages(_position(token, selection))
    for page in pages:
        if page.bucket is not None and page.bucket.minute not in tallies:
            yield from _counts(tallies, name)  # of the minute before: nothing more is in it
            tallies = {page.bucket.minute: Tally()}
        for entry in page.entries:
            if (task := _entry(entry, page)) is not None and _fits(selection, task):
                _add(tallies, task)
    yield from _counts(tallies, name)


def count_tasks(store: Store, selection: Selection, default_action: str) -> TaskCounts:
    """How many tasks there are, by status and action, and how late they began."""
    total, tallies = Tally(), dict[str, Tally]()
    for page in BucketReader(store=store, selection=selection, is_whole=True, attributes=_SHOWN).pages():
        for entry in page.entries:
            if (task := _entry(entry, page)) is not None and _fits(selection, task):
                total.add(task)
                tallies.setdefault(task.action or default_action, Tally()).add(task)
    actions = {name: dict(sorted(tallies[name].counts.items())) for name in sorted(tallies)}
    return TaskCounts(counts=dict(sorted(total.counts.items())), actions=actions, lateness=total.lateness_ms())


def _add(tallies: dict[int, Tally], task: TaskEntry) -> None:
    if (bucket := Bucket.canonical(task.bucket)) is not None:
        tallies.setdefault(bucket.minute, Tally()).add(task)


def _counts(tallies: Mapping[int, Tally], shard: int) -> Iterator[BucketCounts]:
    return (tally.of(str(Bucket(minute, shard))) for minute, tally in sorted(tallies.items()) if tally.counts)


def with_departures(store: Store, selection: Selection, counts: Iterator[BucketCounts]) -> Iterator[BucketCounts]:
    """The counts of one bucket, with what has left it."""
    left = departures_from(store, selection)
    found = next(counts, None)
    if found is not None:
        yield replace(found, left=left)
    elif left:
        yield BucketCounts(bucket=str(selection.bucket), counts={}, left=left)


def departures_from(store: Store, selection: Selection) -> Departures:
    """What has left these buckets."""
    return read_departures(store, list(selection.buckets()))


def listed_entries(store: Store, selection: Selection, grid: Grid, now: datetime) -> Iterator[TaskEntry]:
    """The tasks as the index lists them, without a read of any row but those of packs; those that have not ended are
    ``open``, or ``waiting`` for a completion in a bucket to come."""
    reader = BucketReader(store=store, selection=selection, rows=Rows.PACKS, is_whole=True, attributes=_SHOWN)
    for page in reader.pages():
        yield from _listed(page, grid, now)


def listed_pages(
    store: Store, selection: Selection, grid: Grid, now: datetime, threads: Executor | None = None
) -> Iterator[ListedPage]:
    """The same by page, but most of those that have completed are only counted, and in buckets that are all to come
    most of those that are open: the answers hold none of them."""
    are_to_come = selection.minutes.start > minute_of(now)
    count, status = (Counted.OPEN, OPEN) if are_to_come else (Counted.COMPLETED, Status.COMPLETED)
    reader = BucketReader(
        store=store, selection=selection, rows=Rows.PACKS, is_whole=True, attributes=_SHOWN, count=count,
        threads=threads,
    )  # fmt: skip
    for page in reader.pages():
        assert page.bucket is not None
        yield ListedPage(page.bucket, tuple(_listed(page, grid, now)), {status: page.counted} if page.counted else {})


def _listed(page: BucketPage, grid: Grid, now: datetime) -> Iterator[TaskEntry]:
    for entry in page.entries:
        if not is_listed_as_schedule(entry.task_id, entry.schedule_id):
            pack = page.rows.get(entry.task_id)
            is_open = entry.outcome is None
            yield TaskEntry(
                task_id=entry.task_id,
                bucket=entry.bucket,
                status=_listed_status(entry, grid, now),
                action=entry.action,
                due_at=instant_or_none(entry.due_at),
                finished_at=instant_or_none(entry.finished_at),
                error=entry.error,
                schedule_id=entry.schedule_id,
                limit_key=entry.limit_key,
                late_milliseconds=None if is_open else entry.late_milliseconds,
                members=None if pack is None else standing_of_pack(pack),
                may_begin_at=instant_or_none(entry.next_attempt_at or entry.due_at) if is_open else None,
                has_begun=is_open and entry.late_milliseconds is not None,
            )


def _listed_status(entry: Entry, grid: Grid, now: datetime) -> Status | str:
    """The index has no status. But of the tasks that have not ended only one that its handler handed over has begun
    (how late is written when an attempt ends), has no next attempt and no error, and lies in a later bucket than the
    one it is due in. Once that has passed, a recovery may run it."""
    if entry.outcome is not None:
        return status_of(entry.outcome)
    if entry.late_milliseconds is None or entry.next_attempt_at is not None or entry.error is not None:
        return OPEN
    bucket, due_at = Bucket.canonical(entry.bucket), instant_or_none(entry.due_at)
    if bucket is None or due_at is None or bucket.instant <= now:
        return OPEN
    return Status.WAITING if bucket.minute > grid.tick_at_or_after(due_at) else OPEN


def check_optional_limit(limit: object) -> None:
    """A limit without a maximum, or None. Raises InvalidInput."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise InvalidInput("limit", limit, "expected a number of at least 1")


def check_limit(limit: object, field: str = "limit") -> int:
    """Raises InvalidInput."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(field, limit, f"expected a number from 1 to {MAX_LIMIT}")
    return limit


def _entry(entry: Entry, page: BucketPage) -> TaskEntry | None:
    """The task of an index entry, as its row is now; None if it was deleted, is in another bucket now, or is a schedule
    that waits there for its next occurrence."""
    if is_listed_as_schedule(entry.task_id, entry.schedule_id):
        return None
    row = page.rows.get(entry.task_id)
    members = None if row is None else members_by_status(row)
    if entry.outcome is not None:
        row = None
    elif row is None or bucket_of(row) != entry.bucket or is_schedule(row):
        return None
    live = row if row is not None else {}
    ended = live.get(attr.OUTCOME)
    return TaskEntry(
        task_id=entry.task_id,
        bucket=entry.bucket,
        status=status_of(entry.outcome or (text_or_none(ended) or state_of(live))),
        action=_now(live, attr.ACTION, entry.action),
        due_at=instant_or_none(live.get(attr.DUE_AT, entry.due_at)),
        finished_at=instant_or_none(live.get(attr.FINISHED_AT, entry.finished_at)),
        error=_now(live, attr.ERROR, entry.error),
        attempt=number_or(live.get(attr.ATTEMPT), 0) if row is not None else None,
        schedule_id=_now(live, attr.SCHEDULE_ID, entry.schedule_id),
        limit_key=_now(live, attr.LIMIT_KEY, entry.limit_key),
        late_milliseconds=entry.late_milliseconds if entry.outcome is not None else None,
        members=members,
    )


def _with_attempts(store: Store, page: HistoryPage) -> HistoryPage:
    """Adds the attempts of ended tasks, which only their rows have."""
    ended = [entry.task_id for entry in page.entries if entry.attempt is None]
    rows = store.get_many(ended, consistent=False, only=(attr.ATTEMPT,)) if ended else {}
    entries = (
        replace(one, attempt=number_or(rows[one.task_id].get(attr.ATTEMPT), 0)) if one.task_id in rows else one
        for one in page.entries
    )
    return replace(page, entries=tuple(entries))


def _now(live: Row, name: str, listed: str | None) -> str | None:
    return text_or_none(live.get(name, listed))


def _fits(selection: Selection, task: TaskEntry) -> bool:
    return selection.fits(task.bucket, task.status, task.action, task.schedule_id, task.error)


def _named_shard(selection: Selection) -> int:
    """The shard in the names of counted buckets: that of the selection, if it has only one."""
    return selection.shards[0] if len(selection.shards) == 1 else 0


def _page(found: list[TaskEntry], selection: Selection, page: BucketPage, after: str | None) -> HistoryPage:
    """A page of the history that ends after an id of a bucket's page, or with all of it."""
    position: Position | None = None
    if after is not None:
        position = Position(page.bucket, after)
    elif page.bucket is not None:
        position = next(map(Position, islice(selection.buckets(since=page.bucket), 1, None)), None)
    return HistoryPage(
        entries=tuple(found),
        next_page_token=None if position is None else _token(position),
        through=None if position is None or position.bucket is None else position.bucket.instant,
    )


def _token(position: Position) -> str:
    bucket = None if position.bucket is None else str(position.bucket)
    text = json.dumps({"bucket": bucket, "after": position.after}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _position(token: object, selection: Selection) -> Position:
    """The position of a page token. Raises InvalidInput for a token of another bucket, range or subject."""
    expected = "expected the token of the page before, with the same bucket, range or subject"
    wrong = InvalidInput("pageToken", token, expected)
    if not isinstance(token, str):
        raise wrong
    try:
        held = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
        bucket, after = held["bucket"] and Bucket.parse(held["bucket"]), held["after"]
        fits = after is None or 0 < len(after.encode()) <= MAX_KEY_BYTES
        fits = fits and (after is None or selection.subject is not None or after.startswith(selection.prefix or ""))
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise wrong from None
    if not fits or (
        (bucket is not None or after is None) if selection.subject is not None else bucket not in selection
    ):
        raise wrong
    return Position(bucket, after)


def export(store: Store, selection: Selection, *, after: tuple[str, str] | None = None) -> Iterator[Row]:
    """Yields rows in order of time, shard and id. Raises InvalidInput."""
    return _rows(store, selection, None if after is None else _export_position(after, selection))


def _export_position(after: tuple[str, str], selection: Selection) -> Position:
    if selection.subject is not None:
        return Position(None, check_task_id(after[1]))
    bucket = Bucket.parse(after[0], "after")
    if bucket not in selection:
        raise InvalidInput("after", after[0], "expected a bucket within the export")
    if not after[1].startswith(selection.prefix or ""):
        raise InvalidInput("after", after[1], f"expected an id that begins with {selection.prefix}")
    return Position(bucket, check_task_id(after[1]))


def _rows(store: Store, selection: Selection, start: Position | None) -> Iterator[Row]:
    pages = BucketReader(store=store, selection=selection, rows=Rows.NONE).pages(start)
    with thread_pool(_MAX_AT_A_TIME, "dynatick-export") as pool:
        fetched: deque[tuple[Sequence[Entry], Future[Mapping[str, Row]]]] = deque()
        for entries in _batches(pages):
            fetched.append((entries, pool.submit(store.get_many, [entry.task_id for entry in entries])))
            if len(fetched) == _MAX_AT_A_TIME:
                yield from _matching(*fetched.popleft(), selection)
        while fetched:
            yield from _matching(*fetched.popleft(), selection)


def _batches(pages: Iterator[BucketPage]) -> Iterator[Sequence[Entry]]:
    for page in pages:
        for first in range(0, len(page.entries), _BATCH):
            yield page.entries[first : first + _BATCH]


def _matching(entries: Sequence[Entry], rows: Future[Mapping[str, Row]], selection: Selection) -> Iterator[Row]:
    found = rows.result()
    for entry in entries:
        row = found.get(entry.task_id)
        # Deleted, in another bucket now, another's, or a schedule.
        if row is None or bucket_of(row) != entry.bucket or selection.subject not in (None, row.get(attr.SUBJECT)):
            continue
        if is_listed_as_schedule(entry.task_id, entry.schedule_id) or is_schedule(row) or attr.SCHEDULE_STATE in row:
            continue
        if selection.fits(
            entry.bucket, state_of(row), row.get(attr.ACTION), row.get(attr.SCHEDULE_ID), row.get(attr.ERROR)
        ):
            yield row
