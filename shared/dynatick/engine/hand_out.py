"""The ranges that a shard's holder leaves to workers (protocol 17).

They lie on the cursor row, each until an instant. Until then the holder doesn't claim what is in them, they keep their
buckets from being drained, and they count against ``MaxWorkers``, whichever tick handed them out. A worker that never
starts, dies, or ends early, costs nothing but that time: then the holder polls the range itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from dynatick.domain.buckets import Bucket
from dynatick.engine.division import (
    GRAIN,
    MIN_WORK,
    SOON,
    Outline,
    Part,
    allowed_time,
    divide,
    longest_range,
)
from dynatick.engine.invocation import Execution
from dynatick.engine.orders import WorkOrder
from dynatick.engine.pools import in_turn
from dynatick.engine.window import ShardLease, Window
from dynatick.errors import DynatickError

MAX_OUTLINED = 50_000
"""Tasks that are read ahead to be divided: about a second of reading."""

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
    """Hands out ranges, and takes them back. ``start_worker`` starts a worker and returns whether it could."""

    def __init__(
        self, execution: Execution, window: Window, shard: ShardLease, start_worker: Callable[[WorkOrder], bool]
    ) -> None:
        self._execution, self._window, self._shard, self._start = execution, window, shard, start_worker
        self._clock, self._rules = execution.services.clock, execution.services.rules
        self._started: list[_Started] = []
        self._not_before = self._clock()  # what was divided recently, or could not be handed out, is left as it is

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

    @property
    def max_outlined(self) -> int:
        """How many tasks to read ahead."""
        rate = self._execution.rate or 0
        return min(MAX_OUTLINED, int(rate * self._longest().total_seconds() * (self._free_workers() + 1)))

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
        self._window.handed_out += [one.order for one in starting]
        self._started += starting
        self._count(starting, 1)
        self._shard.renew_at = now  # the cursor row is to list them
        orders = [one.order for one in starting]
        then = partial(self._answered, starting)
        self._execution.starts.submit(partial(in_turn, self._start, orders), then, partial(then, 0))
        return parts

    def _answered(self, starting: Sequence[_Started], number: int) -> None:
        """The first ``number`` of these workers were started. The orders of the others are over at once."""
        now = self._clock()
        if left := starting[number:]:
            self._not_before = now + SOON
            self._count(left, -1)
        for one in left:
            if one in self._started:
                self._remove([one.order])
                self._window.handed_out.append(replace(one.order, until=now))

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

    def _remove(self, orders: Sequence[WorkOrder]) -> None:
        self._window.handed_out = [order for order in self._window.handed_out if order not in orders]
        self._started = [one for one in self._started if one.order not in orders]


def _is_over(order: WorkOrder, now: datetime) -> bool:
    return not now < order.until <= now + _MAX_TIME
