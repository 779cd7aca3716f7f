"""The life of a task: one table of transitions, and each transition as one conditional update.

The numbers in brackets are the rules of the protocol (docs/protocol.md). Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Absent, AtLeast, Condition, ConditionalUpdate, Is, Plus, as_read
from dynatick.domain.instants import format_instant, up_to_millisecond
from dynatick.domain.row import RELEASED, RowView, is_terminal
from dynatick.domain.task import RESERVED_ACTIONS, UNSCHEDULED, LargeRow, Row, Status, Task
from dynatick.errors import shown


@dataclass(frozen=True, slots=True)
class Transition:
    """A step of a task's life, and what makes it: a function of this module, or a request of the client."""

    reason: str
    by: tuple[str, ...] = ()


TRANSITIONS: Final[Mapping[str, Mapping[str, Transition]]] = {
    UNSCHEDULED: {
        Status.SCHEDULED: Transition("normalised: its bucket was set or rounded and the defaults filled in",
                                     ("reschedule", "replace", "postpone", "run")),
        Status.FAILED: Transition("it cannot be understood"),
        Status.CANCELLED: Transition("cancelled before the scheduler function had seen it", ("cancel",)),
        UNSCHEDULED: Transition("it cannot be understood, and waits until the dead-letter queue takes its message",
                                ("change",)),
    },
    Status.SCHEDULED: {
        Status.RUNNING: Transition("claimed by a processor", ("claim",)),
        Status.SCHEDULED: Transition("rescheduled, or moved on because its bucket was closed already",
                                     ("reschedule", "change", "replace", "postpone", "run")),
        Status.CANCELLED: Transition("cancelled", ("cancel",)),
        Status.FAILED: Transition("it was changed by hand, and can no longer be understood"),
    },
    Status.RUNNING: {
        Status.COMPLETED: Transition("its action returned", ("complete",)),
        Status.FAILED: Transition("a permanent error, or all attempts used up", ("fail",)),
        Status.SCHEDULED: Transition("a retry, a further turn, deferred until its rate limit allows it; or rescheduled "
                                     "after it was released", ("retry",)),
        Status.RUNNING: Transition("reclaimed after its lease expired, or released without being begun",
                                   ("reclaim", "release")),
        Status.CANCELLED: Transition("cancelled after it was released"),
        Status.WAITING: Transition("its handler has handed it over, to be completed later", ("wait",)),
    },
    Status.WAITING: {
        Status.COMPLETED: Transition("completed by its token", ("completion",)),
        Status.SCHEDULED: Transition("failed by its token, and retried", ("completion",)),
        Status.WAITING: Transition("a heartbeat; or failed by its token for good, until a tick has sent its letter",
                                   ("completion",)),
        Status.RUNNING: Transition("no completion or heartbeat came in time, and it is attempted again"),
        Status.FAILED: Transition("failed by its token; or nothing came in time, and all attempts are used up"),
        Status.CANCELLED: Transition("cancelled", ("cancel",)),
    },
    Status.COMPLETED: {Status.SCHEDULED: Transition("run again", ("run", "replace", "postpone"))},
    Status.FAILED: {
        Status.SCHEDULED: Transition("redriven", ("redrive", "run", "replace", "postpone")),
        Status.FAILED: Transition("given another payload, with which it can be redriven", ("change",)),
    },
    Status.CANCELLED: {
        Status.SCHEDULED: Transition("restored, or run at the next tick", ("restore", "run", "replace", "postpone")),
        UNSCHEDULED: Transition("restored, if the scheduler function had not seen it", ("restore",)),
    },
}  # fmt: skip
"""From each state to each that may follow. The conditions below and the client's refusals are derived from it; but a
running task that was released waits, and is changed by requests as a scheduled one."""


def may_follow(before: str, after: str) -> bool:
    """Whether the table has this transition."""
    return after in TRANSITIONS.get(before, {})


def states_before(by: str) -> tuple[str, ...]:
    """The states that a task may be in for this function or request."""
    return tuple(str(before) for before, steps in TRANSITIONS.items() if any(by in step.by for step in steps.values()))


