"""What became of the tasks of a bucket or of a range of time, page by page; and how many there are."""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from dynatick.client.changes import MAX_KEY_BYTES
from dynatick.client.looks import Position, Scope, Seen, check_prefix, read, read_ahead
from dynatick.client.views import (
    BucketCounts,
    HistoryPage,
    TaskEntry,
    instant_or_none,
    number_or,
    status_of,
    text_or_none,
)
from dynatick.domain.buckets import Bucket
from dynatick.domain.lifecycle import state_of
from dynatick.domain.schedule import RECURRENCE, is_listed_as_schedule, is_schedule
from dynatick.domain.task import TERMINAL, Row, Status
from dynatick.engine.ports import Entry, Store
from dynatick.errors import InvalidInput

MAX_LIMIT = 1000
LOOKS = 1500  # what one page may cost: a day of minutes on one shard
_FILTERED_AT_A_TIME = 1000
_SHOWN = (
    "taskDateTime", "status", "outcome", "action", "dueAt", "finishedAt", "error", "attempt", "scheduleId", *RECURRENCE
)  # fmt: skip
_AT_A_TIME = 200  # entries that an iteration reads
_STATUSES = tuple(map(str, Status))


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Which tasks a history is of."""

    status: str | None = None
    action: str | None = None
    schedule_id: str | None = None
    prefix: str | None = None  # how their ids begin

    def __post_init__(self) -> None:
        """Raises InvalidInput."""
        check_status_filter(self.status)
        check_prefix(self.prefix)

    @property
    def all(self) -> bool:
        """Whether every entry that is read is one of them."""
        return self.status is self.action is self.schedule_id is None

    def fits(self, status: object, action: object, schedule_id: object) -> bool:
        """Whether a task is one of these, by what is known of it beside its id."""
        return (
            self.status in (None, status) and self.action in (None, action) and self.schedule_id in (None, schedule_id)
        )


def history(
    store: Store, scope: Scope, wanted: Wanted, *, limit: int, page_token: str | None, attempts: bool = False
) -> HistoryPage:
    """One page, in order of time, shard and id. ``attempts``: also of tasks that have ended. Raises InvalidInput."""
    page = _history(store, scope, wanted, limit=limit, page_token=page_token)
    return _with_attempts(store, page) if attempts else page


def _history(store: Store, scope: Scope, wanted: Wanted, *, limit: int, page_token: str | None) -> HistoryPage:
    check_limit(limit)
    start = None if page_token is None else _position(page_token, scope, wanted.prefix)
    positions = scope.positions(start)
    ended = wanted.status in TERMINAL
    read_one = partial(
        read,
        store,
        open_only=wanted.status is not None and not ended,
        outcome=str(wanted.status) if ended else None,
        limit=limit if wanted.all else max(limit, _FILTERED_AT_A_TIME),
        prefix=wanted.prefix,
        only=_SHOWN,
    )
    found: list[TaskEntry] = []
    looks = 0
    for seen in (pages := read_ahead(positions, read_one)):
        looks += 1
        for n, entry in enumerate(seen.entries):
            task = _entry(entry, seen)
            if task is None or not wanted.fits(task.status, task.action, task.schedule_id):
                continue
            found.append(task)
            if len(found) == limit:
                more = n + 1 < len(seen.entries) or seen.after is not None
                pages.close()
                return _page(found, scope, seen, entry.task_id if more else None)
        if looks >= LOOKS:
            pages.close()
            return _page(found, scope, seen, seen.after)
    return HistoryPage(entries=tuple(found))


def every_entry(store: Store, scope: Scope, wanted: Wanted) -> Iterator[TaskEntry]:
    """All entries of a history, page by page as they are consumed."""
    token = None
    while True:
        page = history(store, scope, wanted, limit=_AT_A_TIME, page_token=token)
        yield from page.entries
        if (token := page.next_page_token) is None:
            return


def bucket_counts(store: Store, scope: Scope) -> Iterator[BucketCounts]:
    """For each bucket that holds tasks, how many there are of each status; shards are added up."""
    minute: int | None = None
    counts: Counter[str] = Counter()
    name = _named_shard(scope)
    for seen in read_ahead(scope.positions(), partial(read, store, only=_SHOWN)):
        if seen.bucket.minute != minute:
            if counts and minute is not None:
                yield BucketCounts(bucket=str(Bucket(minute, name)), counts=dict(counts))
            minute, counts = seen.bucket.minute, Counter()
        counts.update(task.status for entry in seen.entries if (task := _entry(entry, seen)) is not None)
    if counts and minute is not None:
        yield BucketCounts(bucket=str(Bucket(minute, name)), counts=dict(counts))


def check_status_filter(status: str | None) -> str | None:
    """Raises InvalidInput for what is no status."""
    if status is not None and str(status) not in _STATUSES:
        raise InvalidInput("status", status, f"expected one of {', '.join(_STATUSES)}")
    return None if status is None else str(status)


def check_most(most: object, field: str = "limit") -> None:
    """A limit that may be any, or None. Raises InvalidInput."""
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise InvalidInput(field, most, "expected a number of at least 1")


def check_limit(limit: object, field: str = "limit") -> int:
    """Raises InvalidInput."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(field, limit, f"expected a number from 1 to {MAX_LIMIT}")
    return limit


