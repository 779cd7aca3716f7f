"""Wake-ups, planned and run (protocol 17 to 19).

The pass that raised ``plannedThrough`` polls the shard's next buckets once, two ticks ahead, by the index alone, and
sends wake-ups for the instants at which tasks are due. What only a pass may run gets a wake-up that starts one. What
comes later is sent by the writer of the instant. Planning is bounded in time and memory: what is left out runs at its
tick. Who gets a wake-up waits for its instants, and claims what is still due then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from dynatick.domain.buckets import Bucket
from dynatick.domain.instants import up_to_second
from dynatick.domain.row import Due, due_of
from dynatick.domain.schedule import is_listed_as_schedule
from dynatick.domain.task import is_own_row
from dynatick.engine.claims import Claimed, Malformed
from dynatick.engine.counts import PassReport, Recorded
from dynatick.engine.invocation import BATCH, Budget, Execution, Place, Services
from dynatick.engine.orders import Resume, WakeUp, send_wake_ups, wake_ups_of
from dynatick.engine.ports import Entry
from dynatick.engine.record import is_woken_late
from dynatick.errors import DynatickError

# -- wake up plan ------------------------------------------------------------------------------------------------------

MAX_PLANNED = 50_000
"""Tasks that one pass plans: they are in memory at once."""

MAX_TIME = timedelta(seconds=10)
"""The limit for planning, in a thread of its own: until then its pass does not end."""

_PAGE = 2000
_CHUNK = 100  # wake-ups that are sent before the time is checked again


def send_planned(services: Services, report: PassReport, minutes: Iterable[int]) -> None:
    """Polls these buckets and sends the wake-ups of what is open in them, counted in the report. Doesn't raise:
    wake-ups are hints."""
    if services.wake_ups is None:
        return
    until = services.clock() + MAX_TIME
    for minute in minutes:
        bucket = Bucket(minute, report.shard)
        tasks: list[Due] = []
        passes: set[datetime] = set()
        after: str | None = None
        try:
            while services.clock() < until and report.planned + len(tasks) < MAX_PLANNED:
                page = services.store.query_bucket(bucket, after=after, limit=_PAGE)
                paused = services.pause.actions
                for entry in page.entries:
                    has_none = entry.action in services.rules.limited_actions or entry.action in paused
                    found = None if has_none else _due_in(entry, bucket, services)
                    if isinstance(found, Due):
                        tasks.append(found)
                    elif found is not None:
                        passes.add(up_to_second(found))
                after = page.after
                if after is None:
                    break
        except DynatickError as error:
            report.planning_failed = str(error)
        report.planned += len(tasks)
        due: list[Due | datetime] = [*tasks, *passes]
        wake_ups = wake_ups_of(((bucket, one) for one in due), threads=services.rules.threads)
        while chunk := list(islice(wake_ups, _CHUNK)):
            in_time = services.clock() < until
            report.unsent += send_wake_ups(services.wake_ups, chunk) if in_time else len(chunk)


def _due_in(entry: Entry, bucket: Bucket, services: Services) -> Due | datetime | None:
    """The instant of a task that a wake-up can run; a datetime: when a pass is to run it, since it is due on the tick,
    is a schedule, or has a limit key; None: neither."""
    if is_own_row(entry.task_id):
        return None
    if entry.schedule_id is not None and is_listed_as_schedule(entry.task_id, entry.schedule_id):
        return bucket.instant
    due = due_of(entry.task_id, entry.due_at, entry.next_attempt_at)
    if services.rules.is_limited(entry.limit_key):
        # Its turn may be expected at this tick, though it was due long before.
        is_of_bucket = due is not None and services.rules.grid.tick_at_or_after(due.at) == bucket.minute
        return due.at if due is not None and is_of_bucket else bucket.instant
    if due is None or due.at > bucket.instant:
        return None
    return bucket.instant if due.at == bucket.instant else due


# -- limit keys --------------------------------------------------------------------------------------------------------


def due_by_key(
    services: Services, shard: int, minutes: Iterable[int], now: datetime
) -> Sequence[tuple[Bucket, Due, str]]:
    """The tasks with limit keys in these buckets, which no tick has closed yet, that are due: bucket, instant, key. If
    there are more entries than one pass would plan, their ticks find the rest.

    Raises StoreError.
    """
    found: list[tuple[Bucket, Due, str]] = []
    left = MAX_PLANNED
    for bucket in (Bucket(minute, shard) for minute in minutes):
        after: str | None = None
        while left > 0:
            page = services.store.query_bucket(bucket, after=after, limit=_PAGE)
            left -= len(page.entries)
            for entry in page.entries:
                due = due_of(entry.task_id, entry.due_at, entry.next_attempt_at)
                if due is not None and due.at <= now and _is_in_own_shard(entry, bucket, services):
                    found.append((bucket, due, str(entry.limit_key)))
            after = page.after
            if after is None:
                break
    return found


def _is_in_own_shard(entry: Entry, bucket: Bucket, services: Services) -> bool:
    """Whether it is a task with a limit key, in the shard of the key."""
    if is_own_row(entry.task_id) or not services.rules.is_limited(entry.limit_key):
        return False
    if entry.action in services.pause.actions:
        return False
    if entry.schedule_id is not None and is_listed_as_schedule(entry.task_id, entry.schedule_id):
        return False
    return services.settings.grid.shard_of(str(entry.limit_key)) == bucket.shard


# -- waking ------------------------------------------------------------------------------------------------------------

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
    report = PassReport.of(order.bucket, started, recorded=Recorded.FAILURES_BY_BUCKET)
    latest = started + MAX_EARLY
    with Execution(services, report, Budget.until(hard_end, started)) as execution:
        if early := tuple(due for due in order.due if due.at > latest):
            execution.send_wake_ups([replace(order, due=early)])
        _Waking(execution, order.bucket).work([due for due in order.due if due.at <= latest])
        execution.conclude()
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
        """Claims tasks that are still due (18), and starts them; why one is not claimed, its tick finds out. If the
        table doesn't answer, the coordinator raises that once everything in flight is recorded."""
        execution, services = self.execution, self.execution.services
        execution.report.due += len(batch)
        entries, due = [(self.bucket, one.task_id) for one in batch], {one.task_id: one for one in batch}
        try:
            verdicts = execution.claimer.claim(entries, lease_until=execution.budget.hard_end, due=due)
        except DynatickError as error:
            execution.keep_fault(error)
            return
        for verdict in verdicts:
            if isinstance(verdict, Malformed):
                failure = execution.recorder.failure_of(verdict.row, verdict.reason)
                execution.fail(failure, self.bucket.minute)
            elif isinstance(verdict, Claimed):
                execution.report.claimed += 1
                execution.report.woken_late += is_woken_late(verdict.task, execution.report.started_at, services.rules)
                place = Place(self.bucket.minute, Resume(self.bucket.minute))
                is_limited = verdict.task.action in services.rules.limited_actions
                execution.start(verdict, place, may_begin=execution.may_begin() and not is_limited)