def _status_before(by: str) -> Is:
    """The condition for a transition that leaves one state only."""
    (state,) = states_before(by)
    return Is(attr.STATUS, state)


MAX_ERROR_CHARACTERS = 300
MAX_ATTEMPTS_KEPT = 10

_CLAIMABLE: Final = (_status_before("claim"),)
_RECLAIMABLE: Final = (_status_before("reclaim"), Is(attr.LEASE_UNTIL, RELEASED))
_CLAIMED: Final = {by: _status_before(by) for by in ("complete", "fail", "retry", "release", "wait")}
_NORMALISED_AND_OPEN: Final = (AtLeast(attr.ATTEMPT, 0), Absent(attr.OUTCOME))
_ONE_MORE: Final = Plus(1)
_OF_WAITING: Final = (attr.COMPLETE_BY, attr.HEARTBEAT_SECONDS, attr.RETURNS_TO)
_OF_RUN: Final = (
    attr.OUTCOME, attr.FINISHED_AT, attr.EXPIRES_AT, attr.ERROR, attr.RESULT, attr.FOLLOW_UPS, attr.LEASE,
    attr.LEASE_UNTIL, attr.DELAY_SECONDS, attr.DEFERRALS, attr.NEXT_ATTEMPT_AT, attr.TURN, attr.FIRST_STARTED_AT,
    attr.LATE_MILLISECONDS, attr.FIRST_DUE_AT,
)  # fmt: skip
_OF_CLAIM: Final = (attr.OUTCOME, attr.STATUS, attr.LEASE, attr.LEASE_UNTIL)


def short(error: str) -> str:
    """An error as the row and the index keep it: one line of limited length, without control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in error).split())
    return line if len(line) <= MAX_ERROR_CHARACTERS else line[: MAX_ERROR_CHARACTERS - 1] + "…"


def terminal(status: Status, now: datetime, retention_days: int, error: str | None = None) -> dict[str, object]:
    """The attributes of a task that has ended. Only such a task has an ``outcome``."""
    values: dict[str, object] = {
        attr.STATUS: str(status),
        attr.OUTCOME: str(status),
        attr.FINISHED_AT: format_instant(now),
        attr.EXPIRES_AT: int((now + timedelta(days=retention_days)).timestamp()),
    }
    if error is not None:
        values[attr.ERROR] = short(error)
    return values


def claim(
    task_id: str,
    bucket: Bucket,
    *,
    token: str,
    lease_until: datetime,
    now: datetime,
    released: bool = False,
    due: tuple[Condition, ...] = (),
) -> ConditionalUpdate:
    """scheduled → running (9). The attempt is counted here, so a poison task runs out of attempts (10).

    ``released``: from running instead, for a row that was released. ``due``: further conditions, of a claim outside a
    pass (18).
    """
    state = _RECLAIMABLE if released else _CLAIMABLE
    return ConditionalUpdate(
        task_id=task_id,
        set=_running(token, lease_until, now, attempt=_ONE_MORE),
        conditions=(*state, Is(attr.TASK_DATE_TIME, str(bucket)), *_NORMALISED_AND_OPEN, *due),
        returning=True,
        mark=_claimed(token),
    )


def _running(token: str, lease_until: datetime, now: datetime, *, attempt: int | Plus) -> dict[str, object]:
    """The attributes that a claim sets."""
    return {
        attr.STATUS: str(Status.RUNNING),
        attr.LEASE: token,
        attr.LEASE_UNTIL: format_instant(lease_until),
        attr.STARTED_AT: format_instant(now),
        attr.ATTEMPT: attempt,
    }


def started(row: Row, *, token: str, lease_until: datetime, now: datetime) -> Row:
    """A new task's row as ``claim`` would leave it: one write creates and claims it."""
    values = _running(token, lease_until, now, attempt=1)
    return row.changed(values) if isinstance(row, LargeRow) else {**row, **values}


