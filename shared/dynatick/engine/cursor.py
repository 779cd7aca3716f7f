"""The cursor of a shard, and what a pass holds of it (protocol 1 to 4, 16): the window of buckets that it polls, and
the shard lease, by which it notices that another tick has closed more buckets.

``closedThrough``: no task is placed into a bucket through here. ``drainedThrough``: no bucket through here is polled
again. Every bucket through ``checkpoint`` was closed before ``checkpointAt``. All writes are conditional on the row's
version; the watermarks only grow (16).

An idle shard's cursor is written only every few ticks. In between, one row for the whole group, the *idle record*, says
at which of the latest ticks its shards were found idle, and readers of the cursors count them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Unknown, Written
from dynatick.domain.instants import EPOCH, format_instant, optional_instant, optional_text, parse_instant
from dynatick.domain.numbers import is_whole
from dynatick.domain.task import SYSTEM_PREFIX, Row, check_count, own_row
from dynatick.engine.conditional_write import change_row, create, write
from dynatick.engine.orders import Resume, WorkOrder
from dynatick.engine.ports import Clock, Store
from dynatick.engine.rules import SHARD_LEASE, SKEW_MARGIN, Rules
from dynatick.errors import DynatickError, InvalidInput, StoreError

# -- cursor ------------------------------------------------------------------------------------------------------------

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
            **own_row("cursor"),
            attr.CLOSED_THROUGH: str(Bucket(self.closed_through)),
            attr.DRAINED_THROUGH: str(Bucket(self.drained_through)),
            attr.POLLED_THROUGH: str(Bucket(self.polled_through)),
            attr.CHECKPOINT: str(Bucket(self.checkpoint)),
            attr.CHECKPOINT_AT: format_instant(self.checkpoint_at),
            attr.OPEN_UNTIL: optional_text(self.open_until),
            attr.LEASE: self.lease,
            attr.LEASE_UNTIL: optional_text(self.lease_until),
            attr.VERSION: self.version,
            attr.IDLE_SINCE: self.idle_since,
            attr.IDLE_TICKS: self.idle_ticks,
            attr.LAST_TICK: self.last_tick,
            **({} if self.planned_through is None else {attr.PLANNED_THROUGH: str(Bucket(self.planned_through))}),
            attr.HANDED_OUT: [order.to_map() for order in self.handed_out] or None,
            attr.WOKEN_AT: optional_text(self.woken_at),
        }

    @classmethod
    def from_row(cls, shard: int, row: Row) -> Cursor:
        lease, since, last, planned = (
            row.get(n) for n in (attr.LEASE, attr.IDLE_SINCE, attr.LAST_TICK, attr.PLANNED_THROUGH)
        )
        return cls(
            shard=shard,
            closed_through=Bucket.parse(row.get(attr.CLOSED_THROUGH), attr.CLOSED_THROUGH).minute,
            drained_through=Bucket.parse(row.get(attr.DRAINED_THROUGH), attr.DRAINED_THROUGH).minute,
            polled_through=Bucket.parse(row.get(attr.POLLED_THROUGH), attr.POLLED_THROUGH).minute,
            checkpoint=Bucket.parse(row.get(attr.CHECKPOINT), attr.CHECKPOINT).minute,
            checkpoint_at=parse_instant(row.get(attr.CHECKPOINT_AT), attr.CHECKPOINT_AT),
            open_until=optional_instant(row.get(attr.OPEN_UNTIL), attr.OPEN_UNTIL),
            lease=None if lease is None else str(lease),
            lease_until=optional_instant(row.get(attr.LEASE_UNTIL), attr.LEASE_UNTIL),
            version=check_count(row.get(attr.VERSION), attr.VERSION),
            idle_since=None if since is None else str(since),
            idle_ticks=check_count(row.get(attr.IDLE_TICKS, 0), attr.IDLE_TICKS),
            last_tick=None if last is None else str(last),
            planned_through=None if planned is None else Bucket.parse(planned, attr.PLANNED_THROUGH).minute,
            handed_out=_orders(row.get(attr.HANDED_OUT)),
            woken_at=optional_instant(row.get(attr.WOKEN_AT), attr.WOKEN_AT),
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


# -- idle record -------------------------------------------------------------------------------------------------------

GROUP = 64  # shards to an invocation, if they are idle


def group_of(shard: int) -> int:
    """The number of the group that a shard belongs to, whatever the number of shards."""
    return shard // GROUP


MAX_SERVED = 6  # ticks: more than pass between two writes of a cursor
_SAVE_TRIES = 3


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
            **own_row("tick"),
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
    for _ in range(_SAVE_TRIES):
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
    raise StoreError(f"cannot write the idle record of group {record.group}: others changed it {_SAVE_TRIES} times")


# -- poll window -------------------------------------------------------------------------------------------------------

MAX_IN_TURN = 10_000
"""Ids of entries that wait for the turns of their limit keys, which a pass keeps to defer them."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The ids of a bucket in (after, through]. None: from the first one on, to the last. ``of_packs``: it was read
    before, and its packs are claimed now. ``is_rest``: all before it was read in the same poll, and had no packs."""

    minute: int
    after: str | None = None
    through: str | None = None
    of_packs: bool = False
    is_rest: bool = False

    @classmethod
    def of(cls, order: WorkOrder) -> Segment:
        """The range of an order."""
        return cls(order.bucket.minute, order.after, order.through)

    def within(self, other: Segment) -> Segment | None:
        """What both have, as a part of the other; None: nothing."""
        after = max(self.after or "", other.after or "") or None
        through = min((one for one in (self.through, other.through) if one is not None), default=None)
        if through is not None and through <= (after or ""):
            return None
        return replace(other, after=after, through=through, is_rest=other.is_rest and after == other.after)

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole bucket, with what was read before."""
        return self.through is None and (self.after is None or self.is_rest)


