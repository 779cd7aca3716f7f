"""Runs a wake-up: waits for its instants, and claims what is still due then (protocol 17, 18)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dynatick.domain.buckets import Bucket
from dynatick.domain.due import Due
from dynatick.engine.budget import Budget
from dynatick.engine.claims import Claimer, Malformed
from dynatick.engine.execution import BATCH, Execution, Place, Services
from dynatick.engine.lateness import is_woken_late
from dynatick.engine.report import PassReport, Resume
from dynatick.engine.wake_up import WakeUp
from dynatick.errors import DynatickError

MAX_EARLY = timedelta(seconds=20)
"""A wake-up that comes earlier is sent again, instead of waiting in a process that costs."""

MAX_LATE = timedelta(minutes=10)
"""A wake-up that comes later after its bucket is dropped: ticks have polled the bucket by then."""


def wake(
    services: Services,
    order: WakeUp,
    *,
    hard_end: datetime,
) -> PassReport:
    """Waits for the instants of a wake-up, and runs the tasks that are still due then.

    A thread must be free for each that is claimed: the others are left to other wake-ups, or to the tick. What is too
    early to wait for is sent again. A rate limit is the shard's holder's to keep: a task whose action has
    one is released for it.

    The report names the tick and the shard of the order's bucket. Raises StoreError if the table can't be reached.
    """
    started = services.clock()
    report = PassReport(tick=order.bucket.minute, shard=order.bucket.shard, continuation=0, started_at=started)
    latest = started + MAX_EARLY
    execution = Execution(services, report, Budget.until(hard_end, started))
    if early := tuple(due for due in order.due if due.at > latest):
        execution.send_wake_ups([replace(order, due=early)])
    try:
        _Waking(execution, order.bucket).work([due for due in order.due if due.at <= latest])
        report.unfinished = execution.unfinished
        if execution.fault is not None:
            raise execution.fault
    finally:
        execution.close()
    report.finished_at = services.clock()
    return report


@dataclass(frozen=True, slots=True)
class _Waking:
    """Claims the tasks of a wake-up, each when it is due."""

    execution: Execution
    bucket: Bucket

    def work(self, due: Sequence[Due]) -> None:
        execution, clock = self.execution, self.execution.services.clock
        waiting = deque(due)
        while waiting and execution.fault is None and execution.may_begin():
            free = execution.services.rules.threads - len(execution.in_flight)
            if free < 1:
                execution.wait(until=self._has_free_thread, end=execution.budget.stop_claiming)
            elif waiting[0].at > clock():
                end = min(waiting[0].at, execution.budget.stop_claiming)
                execution.wait(until=lambda: False, end=end)
            else:
                now = clock()
                batch: list[Due] = []
                while waiting and waiting[0].at <= now and len(batch) < min(BATCH, free):
                    batch.append(waiting.popleft())
                self._claim(batch)
        execution.wait(until=execution.nothing_runs)
        execution.release_unbegun()
        execution.finish()

    def _has_free_thread(self) -> bool:
        return len(self.execution.in_flight) < self.execution.services.rules.threads

    def _claim(self, batch: Sequence[Due]) -> None:
        """Claims tasks. If the table doesn't answer, the coordinator raises that once everything in flight is
        recorded."""
        execution, services = self.execution, self.execution.services
        claimer = Claimer(services.store, services.placer, services.clock, services.new_token, execution.add_unreleased)
        execution.report.due += len(batch)
        try:
            claimed = claimer.claim_due(batch, self.bucket, lease_until=execution.budget.hard_end)
        except DynatickError as error:
            execution.keep_fault(error)
            return
        for verdict in claimed:
            if isinstance(verdict, Malformed):
                failure = execution.recorder.failure_of(verdict.row, verdict.reason)
                execution.fail(failure, self.bucket.minute)
                continue
            execution.report.claimed += 1
            execution.report.woken_late += is_woken_late(verdict.task, execution.report.started_at, services.rules)
            place = Place(self.bucket.minute, Resume(self.bucket.minute))
            is_limited = verdict.task.action in services.rules.limited_actions
            may_begin = execution.may_begin() and not is_limited
            execution.start(verdict, place, may_begin=may_begin)