def reclaim(row: Row, *, attempt: int, token: str, lease_until: datetime, now: datetime) -> ConditionalUpdate:
    """running → running, after the lease in ``row`` has expired (10). ``attempt``: the number of the new attempt."""
    error = overdue(row) or "its lease expired: its process died, or did not finish in time"
    lost = {**_attempt_entry(row, now), attr.ERROR: error}
    return ConditionalUpdate(
        task_id=RowView(row).task_id,
        set={
            **_running(token, lease_until, now, attempt=attempt),
            attr.ATTEMPTS: _bounded(row.get(attr.ATTEMPTS), lost),
        },
        remove=_present(_OF_WAITING, row),
        conditions=as_read(row, *_OF_CLAIM, attr.TASK_DATE_TIME),
        returning=True,
        mark=_claimed(token),
    )


def overdue(row: Row) -> str | None:
    """What did not come in time, of a task that waits for a completion; None for any other."""
    view = RowView(row)
    if not view.awaits_completion:
        return None
    until, complete_by = view.lease_until, row.get(attr.COMPLETE_BY)
    if until is None or complete_by == format_instant(until) or attr.HEARTBEAT_SECONDS not in row:
        return f"no completion came by {complete_by}"
    return f"no heartbeat came by {format_instant(until)}"


def complete(task: Task, *, now: datetime, retention_days: int, result: object = None) -> ConditionalUpdate:
    """running → completed, on the claim's token (12)."""
    values = terminal(Status.COMPLETED, now, retention_days)
    if result is not None:
        values[attr.RESULT] = result
    return _end(task, values, "complete")


def fail(task: Task, *, now: datetime, retention_days: int, error: str, trace: str | None = None) -> ConditionalUpdate:
    """running → failed, on the claim's token (12). ``trace``: where it was raised, in a few lines."""
    values = terminal(Status.FAILED, now, retention_days, error)
    if task.attempt:
        values[attr.ATTEMPTS] = _bounded(task.attempts, _ended(task, now, error, trace))
    return _end(task, values, "fail")


def _end(task: Task, values: Mapping[str, object], by: str) -> ConditionalUpdate:
    return ConditionalUpdate(
        task_id=task.task_id,
        set=values,
        remove=_next_attempt(task),
        conditions=_by_holder(task, by),
        mark=_ended_by((Is(attr.LEASE, task.lease),), values),
    )


def retry(
    task: Task, *, now: datetime, at: datetime, bucket: Bucket, error: str, trace: str | None = None
) -> ConditionalUpdate:
    """running → scheduled in a later bucket, on the claim's token (12). ``at``: not to be attempted before. ``trace``:
    as for ``fail``."""
    return _to_scheduled(task, at, bucket, {attr.ATTEMPTS: _bounded(task.attempts, _ended(task, now, error, trace))})


def _to_scheduled(
    task: Task, at: datetime, bucket: Bucket, values: Mapping[str, object], *, remove: tuple[str, ...] = ()
) -> ConditionalUpdate:
    return ConditionalUpdate(
        task_id=task.task_id,
        set={
            attr.STATUS: str(Status.SCHEDULED),
            attr.TASK_DATE_TIME: str(bucket),
            attr.NEXT_ATTEMPT_AT: _due(at),
            **values,
        },
        remove=remove,
        conditions=_by_holder(task, "retry"),
        mark=(Is(attr.LEASE, task.lease), Is(attr.STATUS, str(Status.SCHEDULED))),
    )


def lose(task: Task, *, until: datetime, bucket: Bucket) -> ConditionalUpdate:
    """running → running in a later bucket, with a lease that is over: an earlier process that began it has died, so a
    recovery reclaims it there (10)."""
    values = {attr.LEASE_UNTIL: format_instant(until), attr.TASK_DATE_TIME: str(bucket)}
    return ConditionalUpdate(
        task_id=task.task_id,
        set=values,
        conditions=_by_holder(task, "release"),
        mark=(Is(attr.LEASE, task.lease), Is(attr.LEASE_UNTIL, values[attr.LEASE_UNTIL])),
    )


