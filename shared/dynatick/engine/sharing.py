"""How a pass shares a large bucket of its shard with workers (protocol 17).

The pass has measured how many tasks end in a second here. What it can run soon, it keeps; of the rest it makes ranges
of ids, as equal as the order of ids allows. They lie on the cursor row, each until an instant. Until then the holder
doesn't claim what is in them, they keep their buckets from being drained, and they count against ``MaxWorkers``,
whichever tick handed them out. A worker that never starts, dies, or ends early, costs nothing but that time: then the
holder polls the range itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import ClassVar

from dynatick.domain.buckets import Bucket
from dynatick.domain.packs import tasks_of
from dynatick.engine.claims import Entries
from dynatick.engine.counts import PassReport
from dynatick.engine.cursor import Segment, ShardLease, Window, read_cursor
from dynatick.engine.invocation import Budget, Execution, Services
from dynatick.engine.orders import Resume, WorkOrder
from dynatick.engine.polling import Claiming, Found, Pages, Polling
from dynatick.engine.ports import Clock
from dynatick.errors import DynatickError

# -- division, which is pure -------------------------------------------------------------------------------------------

SOON = timedelta(seconds=10)
"""What a process can run within this time, it keeps."""

MIN_WORK, MAX_WORK = timedelta(seconds=2), timedelta(seconds=60)
"""How long a worker should take for its range. Less isn't worth the start of a process."""

START = timedelta(seconds=5)
"""How long a worker takes to begin, after a cold start."""

SPARE = 1.25
"""How many times the time that its range should take a worker gets."""

GRAIN = 25
"""Ranges end at every 25th id, so that an outline needs little memory."""


def longest_range(left: timedelta) -> timedelta:
    """How long a worker may take for a range if its order must be over when so much time is left."""
    return min(MAX_WORK, (left - START) / SPARE)


def allowed_time(tasks: int, rate: float) -> timedelta:
    """How long a worker gets for this number of tasks."""
    return START + timedelta(seconds=SPARE * tasks / rate)


