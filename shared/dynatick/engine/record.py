"""Records the outcomes of attempts in batches, each on condition of its claim's token (protocol 12).

What fails for good is recorded in two steps, since its letter comes first, and nothing that claims and records need may
wait for the dead-letter queue: ``record`` returns it as a Failure, and ``fail`` writes it once its letter was sent.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

from dynatick.domain import attributes as attr
from dynatick.domain.batches import BATCH_ACTION
from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of
from dynatick.domain.completion import CompleteLater
from dynatick.domain.conditional_update import ConditionalUpdate, Lost, Result, Unknown, Written
from dynatick.domain.instants import parse_instant
from dynatick.domain.lifecycle import (
    complete,
    defer_claimed,
    defer_failure,
    fail,
    fail_unexecuted,
    lose,
    reschedule_claimed,
    retry,
    wait,
)
from dynatick.domain.normalise import without_large_values
from dynatick.domain.packs import OF_BATCH, MemberRow, is_row_of_member
from dynatick.domain.retry import GiveUp, decide_retry, decide_turn, deferral
from dynatick.domain.row import Due, RowView, due_of, is_terminal
from dynatick.domain.task import Row, Task
from dynatick.engine.conditional_write import create_many, transact, write, write_many
from dynatick.engine.counts import RecordResult
from dynatick.engine.orders import AnyWakeUp, wake_ups_of
from dynatick.engine.placement import Placer, rejection_text
from dynatick.engine.ports import Cancelled, DeadLetter, Store, StoreFailure
from dynatick.engine.rules import SKEW_MARGIN, Precision, Rules
from dynatick.engine.settings import InstallationSettings
from dynatick.errors import StoreError

# -- lateness ----------------------------------------------------------------------------------------------------------

WOKEN_LATE_AFTER = timedelta(seconds=5)
"""A wake-up comes within a second or two of its instant, also if its process is a new one."""

_MILLISECOND = timedelta(milliseconds=1)


def due_since(task: Task) -> datetime:
    """Returns since when a claimed task has been due: since its insert, if that came after its due time."""
    if task.next_attempt_at is not None:
        return task.next_attempt_at
    if task.schedule_id is not None:  # a flexible window may have moved its bucket, and only a tick runs it
        return task.bucket.instant
    return max(task.due_at, task.created_at or task.due_at)


def lateness_of(task: Task, started_at: datetime, rules: Rules, grid: Grid) -> int:
    """Milliseconds from the instant at which an attempt was due to its start; with Precision.TICK, from the first tick
    at or after that instant."""
    due = due_since(task)
    if rules.precision is Precision.TICK:
        due = instant_of(grid.tick_at_or_after(due))
    return max(0, milliseconds(started_at - due))


def is_woken_late(task: Task, began: datetime, rules: Rules) -> bool:
    """Whether a claimed task was due long before the invocation that claimed it began: an earlier wake-up should have
    run it. Tasks of a limited action, and occurrences, are begun by ticks alone; those with a limit key may have waited
    for their turns."""
    if rules.precision is Precision.TICK or task.action in rules.limited_actions or task.limit_key is not None:
        return False
    is_occurrence = task.schedule_id is not None and task.next_attempt_at is None
    return not is_occurrence and began - due_since(task) > WOKEN_LATE_AFTER


def milliseconds(delta: timedelta) -> int:
    return delta // _MILLISECOND


# -- record ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    """The action returned. ``also``: further attributes to set; of a pack, which of its members have ended. ``items``:
    what is to be written in the transaction that records it."""

    result: object = None
    items: Sequence[Mapping[str, object]] = ()
    also: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Error:
    """The action raised. ``retry_after``: seconds, as the target asked for. ``trace``: where, in a few lines.
    ``is_lost``: it may have killed an earlier process, so what is left of its attempts is a recovery's (10)."""

    text: str
    permanent: bool = False
    retry_after: float | None = None
    trace: str | None = None
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class Deferred:
    """The action was not begun: a rate limit allows it after ``seconds``. ``also``: further attributes to set; of a
    pack, which of its members have ended. ``tasks``: how many of them have not begun."""

    seconds: float
    also: Mapping[str, object] = field(default_factory=dict)
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """The handler asked for a further turn after ``seconds``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Handed:
    """The handler has handed the task over, to be completed later. ``also``: further attributes to set."""

    how: CompleteLater
    also: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unclear:
    """How it ended isn't known: it still runs as its process ends, or could not be recorded. So its row says that
    it runs, until the lease of its claim is over."""


@dataclass(frozen=True, slots=True)
class Overrun:
    """An attempt that took longer than its ``timeoutSeconds``, or that still runs although it should have ended."""

    task: Task
    timeout_seconds: int
    seconds: float  # since it began


@dataclass(frozen=True, slots=True)
class Attempted:
    """One attempt that has ended."""

    task: Task
    row: Row  # as it was claimed
    outcome: Done | Error | Deferred | Rescheduled | Handed | Unclear
    started_at: datetime
    overrun: Overrun | None = None
    ended_at: datetime | None = None  # None: no action was begun


def age_counts_from(task: Task, started_at: datetime) -> datetime:
    """The instant that the policy's maximum age counts from. The task of a batch takes as long as its members do: only
    the attempts of one of its turns have an age. ``started_at``: of its present attempt."""
    if task.action == BATCH_ACTION:
        return started_at
    return task.first_started_at or started_at


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A row that is to be marked failed as soon as the dead-letter queue has taken its letter.

    ``attempt``: the last one; 0 if there was none. ``is_rejection``: the row was not claimed, since it is no task in
    its bucket. Until the queue takes its letter, it stays as it is.
    """

    row: Row  # as it was claimed or read
    attempt: int
    error: str
    change: ConditionalUpdate
    is_rejection: bool = False

    @classmethod
    def of_rejection(cls, row: Row, change: ConditionalUpdate) -> Failure:
        """The failure of a row that ``change`` rejects."""
        return cls(row=row, attempt=0, error=rejection_text(change), change=change, is_rejection=True)

    def letter(self) -> DeadLetter:
        """The letter, which says the same instant as the row will."""
        failed_at = parse_instant(self.change.set[attr.FINISHED_AT], attr.FINISHED_AT)
        return DeadLetter(row=self.row, attempt=self.attempt, error=self.error, failed_at=failed_at)