def reschedule_claimed(task: Task, *, at: datetime, bucket: Bucket, first_started_at: datetime) -> ConditionalUpdate:
    """running → scheduled in a later bucket, on the claim's token (12), as its handler asked: a further turn.

    The attempts begin again. ``at``: the turn is not to begin before.
    """
    anew = {attr.ATTEMPT: 0, attr.TURN: task.turn + 1, attr.FIRST_STARTED_AT: format_instant(first_started_at)}
    return _to_scheduled(task, at, bucket, anew, remove=(attr.ATTEMPTS,) if task.attempts else ())


def defer_claimed(task: Task, *, at: datetime, bucket: Bucket) -> ConditionalUpdate:
    """running → scheduled in a later bucket, on the claim's token (12): not executed, so the attempt doesn't count.

    ``at``: when its rate limit allows it.
    """
    return _to_scheduled(task, at, bucket, {attr.ATTEMPT: task.attempt - 1})


def wait(
    task: Task, *, until: datetime, complete_by: datetime, heartbeat: timedelta | None, bucket: Bucket
) -> ConditionalUpdate:
    """running → waiting for a completion, in the bucket of its deadline ``until``, on the claim's token (12).

    There it is reclaimed like any task whose lease has expired (10).
    """
    values: dict[str, object] = {
        attr.STATUS: str(Status.WAITING),
        attr.TASK_DATE_TIME: str(bucket),
        attr.LEASE_UNTIL: format_instant(until),
        attr.COMPLETE_BY: format_instant(complete_by),
        attr.RETURNS_TO: str(task.bucket),
    }
    if heartbeat is not None:
        values[attr.HEARTBEAT_SECONDS] = -(-heartbeat // timedelta(seconds=1))
    return ConditionalUpdate(
        task_id=task.task_id,
        set=values,
        remove=_next_attempt(task),
        conditions=_by_holder(task, "wait"),
        mark=(Is(attr.LEASE, task.lease), Is(attr.STATUS, str(Status.WAITING))),
    )


def heartbeat(row: Row, *, until: datetime, bucket: Bucket) -> ConditionalUpdate:
    """waiting → waiting, with a later deadline and its bucket."""
    values = {attr.LEASE_UNTIL: format_instant(until), attr.TASK_DATE_TIME: str(bucket)}
    return _by_token(row, values, mark=tuple(Is(name, value) for name, value in values.items()))


def fail_by_token(row: Row, *, now: datetime, bucket: Bucket, error: str) -> ConditionalUpdate:
    """waiting → waiting in a bucket of the next tick, with the error: a recovery sends its letter and marks it failed,
    without executing it. Its lease ends now."""
    until = format_instant(now)
    values = {attr.LEASE_UNTIL: until, attr.TASK_DATE_TIME: str(bucket), attr.ERROR: short(error)}
    return _by_token(row, values, mark=(Is(attr.LEASE_UNTIL, until), Is(attr.ERROR, values[attr.ERROR])))


def by_token(row: Row, change: ConditionalUpdate) -> ConditionalUpdate:
    """The record of an attempt, made by who has its completion token instead of its process. ``row``: of a running or
    waiting task. One that ends returns to the bucket in which it was due."""
    values = {**change.set, **(_returned(row) if attr.OUTCOME in change.set else {})}
    return _by_token(row, values, remove=(*change.remove, *_present(_OF_WAITING, row)), mark=change.mark)


def _by_token(
    row: Row, values: Mapping[str, object], *, remove: tuple[str, ...] = (), mark: tuple[Condition, ...]
) -> ConditionalUpdate:
    return ConditionalUpdate(
        task_id=RowView(row).task_id,
        set=values,
        remove=remove,
        conditions=as_read(row, *_OF_CLAIM),
        returning=True,
        mark=(Is(attr.LEASE, row.get(attr.LEASE)), *mark),
    )


def _returned(row: Row) -> Mapping[str, object]:
    """The bucket of a task that has waited for a completion, once it has ended."""
    bucket = Bucket.canonical(row.get(attr.RETURNS_TO))
    return {} if bucket is None else {attr.TASK_DATE_TIME: str(bucket)}


def release(task: Task) -> ConditionalUpdate:
    """running → running with a lease that ended long ago: it was not executed, and the attempt doesn't count (12).

    If it were scheduled, the scheduler function would move it to the next tick. So a continuation can claim it at once.
    """
    return _release(task.task_id, task.lease, task.attempt)


def release_claim(row: Row, token: str) -> ConditionalUpdate | None:
    """``release`` for a row that was claimed with this token and not begun; None if it has another one, or was released
    already."""
    view = RowView(row)
    if not view.is_running or view.lease != token or view.is_released or not view.attempt:
        return None
    return _release(view.task_id, token, view.attempt)


def _release(task_id: str, token: str | None, attempt: int) -> ConditionalUpdate:
    return ConditionalUpdate(
        task_id=task_id,
        set={attr.ATTEMPT: attempt - 1, attr.LEASE_UNTIL: RELEASED},
        # The attempt: sent twice, it would undo what a client has changed since of a pack that waits again (22).
        conditions=(Is(attr.LEASE, token), _CLAIMED["release"], Is(attr.ATTEMPT, attempt)),
        mark=(Is(attr.LEASE, token), Is(attr.LEASE_UNTIL, RELEASED)),
    )


def checkpoint(task: Task, pack: Mapping[str, object]) -> ConditionalUpdate:
    """running → running, on the claim's token (12): which members of the pack have ended. ``pack``: the attribute."""
    return ConditionalUpdate(
        task_id=task.task_id,
        set={attr.PACK: pack},
        conditions=(*_by_holder(task, "release"), Is(attr.ATTEMPT, task.attempt)),  # not after its release
    )


def fail_unexecuted(row: Row, *, now: datetime, retention_days: int, error: str) -> ConditionalUpdate:
    """running → failed without executing: the lease of the last attempt expired (10), or the row is malformed."""
    lost = {**_attempt_entry(row, now), attr.ERROR: short(error)}
    values = terminal(Status.FAILED, now, retention_days, error)
    return ConditionalUpdate(
        task_id=RowView(row).task_id,
        set={**values, attr.ATTEMPTS: _bounded(row.get(attr.ATTEMPTS), lost), **_returned(row)},
        remove=_present(_OF_WAITING, row),
        conditions=as_read(row, *_OF_CLAIM, attr.TASK_DATE_TIME),
        mark=_ended_by(as_read(row, attr.LEASE), values),
    )


def move(row: Row, bucket: Bucket) -> ConditionalUpdate:
    """Moves a task to another bucket in any status: a running row keeps its lease (5, 6).

    The conditions: the row exists, it has no outcome, and its bucket and time inputs are as they were read.
    """
    return ConditionalUpdate(
        task_id=RowView(row).task_id,
        set={attr.TASK_DATE_TIME: str(bucket), attr.MOVED_TO: str(bucket)},
        conditions=as_read(row, attr.OUTCOME, *attr.TIME_INPUTS),
        returning=True,
    )


def defer(row: Row, bucket: Bucket) -> ConditionalUpdate:
    """A ``move`` of a row that no tick could work on. It is counted: each deferral is longer than the last."""
    moved = move(row, bucket)
    return replace(moved, set={**moved.set, attr.DEFERRALS: RowView(row).deferrals + 1})


def defer_failure(row: Row, bucket: Bucket, *, now: datetime, error: str) -> ConditionalUpdate:
    """running → running in a later bucket: it has failed, but the dead-letter queue refused its message.

    Its lease ends now, and the row keeps the error: the tick of that bucket fails it without executing it. Conditional
    on the lease in ``row`` (12), not on its bucket: it may have been moved (6).
    """
    until, number = format_instant(now), RowView(row).deferrals + 1
    return ConditionalUpdate(
        task_id=RowView(row).task_id,
        set={
            attr.TASK_DATE_TIME: str(bucket),
            attr.MOVED_TO: str(bucket),
            attr.DEFERRALS: number,
            attr.LEASE_UNTIL: until,
            attr.ERROR: short(error),
        },
        conditions=as_read(row, *_OF_CLAIM),
        mark=(*as_read(row, attr.LEASE), Is(attr.LEASE_UNTIL, until), Is(attr.DEFERRALS, number)),
    )


def end_lease(row: Row, *, now: datetime) -> ConditionalUpdate:
    """running → running: a lease that no process can hold ends now, so that the task is reclaimed (10)."""
    return ConditionalUpdate(
        task_id=RowView(row).task_id,
        set={attr.LEASE_UNTIL: format_instant(now)},
        conditions=as_read(row, *_OF_CLAIM),
    )


def cancel(row: Row, *, now: datetime, retention_days: int) -> ConditionalUpdate:
    """scheduled, unscheduled, released or waiting for a completion → cancelled (13)."""
    return ConditionalUpdate(
        task_id=RowView(row).task_id,
        set={**terminal(Status.CANCELLED, now, retention_days), **_returned(row)},
        remove=_present((*_OF_WAITING, *_unbegun(row)), row),
        conditions=_unclaimed(row),
        returning=True,
    )


def reschedule(row: Row, *, bucket: Bucket, due_at: datetime) -> ConditionalUpdate:
    """scheduled, unscheduled or released → scheduled at another time (13).

    An unscheduled row gets no ``attempt``, so it is normalised before it can be claimed.
    """
    by_hand = (attr.ATTEMPT,) if RowView(row).is_unscheduled else ()
    return ConditionalUpdate(
        task_id=RowView(row).task_id,
        set={attr.STATUS: str(Status.SCHEDULED), attr.TASK_DATE_TIME: str(bucket), attr.DUE_AT: _due(due_at)},
        remove=_present((attr.DELAY_SECONDS, attr.OUTCOME, attr.NEXT_ATTEMPT_AT, *by_hand, *_unbegun(row)), row),
        conditions=(*_unclaimed(row), *as_read(row, *attr.TIME_INPUTS)),
        returning=True,
        mark=_new_value(row, attr.DUE_AT, _due(due_at)),
    )


def replace_definition(
    row: Row, moved: ConditionalUpdate, *, definition: Mapping[str, object], now: datetime, run: int
) -> ConditionalUpdate:
    """Scheduled as ``moved`` by ``reschedule``, or by ``redrive`` if it had ended (13), with all that a user says of a
    task.

    ``run``: the next, which one that was attempted begins: no idempotency key stands for two payloads.
    """
    values = {**moved.set, **definition, attr.REPLACED_AT: format_instant(now)}
    gone = {attr.PAYLOAD, attr.RETRY_POLICY, attr.TIMEOUT_SECONDS, attr.FIRST_DUE_AT}
    gone |= row.keys() - attr.OWN_ATTRIBUTES
    view = RowView(row)
    if (view.is_scheduled or view.is_released) and (view.attempts_made or attr.TURN in row):
        values |= {attr.RUN: run, attr.ATTEMPT: 0}
        gone |= {attr.TURN, attr.FIRST_STARTED_AT, attr.LATE_MILLISECONDS}
    return replace(
        moved,
        set=values,
        remove=(*moved.remove, *sorted((gone & row.keys()) - {*values, *moved.remove})),
        conditions=(*moved.conditions, *as_read(row, attr.CREATED_AT, attr.REPLACED_AT, attr.ATTEMPT)),
        mark=tuple(Is(name, values[name]) for name in (attr.REPLACED_AT, attr.DUE_AT, attr.PAYLOAD) if name in values),
    )


def postpone(row: Row, *, bucket: Bucket, due_at: datetime, first_due_at: datetime) -> ConditionalUpdate:
    """Scheduled at a later time, as by ``reschedule`` (13), and the row keeps the first."""
    moved = reschedule(row, bucket=bucket, due_at=due_at)
    return replace(
        moved,
        set={**moved.set, attr.FIRST_DUE_AT: _due(first_due_at)},
        conditions=(*moved.conditions, *as_read(row, attr.CREATED_AT, attr.FIRST_DUE_AT, attr.NEXT_ATTEMPT_AT)),
    )


def revise(row: Row, *, payload: object) -> ConditionalUpdate:
    """scheduled, unscheduled, released or failed → the same with another payload. Not while it runs: its payload has
    been read."""
    return ConditionalUpdate(
        task_id=RowView(row).task_id,
        set={attr.PAYLOAD: payload},
        conditions=(*_unclaimed(row), *as_read(row, attr.PAYLOAD)),
        returning=True,
        mark=_new_value(row, attr.PAYLOAD, payload),
    )


def redrive(row: Row, *, bucket: Bucket, due_at: datetime, run: int, payload: object = None) -> ConditionalUpdate:
    """terminal → scheduled in a future bucket, with attempt 0 and the next ``run`` (13). ``payload``: another one, or
    None: it keeps its own.

    A row that was never normalised gets no ``attempt``, so it is normalised first: one that failed or was cancelled
    before, or whose ``attempt`` was set by hand, which names no action.
    """
    counted = _is_normalised(row)
    is_batch = str(row.get(attr.ACTION)).startswith(RESERVED_ACTIONS)
    of_run = [name for name in _OF_RUN if not (is_batch and name == attr.FOLLOW_UPS)]  # what follows it, follows once
    return ConditionalUpdate(
        task_id=RowView(row).task_id,
        set={
            attr.STATUS: str(Status.SCHEDULED),
            attr.TASK_DATE_TIME: str(bucket),
            attr.DUE_AT: _due(due_at),
            attr.RUN: run,
            **({attr.ATTEMPT: 0} if counted else {}),
            **({} if payload is None else {attr.PAYLOAD: payload}),
        },
        remove=_present((*of_run, *(() if counted else (attr.ATTEMPT,))), row),
        conditions=as_read(row, attr.STATUS, attr.OUTCOME, attr.RUN, *(() if payload is None else (attr.PAYLOAD,))),
        returning=True,
        mark=(Is(attr.RUN, run), Is(attr.DUE_AT, _due(due_at))),
    )


def restore(row: Row, *, now: datetime, bucket: Bucket | None = None) -> ConditionalUpdate:
    """cancelled → what it was before, in the same run: it waits for its time, or for its next attempt (13).

    ``bucket``: that of the next tick, for a task whose time has passed; None: it keeps its time. A row that was never
    normalised has no status again, and the scheduler takes its time from it as from a new one.
    """
    normalised, restored_at = _is_normalised(row), format_instant(now)
    values: dict[str, object] = {attr.RESTORED_AT: restored_at}
    if normalised:
        values[attr.STATUS] = str(Status.SCHEDULED)
        if bucket is not None:
            begins = attr.NEXT_ATTEMPT_AT if attr.NEXT_ATTEMPT_AT in row else attr.DUE_AT
            values |= {attr.TASK_DATE_TIME: str(bucket), begins: _due(now)}
    # An error is that of a failure which was to be recorded when it was cancelled.
    gone = (attr.OUTCOME, attr.FINISHED_AT, attr.EXPIRES_AT, attr.ERROR, *(() if normalised else (attr.STATUS,)))
    return ConditionalUpdate(
        task_id=RowView(row).task_id,
        set=values,
        remove=_present(gone, row),
        conditions=as_read(row, attr.STATUS, attr.OUTCOME, attr.RUN, attr.FINISHED_AT),
        returning=True,
        mark=(Is(attr.RESTORED_AT, restored_at), *as_read(row, attr.RUN)),
    )


def _is_normalised(row: Row) -> bool:
    """Whether an ended task can be claimed as it is; ``attempt`` may have been set by hand, but then without an
    action."""
    return attr.ATTEMPT in row and row.get(attr.ACTION) is not None


def state_of(row: Row) -> str:
    """A row's state, as the table of transitions names it."""
    status = row.get(attr.STATUS)
    if status is None:
        return UNSCHEDULED
    return status if isinstance(status, str) else shown(status)


def ended_by_hand(row: Row, *, now: datetime, retention_days: int) -> ConditionalUpdate | None:
    """Completes a row whose status was set to a terminal one by hand, without an outcome; None for others."""
    status = RowView(row).terminal_status
    if status is None or is_terminal(row):
        return None
    values = terminal(status, now, retention_days)
    return ConditionalUpdate(
        task_id=RowView(row).task_id,
        set=values,
        conditions=as_read(row, attr.OUTCOME, attr.STATUS, attr.LEASE),
        returning=True,
    )


def _claimed(token: str) -> tuple[Condition, ...]:
    """The mark of a claim: no other has its token. Whatever moves a running row leaves both."""
    return Is(attr.LEASE, token), Is(attr.STATUS, str(Status.RUNNING))


def _ended_by(lease: tuple[Condition, ...], values: Mapping[str, object]) -> tuple[Condition, ...]:
    """The mark of a task's end. A recovery may end a task with the same lease, at another instant."""
    return (*lease, *(Is(name, values[name]) for name in (attr.OUTCOME, attr.FINISHED_AT)))


def _by_holder(task: Task, by: str) -> tuple[Is, ...]:
    """The conditions that the claim's token is still in the row, and that the table has the transition."""
    return (Is(attr.LEASE, task.lease), _CLAIMED[by])


def _unclaimed(row: Row) -> tuple[Condition, ...]:
    """The conditions of a request: no process has claimed the task since it was read. That a lease is released, only
    its end says."""
    until = (attr.LEASE_UNTIL,) if RowView(row).is_released else ()
    return as_read(row, attr.OUTCOME, attr.STATUS, attr.LEASE, *until)


def _unbegun(row: Row) -> tuple[str, ...]:
    """What a claim has left in a row that was released, and never begun."""
    view = RowView(row)
    return (attr.STARTED_AT,) if view.is_released and not view.attempts_made else ()


def _new_value(row: Row, name: str, value: object) -> tuple[Condition, ...]:
    """The mark of a write that gives a waiting task another value: it shows also if the task was claimed since. Empty
    if the row had that value before."""
    return () if row.get(name) == value else (Is(name, value),)


def _due(instant: datetime) -> str:
    return format_instant(up_to_millisecond(instant))


def _present(names: Iterable[str], row: Row) -> tuple[str, ...]:
    """Those of the attributes that a row has."""
    return tuple(name for name in names if name in row)


def _next_attempt(task: Task) -> tuple[str, ...]:
    """The attribute that an ended task no longer has."""
    return () if task.next_attempt_at is None else (attr.NEXT_ATTEMPT_AT,)


def _attempt_entry(row: Row, now: datetime) -> dict[str, object]:
    entry = {
        attr.RUN: row.get(attr.RUN),
        attr.ATTEMPT: row.get(attr.ATTEMPT),
        attr.STARTED_AT: row.get(attr.STARTED_AT),
        attr.FINISHED_AT: format_instant(now),
    }
    return {name: value for name, value in entry.items() if value is not None}


def _ended(task: Task, now: datetime, error: str, trace: str | None) -> dict[str, object]:
    entry: dict[str, object] = {
        attr.RUN: task.run,
        attr.ATTEMPT: task.attempt,
        attr.FINISHED_AT: format_instant(now),
        attr.ERROR: short(error),
    }
    if task.started_at is not None:
        entry[attr.STARTED_AT] = format_instant(task.started_at)
    if trace is not None:
        entry[attr.TRACE] = trace
    return entry


def _bounded(earlier: object, entry: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The latest attempts, and the first one of this run, which bounds its retries. Only the latest keeps its trace."""
    known = [e for e in earlier if isinstance(e, Mapping)] if isinstance(earlier, (list, tuple)) else []
    kept = [{name: value for name, value in e.items() if name != attr.TRACE} for e in known]
    entries: list[Mapping[str, object]] = [*kept, entry]
    latest = entries[-MAX_ATTEMPTS_KEPT:]
    first = next(e for e in entries if e.get(attr.RUN) == entry.get(attr.RUN))
    return latest if any(e is first for e in latest) else [first, *latest[1:]]
