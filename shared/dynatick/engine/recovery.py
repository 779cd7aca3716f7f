"""Recovery: tasks whose lease expired are reclaimed in invocations of their own (protocol 10, 17).

A lease expires because its process died, and the task may have killed it. So a pass doesn't run such a task among its
own, but starts a recovery for it. A recovery writes no cursor; what it leaves undone, the next tick finds again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby, islice

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate, Lost, Unknown, Written
from dynatick.domain.lifecycle import claim, overdue, reclaim, release_claim
from dynatick.domain.packs import Pack
from dynatick.domain.retry import deferral
from dynatick.domain.row import RowView
from dynatick.domain.task import Row
from dynatick.engine.claims import (
    LeaseExpired,
    Malformed,
    lease_is_over,
    understand,
)
from dynatick.engine.conditional_write import write_many
from dynatick.engine.counts import PassReport
from dynatick.engine.invocation import BATCH, Budget, Execution, Place, Services
from dynatick.engine.orders import MAX_ORDER_BYTES, RecoveryOrder, ReleaseOrder, Resume, parts
from dynatick.engine.ports import Clock, Store, size_in_event
from dynatick.engine.record import age_counts_from
from dynatick.errors import DynatickError, InvalidInput, StoreError

MAX_TOGETHER = 100  # tasks of one recovery, if they have attempts left
MAX_ALONE = 10  # tasks of one recovery at their last attempt, which it runs one after another
MAX_RECOVERIES = 20  # of one pass


@dataclass(frozen=True, slots=True)
class Exhausted:
    """The task fails without being executed: it may not be attempted again, or its failure was decided before."""

    attempt: int
    error: str


def plan_recovery(
    row: Row | None, bucket: Bucket, *, token: str, lease_until: datetime, now: datetime
) -> ConditionalUpdate | Exhausted | None:
    """How to continue a task of ``bucket`` whose lease expired; None: it is no longer one. Pure."""
    if row is None:
        return None
    view = RowView(row)
    if not (view.is_running and view.is_open_in(bucket) and lease_is_over(row, now)):
        return None
    attempt = view.attempts_made
    if view.error is not None:  # decided, but the dead-letter queue refused the message
        return Exhausted(attempt, view.error)
    lost = overdue(row) or "its process died, or did not finish in time"
    if attempt >= view.retry_policy.maximum_attempts and not view.is_pack:
        return Exhausted(attempt, f"{lost}, at the last of {attempt} attempts")
    if _is_too_old(row):
        age = view.retry_policy.maximum_event_age_in_seconds
        return Exhausted(attempt, f"{lost}, and {age} s (maximumEventAgeInSeconds) after the first attempt are over")
    if view.is_released and attr.OUTCOME not in row:
        return claim(view.task_id, bucket, token=token, lease_until=lease_until, now=now, released=True)
    return reclaim(row, attempt=attempt + 1, token=token, lease_until=lease_until, now=now)


def _is_too_old(row: Row) -> bool:
    """Whether its age rules out another attempt when its lease ends: how long a tick takes to find it, as after a
    pause, doesn't count, nor does it for a retry. A row that was released has no attempt that has ended; the members of
    a pack each have an age."""
    known, until = understand(row), RowView(row).lease_until
    if isinstance(known, Malformed) or until is None or known.task.started_at is None or RowView(row).is_pack:
        return False
    began = age_counts_from(known.task, known.task.started_at)
    return known.task.retry_policy.seconds_left(began, until) < 0


def orders_for(expired: Sequence[tuple[Bucket, LeaseExpired]]) -> Iterator[RecoveryOrder]:
    """The recoveries for these tasks. First those for tasks with attempts left, several of one action together: usually
    one action's code kills processes. Then those for last attempts, apart from them (10). What is overdue may be at its
    last attempt too, and shares no recovery with what may have killed its process."""

    def shared(task: tuple[Bucket, LeaseExpired]) -> tuple[Bucket, tuple[str, bool] | None]:
        bucket, one = task
        return bucket, None if one.is_last else (one.action, one.is_overdue)

    for is_last, max_tasks in ((False, MAX_TOGETHER), (True, MAX_ALONE)):
        of_kind = sorted((task for task in expired if task[1].is_last is is_last), key=shared)
        for (bucket, _), group in groupby(of_kind, key=shared):
            for ids in parts([task.task_id for _, task in group], size_in_event, max_items=max_tasks):
                yield RecoveryOrder(bucket=bucket, task_ids=ids)


def in_one_chain(expired: Sequence[tuple[Bucket, LeaseExpired]], until: datetime) -> RecoveryOrder:
    """The recoveries for tasks of an action with a rate limit, one after another: a limit holds in one process. What
    doesn't fit into an event, or comes after ``until``, is left to the next tick. There must be tasks."""
    first, *others = orders_for(expired)
    then: list[RecoveryOrder] = []
    size = _size_of(first.task_ids)
    for order in others:
        size += _size_of(order.task_ids)
        if size > MAX_ORDER_BYTES:
            break
        then.append(order)
    return replace(first, until=until, then=tuple(then))