@dataclass(slots=True)
class Poll:
    """The latest poll of one bucket by this pass, and the entries that keep the bucket from being drained."""

    began: datetime
    complete: bool = False  # all pages were read
    in_flight: int = 0  # entries that this pass is claiming, and tasks that it has claimed and not yet recorded
    contended: int = 0  # entries of this poll that other processes work on, or that can't be worked on now
    stuck: list[str] = field(default_factory=list)  # ids of contended entries that may have to be deferred
    in_turn: list[str] = field(default_factory=list)  # ids of those that wait for the turns of their limit keys

    @property
    def is_open(self) -> bool:
        """Whether the bucket may still hold an open task."""
        return not self.complete or self.contended > 0 or self.in_flight > 0


@dataclass(slots=True)
class Window:
    """The buckets of one shard that are closed and not yet drained, during one pass."""

    cursor: Cursor  # as last known
    rules: Rules
    closed_at: datetime  # read after the closing write was acknowledged: all closed buckets were closed before
    polls: dict[int, Poll] = field(default_factory=dict)  # by the minute of the bucket
    opened: bool = False  # the cursor says that this pass may write occurrences into closed buckets
    in_turn: int = 0  # entries whose ids are kept, since they wait for the turns of their limit keys
    writing: int = 0  # batches of occurrences that are being written
    written_from: int | None = None  # the first bucket that this pass has written an occurrence into
    written_at: datetime | None = None  # this pass has written no occurrence after this time
    handed_out: list[WorkOrder] = field(init=False)  # ranges that are left to workers, also by earlier passes
    others_until: datetime | None = field(init=False)  # until then another pass, perhaps a dead one, may write some

    def __post_init__(self) -> None:
        self.others_until = self.cursor.open_until
        self.handed_out = list(self.cursor.handed_out)

    @property
    def final_from(self) -> datetime:
        """A poll that begins at this time or later shows all rows of the buckets through the checkpoint (3).

        Occurrences are written into closed buckets. If another pass may still write some, the index must have had the
        time to show those too.
        """
        quiet_from = self.cursor.checkpoint_at
        if self.others_until is not None:
            quiet_from = max(quiet_from, self.others_until)
        return quiet_from + self.rules.index_settled_after

    def minutes_to_poll(self, now: datetime) -> Iterator[int]:
        """The minutes between the drained and the closed watermark, oldest first: not only those of the grid, for the
        grid may have changed (2).

        A bucket through the checkpoint that had a full poll is left out until its final poll, except in the newest two
        ticks: before the index has settled, another poll proves nothing. Buckets after the checkpoint are always
        polled: while a contended row keeps the drained watermark from reaching the checkpoint, no poll of them is
        final.
        """
        c = self.cursor
        is_final = now >= self.final_from
        skip_through = min(c.polled_through, c.checkpoint, c.closed_through - 2 * self.rules.grid.tick_minutes)
        for minute in range(c.drained_through + 1, c.closed_through + 1):
            if is_final or minute > skip_through:
                yield minute

    def open_minutes(self) -> list[int]:
        """The minutes of the buckets in which a task may be open, as far as full polls tell."""
        minutes = range(self.new_polled_through() + 1, self.cursor.closed_through + 1)
        return [minute for minute in minutes if (poll := self.polls.get(minute)) is None or poll.is_open]

    def segments(self, minutes: Iterable[int], resume: Resume | None = None) -> Iterator[Segment]:
        """What to poll of these buckets, in order: all but the ranges that are left to workers. A bucket that has one
        is not polled whole, so it is not drained. ``resume``: leave out what is before it."""
        for minute in minutes:
            if resume is not None and minute < resume.minute:
                continue
            start = resume.after if resume is not None and minute == resume.minute else None
            ranges = [order for order in self.handed_out if order.bucket.minute == minute]
            for order in sorted(ranges, key=lambda order: order.after or ""):
                if order.after is not None and (start is None or start < order.after):
                    yield Segment(minute, start, order.after)
                start = order.through if start is None else max(start, order.through)
            yield Segment(minute, start)

    def change_handed_out(self, remove: Collection[WorkOrder] = (), add: Iterable[WorkOrder] = ()) -> None:
        """Changes which ranges are left to workers."""
        self.handed_out = [*(order for order in self.handed_out if order not in remove), *add]

    # -- what holds a bucket back ----------------------------------------------------------------------------------

    def begin_poll(self, minute: int, began: datetime) -> None:
        """Begins a new poll of a bucket. What is in flight stays so."""
        poll = self._poll(minute)
        self.in_turn -= len(poll.in_turn)
        poll.began, poll.complete, poll.contended, poll.stuck, poll.in_turn = began, False, 0, [], []

    def complete_poll(self, minute: int) -> None:
        """All pages of the bucket were read."""
        self._poll(minute).complete = True

    def add_in_flight(self, minute: int, number: int = 1) -> None:
        """Holds the bucket back for entries that this pass begins to work on."""
        self._poll(minute).in_flight += number

    def end_in_flight(self, minute: int, *, is_open: bool, stuck_id: str | None = None) -> None:
        """This pass no longer works on an entry. ``is_open``: its task may not have ended, so it holds the bucket back
        until the next poll; ``stuck_id``: its id, if the task may have to be deferred."""
        poll = self._poll(minute)
        poll.in_flight -= 1
        poll.contended += is_open
        if stuck_id is not None:
            poll.stuck.append(stuck_id)

    def add_contended(self, minute: int, *, in_turn: str | None = None) -> None:
        """Holds the bucket back for a task that another process works on, or that waits for the turn of its limit key:
        ``in_turn``, its id."""
        poll = self._poll(minute)
        poll.contended += 1
        if in_turn is not None and self.in_turn < MAX_IN_TURN:
            self.in_turn += 1
            poll.in_turn.append(in_turn)

    def stuck_polls(self) -> Iterator[tuple[int, Poll]]:
        """The buckets whose final poll left only rows that may be deferred (3)."""
        for minute in range(self.cursor.drained_through + 1, self.cursor.checkpoint + 1):
            poll = self.polls.get(minute)
            if poll is None or not poll.complete or not self._is_final(poll):
                return
            if poll.stuck and not poll.in_flight and len(poll.stuck) == poll.contended:
                yield minute, poll

    def take_in_turn(self) -> Iterator[tuple[int, Sequence[str]]]:
        """What waits for its turn in buckets that had their final poll, to be deferred (3)."""
        for minute, poll in sorted(self.polls.items()):
            if minute <= self.cursor.checkpoint and poll.complete and poll.in_turn and self._is_final(poll):
                waiting, poll.in_turn = poll.in_turn, []
                self.in_turn -= len(waiting)
                yield minute, waiting

    def begin_to_write(self) -> None:
        """A batch of occurrences is about to be written."""
        self.writing += 1

    def end_write(self) -> None:
        """A batch of occurrences was written, or could not be."""
        self.writing -= 1

    def wrote_occurrence(self, minute: int, now: datetime) -> None:
        """This pass has written an occurrence into a bucket."""
        self.written_from = minute if self.written_from is None else min(self.written_from, minute)
        self.written_at = now

    # -- the cursor ------------------------------------------------------------------------------------------------

    def new_drained_through(self) -> int:
        """The drained watermark: through where a final poll of every bucket left no open task (3)."""
        drained = self.cursor.drained_through
        for minute in range(self.cursor.drained_through + 1, self.cursor.checkpoint + 1):
            poll = self.polls.get(minute)
            if poll is None or poll.is_open or not self._is_final(poll):
                break
            drained = minute
        return drained

    def new_polled_through(self) -> int:
        """Through where a full poll of every bucket, in this pass or an earlier one, left no open task."""
        minute = self.cursor.polled_through
        while minute < self.cursor.closed_through and (poll := self.polls.get(minute + 1)) is not None:
            if poll.is_open:
                break
            minute += 1
        return minute

    def progress(self) -> Cursor:
        """The cursor as far as the pass has come. Once the drained watermark reaches the checkpoint, there is a new
        checkpoint (4)."""
        c = self.cursor
        drained = self.new_drained_through()
        new = replace(
            c,
            drained_through=drained,
            polled_through=self.new_polled_through(),
            handed_out=tuple(self.handed_out),
        )
        if drained >= c.checkpoint:
            new = replace(new, checkpoint=c.closed_through, checkpoint_at=self.closed_at)
        if self.written_at is not None and self.written_from is not None and self.written_from <= new.checkpoint:
            new = replace(new, checkpoint_at=max(new.checkpoint_at, self.written_at))
        return new

    def final_cursor(self) -> Cursor:
        """The cursor as the end write sets it: as far as the pass has come, with the lease released."""
        end = replace(self.progress(), lease=None, lease_until=None, woken_at=None)
        if self.opened and not self.writing:
            end = replace(end, open_until=self.others_until)
        return end

    def drop_saved(self) -> None:
        """Drops polls that the saved cursor covers, so that memory does not grow with the window."""
        c = self.cursor
        self.polls = {
            minute: poll
            for minute, poll in self.polls.items()
            if minute > c.polled_through or poll.is_open or (minute > c.drained_through and self._is_final(poll))
        }

    def _poll(self, minute: int) -> Poll:
        """The poll of a bucket; a bucket that was not polled yet gets one that is incomplete."""
        poll = self.polls.get(minute)
        if poll is None:
            poll = self.polls[minute] = Poll(EPOCH)
        return poll

    def _is_final(self, poll: Poll) -> bool:
        return poll.began >= self.final_from


