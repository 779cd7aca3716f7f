"""The client for tasks in Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial

from dynatick.client import history as histories
from dynatick.client import task_update
from dynatick.client import ticks as tick_lists
from dynatick.client.bucket_scope import Scope, scope
from dynatick.client.bulk_change import Filter, ManyResult, change_many
from dynatick.client.bulk_reschedule import Move
from dynatick.client.connect import ClientSettings, open_store
from dynatick.client.doctor import Diagnosis, examine
from dynatick.client.exporting import export
from dynatick.client.insertion import InsertCounts, InsertResult, count, insert_lazily
from dynatick.client.installation import Health, health_of
from dynatick.client.new_task import Composed, NewTask, Time, compose, not_before_next_tick, payload_of, time_of
from dynatick.client.row_types import TaskRow
from dynatick.client.schedules import Schedules
from dynatick.client.settings_cache import SettingsCache
from dynatick.client.ticks import TickEntry
from dynatick.client.views import BucketCounts, HistoryPage, TaskEntry, TaskView
from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, merge_updates
from dynatick.domain.normalise import Defaults
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.schedule import RECURRENCE
from dynatick.domain.task import Row, Status
from dynatick.engine.diagnosis import Finding
from dynatick.engine.installation_settings import InstallationSettings
from dynatick.engine.ports import Clock, Store
from dynatick.engine.reconcile import Reconciled
from dynatick.errors import InvalidInput, InvalidInputs, TaskExists, TaskNotFound
from dynatick.store.codec import check_size


class TaskClient:
    """Tasks of one table: insert, change, look up.

    Works on any store; ``TaskClient(MemoryStore())`` is for tests of one's own. Safe to share between threads.
    Methods raise InvalidInput for what cannot be taken, before anything is written, and StoreError if the table does
    not answer. Times are given as a bucket (``"2026-12-31#12:00"``), as RFC 3339 text with its offset, as epoch
    seconds, or as an aware datetime.

    ``check_actions``: refuse actions that the processor does not know, and payloads that its handlers would refuse.
    ``settings_ttl_seconds``: how long the tick interval, the actions in force and their payloads' types, which the
    processor keeps in the table, are believed before they are read again.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock = lambda: datetime.now(UTC),
        check_actions: bool = True,
        settings_ttl_seconds: float = 60,
    ) -> None:
        self.store = store
        self._clock = clock
        self._check_actions = check_actions
        self._settings_cache = SettingsCache(store, clock, timedelta(seconds=settings_ttl_seconds))

    @property
    def schedules(self) -> Schedules:
        """Recurring schedules."""
        return Schedules(self.store, self._settings_cache, self._clock, check_actions=self._check_actions)

    @classmethod
    def connect(
        cls,
        table: str | None = None,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        profile: str | None = None,
        batched: bool = True,
    ) -> TaskClient:
        """A client of a DynamoDB table: the one named, else that of DYNATICK_TABLE.

        What is left out is found as the AWS SDK finds it (AWS_REGION, AWS_ENDPOINT_URL, AWS_PROFILE …). ``batched``
        False: one request a write, for engines without PartiQL. Raises ConfigurationError; sends nothing.
        """
        settings = ClientSettings.from_env(
            os.environ, table=table, region=region, endpoint_url=endpoint_url, profile=profile
        )
        return cls(open_store(settings, batched=batched))

    def insert(
        self,
        task_id: str,
        *,
        task_date_time: Time | None = None,
        due_at: Time | None = None,
        delay_seconds: float | Decimal | None = None,
        action: str | None = None,
        payload: Mapping[str, object] | None = None,
        retry_policy: RetryPolicy | Mapping[str, object] | None = None,
        timeout_seconds: int | Decimal | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> TaskView:
        """Inserts a task, and returns it as it was written.

        At most one time. A bucket is rounded up to the ticks in force; a time that has passed means the next tick;
        without a time the installation's policy decides (status ``unscheduled`` until it has). ``payload``: the
        action's arguments. ``timeout_seconds``: how long an attempt takes at the most; it is not begun with less time
        left. ``attributes``: more attributes of the row, for one's own use.
        Raises TaskExists if there is a task of this id: nothing is written then.
        """
        composed = self._compose(
            NewTask(
                task_id=task_id,
                task_date_time=task_date_time,
                due_at=due_at,
                delay_seconds=delay_seconds,
                action=action,
                payload=payload,
                retry_policy=retry_policy,
                timeout_seconds=timeout_seconds,
                attributes={} if attributes is None else attributes,
            )
        )
        if not self.store.create(composed.row):
            raise TaskExists(task_id)
        return TaskView.from_row(composed.row)

    def insert_many(self, tasks: Iterable[NewTask | TaskRow | Mapping[str, object]]) -> InsertCounts:
        """Inserts any number of tasks, in batches, and returns how many are in, and why others are not.

        Maps are taken under the table's names (``taskId``, ``dueAt`` …). One bad task holds up no other.
        Raises NoneInserted if none of them is in.
        """
        return count(self.insert_lazily(tasks))

    def insert_lazily(self, tasks: Iterable[NewTask | TaskRow | Mapping[str, object]]) -> Iterator[InsertResult]:
        """As ``insert_many``, but only as the results are consumed: one a task, in order. Nothing is inserted before,
        and nothing after the last that is asked for but what is under way."""
        return insert_lazily(self.store, tasks, self._compose_one)

    def insert_rows(self, rows: Iterable[Mapping[str, object]]) -> Iterator[InsertResult]:
        """As ``insert_lazily``, of rows as put-item takes them: one with a ``scheduleExpression`` makes a schedule."""
        return insert_lazily(self.store, rows, self._compose_row)

    def get(self, task_id: str) -> TaskView:
        """The task, read consistently. Raises TaskNotFound."""
        row = self.store.get(task_update.known_id(task_id))
        if row is None:
            raise TaskNotFound(task_id)
        return TaskView.from_row(row)

    def cancel(self, task_id: str) -> TaskView:
        """Calls a waiting task off. Raises TaskNotFound, TransitionRefused."""
        return self._change(task_id, self._cancelled())

    def delete(self, task_id: str, *, version: str | None = None) -> None:
        """Removes a task that waits or has ended; nothing is left of it. One that runs can't be deleted.

        ``version``: only if the task is still the one that a ``TaskView`` showed, by its ``version``.
        Raises TaskNotFound, TransitionRefused, TaskChanged: nothing was deleted then.
        """
        task_update.delete(self.store, task_id, version)

    def reschedule(
        self,
        task_id: str,
        *,
        task_date_time: Time | None = None,
        due_at: Time | None = None,
        delay_seconds: float | Decimal | None = None,
    ) -> TaskView:
        """Gives a waiting task another time (one of the three); one that has passed means the next tick.

        Raises TaskNotFound, TransitionRefused.
        """
        times = {"taskDateTime": task_date_time, "dueAt": due_at, "delaySeconds": delay_seconds}
        return self._change(task_id, self._rescheduled(task_update.known_id(task_id), times))

    def update(
        self,
        task_id: str,
        *,
        task_date_time: Time | None = None,
        due_at: Time | None = None,
        delay_seconds: float | Decimal | None = None,
        payload: Mapping[str, object] | None = None,
        version: str | None = None,
    ) -> TaskView:
        """Gives a waiting task another time (one of the three at most), another payload, or both.

        ``version``: only if the task is still the one that a ``TaskView`` showed, by its ``version``.
        Raises TaskNotFound, TransitionRefused, TaskChanged: nothing was written then.
        """
        times = {"taskDateTime": task_date_time, "dueAt": due_at, "delaySeconds": delay_seconds}
        timed = any(value is not None for value in times.values())
        if not timed and payload is None:
            raise InvalidInput("payload", None, f"expected something to change: payload, or one of {', '.join(times)}")
        wishes: list[Callable[[Row], ConditionalUpdate]] = []
        known, wrong = task_update.known_id(task_id), InvalidInputs()
        if timed:
            with wrong:
                wishes.append(self._rescheduled(known, times))
        check = partial(self._settings_cache.check_payload, of_handlers=self._check_actions)
        if payload is not None:
            with wrong:
                kept = payload_of(payload)
                wishes.append(lambda row: task_update.revised(row, payload=kept, check=check))
                if wrong and (there := self.store.get(known)) and isinstance(action := there.get("action"), str):
                    check(action, kept)  # so that all that is wrong is told
        wrong.raise_all()

        def decide(row: Row) -> ConditionalUpdate:
            change = merge_updates(*(wish(row) for wish in wishes))
            check_size({**row, **change.set})
            return change if version is None else merge_updates(change, conditions=task_update.in_version(row, version))

        return self._change(task_id, decide)

    def redrive(self, task_id: str) -> TaskView:
        """Gives a failed or cancelled task another run, at the next tick. Raises TaskNotFound, TransitionRefused."""
        return self._change(task_id, self._next_tick(task_update.redriven))

    def run_now(self, task_id: str) -> TaskView:
        """Runs a task at the next tick: a waiting one earlier than planned, one that has ended once more.

        Raises TaskNotFound, TransitionRefused.
        """
        return self._change(task_id, self._next_tick(task_update.run_at_once))

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
        error: str | None = None,
        dry_run: bool = False,
        limit: int | None = None,
    ) -> Iterator[ManyResult]:
        """Gives failed tasks of a bucket or range another run, as ``history`` means them: one result a task, as they
        are consumed. ``status`` may be ``cancelled``; ``error`` is a part of their error; ``dry_run``: says only which.
        ``limit``: at most so many tasks, the first.
        """
        state = task_update.check_redrivable(status)
        wanted = Filter(states=(state,), action=action, schedule_id=schedule_id, prefix=prefix, error=error)
        meant = self._scope(bucket, start, end)
        return self._change_many(meant, wanted, self._next_tick(task_update.redriven), dry_run, limit)

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
        """Calls off the waiting tasks of a bucket or range, as ``redrive_many`` retries those that have failed.
        ``status``: only ``scheduled`` ones, or ``unscheduled``."""
        wanted = Filter(
            states=task_update.waiting_states(status), action=action, schedule_id=schedule_id, prefix=prefix
        )
        return self._change_many(self._scope(bucket, start, end), wanted, self._cancelled(), dry_run, limit)

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
        """Gives the waiting tasks of a bucket or range another time, as ``cancel_many`` calls them off: all of them one
        time, by ``due_at`` or ``delay_seconds``, or by ``shift`` each its own, so much later or earlier. What has
        passed means the next tick. Each is moved once; with ``due_at``, those that are there already are left out.
        With a ``shift`` to later, the latest buckets come first, and ``limit`` means these.
        """
        move = self._move(due_at, delay_seconds, shift)
        wanted = Filter(
            states=task_update.waiting_states(status),
            action=action,
            schedule_id=schedule_id,
            prefix=prefix,
            unless=move.is_done,
        )
        meant, later = self._scope(bucket, start, end), shift is not None and shift > timedelta()
        return self._change_many(meant, wanted, move.decide, dry_run, limit, latest_first=later)

    def history(
        self,
        bucket: str | Bucket | None = None,
        *,
        start: Time | None = None,
        end: Time | None = None,
        status: Status | str | None = None,
        action: str | None = None,
        schedule_id: str | None = None,
        prefix: str | None = None,
        attempts: bool = False,
        limit: int = 100,
        page_token: str | None = None,
    ) -> HistoryPage:
        """The tasks of a bucket (all its shards, unless one is named), or of a range from ``start`` to before ``end``.

        In order of time, shard and id. ``status``, ``action``, ``schedule_id``, ``prefix`` of the id: only those.
        ``limit``: at most so many of them, up to 1,000; a page may hold fewer and still not be the last, which is the
        one without ``next_page_token``. A range spans at most 31 days. A task is listed in one bucket, that of its
        latest attempt. ``attempts``: reads also the rows of ended tasks, for their number of attempts.
        """
        wanted = histories.Wanted(status=status, action=action, schedule_id=schedule_id, prefix=prefix)
        meant = self._scope(bucket, start, end)
        return histories.history(self.store, meant, wanted, limit=limit, page_token=page_token, attempts=attempts)

    def iter_history(
        self,
        bucket: str | Bucket | None = None,
        *,
        start: Time | None = None,
        end: Time | None = None,
        status: Status | str | None = None,
        action: str | None = None,
        schedule_id: str | None = None,
        prefix: str | None = None,
    ) -> Iterator[TaskEntry]:
        """All tasks that ``history`` lists, one after another: pages are read as they are consumed."""
        wanted = histories.Wanted(status=status, action=action, schedule_id=schedule_id, prefix=prefix)
        return histories.every_entry(self.store, self._scope(bucket, start, end), wanted)

    def export(
        self,
        bucket: str | Bucket | None = None,
        *,
        start: Time | None = None,
        end: Time | None = None,
        status: Status | str | None = None,
        action: str | None = None,
        schedule_id: str | None = None,
        prefix: str | None = None,
        after: tuple[str, str] | None = None,
    ) -> Iterator[Row]:
        """The whole rows of what ``history`` lists, as they are consumed: under the table's names, numbers as Decimal.

        Memory does not grow with their number. What changes meanwhile may be missing, or be there twice.
        ``after``: the ``taskDateTime`` and ``taskId`` of a row of an export of the same; it goes on after that.
        """
        wanted = histories.Wanted(status=status, action=action, schedule_id=schedule_id, prefix=prefix)
        return export(self.store, self._scope(bucket, start, end), wanted, after=after)

    def bucket_counts(
        self, bucket: str | Bucket | None = None, *, start: Time | None = None, end: Time | None = None
    ) -> Iterator[BucketCounts]:
        """How many tasks of each status each bucket holds, in order of time; empty buckets are left out.

        Reads every entry of these buckets. What is meant by them is as with ``history``.
        """
        return histories.bucket_counts(self.store, self._scope(bucket, start, end))

    def ticks(
        self,
        last: timedelta = timedelta(minutes=60),
        *,
        start: Time | None = None,
        end: Time | None = None,
    ) -> list[TickEntry]:
        """What the latest ticks did, or those from ``start`` to before ``end`` (default: now); at most seven days.

        Idle ticks are told in runs, and so are ticks that left no trace.
        """
        now = self._clock()
        minutes = tick_lists.minutes_meant(last, start, end, now=now)
        return tick_lists.ticks(self.store, self._settings_cache.refresh(), minutes, now=now)

    def tick_range(
        self,
        last: timedelta = timedelta(minutes=60),
        *,
        start: Time | None = None,
        end: Time | None = None,
    ) -> tuple[datetime, datetime]:
        """The range that ``ticks`` means by the same arguments: from its first minute to the end of its last."""
        minutes = tick_lists.minutes_meant(last, start, end, now=self._clock())
        return instant_of(minutes.start), instant_of(minutes.stop)

    def doctor(
        self,
        *,
        repair: bool = False,
        tell: Callable[[Finding], None] | None = None,
        page_read: Callable[[Reconciled], None] | None = None,
    ) -> Diagnosis:
        """Reads the whole table and says what is wrong: tasks that no tick would see, rows that nobody has looked at,
        leases that nobody has taken over, shards whose ticks don't come. Only reads, unless ``repair``.

        ``tell`` is called with each finding, once its fate is known; ``page_read`` after each page of the table.
        """
        return examine(
            self.store, self._settings_cache.refresh(), clock=self._clock, repair=repair, tell=tell, page_read=page_read
        )

    def health(self) -> Health:
        """Whether ticks come, and drain what they find: by the settings and the cursors, two requests. ``doctor`` looks
        at every task, too."""
        return health_of(self.store, self._settings_cache.refresh(), self._clock())

    def settings(self) -> InstallationSettings | None:
        """The tick interval, shards and actions in force, read now; None before the first tick."""
        return self._settings_cache.refresh()

    def _compose(self, task: NewTask) -> Composed:
        return compose(task, self._settings_cache, now=self._clock(), check_actions=self._check_actions)

    def _compose_one(self, task: object) -> Composed:
        if isinstance(task, Mapping):
            task = NewTask.from_row(task)
        if not isinstance(task, NewTask):
            raise InvalidInput("task", task, "expected a NewTask, or a map with taskId")
        return self._compose(task)

    def _compose_row(self, row: object) -> Composed:
        if isinstance(row, Mapping) and any(row.get(name) is not None for name in RECURRENCE):
            return self.schedules.compose(row)
        return self._compose_one(row)

    def _change(self, task_id: str, decide: Callable[[Row], ConditionalUpdate]) -> TaskView:
        return TaskView.from_row(task_update.carry_out(self.store, task_id, decide))

    def _change_many(
        self,
        meant: Scope,
        wanted: Filter,
        decide: Callable[[Row], ConditionalUpdate],
        dry_run: bool,
        limit: int | None,
        *,
        latest_first: bool = False,
    ) -> Iterator[ManyResult]:
        histories.check_most(limit)
        began = self._clock()
        return change_many(
            self.store, meant, wanted, decide, began=began, dry_run=dry_run, limit=limit, latest_first=latest_first
        )

    def _cancelled(self) -> Callable[[Row], ConditionalUpdate]:
        settings = self._settings_cache.current()
        days = settings.retention_days if settings else None
        retention_days = Defaults().retention_days if days is None else days
        return lambda row: task_update.cancelled(row, now=self._clock(), retention_days=retention_days)

    def _rescheduled(self, task_id: str, times: Mapping[str, object]) -> Callable[[Row], ConditionalUpdate]:
        """Raises InvalidInput for what is no time."""
        grid = self._grid()
        when = time_of(task_id, times, now=self._clock(), grid=grid)
        self._settings_cache.check_shard(when.bucket.shard)

        def decide(row: Row) -> ConditionalUpdate:
            present = self._clock()
            bucket = not_before_next_tick(when.bucket, task_id, now=present, grid=grid)
            return task_update.rescheduled(row, bucket=bucket, due_at=when.due_at if bucket == when.bucket else present)

        return decide

    def _move(self, due_at: Time | None, delay_seconds: float | Decimal | None, shift: timedelta | None) -> Move:
        """Raises InvalidInput unless one of them is given."""
        began, grid = self._clock(), self._grid()
        if shift is None:
            when = time_of("any", {"dueAt": due_at, "delaySeconds": delay_seconds}, now=began, grid=grid)
            return Move(to=when.due_at, began=began, clock=self._clock, grid=grid)
        if due_at is not None or delay_seconds is not None or not shift:
            raise InvalidInput("shift", str(shift), "expected a single time, or a shift that is not zero")
        return Move(shift=shift, began=began, clock=self._clock, grid=grid)

    def _next_tick(self, decide: Callable[..., ConditionalUpdate]) -> Callable[[Row], ConditionalUpdate]:
        grid = self._grid()

        def decide_now(row: Row) -> ConditionalUpdate:
            now = self._clock()
            bucket = Bucket(grid.tick_after(minute_of(now)), grid.shard_of(str(row["taskId"])))
            return decide(row, bucket=bucket, now=now)

        return decide_now

    def _grid(self) -> Grid:
        """The grid in force; before there is one, every minute, which every tick looks at."""
        settings = self._settings_cache.current()
        return settings.grid if settings else Grid()

    def _scope(self, bucket: str | Bucket | None, start: Time | None, end: Time | None) -> Scope:
        settings = self._settings_cache.refresh()
        return scope(bucket, start, end, settings.shards_ever if settings else 1)