def _size_of(task_ids: Sequence[str]) -> int:
    return sum(map(size_in_event, task_ids))


def recover(
    services: Services,
    order: RecoveryOrder,
    *,
    hard_end: datetime,
    start: Callable[[RecoveryOrder], object] = lambda order: None,
) -> PassReport:
    """Reclaims the tasks of an order and runs them: first those with attempts left, then each last attempt with nothing
    else in flight. ``hard_end``: when Lambda will kill the process. ``start`` starts what is to
    follow: the tasks that there was no time for, if this recovery made progress, or the next order.

    The report names the tick and the shard of the order's bucket. Raises StoreError if the table can't be reached.
    """
    started = services.clock()
    report = PassReport.of(order.bucket, started, continuation=order.continuation)
    budget = Budget.until(hard_end, started)
    if order.until is not None:
        budget = replace(budget, stop_claiming=min(budget.stop_claiming, order.until))
    with Execution(services, report, budget) as execution:
        left = Recovery(execution, order.bucket).work(order.task_ids)
        execution.conclude()
        following = order.next(left)
        is_over = order.until is not None and services.clock() >= order.until
        if following is not None and (report.made_progress or not left) and not report.paused and not is_over:
            if following.continuation <= services.rules.max_continuations:
                start(following)
            report.continued = True
    return report


@dataclass(frozen=True, slots=True)
class Recovery:
    """Reclaims tasks of one bucket into an execution."""

    execution: Execution
    bucket: Bucket

    def work(self, task_ids: Sequence[str]) -> Sequence[str]:
        """Reclaims these tasks, and runs them. Returns the ids that there was no time for."""
        execution = self.execution
        end = execution.budget.stop_claiming
        left, alone, deferred = list(task_ids), list[str](), list[str]()
        while left and self._may_continue():
            alone += self.reclaim(left[:BATCH], last_too=False)
            left = left[BATCH:]
            execution.wait(
                until=lambda: (
                    len(execution.in_flight) + BATCH <= execution.max_in_flight and execution.has_room_for_large()
                ),
                end=end,
            )
        execution.wait(until=execution.nothing_runs, end=end)
        unbegun = execution.release_unbegun()
        execution.wait(until=execution.nothing_runs)
        while alone and self._may_continue():  # while something runs, nothing more may begin
            deferred += self.reclaim([alone.pop(0)], last_too=True)
            execution.wait(until=execution.nothing_runs)
        execution.finish()
        return [*unbegun, *left, *alone, *deferred]

    def reclaim(self, task_ids: Sequence[str], *, last_too: bool) -> list[str]:
        """Reclaims tasks and starts them. Returns the ids that it left: of tasks that take longer than there is time,
        or whose limit keys have no place, and unless ``last_too``, of those whose next attempt is the last one.

        If the table doesn't answer, the coordinator raises that once everything in flight is recorded.
        """
        try:
            return self._reclaim(task_ids, last_too)
        except DynatickError as error:
            self.execution.keep_fault(error)
            return []

    def _reclaim(self, task_ids: Sequence[str], last_too: bool) -> list[str]:
        services, now = self.execution.services, self.execution.services.clock()
        rows = services.store.get_many(task_ids)
        left: list[str] = []
        changes: list[tuple[Row, ConditionalUpdate]] = []
        for row in filter(None, map(rows.get, task_ids)):
            lease_until = self.execution.budget.hard_end
            plan = plan_recovery(row, self.bucket, token=services.new_token(), lease_until=lease_until, now=now)
            if isinstance(plan, Exhausted):
                self._fail(row, plan.error, attempt=plan.attempt)
            elif plan is not None and not self._may_begin(row, last_too):
                left.append(plan.task_id)
            elif plan is not None:
                changes.append((row, plan))
        results = write_many(services.store, [change for _, change in changes])
        for (row, change), result in zip(changes, results, strict=True):
            if isinstance(result, Unknown) and result.too_large:
                self._fail(row, f"the row is too large to be claimed ({result.error})")
            elif isinstance(result, Unknown) and not result.was_read:
                self.execution.add_unreleased(change.task_id, str(change.set[attr.LEASE]))
            elif isinstance(result, Written) and result.row is not None:
                self._start(result.row)
            elif isinstance(result, Lost) and result.present == row:
                self._defer(row)  # it has a value that no condition can compare
        return left

    def _may_begin(self, row: Row, last_too: bool) -> bool:
        if (RowView(row).is_last_attempt and not last_too) or not self.execution.turns.may_admit(row):
            return False
        known = understand(row)
        return isinstance(known, Malformed) or self.execution.task_pool.has_time_for(known.task)

    def _may_continue(self) -> bool:
        return self.execution.fault is None and self.execution.may_begin()

    def _start(self, row: Row) -> None:
        self.execution.report.recovered += 1
        claimed = understand(row)
        if isinstance(claimed, Malformed):
            self._fail(claimed.row, claimed.reason)
        else:
            place = Place(self.bucket.minute, Resume(self.bucket.minute))
            self.execution.start(claimed, place, may_begin=self.execution.may_begin())

    def _defer(self, row: Row) -> None:
        services = self.execution.services
        at = services.clock() + deferral(RowView(row).deferrals)
        self.execution.report.deferred += services.placer.defer(row, at)

    def _fail(self, row: Row, reason: str, *, attempt: int = 0) -> None:
        self.execution.fail(self.execution.recorder.failure_of(row, reason, attempt=attempt), self.bucket.minute)


