"""The cursor of a shard: its closed and its drained watermark, and the shard lease.

``closedThrough``: no task is placed into a bucket through here. ``drainedThrough``: no bucket through here is polled
again. Every bucket through ``checkpoint`` was closed before ``checkpointAt``. All writes are conditional on the row's
version; the watermarks only grow (16).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Unknown, Written
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.task import SYSTEM_PREFIX, Row, check_count
from dynatick.engine.conditional_write import change_row, create, write
from dynatick.engine.orders import WorkOrder
from dynatick.engine.ports import Store
from dynatick.engine.rules import SHARD_LEASE, SKEW_MARGIN
from dynatick.errors import StoreError

_SKEW = timedelta(seconds=2)


def cursor_id(shard: int) -> str:
    return f"{SYSTEM_PREFIX}cursor#{shard}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    """A cursor row, understood. Buckets are minutes since the epoch."""

    shard: int
    closed_through: int
    drained_through: int
    polled_through: int  # every bucket through here had a full poll
    checkpoint: int
    checkpoint_at: datetime
    open_until: datetime | None = None  # until then a pass may write occurrences into closed buckets
    lease: str | None = None  # the token of the shard lease
    lease_until: datetime | None = None
    version: int = 1
    idle_since: str | None = None  # the first tick of an unbroken run of idle ones
    idle_ticks: int = 0
    last_tick: str | None = None  # the latest one that had a pass
    planned_through: int | None = None  # wake-ups were sent for every bucket through here; None: never for any
    handed_out: tuple[WorkOrder, ...] = ()  # ranges that are left to workers
    woken_at: datetime | None = None  # its holder is to begin tasks with limit keys that are due by then

    def is_leased(self, now: datetime) -> bool:
        """Whether a process has the shard lease, and it may still run."""
        return self.lease is not None and self.lease_until is not None and now <= self.lease_until + SKEW_MARGIN

    @property
    def served_through(self) -> int:
        """The latest minute whose tick has come: an idle shard's buckets are not closed at each one."""
        last = Bucket.canonical(self.last_tick)
        return self.closed_through if last is None else max(self.closed_through, last.minute)

    def to_row(self) -> dict[str, object]:
        return {
            attr.STATUS: "cursor",
            attr.OUTCOME: "none",  # so that scans for open tasks pass it over
            attr.CLOSED_THROUGH: str(Bucket(self.closed_through)),
            attr.DRAINED_THROUGH: str(Bucket(self.drained_through)),
            attr.POLLED_THROUGH: str(Bucket(self.polled_through)),
            attr.CHECKPOINT: str(Bucket(self.checkpoint)),
            attr.CHECKPOINT_AT: format_instant(self.checkpoint_at),
            attr.OPEN_UNTIL: None if self.open_until is None else format_instant(self.open_until),
            attr.LEASE: self.lease,
            attr.LEASE_UNTIL: None if self.lease_until is None else format_instant(self.lease_until),
            attr.VERSION: self.version,
            attr.IDLE_SINCE: self.idle_since,
            attr.IDLE_TICKS: self.idle_ticks,
            attr.LAST_TICK: self.last_tick,
            **({} if self.planned_through is None else {attr.PLANNED_THROUGH: str(Bucket(self.planned_through))}),
            attr.HANDED_OUT: [order.to_map() for order in self.handed_out] or None,
            attr.WOKEN_AT: None if self.woken_at is None else format_instant(self.woken_at),
        }

    @classmethod
    def from_row(cls, shard: int, row: Row) -> Cursor:
        until, lease, since, last = (
            row.get(n) for n in (attr.LEASE_UNTIL, attr.LEASE, attr.IDLE_SINCE, attr.LAST_TICK)
        )
        open_until, planned, woken_at = (row.get(n) for n in (attr.OPEN_UNTIL, attr.PLANNED_THROUGH, attr.WOKEN_AT))
        return cls(
            shard=shard,
            closed_through=Bucket.parse(row.get(attr.CLOSED_THROUGH), attr.CLOSED_THROUGH).minute,
            drained_through=Bucket.parse(row.get(attr.DRAINED_THROUGH), attr.DRAINED_THROUGH).minute,
            polled_through=Bucket.parse(row.get(attr.POLLED_THROUGH), attr.POLLED_THROUGH).minute,
            checkpoint=Bucket.parse(row.get(attr.CHECKPOINT), attr.CHECKPOINT).minute,
            checkpoint_at=parse_instant(row.get(attr.CHECKPOINT_AT), attr.CHECKPOINT_AT),
            open_until=None if open_until is None else parse_instant(open_until, attr.OPEN_UNTIL),
            lease=None if lease is None else str(lease),
            lease_until=None if until is None else parse_instant(until, attr.LEASE_UNTIL),
            version=check_count(row.get(attr.VERSION), attr.VERSION),
            idle_since=None if since is None else str(since),
            idle_ticks=check_count(row.get(attr.IDLE_TICKS, 0), attr.IDLE_TICKS),
            last_tick=None if last is None else str(last),
            planned_through=None if planned is None else Bucket.parse(planned, attr.PLANNED_THROUGH).minute,
            handed_out=_orders(row.get(attr.HANDED_OUT)),
            woken_at=None if woken_at is None else parse_instant(woken_at, attr.WOKEN_AT),
        )


