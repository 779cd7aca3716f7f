"""The part of the client that changes many tasks of a bucket or a range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal

from dynatick.client import history as histories
from dynatick.client import task_update
from dynatick.client.bucket_scope import Scope
from dynatick.client.bulk_change import BulkFilter, ManyResult, change_many
from dynatick.client.new_task import Time
from dynatick.client.task_lists import TaskLists
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.task import Row, Status


class BulkTasks(TaskLists):
    """Changes many tasks. ``TaskClient`` has these methods."""

    def redrive_many(
        self,
        bucket: str | Bucket | None = None,
        *,
        start: Time | None = None,
        end: Time | None = None,
        status: Status | str = Status.FAILED,
        action: str | None = None,
        schedule_id: str | None = None,
        prefix: str | None = None,
        error: str | Callable[[str], bool] | None = None,
        dry_run: bool = False,
        limit: int | None = None,
    ) -> Iterator[ManyResult]:
        """Redrives the failed tasks of a bucket or range (arguments as for ``history``), with one result per task, as
        they are consumed. ``status`` may be ``cancelled``; ``error``: a part of the task's error, or a function that
        decides by the whole; ``dry_run``: returns the tasks and changes none. ``limit``: the maximum number of tasks.
        """
        state = task_update.check_redrivable(status)
        filter_ = BulkFilter(states=(state,), action=action, schedule_id=schedule_id, prefix=prefix, error=error)
        redriven = self._decisions.next_tick(task_update.redriven)
        return self._change_many(self._scope(bucket, start, end), filter_, redriven, dry_run, limit)

    def cancel_many(
        self,
        bucket: str | Bucket | None = None,
        *,
        start: Time | None = None,
        end: Time | None = None,
        status: Status | str | None = None,
        action: str | None = None,
        schedule_id: str | None = None,
        prefix: str | None = None,
        dry_run: bool = False,
        limit: int | None = None,
    ) -> Iterator[ManyResult]:
        """Cancels the waiting tasks of a bucket or range, with the arguments and results of ``redrive_many``.
        ``status``: only ``scheduled`` ones, or ``unscheduled``."""
        filter_ = BulkFilter(
            states=task_update.waiting_states(status), action=action, schedule_id=schedule_id, prefix=prefix
        )
        return self._change_many(self._scope(bucket, start, end), filter_, self._decisions.cancelled(), dry_run, limit)

    def reschedule_many(
        self,
        bucket: str | Bucket | None = None,
        *,
        start: Time | None = None,
        end: Time | None = None,
        status: Status | str | None = None,
        action: str | None = None,
        schedule_id: str | None = None,
        prefix: str | None = None,
        due_at: Time | None = None,
        delay_seconds: float | Decimal | None = None,
        shift: timedelta | None = None,
        dry_run: bool = False,
        limit: int | None = None,
    ) -> Iterator[ManyResult]:
        """Gives the waiting tasks of a bucket or range another time: the same to all, by ``due_at`` or
        ``delay_seconds``, or by ``shift`` each its own time, later or earlier. A time that has passed means the next
        tick. Each task is moved once; with ``due_at``, tasks that have this time already are skipped. With a ``shift``
        to later, the latest buckets come first, also for ``limit``.
        """
        rescheduling = self._decisions.rescheduling(due_at, delay_seconds, shift)
        filter_ = BulkFilter(
            states=task_update.waiting_states(status),
            action=action,
            schedule_id=schedule_id,
            prefix=prefix,
            unless=rescheduling.is_done,
        )
        scope, later = self._scope(bucket, start, end), shift is not None and shift > timedelta()
        return self._change_many(scope, filter_, rescheduling.decide, dry_run, limit, latest_first=later)

    def _change_many(
        self,
        scope: Scope,
        filter_: BulkFilter,
        decide: Callable[[Row], ConditionalUpdate],
        dry_run: bool,
        limit: int | None,
        *,
        latest_first: bool = False,
    ) -> Iterator[ManyResult]:
        histories.check_optional_limit(limit)
        began = self._clock()
        return change_many(
            self.store,
            scope,
            filter_,
            decide,
            departures=self._departures(),
            began=began,
            dry_run=dry_run,
            limit=limit,
            latest_first=latest_first,
        )