# -- expired leases ----------------------------------------------------------------------------------------------------


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
    is_limited: Callable[[str | None], bool] = lambda key: False  # by its limit key
    _seen: set[tuple[Bucket, str]] = field(default_factory=set)
    _waiting: list[tuple[Bucket, LeaseExpired]] = field(default_factory=list)  # for a recovery to be started
    _not_started: list[tuple[Bucket, str]] = field(default_factory=list)  # no recovery could be started for them
    _limited: list[tuple[Bucket, str]] = field(default_factory=list)  # with limit keys: only this pass may run them
    _started: int = 0
    _begun: set[str] = field(default_factory=set)  # limited actions whose recoveries were started

    def add(self, bucket: Bucket, task: LeaseExpired) -> None:
        """Keeps a task for a recovery."""
        if (bucket, task.task_id) not in self._seen:
            self._seen.add((bucket, task.task_id))
            self.report.expired += 1
            if self.is_limited(task.limit_key):
                self._limited.append((bucket, task.task_id))
                return
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
        """Runs the tasks for which no recovery could be started, and those with limit keys (23), each with nothing else
        in flight (10). If a slow task leaves no time for one, an invocation with nothing in flight gets it."""
        limited, self._limited = self._limited, []
        for bucket, task_id in (*limited, *self._not_started):
            if execution.in_flight or execution.recording or execution.fault or not execution.may_begin():
                self.report.leave(Resume(bucket.minute))
                return
            left = Recovery(execution, bucket).reclaim([task_id], last_too=True)
            if left and (bucket, task_id) not in limited and (self.report.claimed or self.report.recovered):
                self.report.leave(Resume(bucket.minute))  # otherwise a new invocation has no more time for it either
            execution.wait(until=execution.nothing_runs)


# -- releases ----------------------------------------------------------------------------------------------------------

# A claim counts an attempt. If its task was not begun and its release is not written, the task's lease expires, and a
# recovery takes its process for dead: a last attempt would fail without having been made. So what could not be released
# goes to another invocation, which tries for a minute, and then again when Lambda repeats it.

MAX_RELEASED = 200  # tasks of one order
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds between two tries."""

_DECISIVE = (attr.STATUS, attr.LEASE, attr.LEASE_UNTIL, attr.ATTEMPT, attr.PACK)


def release_orders(claims: Iterable[tuple[str, ...]]) -> Iterator[ReleaseOrder]:
    """The orders that release these claims."""
    for part in parts(claims, lambda claim: sum(map(size_in_event, claim)), max_items=MAX_RELEASED):
        yield ReleaseOrder(part)


def _release(row: Row, token: str, ended: Sequence[str]) -> ConditionalUpdate | None:
    change = release_claim(row, token)
    try:
        pack = Pack.of(row) if ended else None
    except InvalidInput:  # it was changed by hand, and its next claim says so
        pack = None
    if change is None or pack is None:
        return change
    return replace(change, set={**change.set, attr.PACK: pack.with_ended(*ended).to_attribute()})


def write_releases(
    store: Store, order: ReleaseOrder, *, clock: Clock, end: datetime, pause: Callable[[float], None]
) -> int:
    """Releases what still has the order's tokens, and returns how many tasks that were. ``pause`` waits, in seconds.

    Raises StoreError if the table takes some of them neither until ``end`` nor in all its tries.
    """
    left: Sequence[tuple[str, ...]] = order.claims
    released = 0
    problem = ""
    for seconds in (*PAUSES, None):
        try:
            rows = store.get_many([claim[0] for claim in left], only=_DECISIVE)
        except StoreError as error:
            problem = str(error)
        else:
            changes = {
                (task_id, token, *ended): change
                for task_id, token, *ended in left
                if task_id in rows and (change := _release(rows[task_id], token, ended)) is not None
            }
            results = dict(zip(changes, write_many(store, list(changes.values())), strict=True))
            left = [claim for claim, result in results.items() if isinstance(result, Unknown)]
            released += sum(1 for result in results.values() if isinstance(result, Written))
            problem = next((result.error for result in results.values() if isinstance(result, Unknown)), "")
        if not left:
            return released
        if seconds is None or clock() + timedelta(seconds=seconds) >= end:
            break
        pause(seconds)
    raise StoreError(f"{len(left)} tasks that were claimed and not begun can't be released: {problem}")