@dataclass(frozen=True, slots=True)
class _Record:
    """A write, and the result that it leads to. ``row``: as it was claimed."""

    change: ConditionalUpdate
    wanted: RecordResult
    row: Row


_WOKEN = (RecordResult.RETRIED, RecordResult.RESCHEDULED)
_WAITING = (*_WOKEN, RecordResult.RELEASED)
_MOVED = (*_WAITING, RecordResult.WAITING, RecordResult.DEFERRED)
_Recorded = TypeVar("_Recorded", bound="RecordResult | Failure")


@dataclass(slots=True)
class Recorder:
    """Writes the records of ended attempts."""

    store: Store
    rules: Rules
    settings: InstallationSettings
    clock: Callable[[], datetime]
    placer: Placer
    keep_fault: Callable[[Exception], None]  # why the moves of a batch could not be checked
    jitter: Callable[[], float] = random.random
    send_wake_ups: Callable[[Sequence[AnyWakeUp]], None] | None = None  # of retries and further turns

    def record(self, attempts: Sequence[Attempted]) -> Sequence[RecordResult | Failure]:
        """One result for each attempt, in order. A Failure is not recorded yet: its letter comes first, so that none is
        missing. What handlers commit is written last, each in a transaction of its own: it holds up no other record."""
        results = dict[int, RecordResult | Failure]()
        commits = {n: one for n, one in enumerate(attempts) if isinstance(one.outcome, Done) and one.outcome.items}
        others = {n: one for n, one in enumerate(attempts) if n not in commits}
        results.update(zip(others, self._record(list(others.values())), strict=True))
        failed = dict[int, Attempted]()
        for n, attempt in commits.items():
            outcome = self._commit(attempt)
            if isinstance(outcome, Error):
                failed[n] = replace(attempt, outcome=outcome)
            else:
                results[n] = outcome
        results.update(zip(failed, self._record(list(failed.values())), strict=True))
        return [results[n] for n in range(len(attempts))]

    def _record(self, attempts: Sequence[Attempted]) -> Sequence[RecordResult | Failure]:
        if not attempts:
            return ()
        now = self.clock()
        planned = [self._planned(attempt, now) for attempt in attempts]
        results: list[RecordResult | Failure] = [
            Failure(
                row=attempt.row,
                attempt=attempt.task.attempt,
                error=str(change.set[attr.ERROR]),
                change=change,
            )
            if result is RecordResult.FAILED
            else result
            for attempt, (change, result) in zip(attempts, planned, strict=True)
        ]
        recorded = [n for n, result in enumerate(results) if not isinstance(result, Failure)]
        written = self._carry_out([_Record(*planned[n], attempts[n].row) for n in recorded])
        for n, found in zip(recorded, written, strict=True):
            results[n] = self._without_row(attempts[n], now) if _has_no_row(found, attempts[n].row) else found
        if (checked := self._check_moves(planned)) is None:
            return [_unchecked(result, attempt.row) for result, attempt in zip(results, attempts, strict=True)]
        self._wake(
            [(change, attempt.task) for (change, _), result, attempt in zip(planned, results, attempts, strict=True)
             if result in _WOKEN and attempt.task.action not in self.rules.limited_actions],
            *checked,
        )  # fmt: skip
        return results

    def fail(self, failures: Sequence[Failure], taken: Sequence[bool]) -> Sequence[RecordResult]:
        """Marks rows failed of which the queue has ``taken`` the letter, and defers the others to a later tick. One
        result for each, in order."""
        now = self.clock()
        planned = [
            _Record(failure.change, RecordResult.FAILED, failure.row)
            if is_taken
            else _Record(self._deferral(failure, now), RecordResult.DEFERRED, failure.row)
            for failure, is_taken in zip(failures, taken, strict=True)
        ]
        results = [RecordResult.UNRECORDED] * len(failures)
        claimed = [n for n, failure in enumerate(failures) if not failure.is_rejection]
        for n, result in zip(claimed, self._carry_out([planned[n] for n in claimed]), strict=True):
            if _has_no_row(result, failures[n].row):  # then its letter is the record
                result = RecordResult.FAILED if taken[n] else RecordResult.UNRECORDED
            results[n] = result
        for n, failure in enumerate(failures):
            if failure.is_rejection and taken[n]:
                results[n] = _unread(self.placer.write(failure.row, failure.change), RecordResult.FAILED)
        if self._check_moves((record.change, record.wanted) for record in planned) is None:
            return [_unchecked(result, failure.row) for result, failure in zip(results, failures, strict=True)]
        return results

    def failure_of(self, row: Row, error: str, *, attempt: int = 0) -> Failure:
        """The failure of a running row that was not executed, on condition of the lease in ``row``."""
        change = fail_unexecuted(row, now=self.clock(), retention_days=self.rules.retention_days, error=error)
        return Failure(row=row, attempt=attempt, error=error, change=change)

    def _commit(self, attempt: Attempted) -> RecordResult | Error:
        """Completes a task in one transaction with what its handler returned. An Error: that had no effect, and the
        attempt has failed."""
        change, wanted = self._planned(attempt, self.clock())
        row = attempt.row
        assert isinstance(attempt.outcome, Done)
        result = self._transact(change, row, attempt.outcome.items)
        if isinstance(result, Unknown) and result.too_large:
            result = self._transact(_shrunk(change), row, attempt.outcome.items)
        if isinstance(result, Cancelled) or (isinstance(result, Unknown) and result.too_large):
            return Error(f"nothing of its Commit was written: {result.error}", permanent=_is_final(result))
        if isinstance(row, MemberRow) and isinstance(result, Lost) and not _is_extracted(row, result.present):
            return Error("nothing of its Commit was written: another task has its id", permanent=True)
        return _result_of(result, _Record(change, wanted, row))

    def _transact(
        self, change: ConditionalUpdate, row: Row, items: Sequence[Mapping[str, object]]
    ) -> Result | Cancelled:
        token = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{RowView(row).lease} {sorted(change.set)}"))
        if isinstance(row, MemberRow):  # it gets a row of its own (20)
            return transact(self.store, None, change.applied_to(row), items, made_by=change, token=token)
        return transact(self.store, change, None, items, made_by=change, token=token)

    def _without_row(self, attempt: Attempted, now: datetime) -> Failure:
        """The failure of a member that would be attempted again, if there could be a row of its own for that."""
        error = "it can have no row of its own for another attempt: a task with its id is there, or it is too large"
        if isinstance(attempt.outcome, Error):
            error = f"{error}; its attempt failed: {attempt.outcome.text}"
        change = fail(attempt.task, now=now, retention_days=self.rules.retention_days, error=error)
        return Failure(row=attempt.row, attempt=attempt.task.attempt, error=str(change.set[attr.ERROR]), change=change)

    def _carry_out(self, planned: Sequence[_Record]) -> Sequence[RecordResult]:
        """Writes records. Returns their results."""
        writes = self._write([(record.change, record.row) for record in planned])
        return [_result_of(written, record) for written, record in zip(writes, planned, strict=True)]

    def _planned(self, attempt: Attempted, now: datetime) -> tuple[ConditionalUpdate, RecordResult]:
        change, result = self._plan(attempt, now)
        return self._with_lateness(change, attempt), result

    def _plan(self, attempt: Attempted, now: datetime) -> tuple[ConditionalUpdate, RecordResult]:
        task, days = attempt.task, self.rules.retention_days
        if isinstance(attempt.outcome, Done):
            change = complete(task, now=now, retention_days=days, result=attempt.outcome.result)
            if attempt.outcome.also:
                change = replace(change, set={**change.set, **attempt.outcome.also})
            return change, RecordResult.COMPLETED
        if isinstance(attempt.outcome, Deferred):
            # Into the tick before the limit allows it: the task waits there, instead of until the tick after.
            at = now + timedelta(seconds=attempt.outcome.seconds)
            bucket = self._open_bucket(task.shard_key, at - timedelta(minutes=self.settings.grid.tick_minutes))
            change = defer_claimed(task, at=at, bucket=bucket)
            return replace(change, set={**change.set, **attempt.outcome.also}), RecordResult.RELEASED
        if isinstance(attempt.outcome, Rescheduled):
            return self._plan_turn(attempt, attempt.outcome.seconds, now)
        if isinstance(attempt.outcome, Handed):
            how = attempt.outcome.how
            complete_by = now + how.within
            until = complete_by if how.heartbeat is None else now + how.heartbeat
            bucket = self._open_bucket(task.shard_key, until + SKEW_MARGIN)  # its tick finds the lease over
            change = wait(task, until=until, complete_by=complete_by, heartbeat=how.heartbeat, bucket=bucket)
            return replace(change, set={**change.set, **attempt.outcome.also}), RecordResult.WAITING
        if isinstance(attempt.outcome, Unclear):
            until = RowView(attempt.row).lease_until or now
            bucket = self._open_bucket(task.shard_key, until + SKEW_MARGIN)  # its tick finds the lease over
            return lose(task, until=until, bucket=bucket), RecordResult.RETRIED
        error, trace = attempt.outcome.text, attempt.outcome.trace
        decision = decide_retry(
            task.retry_policy,
            attempt=task.attempt,
            first_started_at=age_counts_from(task, attempt.started_at),
            now=now,
            permanent=attempt.outcome.permanent,
            retry_after=attempt.outcome.retry_after,
            jitter=self.jitter(),
        )
        if isinstance(decision, GiveUp):
            return fail(task, now=now, retention_days=days, error=error, trace=trace), RecordResult.FAILED
        if attempt.outcome.is_lost:
            until = attempt.started_at - SKEW_MARGIN  # when its pack was claimed, the lease before was over
            return lose(task, until=until, bucket=self._open_bucket(task.shard_key, now)), RecordResult.RETRIED
        bucket = self._open_bucket(task.shard_key, decision.at)
        return retry(task, now=now, at=decision.at, bucket=bucket, error=error, trace=trace), RecordResult.RETRIED

    def _with_lateness(self, change: ConditionalUpdate, attempt: Attempted) -> ConditionalUpdate:
        """Adds to a record how late the task began, if no earlier attempt of the run did. These writes change its entry
        in the index anyway, so it costs nothing."""
        if attr.LATE_MILLISECONDS in attempt.row or isinstance(attempt.outcome, Deferred):
            return change
        late = lateness_of(attempt.task, attempt.started_at, self.rules, self.settings.grid)
        return replace(change, set={**change.set, attr.LATE_MILLISECONDS: late})

    def _plan_turn(self, attempt: Attempted, seconds: float, now: datetime) -> tuple[ConditionalUpdate, RecordResult]:
        task = attempt.task
        decision = decide_turn(
            task.retry_policy,
            turn=task.turn + 1,
            max_turns=None if task.action == BATCH_ACTION else self.rules.max_turns,
            after=seconds,
            first_started_at=age_counts_from(task, attempt.started_at),
            now=now,
        )
        if isinstance(decision, GiveUp):
            failure = fail(task, now=now, retention_days=self.rules.retention_days, error=decision.reason)
            return failure, RecordResult.FAILED
        bucket = self._open_bucket(task.shard_key, decision.at)
        first = task.first_started_at or attempt.started_at
        change = reschedule_claimed(task, at=decision.at, bucket=bucket, first_started_at=first)
        return change, RecordResult.RESCHEDULED

    def _check_moves(
        self, planned: Iterable[tuple[ConditionalUpdate, RecordResult]]
    ) -> tuple[Mapping[str, Bucket], Mapping[int, int]] | None:
        """``Placer.check_moves``, once they are written. One whose answer was lost may have taken effect, too. None: it
        failed."""
        moves = {change.task_id: Bucket.parse(change.set[attr.TASK_DATE_TIME])
                 for change, result in planned if result in _MOVED}  # fmt: skip
        try:
            return self.placer.check_moves(moves)
        except Exception as error:  # what is written is known all the same
            self.keep_fault(error)
            return None

    def _wake(
        self,
        changes: Sequence[tuple[ConditionalUpdate, Task]],
        placed: Mapping[str, Bucket],
        closed: Mapping[int, int],
    ) -> None:
        """Sends the wake-ups of retries and further turns, if their buckets were planned before (19).

        ``placed``: the buckets of those that were placed again. ``closed``: the closed watermarks of their shards.
        """
        if self.send_wake_ups is None or not changes:
            return
        passed, tasks = minute_of(self.clock()), list[tuple[Bucket, Due | datetime]]()
        for change, task in changes:
            due = due_of(change.task_id, None, change.set.get(attr.NEXT_ATTEMPT_AT))
            bucket = placed.get(change.task_id) or Bucket.parse(change.set[attr.TASK_DATE_TIME])
            if due is not None and self.rules.is_planned(bucket.minute, closed.get(bucket.shard, passed)):
                tasks.append((bucket, due.at if self.rules.is_limited(task.limit_key) else due))
        self.send_wake_ups(list(wake_ups_of(tasks, threads=self.rules.threads)))

    def _open_bucket(self, shard_key: str, at: datetime) -> Bucket:
        """The bucket of an instant, or the next tick's by this clock: those before it are closed. Whether that one
        is too is checked once it is written."""
        grid = self.settings.grid
        bucket = grid.bucket_of(shard_key, at)
        return bucket._replace(minute=max(bucket.minute, grid.tick_after(minute_of(self.clock()))))

    def _deferral(self, failure: Failure, now: datetime) -> ConditionalUpdate:
        """Defers a failure whose message the queue did not take, each time longer: it may refuse for days."""
        view = RowView(failure.row)
        bucket = self._open_bucket(view.shard_key, now + deferral(view.deferrals))
        change = defer_failure(failure.row, bucket, now=now, error=failure.error)
        late = {name: value for name, value in failure.change.set.items() if name == attr.LATE_MILLISECONDS}
        return replace(change, set={**change.set, **late})

    def _write(self, records: Sequence[tuple[ConditionalUpdate, Row]]) -> Sequence[Result]:
        """Writes changes, each given with its row as claimed. One that did not take effect for want of an answer is
        written again; one that is too large, without its payload or result. A member gets its row (20)."""
        of_rows = iter(write_many(self.store, [change for change, row in records if not isinstance(row, MemberRow)]))
        extracted = iter(self._extract([record for record in records if isinstance(record[1], MemberRow)]))
        results = [next(extracted if isinstance(row, MemberRow) else of_rows) for _, row in records]
        for n, result in enumerate(results):
            if isinstance(result, Unknown) and not isinstance(records[n][1], MemberRow):
                change, row = records[n]
                change = _shrunk(change) if result.too_large else change
                results[n] = write(self.store, change)
                if isinstance(again := results[n], Unknown) and again.too_large and attr.OUTCOME in change.set:
                    results[n] = write(self.store, without_large_values(change, row))
        return results

    def _extract(self, records: Sequence[tuple[ConditionalUpdate, Row]]) -> Sequence[Result]:
        """Creates the rows of members, as the changes leave them. One that has a row already was extracted before.

        Lost: another task has its id, or its row is too large, and has not ended.
        """
        rows = [change.applied_to(row) for change, row in records]
        answers = list(create_many(self.store, rows))
        again: list[int] = []
        for n, (answer, (change, row)) in enumerate(zip(answers, records, strict=True)):
            if isinstance(answer, StoreFailure) and (not answer.too_large or attr.OUTCOME in change.set):
                again.append(n)
                rows[n] = without_large_values(change, row).applied_to(row) if answer.too_large else rows[n]
        for n, answer in zip(again, create_many(self.store, [rows[n] for n in again]), strict=True):
            answers[n] = answer
        there = [str(rows[n][attr.TASK_ID]) for n, answer in enumerate(answers) if answer is False]
        try:
            present = self.store.get_many(there, only=OF_BATCH) if there else {}
        except StoreError as error:
            answers = [StoreFailure(str(error)) if answer is False else answer for answer in answers]
        return [_extracted(answer, row, present) for answer, row in zip(answers, rows, strict=True)]


