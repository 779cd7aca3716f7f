"""What waits for its limit key: before one task, and which keys have the most waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated

from dynatick.client.batch_members import pack_of
from dynatick.client.thread_pool import many_rows
from dynatick.client.views import TaskEntry, instant_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.batches import OPEN
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.instants import format_instant
from dynatick.domain.limit_keys import KeyLimit, KeyLimits, class_of
from dynatick.domain.packs import Pack, may_be_pack, parse_member_id, tasks_of
from dynatick.domain.row import RowView
from dynatick.domain.task import Row
from dynatick.domain.view import Json, View
from dynatick.engine.claims import lease_is_over
from dynatick.engine.cursor import Cursor
from dynatick.engine.limits import LimitsRecord, limits_id
from dynatick.engine.ports import Entry, Store
from dynatick.engine.reconcile import Finding, Kind
from dynatick.engine.settings import InstallationSettings
from dynatick.errors import InvalidInput

# -- of one task -------------------------------------------------------------------------------------------------------

_MAX_QUERIES = 100
_PAGE = 1000  # entries to a query
_MAX_ROWS = 200
_STATE = (
    attr.STATUS, attr.OUTCOME, attr.LEASE, attr.LEASE_UNTIL, attr.STARTED_AT, attr.TASK_DATE_TIME, attr.LIMIT_KEY,
    attr.PACK,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyQueue:
    """What a task that is due waits for by its limit key."""

    key: str
    limit: KeyLimit
    running: tuple[tuple[str, datetime | None], ...]  # ids, and since when: the longest first
    batches: tuple[str, ...]  # with whose members its tasks alternate: a pack of each is open
    before: int  # how many wait that are listed before it
    is_exact: bool  # whether all before it were read
    record: LimitsRecord


def read_key_queue(
    store: Store, row: Row, settings: InstallationSettings, cursor: Cursor, now: datetime
) -> KeyQueue | None:
    """Reads the open buckets of its shard as far as it must, and the rows of 200 tasks at most. None: it waits for no
    key. Raises StoreError."""
    view, limits = RowView(row), settings.key_limits or {}
    bucket, key = view.bucket, view.limit_key
    if bucket is None or key is None or class_of(key) not in limits or not view.is_scheduled:
        return None
    due = instant_or_none(row.get(attr.NEXT_ATTEMPT_AT)) or instant_or_none(row.get(attr.DUE_AT)) or bucket.instant
    if min(due, bucket.instant) > now or settings.grid.shard_of(key) != bucket.shard:
        return None
    try:
        record = LimitsRecord.from_row(bucket.shard, store.get(limits_id(bucket.shard)))
    except InvalidInput:  # changed by hand
        record = LimitsRecord(shard=bucket.shard)
    last = max(bucket.minute, settings.grid.tick_at_or_after(now))
    entries, is_all = _entries_of(store, key, range(cursor.drained_through + 1, last + 1), bucket.shard)
    held = {one.task_id: one for one in record.held if one.key == key}
    rows = store.get_many([*(one.task_id for one in entries), *held], consistent=False, only=_STATE)
    packs = {id_: pack for id_, found in rows.items() if (pack := pack_of(found)) is not None}
    running = {
        id_: found
        for id_, found in rows.items()
        if id_ not in packs and (_runs(found, now) or (id_ in held and held[id_].is_held(found)))
    }
    own = (str(bucket), view.task_id)
    places = [(one.bucket, one.task_id) for one in entries]
    return KeyQueue(
        key=key,
        limit=limits[class_of(key)],
        running=tuple(sorted(((id_, _since(found)) for id_, found in running.items()), key=lambda one: str(one[1]))),
        batches=tuple(sorted({pack.batch_id for id_, pack in packs.items() if _runs(rows[id_], now)})),
        before=sum(
            _members_before(packs[one[1]], view.task_id) if one[1] in packs else 1
            for one in places
            if one < own and _waits(rows.get(one[1]), one[0])
        ),
        is_exact=is_all or (bool(places) and places[-1] >= own),
        record=record,
    )


def _entries_of(store: Store, key: str, minutes: Iterable[int], shard: int) -> tuple[Sequence[Entry], bool]:
    """The first entries of a key, and whether these are all."""
    found: list[Entry] = []
    queries = 0
    for minute in minutes:
        after: str | None = None
        while True:
            if queries == _MAX_QUERIES or len(found) >= _MAX_ROWS:
                return found[:_MAX_ROWS], False
            page = store.query_bucket(Bucket(minute, shard), after=after, limit=_PAGE)
            queries += 1
            found += [entry for entry in page.entries if entry.limit_key == key]
            if (after := page.after) is None:
                break
    return found[:_MAX_ROWS], len(found) <= _MAX_ROWS


def _runs(row: Row, now: datetime) -> bool:
    view = RowView(row)
    return view.is_running and not view.is_released and not lease_is_over(row, now)


def _members_before(pack: Pack, task_id: str) -> int:
    """How many members of a pack come before a task: before another member, those with smaller numbers."""
    named = parse_member_id(task_id)
    is_of_pack = named is not None and named[0] == pack.batch_id
    end = pack.span.members if named is None or not is_of_pack else named[1] - pack.span.first
    return sum(1 for n in pack.open() if n < end)


def _waits(row: Row | None, bucket: str) -> bool:
    """Whether it still lies in the bucket, and may begin."""
    if row is None or row.get(attr.TASK_DATE_TIME) != bucket:
        return False
    view = RowView(row)
    return row.get(attr.OUTCOME) is None and (view.is_scheduled or view.is_released)


def _since(row: Row) -> datetime | None:
    return instant_or_none(row.get(attr.STARTED_AT))


# -- found by the doctor ----------------------------------------------------------------------------------------------

_LEASE_OVER_FOR = timedelta(hours=1)


@dataclass(slots=True)
class KeyedRows:
    """The tasks with limit keys among the rows of a scan."""

    limits: KeyLimits | None  # None: not known
    now: datetime
    paused: Collection[str] = ()  # actions
    unlimited: Counter[str] = field(default_factory=Counter)  # by class, those that it has no limit for
    _due: Counter[int] = field(default_factory=Counter)  # others, by shard

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            view = RowView(row)
            bucket, key = view.bucket, view.limit_key
            if key is None or bucket is None or self.limits is None or not view.is_live:
                continue
            if class_of(key) not in self.limits:
                self.unlimited[class_of(key)] += 1
            elif view.is_scheduled and bucket.instant <= self.now and str(row.get(attr.ACTION)) not in self.paused:
                self._due[bucket.shard] += 1

    def stuck(self, store: Store) -> Iterator[Finding]:
        """The limits leases that ended long ago, and that no tick has acquired since for what is due. Reads the record
        of each shard that has such tasks. Raises StoreError."""
        rows = store.get_many([limits_id(shard) for shard in self._due]) if self._due else {}
        for shard, number in sorted(self._due.items()):
            try:
                record = LimitsRecord.from_row(shard, rows.get(limits_id(shard)))
            except InvalidInput as error:
                why = f"its record of limits cannot be understood ({error})"
            else:
                until = record.lease_until
                if until is None or until + _LEASE_OVER_FOR > self.now:
                    continue
                why = f"{number} tasks wait for limit keys, and its limits lease ended at {format_instant(until)}"
            yield Finding(kind=Kind.LIMITS_STUCK, task_id=limits_id(shard), why=f"shard {shard}: {why}")


# -- of all ------------------------------------------------------------------------------------------------------------

BUSIEST = 5
_READ_OF_KEY = 100  # rows, to see which run


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyLoad(View):
    """A limit key, and the tasks that it lets wait."""

    key: Annotated[str, Json(name=attr.LIMIT_KEY)]
    limit: Annotated[str | None, Json(null=True), "As in KeyLimits: 4:10/s. None: its class is not there."]
    waiting: Annotated[int, "Tasks that are due and don't run."]
    running: Annotated[int, "Of the 100 that are due first."]


@dataclass(slots=True)
class KeyTally:
    """Counts the tasks that have not ended by limit key, as the index lists them."""

    _due: dict[str, Counter[int]] = field(default_factory=dict)  # by key, and by the minute in which they may begin
    _ids: dict[str, list[str]] = field(default_factory=dict)  # of the first of them

    def add(self, entry: TaskEntry) -> None:
        if entry.limit_key is None or entry.status != OPEN:
            return
        at = entry.may_begin_at or Bucket.parse(entry.bucket).instant
        self._due.setdefault(entry.limit_key, Counter())[minute_of(at)] += tasks_of(entry.task_id)
        ids = self._ids.setdefault(entry.limit_key, [])
        if len(ids) < _READ_OF_KEY and not may_be_pack(entry.task_id):  # an open pack says not which members run
            ids.append(entry.task_id)

    def update(self, other: KeyTally) -> None:
        """Adds what another has counted, of later buckets."""
        for key, due in other._due.items():
            self._due.setdefault(key, Counter()).update(due)
            ids = self._ids.setdefault(key, [])
            ids += other._ids[key][: _READ_OF_KEY - len(ids)]

    def busiest(self, store: Store, limits: KeyLimits | None, now: datetime) -> tuple[KeyLoad, ...]:
        """The keys with the most tasks that are due: five, of which up to 100 rows each are read. Raises StoreError."""
        until = minute_of(now)
        due = Counter({key: sum(n for at, n in of.items() if at <= until) for key, of in self._due.items()})
        found = [(key, number) for key, number in due.most_common(BUSIEST) if number]
        ids = [task_id for key, _ in found for task_id in self._ids[key]]
        rows = many_rows(store, ids, consistent=False, only=_STATE)
        loads = []
        for key, number in found:
            running = sum(_runs(rows[one], now) for one in self._ids[key] if one in rows)
            limit = (limits or {}).get(class_of(key))
            text = None if limit is None else limit.text
            loads.append(KeyLoad(key=key, limit=text, waiting=max(0, number - running), running=running))
        return tuple(loads)