def _entry(entry: Entry, seen: Seen) -> TaskEntry | None:
    """As it is now; None if it is gone, or lies in another bucket by now, which lists it, or is no task but a schedule
    that waits there for its next run."""
    if is_listed_as_schedule(entry.task_id, entry.schedule_id):
        return None
    row: Row | None = None
    if entry.outcome is None:
        row = seen.rows.get(entry.task_id)
        if row is None or row.get("taskDateTime") != entry.bucket or is_schedule(row):
            return None
    live = row if row is not None else {}
    ended = live.get("outcome")
    return TaskEntry(
        task_id=entry.task_id,
        bucket=entry.bucket,
        status=status_of(entry.outcome or (text_or_none(ended) or state_of(live))),
        action=_now(live, "action", entry.action),
        due_at=instant_or_none(live.get("dueAt", entry.due_at)),
        finished_at=instant_or_none(live.get("finishedAt", entry.finished_at)),
        error=_now(live, "error", entry.error),
        attempt=number_or(live.get("attempt"), 0) if row is not None else None,
        schedule_id=_now(live, "scheduleId", entry.schedule_id),
    )


def _with_attempts(store: Store, page: HistoryPage) -> HistoryPage:
    """With the attempts of tasks that have ended, which only their rows show."""
    ended = [entry.task_id for entry in page.entries if entry.attempt is None]
    rows = store.get_many(ended, consistent=False, only=("attempt",)) if ended else {}
    entries = (
        replace(one, attempt=number_or(rows[one.task_id].get("attempt"), 0)) if one.task_id in rows else one
        for one in page.entries
    )
    return replace(page, entries=tuple(entries))


def _now(live: Row, name: str, listed: str | None) -> str | None:
    return text_or_none(live.get(name, listed))


def _named_shard(scope: Scope) -> int:
    """The shard to name: the one that was asked for, if it was only one."""
    return scope.shards[0] if len(scope.shards) == 1 else 0


def _page(found: list[TaskEntry], scope: Scope, seen: Seen, after: str | None) -> HistoryPage:
    """A page that ends within ``seen``: ``after`` an id of it, or with the whole of it."""
    position = Position(seen.bucket, after) if after is not None else _next(scope, seen.bucket)
    return HistoryPage(entries=tuple(found), next_page_token=None if position is None else _token(position))


def _next(scope: Scope, bucket: Bucket) -> Position | None:
    later = scope.positions(Position(bucket))
    next(later)
    return next(later, None)


def _token(position: Position) -> str:
    text = json.dumps({"bucket": str(position.bucket), "after": position.after}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _position(token: object, scope: Scope, prefix: str | None) -> Position:
    """Where a page token points. Raises InvalidInput for one that does not belong here."""
    wrong = InvalidInput("pageToken", token, "expected the token of the page before, with the same bucket or range")
    if not isinstance(token, str):
        raise wrong
    try:
        held = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
        bucket, after = Bucket.parse(held["bucket"]), held["after"]
        fits = after is None or (0 < len(after.encode()) <= MAX_KEY_BYTES and after.startswith(prefix or ""))
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise wrong from None
    if bucket not in scope or not fits:
        raise wrong
    return Position(bucket, after)