@dataclass(slots=True)
class Outline:
    """The ids of a part of a bucket, in order; only those of every 25th task and the last are kept."""

    count: int = 0  # tasks; of a pack, its members
    entries: int = 0
    last: str = ""
    marks: list[str] = field(default_factory=list)

    def add(self, task_id: str) -> None:
        self.count, self.entries, self.last = self.count + tasks_of(task_id), self.entries + 1, task_id
        self.marks += [task_id] * (self.count // GRAIN - len(self.marks))  # of a pack, more than one

    def id_at(self, grains: int) -> str:
        """The last id of the first ``grains`` times 25."""
        return self.marks[grains - 1] if grains <= len(self.marks) else self.last


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """The ids in (after, through], and how many they are. A worker begins them in their order: it has ended once none
    after ``probe`` is open."""

    after: str
    through: str
    tasks: int
    probe: str


def divide(outline: Outline, *, rate: float, workers: int, longest: timedelta) -> list[Part]:
    """The parts for workers. What is before the first and after the last is for the pass itself.

    Each process gets the same, unless that takes longer than ``longest``. Empty: the pass can run it all soon.
    """
    if outline.count <= rate * SOON.total_seconds():
        return []
    share = min(outline.count / (workers + 1), rate * longest.total_seconds())
    grains = -(-int(max(share, rate * MIN_WORK.total_seconds(), 1)) // GRAIN)
    total = -(-outline.count // GRAIN)
    parts: list[Part] = []
    for first in range(grains, total, grains)[:workers]:
        end = min(first + grains, total)
        tasks = min(end * GRAIN, outline.count) - first * GRAIN
        after, through = outline.id_at(first), outline.id_at(end)
        if after != through:  # else both lie within one pack
            parts.append(Part(after=after, through=through, tasks=tasks, probe=outline.id_at(end - 1)))
    return parts


# -- the holder's side -------------------------------------------------------------------------------------------------

MAX_OUTLINED = 50_000
"""Entries that are read ahead to be divided: about a second of reading."""

_MAX_TIME = timedelta(minutes=15)  # of an order: more was written by hand
_FIRST_PROBE, _PROBE_INTERVAL = timedelta(seconds=5), timedelta(seconds=2)


@dataclass(slots=True)
class _Started:
    """A worker of this pass. ``probe``: nothing after it is open in the range once the worker has ended."""

    order: WorkOrder
    tasks: int  # in its range
    probe: str
    probe_at: datetime


class HandOut:
    """Hands out ranges, and takes them back."""

    def __init__(self, execution: Execution, window: Window, shard: ShardLease) -> None:
        self._execution, self._window, self._shard = execution, window, shard
        self._clock, self._rules = execution.services.clock, execution.services.rules
        self._started: list[_Started] = []
        self._not_before = self._clock()  # what was divided recently, or could not be handed out, is left as it is

    def may_divide(self) -> None:
        """Forgets when something was divided last."""
        self._not_before = self._clock()

    @property
    def is_possible(self) -> bool:
        """Whether this installation has workers."""
        return self._rules.max_workers > 0

    def is_worth_reading_ahead(self, waiting: int, *, more: bool) -> bool:
        """Whether to find out how many tasks wait. ``waiting``: are known to; ``more``: there may be more of them."""
        if not self.is_possible or self._clock() < self._not_before:
            return False
        rate = self._execution.rate
        if rate is None or self._longest() < MIN_WORK:
            return False
        return (more or waiting > rate * SOON.total_seconds()) and self._free_workers() > 0

    def is_enough(self, outline: Outline) -> bool:
        """Whether no more has to be read ahead."""
        rate = self._execution.rate or 0
        tasks = int(rate * self._longest().total_seconds() * (self._free_workers() + 1))
        return outline.entries >= MAX_OUTLINED or outline.count >= tasks

    def hand_out(self, bucket: Bucket, outline: Outline) -> Sequence[Part]:
        """Starts workers for parts of what is waiting, and returns those parts. A part whose worker can't be started
        is taken back as soon as that is known."""
        rate = self._execution.rate
        if rate is None:
            return ()
        parts = divide(outline, rate=rate, workers=self._free_workers(), longest=self._longest())
        now = self._clock()
        starting: list[_Started] = []
        for part in parts:
            until = min(now + allowed_time(part.tasks, rate), self._execution.budget.stop_claiming)
            order = WorkOrder(bucket=bucket, after=part.after, through=part.through, until=until)
            starting.append(_Started(order, part.tasks, part.probe, now + _FIRST_PROBE))
        if not starting:
            self._not_before = now + SOON
            return ()
        orders = [one.order for one in starting]
        self._window.change_handed_out(add=orders)
        self._started += starting
        self._count(starting, 1)
        self._shard.renew_by(now)  # the cursor row is to list them
        self._execution.start_others(orders, partial(self._answered, starting))
        return parts

    def _answered(self, starting: Sequence[_Started], number: int) -> None:
        """The first ``number`` of these workers were started. The orders of the others are over at once."""
        now = self._clock()
        if left := starting[number:]:
            self._not_before = now + SOON
            self._count(left, -1)
        for one in left:
            if one in self._started:
                self._remove([one.order], add=[replace(one.order, until=now)])

    def _count(self, started: Sequence[_Started], sign: int) -> None:
        self._execution.report.workers += sign * len(started)
        self._execution.report.handed_to_workers += sign * sum(one.tasks for one in started)

    @property
    def is_over(self) -> bool:
        """Whether the time of an order is over, so that the holder should poll its range."""
        now = self._clock()
        return any(_is_over(order, now) for order in self._window.handed_out)

    def take_back(self) -> list[WorkOrder]:
        """The orders that are over and may have left something; from now on they no longer count."""
        now = self._clock()
        self._probe(now)
        over = [order for order in self._window.handed_out if _is_over(order, now)]
        self._remove(over)
        return over

    def next_change(self) -> datetime:
        """When ``take_back`` may find something again; there must be orders."""
        return min([order.until for order in self._window.handed_out] + [one.probe_at for one in self._started])

    def _free_workers(self) -> int:
        if len(self._window.handed_out) >= self._rules.max_workers:
            self._probe(self._clock())
        now = self._clock()
        return self._rules.max_workers - sum(not _is_over(order, now) for order in self._window.handed_out)

    def _longest(self) -> timedelta:
        return longest_range(self._execution.budget.stop_claiming - self._clock())

    def _probe(self, now: datetime) -> None:
        """Forgets the ranges whose last tasks have ended."""
        for one in [one for one in self._started if one.probe_at <= now]:
            one.probe_at = now + _PROBE_INTERVAL
            try:
                page = self._execution.services.store.query_bucket(one.order.bucket, after=one.probe, limit=2 * GRAIN)
            except DynatickError as error:
                self._execution.keep_fault(error)
                return
            if any(entry.task_id <= one.order.through for entry in page.entries):
                continue
            if page.after is None or page.after >= one.order.through:
                self._remove([one.order])
            else:  # all that was read has ended; what lies behind it has not been read
                one.probe = page.after

    def _remove(self, orders: Sequence[WorkOrder], add: Sequence[WorkOrder] = ()) -> None:
        self._window.change_handed_out(orders, add)
        self._started = [one for one in self._started if one.order not in orders]


def _is_over(order: WorkOrder, now: datetime) -> bool:
    return not now < order.until <= now + _MAX_TIME


class SharedPolling(Polling):
    """The polls of a pass, which leaves to workers what it can't run soon."""

    def __init__(self, claiming: Claiming, hand_out: HandOut) -> None:
        super().__init__(claiming)
        self.hand_out = hand_out

    @property
    def is_interrupted(self) -> bool:
        """Whether the time of an order is over: the holder polls its range next."""
        return self.hand_out.is_over

    def second_reading(self, segment: Segment) -> Sequence[Segment]:
        """But for what was handed out meanwhile: workers read their ranges twice, too. That there were too few tasks to
        hand out says nothing of the packs."""
        self.hand_out.may_divide()
        position = Resume(segment.minute, segment.after)
        parts = self.window.segments([segment.minute], position)
        return [part for one in parts if (part := one.within(segment)) is not None]

    def keep(
        self, segment: Segment, waiting: list[tuple[Bucket, str]], after: str | None, position: Resume, pages: Pages
    ) -> tuple[list[tuple[Bucket, str]], str | None]:
        """If there is more than this pass can run soon, reads the segment ahead and hands out parts of it, as soon as
        it knows or can claim something. What it keeps beyond the present page is read again: its ids are not held in
        memory. All that was read and is not claimed from here holds the bucket back, until another poll of it."""
        hand_out = self.hand_out
        tasks = sum(tasks_of(task_id) for _, task_id in waiting)

        def should_divide() -> bool:
            return hand_out.is_worth_reading_ahead(tasks, more=after is not None)

        if hand_out.is_possible:
            self.claiming.wait_for_room(until=should_divide)
        if not should_divide():
            return waiting, after
        bucket = Bucket(segment.minute, self.report.shard)
        outline = self._outline(segment, bucket, waiting, after, position, pages)
        parts = hand_out.hand_out(bucket, outline)
        kept_through = parts[0].after if parts else outline.last
        kept = [entry for entry in waiting if entry[1] <= kept_through]
        self.claiming.end_unclaimed(waiting[len(kept) :])
        if parts and parts[-1].through < outline.last:
            self.reader.read_next(replace(segment, after=parts[-1].through, through=outline.last))
        if after is not None and after < kept_through:
            self.reader.read_next(replace(segment, after=after, through=kept_through))
        return kept, None

    def _outline(
        self,
        segment: Segment,
        bucket: Bucket,
        waiting: Entries,
        after: str | None,
        position: Resume,
        pages: Pages,
    ) -> Outline:
        """The outline of what waits in a segment, as far as it is worth reading. What no worker does, is claimed."""
        outline = Outline()
        for _, task_id in waiting:
            outline.add(task_id)
        while after is not None and not self.hand_out.is_enough(outline):
            page = next(pages, (segment, None))[1]
            found = Found() if page is None else self.open_entries(bucket, page, of_packs=segment.of_packs)
            for _, task_id in found.tasks:
                outline.add(task_id)
            self.claiming.end_unclaimed(found.tasks)
            if page is None or not self.claim_first(found, position):
                self.claiming.end_unclaimed([*found.schedules, *found.limited])
                self.report.leave(position)
                break
            after = page.after
        return outline


# -- a worker ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Order:
    """The permit of a worker, until the order's instant."""

    clock: Clock
    until: datetime
    is_of_holder: ClassVar[bool] = False

    @property
    def is_held(self) -> bool:
        return self.clock() < self.until

    def keep_open(self, until: datetime) -> bool:
        """Only the shard's holder writes occurrences."""
        return False


def work(services: Services, order: WorkOrder, *, hard_end: datetime) -> PassReport:
    """Claims what is due in the order's range, until its instant, and runs it. Touches no cursor.

    What it doesn't claim, the shard's holder does: schedules, tasks with a rate limit, those whose lease expired, and
    all that is left at the order's instant. ``hard_end``: when Lambda will kill the process.

    The report names the tick and the shard of the order's bucket. Raises StoreError if the table can't be reached.
    """
    started = services.clock()
    report, budget = PassReport.of(order.bucket, started), Budget.until(hard_end, started)
    cursor = read_cursor(services.store, report.shard, services.clock())
    window = Window(cursor, services.rules, closed_at=services.clock())  # of this process alone: it saves nothing
    permit = _Order(services.clock, order.until)
    claiming = Claiming(services, window, report, budget, permit, recoveries_until=order.until)
    with claiming.execution as execution:
        Polling(claiming).poll_and_claim([Segment.of(order)])
        execution.wait(until=lambda: not execution.in_flight or bool(execution.too_late), end=budget.stop_claiming)
        execution.release_unbegun()  # a task that begins later might be cut off
        execution.finish()
        execution.conclude()
    return report
