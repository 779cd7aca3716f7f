"""The client for tasks in Python."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dynatick.client import task_update
from dynatick.client.batch_members import change_member, delete_member, note_row, row_of
from dynatick.client.bulk_change import BulkTasks
from dynatick.client.completions import Completions
from dynatick.client.connect import ClientSettings, open_queue, open_store
from dynatick.client.dead_letters import DeadLetters
from dynatick.client.ended_batches import reopen_batches
from dynatick.client.if_exists import CREATED, KEPT, IfExists, check_is_task
from dynatick.client.insertion import InsertCounts, InsertResult, count, insert_lazily
from dynatick.client.new_task import Composed, NewTask, TaskRow, compose, payload_of
from dynatick.client.schedules import Schedules
from dynatick.client.task_decisions import PayloadChange, revised
from dynatick.client.task_update import Decide, Unchanged
from dynatick.client.views import BucketCounts, TaskView
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Time
from dynatick.domain.conditional_update import ConditionalUpdate, merge_updates
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.row import RowView
from dynatick.domain.task import TERMINAL, Row
from dynatick.engine.conditional_write import create
from dynatick.errors import (
    ConfigurationError,
    InvalidInput,
    InvalidInputs,
    TaskChanged,
    TaskExists,
    TaskNotFound,
    WaitTimedOut,
    shown,
)
from dynatick.store.codec import decode, encode, with_item
from dynatick.tracing import insert_span

if TYPE_CHECKING:
    from dynatick.client.batches import Batches
    from dynatick.client.operations import Operations

T = TypeVar("T")
_FORMS = ("resource", "client")
FIRST_WAIT, LONGEST_WAIT = 0.5, 5.0  # seconds between two polls


def wait_until(
    poll: Callable[[], T],
    has_ended: Callable[[T], bool],
    *,
    of: str,
    timeout: timedelta | None,
    seconds: Callable[[], float],
    pause: Callable[[float], None],
) -> T:
    """Polls again and again, less often with time, and returns what it saw last. Raises WaitTimedOut."""
    seen = watch(poll, has_ended, timeout=timeout, seconds=seconds, pause=pause)
    if not has_ended(seen):
        raise WaitTimedOut(f"{of} has not ended in time")
    return seen


def watch(
    poll: Callable[[], T],
    has_ended: Callable[[T], bool],
    *,
    timeout: timedelta | None,
    seconds: Callable[[], float],
    pause: Callable[[float], None],
) -> T:
    """The same, but returns what it saw last when the time is up, too."""
    further = waits(timeout=timeout, seconds=seconds)
    while not has_ended(seen := poll()) and (wait := next(further, None)) is not None:
        pause(wait)
    return seen


def waits(*, timeout: timedelta | None, seconds: Callable[[], float]) -> Iterator[float]:
    """The seconds before each further poll, more with time, until the ``timeout`` is over (None: never).

    ``seconds``: a clock, which is read now and at each step.
    """
    return _until(None if timeout is None else seconds() + timeout.total_seconds(), seconds)


def _until(end: float | None, seconds: Callable[[], float]) -> Iterator[float]:
    wait = FIRST_WAIT
    while (left := LONGEST_WAIT if end is None else end - seconds()) > 0:
        yield min(wait, left)
        wait = min(1.5 * wait, LONGEST_WAIT)


class TaskClient(BulkTasks):
    """The tasks of one table: insert, change, read.

    Works on any store; ``TaskClient(MemoryStore())`` is for your own tests. Safe to share between threads. Methods
    raise InvalidInput for invalid arguments, before anything is written, and StoreError if the table does not answer.
    A time is a bucket (``"2026-12-31#12:00"``), RFC 3339 text with its offset, epoch seconds, or an aware datetime.

    ``check_actions``: refuse actions that the processor does not know, payloads that its handlers would refuse,
    timeouts that it can't serve, and limit keys of classes that ``KeyLimits`` does not have.
    ``settings_ttl_seconds``: how long the current settings, which the processor keeps in the table (tick interval,
    actions, their payloads' types), are used before they are read again. ``dead_letter_queue``: for ``dead_letters``.
    ``caller``: who changes tasks, and ``interface``: where it was asked for, in the records of changes of many tasks
    (``operations.changes``); both can be set later, too.
    """

    @property
    def schedules(self) -> Schedules:
        """Recurring schedules."""
        return Schedules(self.store, self._settings_cache, self._clock)

    @property
    def batches(self) -> Batches:
        """Any number of tasks of one action, inserted as one, and one task when all have ended."""
        from dynatick.client.batches import Batches

        return Batches(self.store, self._settings_cache, self._clock, recorded=self._recorded)

    @property
    def operations(self) -> Operations:
        """The installation: its state, ticks and faults, and the pause of everything."""
        from dynatick.client.operations import Operations

        return Operations(self.store, self._settings_cache, self._clock)

    @property
    def dead_letters(self) -> DeadLetters:
        """The messages of tasks that failed for good. Raises ConfigurationError if the client knows no queue."""
        if self.dead_letter_queue is None:
            missing = "it is not set, and no dead-letter queue was named"
            raise ConfigurationError("DYNATICK_DEAD_LETTER_QUEUE_URL", missing)
        from dynatick.client.change_records import new_record

        return DeadLetters(
            self.store,
            self.dead_letter_queue,
            self._decisions,
            self._departures,
            self._clock,
            partial(new_record, self),
        )

    @classmethod
    def connect(
        cls,
        table: str | None = None,
        *,
        dead_letter_queue_url: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        profile: str | None = None,
        batched: bool = True,
        timeout_seconds: float | None = None,
    ) -> TaskClient:
        """A client of a DynamoDB table: the one named, else that of DYNATICK_TABLE.

        ``dead_letter_queue_url``: its dead-letter queue, else that of DYNATICK_DEAD_LETTER_QUEUE_URL.
        What is left out is taken from where the AWS SDK takes it (AWS_REGION, AWS_ENDPOINT_URL, AWS_PROFILE …).
        ``batched`` False: one request per write, for engines without PartiQL. ``timeout_seconds``: how long a call
        waits for a table that does not answer, before it raises StoreError; else DYNATICK_TIMEOUT_SECONDS, else 3. One
        that sends many requests waits as long for each. Raises ConfigurationError; sends nothing. The first request
        takes 0.15 s longer, as it loads the SDK: make one when your application starts, such as ``settings()``.
        """
        settings = ClientSettings.from_env(
            os.environ,
            table=table,
            dead_letter_queue_url=dead_letter_queue_url,
            region=region,
            endpoint_url=endpoint_url,
            profile=profile,
            timeout_seconds=timeout_seconds,
            is_library=True,
        )
        return cls(open_store(settings, batched=batched), dead_letter_queue=open_queue(settings))

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
        subject: str | None = None,
        limit_key: str | None = None,
        attributes: Mapping[str, object] | None = None,
        if_exists: str = "refuse",
        until: timedelta | None = None,
    ) -> TaskView:
        """Inserts a task, and returns it as it was written.

        At most one time. A bucket is rounded up to a tick; a time that has passed means the next tick;
        without a time the installation's policy decides (status ``unscheduled`` until it has). ``payload``: the
        action's arguments. ``timeout_seconds``: the longest that an attempt may take; it does not start with less time
        left. ``subject``: what it is about, such as ``customer:4711``, to find it by; up to 256 bytes, and it can't be
        changed. ``limit_key``: what limits it, such as ``customer:4711``; ``KeyLimits`` says of the class
        ``customer`` how many tasks of a key run at once or begin in a second; up to 256 bytes, and it can't be changed.
        ``attributes``: more attributes of the row, for your own use.
        ``if_exists``: what is done if a task has this id. ``refuse`` raises TaskExists. ``keep`` returns it as it is.
        ``replace``: a waiting task becomes the one given, with its payload, time, retry policy, timeout and
        attributes; action, subject and limit key must be the same. ``postpone``: it is moved to the time given, if that
        is later, at most ``until`` after its first time, and keeps all else. With both, one that has ended begins
        another run as the one given. The ``effect`` of what is returned is created, kept (it had all that already),
        replaced, postponed or restarted. Nothing is written if this raises: TransitionRefused for a task that runs,
        InvalidInput for the id of a schedule or of a batch, TaskExists.
        """
        return self.insert_task(
            NewTask(
                task_id=task_id,
                task_date_time=task_date_time,
                due_at=due_at,
                delay_seconds=delay_seconds,
                action=action,
                payload=payload,
                retry_policy=retry_policy,
                timeout_seconds=timeout_seconds,
                subject=subject,
                limit_key=limit_key,
                attributes={} if attributes is None else attributes,
            ),
            if_exists=if_exists,
            until=until,
        )

    def insert_task(
        self,
        task: NewTask,
        *,
        if_exists: str = "refuse",
        until: timedelta | None = None,
        version: str | None = None,
        idempotency_digest: str | None = None,
        follow_up_of: str | None = None,
    ) -> TaskView:
        """``insert`` of a ``NewTask``. ``version``: that of a ``TaskView``; only if the task is there and has not
        changed since, or TaskChanged is raised. ``idempotency_digest``: identifies a repeated request of the HTTP API.
        ``follow_up_of``: the id of the task whose handler inserts it, which one that is kept must have come from."""
        existing = IfExists.of(if_exists, until, task)
        with insert_span(task.action, task_id=task.task_id):
            own = {attr.IDEMPOTENCY_DIGEST: idempotency_digest, attr.FOLLOW_UP_OF: follow_up_of}
            composed = compose(task, self._settings_cache, now=self._clock(), own=own)
            decide = existing.decision(self._decisions, task, composed)
            while True:  # until no other request is in between: it is created, or found
                if existing.mode != "refuse" and (present := row_of(self.store, task.task_id)) is not None:
                    check_is_task(present)
                    if version is not None:
                        task_update.in_version(present, version)
                    if follow_up_of is not None and present.get(attr.FOLLOW_UP_OF) != follow_up_of:
                        raise TaskExists(task.task_id)
                    changes: list[Row] = []
                    try:
                        if decide is None:
                            raise Unchanged(present)
                        changed = self._change(task.task_id, _noting(decide, changes), version, row=present)
                    except Unchanged as unchanged:
                        return replace(TaskView.from_row(unchanged.row), effect=KEPT)
                    except TaskNotFound:  # it was deleted just now
                        continue
                    return replace(changed, effect=existing.effect_on(changes[-1]))
                if version is not None:
                    raise TaskChanged(task.task_id)
                if create(self.store, composed.row):
                    return replace(TaskView.from_row(composed.row), effect=CREATED)
                if existing.mode == "refuse":
                    raise TaskExists(task.task_id)

    def transact_put(
        self, task: NewTask | TaskRow | Mapping[str, object], *, form: str = "resource"
    ) -> dict[str, dict[str, Any]]:
        """An entry of ``TransactWriteItems`` that inserts a task together with your own data: both, or neither.

        Nothing is written here; the task is checked and its row completed as by ``insert``, and a ``delaySeconds``
        begins now. ``form``: ``resource``, with Python's values, for ``table.meta.client`` of a boto3 resource;
        ``client``, with DynamoDB's types, for ``boto3.client("dynamodb")`` and pynamodb. If a task or schedule has
        this id by then, the transaction is cancelled, with ``ConditionalCheckFailed`` as the reason of this entry.
        """
        if form not in _FORMS:
            raise InvalidInput("form", form, f"expected {' or '.join(_FORMS)}")
        item = encode(self.compose(task).row)
        return {
            "Put": {
                "TableName": self.store.table,
                "Item": item if form == "client" else dict(decode(item)),
                "ConditionExpression": f"attribute_not_exists({attr.TASK_ID})",
            }
        }

    def insert_many(self, tasks: Iterable[NewTask | TaskRow | Mapping[str, object]]) -> InsertCounts:
        """Inserts any number of tasks, in batches, and returns how many were inserted, with the errors of others.

        Maps have the table's names (``taskId``, ``dueAt`` …). An invalid task does not affect the others.
        Raises NoneInserted if none of them is in the table.
        """
        with insert_span(None):
            return count(self.insert_lazily(tasks))

    def insert_lazily(self, tasks: Iterable[NewTask | TaskRow | Mapping[str, object]]) -> Iterator[InsertResult]:
        """Inserts like ``insert_many``, but only as the results are consumed: one result per task, in order. When the
        caller stops, no further batch is sent."""
        return insert_lazily(self.store, tasks, self.compose)

    def insert_rows(self, rows: Iterable[Mapping[str, object]]) -> Iterator[InsertResult]:
        """Inserts rows in the form of put-item, like ``insert_lazily``; a ``scheduleExpression`` makes one a
        schedule."""
        return insert_lazily(self.store, rows, self._compose_row)

    def get(self, task_id: str) -> TaskView:
        """The task, read consistently. Raises TaskNotFound."""
        return TaskView.from_row(self._row(task_id))

    def _row(self, task_id: str) -> Row:
        row = row_of(self.store, task_update.known_id(task_id))
        if row is None:
            raise TaskNotFound(task_id)
        return row

    def wait(
        self,
        task_id: str,
        *,
        timeout: timedelta | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> TaskView:
        """Waits until a task has ended, and returns it: it may have failed. ``timeout``: None waits for ever.

        Reads the row again and again, every five seconds at last. ``pause`` gets the seconds between two reads.
        Raises TaskNotFound, also if it is deleted meanwhile, and WaitTimedOut.
        """
        return wait_until(
            lambda: self.get(task_id),
            lambda task: task.status in TERMINAL,
            of=f"task {shown(task_id)}",
            timeout=timeout,
            seconds=self._seconds,
            pause=pause,
        )

    def wait_for_bucket(
        self,
        bucket: str | Bucket,
        *,
        timeout: timedelta | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> BucketCounts:
        """Waits until every task of a bucket has ended there or gone to another, and returns the counts. With an empty
        bucket it doesn't wait. Raises WaitTimedOut."""
        none = BucketCounts(bucket=str(bucket), counts={})
        return wait_until(
            lambda: next(self.bucket_counts(bucket), none),
            lambda counts: counts.all_ended,
            of=f"bucket {bucket}",
            timeout=timeout,
            seconds=self._seconds,
            pause=pause,
        )

    def _seconds(self) -> float:
        return self._clock().timestamp()

    def cancel(self, task_id: str, *, version: str | None = None) -> TaskView:
        """Cancels a waiting task. ``version``: that of a ``TaskView``; only if the task has not changed since.

        Raises TaskNotFound, TransitionRefused, TaskChanged: nothing was written then.
        """
        return self._change(task_id, self._decisions.cancelled(), version)

    def delete(self, task_id: str, *, version: str | None = None) -> None:
        """Deletes the row of a task that waits or has ended. A running task can't be deleted.

        ``version``: that of a ``TaskView``; only if the task has not changed since.
        Raises TaskNotFound, TransitionRefused, TaskChanged: nothing was deleted then.
        """
        self._settings_cache.current()
        try:
            task_update.delete(self.store, task_id, version, check=partial(note_row, self.store))
        except TaskNotFound:
            if delete_member(self.store, task_id, version) is None:
                task_update.delete(self.store, task_id, version)  # a member may have got a row just now

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
        times = {attr.TASK_DATE_TIME: task_date_time, attr.DUE_AT: due_at, attr.DELAY_SECONDS: delay_seconds}
        return self._change(task_id, self._decisions.rescheduled(task_update.known_id(task_id), times))

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
        """Gives a waiting task another time (one of the three at most), another payload, or both; a failed one another
        payload, with which it can be redriven.

        ``version``: that of a ``TaskView``; only if the task has not changed since.
        Raises TaskNotFound, TransitionRefused, TaskChanged: nothing was written then.
        """
        times = {attr.TASK_DATE_TIME: task_date_time, attr.DUE_AT: due_at, attr.DELAY_SECONDS: delay_seconds}
        has_time = any(value is not None for value in times.values())
        if not has_time and payload is None:
            raise InvalidInput(attr.PAYLOAD, None, f"expected a change: payload, or one of {', '.join(times)}")
        decisions: list[Decide] = []
        known, wrong = task_update.known_id(task_id), InvalidInputs()
        if has_time:
            with wrong:
                decisions.append(self._decisions.rescheduled(known, times))
        check = self._settings_cache.check_payload
        if payload is not None:
            with wrong:
                kept = payload_of(payload)
                decisions.append(lambda row: revised(row, payload=kept, check=check))
                if wrong and (row := self.store.get(known)) and isinstance(action := row.get(attr.ACTION), str):
                    check(action, kept)  # so that every error is reported
        wrong.raise_all()
        self._settings_cache.current()

        def decide(row: Row) -> ConditionalUpdate:
            change = merge_updates(*(decision(row) for decision in decisions))
            with_item({**row, **change.set})
            return change

        return self._change(task_id, decide, version)

    def redrive(
        self,
        task_id: str,
        *,
        payload: Mapping[str, object] | None = None,
        set_fields: Mapping[str, object] | None = None,
        unset_fields: Collection[str] = (),
        dry_run: bool = False,
        version: str | None = None,
    ) -> TaskView:
        """Starts a failed task anew, at the next tick, with its payload or another one.

        ``payload``: a whole one. ``set_fields``, ``unset_fields``: its own, with other values of some fields, and
        without others. ``dry_run``: returns the task as it would be, and changes nothing. ``version``, errors: as for
        ``cancel``; InvalidInput for a payload that its handler would refuse.
        """
        change = PayloadChange.of(payload, set_fields, unset_fields, self._settings_cache.check_payload)
        decide = self._decisions.redriven(change)
        return self._preview(task_id, decide, version) if dry_run else self._change(task_id, decide, version)

    def restore(self, task_id: str, *, version: str | None = None) -> TaskView:
        """Takes a cancellation back: the task waits for its time again; at the next tick, if that has passed.
        ``version``, errors: as for ``cancel``."""
        return self._change(task_id, self._decisions.restored(), version)

    def run_now(self, task_id: str, *, version: str | None = None) -> TaskView:
        """Runs a task at the next tick: a waiting one earlier than planned, an ended one again. ``version``, errors: as
        for ``cancel``."""
        return self._change(task_id, self._decisions.run_at_once(), version)

    def complete(self, token: str, result: object = None) -> TaskView:
        """Completes the task whose handler returned ``CompleteLater``, with a result that JSON can hold. ``token``: its
        ``context.completion_token``, which is a secret.

        The same again changes nothing. Raises CompletionRefused if its attempt is over: it was cancelled, has failed,
        or is attempted again.
        """
        return TaskView.from_row(self._completions.complete(token, result))

    def fail(self, token: str, error: str, *, retry: bool = False) -> TaskView:
        """Fails the attempt of a task whose handler returned ``CompleteLater``. ``retry``: it is attempted again by its
        policy; else it has failed once the next tick has sent its dead letter. Waits up to ten seconds for a handler
        that has not returned yet. Raises as ``complete``."""
        return TaskView.from_row(self._completions.fail(token, error, retry=retry))

    def heartbeat(self, token: str) -> TaskView:
        """Says that the work on a task goes on: its deadline for the next heartbeat begins anew. Raises as
        ``complete``: so a cancellation is heard where the work is done."""
        return TaskView.from_row(self._completions.heartbeat(token))

    @property
    def _completions(self) -> Completions:
        return Completions(
            self.store,
            self._settings_cache,
            self._clock,
            waits=lambda timeout: waits(timeout=timeout, seconds=self._seconds),
            pause=time.sleep,
            jitter=random.random,
        )

    def compose(self, task: object) -> Composed:
        """A new task's row, from a NewTask or from a row as put-item takes it. Raises InvalidInput."""
        if isinstance(task, Mapping):
            task = NewTask.from_row(task)
        if not isinstance(task, NewTask):
            raise InvalidInput("task", task, "expected a NewTask, or a map with taskId")
        return compose(task, self._settings_cache, now=self._clock())

    def _compose_row(self, row: object) -> Composed:
        if isinstance(row, Mapping) and RowView(row).has_expression:
            return self.schedules.compose(row)
        return self.compose(row)

    def _preview(self, task_id: str, decide: Decide, version: str | None) -> TaskView:
        row = self._row(task_id)
        change = task_update.only_in(version, decide)(row)
        return TaskView.from_row(change.applied_to(row))

    def _change(
        self,
        task_id: str,
        decide: Decide,
        version: str | None = None,
        *,
        row: Row | None = None,
    ) -> TaskView:
        departures = self._departures()
        decide = self._reopening(departures.noting(task_update.only_in(version, decide)))
        try:
            row = task_update.carry_out(self.store, task_id, decide, row=row)
        except TaskNotFound:
            member = change_member(self.store, task_id, decide)
            # It may have got a row just now.
            row = task_update.carry_out(self.store, task_id, decide) if member is None else member
        departures.count(task_id)
        departures.write()
        return TaskView.from_row(row)

    def _reopening(self, decide: Decide) -> Decide:
        """``decide``, with the batch of a member that is started anew before the write."""

        def decided(row: Row) -> ConditionalUpdate:
            change = decide(row)
            reopen_batches(self.store, self._decisions, [(row, change)])
            return change

        return decided


def _noting(decide: Decide, rows: list[Row]) -> Decide:
    """``decide``, noting each row that it gets: the change that was written was made of the last."""

    def decide_and_note(row: Row) -> ConditionalUpdate:
        rows.append(row)
        return decide(row)

    return decide_and_note
