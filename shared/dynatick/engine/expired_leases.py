"""The tasks of a pass whose lease expired: recoveries reclaim them, or the pass itself at its end (protocol 10)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice

from dynatick.domain.buckets import Bucket
from dynatick.engine.claims import LeaseExpired
from dynatick.engine.execution import Execution
from dynatick.engine.recovery import MAX_RECOVERIES, MAX_TOGETHER, Recovery, RecoveryOrder, in_one_chain, orders_for
from dynatick.engine.report import PassReport, Resume


@dataclass(slots=True)
class ExpiredLeases:
    """Each task gets a recovery once in a pass. ``start`` starts recoveries until one can't be started, and calls its
    second argument with how many were.

    Of each action with a rate limit, ``limited``, one recovery runs at a time, through ``until``: the next pass may
    start another then.
    """

    report: PassReport
    start: Callable[[Sequence[RecoveryOrder], Callable[[int], None]], None]
    until: datetime
    limited: Collection[str] = ()
    _seen: set[tuple[Bucket, str]] = field(default_factory=set)
    _waiting: list[tuple[Bucket, LeaseExpired]] = field(default_factory=list)  # for a recovery to be started
    _not_started: list[tuple[Bucket, str]] = field(default_factory=list)  # no recovery could be started for them
    _started: int = 0
    _begun: set[str] = field(default_factory=set)  # limited actions whose recoveries were started

    def add(self, bucket: Bucket, task: LeaseExpired) -> None:
        """Keeps a task for a recovery."""
        if (bucket, task.task_id) not in self._seen:
            self._seen.add((bucket, task.task_id))
            self.report.expired += 1
            self._waiting.append((bucket, task))

    def start_full_recovery(self) -> None:
        """Starts recoveries if there are enough tasks for a full one. Those of limited actions wait for more: they get
        one order in all."""
        free = [task for task in self._waiting if task[1].action not in self.limited]
        if len(free) >= MAX_TOGETHER:
            self._waiting = [task for task in self._waiting if task[1].action in self.limited]
            self._start(orders_for(free))

    def start_recoveries(self) -> None:
        """Starts recoveries for all tasks; those beyond the share of a pass are left to the next tick."""
        waiting, self._waiting = self._waiting, []
        self._start(orders_for([task for task in waiting if task[1].action not in self.limited]))
        for action in sorted({task.action for _, task in waiting if task.action in self.limited} - self._begun):
            self._begun.add(action)
            self._start([in_one_chain([task for task in waiting if task[1].action == action], self.until)])

    def _start(self, orders: Iterable[RecoveryOrder]) -> None:
        starting = list(islice(orders, MAX_RECOVERIES - self._started))
        self._started += len(starting)
        if self._not_started:
            self._answered(starting, 0)
        elif starting:
            self.start(starting, partial(self._answered, starting))

    def _answered(self, orders: Sequence[RecoveryOrder], number: int) -> None:
        """The first ``number`` of these were started; the pass reclaims the tasks of the others at its end."""
        left = orders[number:]
        self._started -= len(left)
        self._not_started += [
            (one.bucket, task_id) for order in left for one in (order, *order.then) for task_id in one.task_ids
        ]

    def reclaim_rest(self, execution: Execution) -> None:
        """Runs the tasks for which no recovery could be started, each with nothing else in flight (10). If a slow task
        leaves no time for one, an invocation with nothing in flight gets it."""
        for bucket, task_id in self._not_started:
            if execution.in_flight or execution.recording or execution.fault or not execution.may_begin():
                self.report.leave(Resume(bucket.minute))
                return
            left = Recovery(execution, bucket).reclaim([task_id], last_too=True)
            if left and (self.report.claimed or self.report.recovered):
                self.report.leave(Resume(bucket.minute))  # otherwise a new invocation has no more time for it either
            execution.wait(until=execution.nothing_runs)
