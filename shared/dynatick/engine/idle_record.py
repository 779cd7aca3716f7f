"""The idle record: at which of the latest ticks the shards of a group were found idle.

An idle shard's cursor is written only every few ticks. In between, one row for the whole group says which ticks have
come, and readers of the cursors count them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Unknown, Written
from dynatick.domain.numbers import is_whole
from dynatick.domain.task import SYSTEM_PREFIX, Row
from dynatick.engine.conditional_write import create, write
from dynatick.engine.cursor import Cursor, cursor_id
from dynatick.engine.fan_out import group_of
from dynatick.engine.ports import Store
from dynatick.errors import InvalidInput, StoreError

MAX_SERVED = 6  # ticks: more than pass between two writes of a cursor
_TRIES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """A tick that has come to a group. Shards that were not found idle then write their own cursors."""

    tick: int  # a minute
    not_idle: frozenset[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class IdleRecord:
    """The row, understood. ``version`` 0: there is none."""

    group: int
    served: tuple[Served, ...] = ()  # the latest ticks, in order
    version: int = 0

    def with_tick(self, tick: int, not_idle: Iterable[int]) -> IdleRecord:
        """Adds a tick. Two processes may serve a tick; a shard counts as idle if one of them found it idle."""
        new = frozenset(not_idle)
        by_tick = {one.tick: one for one in self.served}
        if tick in by_tick:
            new &= by_tick[tick].not_idle
        by_tick[tick] = Served(tick=tick, not_idle=new)
        served = tuple(by_tick[minute] for minute in sorted(by_tick))
        return replace(self, served=served[-MAX_SERVED:], version=self.version + 1)

    def to_row(self) -> dict[str, object]:
        served = [{attr.TICK: str(Bucket(one.tick)), attr.NOT_IDLE: sorted(one.not_idle)} for one in self.served]
        return {
            attr.STATUS: "tick",
            attr.OUTCOME: "none",  # so that scans for open tasks pass it over
            attr.SERVED: served,
            attr.VERSION: self.version,
        }

    @classmethod
    def from_row(cls, group: int, row: Row | None) -> IdleRecord:
        """What can't be understood counts as not there: a person may have written it."""
        values, version = (None, None) if row is None else (row.get(attr.SERVED), row.get(attr.VERSION))
        served: list[Served] = []
        for value in values if isinstance(values, list) else ():
            tick = Bucket.canonical(value.get(attr.TICK)) if isinstance(value, Mapping) else None
            if tick is not None:
                not_idle = value.get(attr.NOT_IDLE)
                shards = not_idle if isinstance(not_idle, list) else []
                served.append(Served(tick=tick.minute, not_idle=frozenset(int(n) for n in shards if is_whole(n))))
        return cls(group=group, served=tuple(served), version=int(version) if is_whole(version) else 0)


def idle_record_id(group: int) -> str:
    return f"{SYSTEM_PREFIX}idle#{group}"


def with_idle_ticks(cursor: Cursor, record: IdleRecord) -> Cursor:
    """The cursor as if each idle tick had written it. Only an idle shard's can lack some."""
    last = Bucket.canonical(cursor.last_tick)
    if cursor.idle_since is None or last is None:
        return cursor
    ticks = [one.tick for one in record.served if one.tick > last.minute and cursor.shard not in one.not_idle]
    if not ticks:
        return cursor
    return replace(cursor, idle_ticks=cursor.idle_ticks + len(ticks), last_tick=str(Bucket(ticks[-1])))


def count_idle_ticks(store: Store, cursor: Cursor, tick: int, grid: Grid) -> Cursor:
    """``with_idle_ticks`` for a pass. It reads the record only if ticks lie between its own and the cursor's last."""
    last = Bucket.canonical(cursor.last_tick)
    if not cursor.shard or cursor.idle_since is None or last is None or last.minute >= tick - grid.tick_minutes:
        return cursor
    group = group_of(cursor.shard)
    return with_idle_ticks(cursor, IdleRecord.from_row(group, store.get(idle_record_id(group))))


def read_cursors(store: Store, shards: range, *, consistent: bool = True) -> Mapping[int, Cursor | InvalidInput | None]:
    """The cursors with all their idle ticks; InvalidInput: it can't be understood, None: there is none.

    Not for a process that is to write a cursor: what it reads must be the row.
    """
    of_groups = sorted({group_of(shard) for shard in shards if shard})  # a tick drains shard 0 by itself
    ids = [*map(cursor_id, shards), *map(idle_record_id, of_groups)]
    rows = store.get_many(ids, consistent=consistent)
    records = {group: IdleRecord.from_row(group, rows.get(idle_record_id(group))) for group in of_groups}
    found: dict[int, Cursor | InvalidInput | None] = {}
    for shard in shards:
        row = rows.get(cursor_id(shard))
        try:
            cursor = None if row is None else Cursor.from_row(shard, row)
        except InvalidInput as error:
            found[shard] = error
            continue
        found[shard] = with_idle_ticks(cursor, records[group_of(shard)]) if cursor is not None and shard else cursor
    return found


def save_tick(store: Store, record: IdleRecord, tick: int, not_idle: Iterable[int]) -> None:
    """Adds a tick to the record, as read. Raises StoreError."""
    shards = list(not_idle)
    for _ in range(_TRIES):
        new = record.with_tick(tick, shards)
        if new.served == record.served:
            return
        if record.version == 0:
            if create(store, {attr.TASK_ID: idle_record_id(record.group), **new.to_row()}):
                return
        else:
            conditions = (Is(attr.VERSION, record.version),)
            change = ConditionalUpdate(task_id=idle_record_id(record.group), set=new.to_row(), conditions=conditions)
            result = write(store, change)
            if isinstance(result, Unknown):
                raise StoreError(f"cannot write the idle record of group {record.group}: {result.error}")
            if isinstance(result, Written):
                return
        record = IdleRecord.from_row(record.group, store.get(idle_record_id(record.group)))
    raise StoreError(f"cannot write the idle record of group {record.group}: others changed it {_TRIES} times")