def _extracted(answer: bool | StoreFailure, row: Row, present: Mapping[str, Row]) -> Result:
    """The result of a member's creation. ``present``: the rows that were there, with what tells whose they are."""
    if isinstance(answer, StoreFailure):
        return Lost() if answer.too_large else Unknown(answer.error)
    other = present.get(str(row[attr.TASK_ID]))
    return Written() if answer or _is_extracted(row, other) else Lost(other)


def _is_extracted(row: Row, present: Row | None) -> bool:
    """Whether the row with a member's id is its own; None: it was deleted since."""
    return present is None or is_row_of_member(present, row[attr.BATCH_ID], row.get(attr.CREATED_AT))


def _is_final(result: Cancelled | Unknown) -> bool:
    return not isinstance(result, Cancelled) or result.permanent


def _has_no_row(result: RecordResult, row: Row) -> bool:
    return result is RecordResult.SUPERSEDED and isinstance(row, MemberRow)


def _result_of(result: Result, record: _Record) -> RecordResult:
    """The result of a record, by that of its write."""
    if isinstance(result, Written):
        return record.wanted
    if isinstance(result, Unknown) and not result.was_read:
        return RecordResult.UNRECORDED
    if result.present is None or is_terminal(result.present):
        return RecordResult.SUPERSEDED
    view = RowView(result.present)
    # Another process runs it, so the drained watermark must wait; or another task has taken its place.
    is_open = view.is_running or view.lease == RowView(record.row).lease
    return RecordResult.UNRECORDED if is_open else RecordResult.SUPERSEDED


def _unread(write: Result, wanted: RecordResult) -> RecordResult:
    """The result of a write by its answer alone."""
    if isinstance(write, Written):
        return wanted
    return RecordResult.SUPERSEDED if isinstance(write, Lost) else RecordResult.UNRECORDED


def _unchecked(result: _Recorded, row: Row) -> _Recorded | RecordResult:
    """The result of a record after the moves of its batch could not be checked (7). One that has moved its task holds
    back the bucket that this has left, and so all later ones: they are polled again. A member keeps its result, since
    it has its row: else its whole pack would be given up."""
    return RecordResult.UNRECORDED if result in _MOVED and not isinstance(row, MemberRow) else result


def _shrunk(change: ConditionalUpdate) -> ConditionalUpdate:
    """The same write without result and attempts."""
    return replace(
        change, set={name: value for name, value in change.set.items() if name not in (attr.RESULT, attr.ATTEMPTS)}
    )