# -- shard lease -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ShardLease:
    """The lease that was acquired with ``token``. ``window`` keeps the cursor as last known.

    Each method raises StoreError if the table doesn't answer; the lease then no longer counts as held.
    """

    store: Store
    clock: Clock
    window: Window
    token: str
    is_of_holder: ClassVar[bool] = True
    is_held: bool = True
    is_lost: bool = False  # another process has acquired it
    renew_at: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.renew_at = self.clock() + SHARD_LEASE / 3

    @property
    def must_renew(self) -> bool:
        return self.is_held and self.clock() >= self.renew_at

    def renew_by(self, instant: datetime) -> None:
        """Lets the next renewal come no later."""
        self.renew_at = min(self.renew_at, instant)

    def renew(self) -> None:
        """Renews the lease if a third of it is over, and saves how far the pass has come: if the pass is killed, the
        next one doesn't poll the buckets of a long pause again."""
        if self.must_renew:
            self.renew_at = self.clock() + SHARD_LEASE / 3
            while self.is_held:  # others may close more, or wake this pass, again and again
                if self._save(lambda _: replace(self.window.progress(), lease_until=self.clock() + SHARD_LEASE)):
                    self.window.drop_saved()
                    break

    def read_closed(self) -> None:
        """Reads what other ticks have closed meanwhile."""
        self._take(read_cursor(self.store, self.window.cursor.shard, self.clock()))

    def keep_open(self, until: datetime) -> bool:
        """Writes to the cursor that this process may write occurrences into closed buckets until then. If it is killed,
        those buckets don't count as drained before its occurrences show up in the index. False: the lease is lost."""
        others = self.window.others_until
        latest = until if others is None else max(until, others)
        while self.is_held and not self.window.opened:
            self.window.opened = self._save(lambda cursor: replace(cursor, open_until=latest))
        return self.is_held

    def release(self, complete: Callable[[Cursor], Cursor]) -> bool:
        """The end write (4), with what ``complete`` adds to the cursor.

        False: another tick has closed more buckets; the window knows them now, and the lease is still held.
        """
        if self._save(lambda _: complete(self.window.final_cursor())):
            self.is_held = False
        return not self.is_held

    def _save(self, change: Callable[[Cursor], Cursor]) -> bool:
        """Writes the cursor. False: it had changed; the window has its present state now, or the lease is lost."""
        try:
            saved = save(self.store, self.window.cursor, change(self.window.cursor), writer=self.token)
            if saved is not None:
                self.window.cursor = saved
                return True
            present = read_cursor(self.store, self.window.cursor.shard, self.clock())
        except DynatickError:
            self.is_held = False
            raise
        self._take(present)
        return False

    def _take(self, present: Cursor) -> None:
        if present.lease == self.token:
            self.window.cursor, self.window.closed_at = present, self.clock()
        else:
            self.is_held, self.is_lost = False, True
