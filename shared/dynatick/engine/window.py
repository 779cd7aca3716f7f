"""What a pass holds of its shard: which buckets it polls and through where they are drained (protocol 2 to 4), and the
shard lease, by which it notices that another tick has closed more buckets (protocol 1, 4, 16).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar

from dynatick.domain.instants import EPOCH
from dynatick.engine.cursor import Cursor, read_cursor, save
from dynatick.engine.orders import Resume, WorkOrder
from dynatick.engine.ports import Clock, Store
from dynatick.engine.rules import SHARD_LEASE, Rules
from dynatick.errors import DynatickError

MAX_IN_TURN = 10_000
"""Ids of entries that wait for the turns of their limit keys, which a pass keeps to defer them."""

# -- poll window -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segment:
    """The ids of a bucket in (after, through]. None: from the first one on, to the last. ``of_packs``: it was read
    before, and its packs are claimed now."""

    minute: int
    after: str | None = None
    through: str | None = None
    of_packs: bool = False

    @classmethod
    def of(cls, order: WorkOrder) -> Segment:
        """The range of an order."""
        return cls(order.bucket.minute, order.after, order.through)

    def within(self, other: Segment) -> Segment | None:
        """What both have, as a part of the other; None: nothing."""
        after = max(self.after or "", other.after or "") or None
        through = min((one for one in (self.through, other.through) if one is not None), default=None)
        return (
            None if through is not None and through <= (after or "") else replace(other, after=after, through=through)
        )

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole bucket."""
        return self.after is None and self.through is None


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