def _orders(value: object) -> tuple[WorkOrder, ...]:
    return tuple(WorkOrder.from_map(one, attr.HANDED_OUT) for one in value) if isinstance(value, list) else ()


def read_cursor(store: Store, shard: int, now: datetime) -> Cursor:
    """The cursor, read consistently. A missing one is created with the last minute closed and drained (14)."""
    row = store.get(cursor_id(shard))
    if row is None:
        if (fresh := create_cursor(store, shard, now)) is not None:
            return fresh
        row = store.get(cursor_id(shard))
        if row is None:
            raise StoreError(f"the cursor of shard {shard} appeared and vanished")
    return Cursor.from_row(shard, row)


def create_cursor(store: Store, shard: int, now: datetime) -> Cursor | None:
    """Creates a cursor with the last minute closed and drained, and returns it; None: there is one."""
    fresh = _fresh(shard, now)
    return fresh if create(store, {attr.TASK_ID: cursor_id(shard), **fresh.to_row()}) else None


def _fresh(shard: int, now: datetime) -> Cursor:
    last = minute_of(now - _SKEW)
    return Cursor(
        shard=shard, closed_through=last, drained_through=last, polled_through=last, checkpoint=last,
        checkpoint_at=now,
    )  # fmt: skip


def save(store: Store, old: Cursor, new: Cursor, *, writer: str) -> Cursor | None:
    """Writes ``new`` over ``old``; None: another writer was first. The watermarks never go back. ``writer``: the
    token of this process."""
    new, change = update(old, new, writer=writer)
    result = write(store, change)
    if isinstance(result, Unknown):
        raise StoreError(f"cannot write the cursor of shard {old.shard}: {result.error}")
    return new if isinstance(result, Written) else None


def update(old: Cursor, new: Cursor, *, writer: str) -> tuple[Cursor, ConditionalUpdate]:
    """The cursor as it will be, and the change that writes it. The watermarks never go back.

    The row names its ``writer``: two processes may write the same values, and each must know which one it was.
    """
    new = replace(
        new,
        closed_through=max(old.closed_through, new.closed_through),
        drained_through=max(old.drained_through, new.drained_through),
        polled_through=max(old.polled_through, new.polled_through),
        planned_through=max(
            (one for one in (old.planned_through, new.planned_through) if one is not None), default=None
        ),
        version=old.version + 1,
    )
    return new, ConditionalUpdate(
        task_id=cursor_id(old.shard),
        set={**new.to_row(), attr.WRITTEN_BY: writer},
        conditions=(Is(attr.VERSION, old.version),),
        mark=(Is(attr.VERSION, new.version), Is(attr.WRITTEN_BY, writer)),
    )


def close(cursor: Cursor, tick: int, plan_ahead: int) -> tuple[Cursor, range]:
    """The cursor with every bucket through ``tick`` closed, and the minutes whose wake-ups its writer plans (19).

    ``plan_ahead``: minutes after the tick through which they are to be planned; 0: there are no wake-ups.
    """
    closed = replace(cursor, closed_through=max(cursor.closed_through, tick))
    if not plan_ahead:
        return closed, range(0)
    planned, through = cursor.planned_through or 0, tick + plan_ahead
    return replace(closed, planned_through=max(planned, through)), range(max(tick, planned) + 1, through + 1)


@dataclass(frozen=True, slots=True)
class Acquired:
    """``cursor`` None: another process has the lease. ``to_plan``: the minutes by which this raised
    ``plannedThrough``."""

    cursor: Cursor | None
    to_plan: range = range(0)


def acquire_shard(
    store: Store,
    shard: int,
    tick: int,
    *,
    token: str,
    now: datetime,
    plan_ahead: int = 0,
    woken_at: datetime | None = None,
) -> Acquired:
    """Closes every bucket through ``tick`` and acquires the shard lease, in one write (1).

    If another process has the lease, the buckets are closed all the same, and its end write finds that they are (4).
    ``plan_ahead``: minutes after the tick whose wake-ups are to be planned, by this process alone (19). ``woken_at``:
    for which instant this process was woken, which it tells the one that has the lease.
    """
    to_plan = range(0)

    def decide(row: Row | None) -> tuple[Acquired, ConditionalUpdate | None]:
        nonlocal to_plan
        cursor = _fresh(shard, now) if row is None else Cursor.from_row(shard, row)
        if cursor.lease == token:
            return Acquired(cursor, to_plan), None  # others have closed more since: only the answer was lost
        closed, to_plan = close(cursor, tick, plan_ahead)
        if cursor.is_leased(now):
            if woken_at is not None:
                closed = replace(closed, woken_at=max(woken_at, cursor.woken_at or woken_at))
            return Acquired(None, to_plan), None if closed == cursor else update(cursor, closed, writer=token)[1]
        acquired, change = update(cursor, replace(closed, lease=token, lease_until=now + SHARD_LEASE), writer=token)
        return Acquired(acquired, to_plan), change

    return change_row(store, cursor_id(shard), f"acquire shard {shard}", decide)
