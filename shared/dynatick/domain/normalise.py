"""Normalising: makes a scheduled task of a row that a user put into the table, by one conditional update.

The scheduler, the processor, the reconcile and the interfaces use it, so that a row means the same wherever it came
from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TypeGuard

from dynatick.domain.buckets import Bucket, Grid, minute_of, parse_time
from dynatick.domain.conditional_update import Condition, ConditionalUpdate, as_read
from dynatick.domain.instants import format_instant, in_range, parse_instant
from dynatick.domain.lifecycle import TIME_INPUTS, is_terminal, terminal
from dynatick.domain.misspelt import check_names
from dynatick.domain.numbers import is_whole
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.schedule import RECURRENCE
from dynatick.domain.task import (
    MALFORMED_REASON,
    MAX_TASK_ID_BYTES,
    Row,
    Status,
    check_action,
    check_payload,
    check_task_id,
)
from dynatick.domain.timeout import check_timeout
from dynatick.errors import InvalidInput

MAX_DELAY_SECONDS = 10 * 366 * 86_400
MAX_COUNT = 10**9
"""More than any counted attempt or run."""

_BULKY = ("payload", "result", "attempts")
_ROOM = 4096  # characters of the values' repr: more than the attributes of an outcome take
_MAX_DROPPED = 100  # attributes: an update expression is limited too


@dataclass(frozen=True, kw_only=True, slots=True)
class Unassigned:
    """A task without a time, as an assignment policy gets it."""

    task_id: str
    action: str
    payload: Mapping[str, object]
    attributes: Mapping[str, object]  # the whole row


Assign = Callable[[Unassigned, datetime, Grid], datetime | None]
"""An assignment policy: returns the aware instant at which a task is due; None: the next tick."""


def next_tick(task: Unassigned, now: datetime, grid: Grid) -> datetime | None:
    """The default policy: the next tick."""
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Defaults:
    """The defaults for attributes that a row does not have."""

    action: str = "log"
    retention_days: int = 30
    assign: Assign = next_tick


@dataclass(frozen=True, slots=True)
class TaskTime:
    """A task's bucket and due instant."""

    bucket: Bucket
    due_at: datetime


def task_time(row: Row, *, now: datetime, grid: Grid, defaults: Defaults) -> TaskTime:
    """The bucket and the due instant of a row, from taskDateTime, else dueAt, else delaySeconds, else the policy.

    The bucket is rounded up to the grid and may be in the past. Raises InvalidInput.
    """
    task_id = check_task_id(row.get("taskId"))
    if row.get("taskDateTime") is not None:
        return _placed(task_id, parse_time(row["taskDateTime"]), row, grid)
    if row.get("dueAt") is not None:
        return _placed(task_id, parse_time(row["dueAt"], "dueAt"), row, grid)
    if row.get("delaySeconds") is not None:
        return _placed(
            task_id,
            in_range(now + _delay(row["delaySeconds"]), row["delaySeconds"], "delaySeconds"),
            row,
            grid,
        )
    return _assigned(task_id, row, now, grid, defaults)


def needs_normalising(row: Row) -> bool:
    """Whether the row is still to be normalised: it has no status, or is scheduled without a valid ``attempt``."""
    status = row.get("status")
    if is_terminal(row) or status not in (None, str(Status.SCHEDULED)):
        return False
    return status is None or not is_count(row.get("attempt"), 0)


def normalise(row: Row, *, now: datetime, grid: Grid, defaults: Defaults) -> ConditionalUpdate:
    """The update that makes a row a scheduled task, or a failed one with the reason if the row is malformed.

    Its conditions: status, time inputs and action are as in ``row``. A task that is due already stays in its past
    bucket; its placement moves it (protocol 5). Any status but *scheduled* is malformed.
    """
    try:
        values = _values(row, now, grid, defaults)
    except InvalidInput as error:
        return reject(row, error, now=now, grid=grid, retention_days=defaults.retention_days)
    return ConditionalUpdate(
        task_id=str(row["taskId"]),
        set={name: value for name, value in values.items() if not has_value(row, name, value)},
        remove=_past_to_remove(row, values),
        conditions=unchanged_inputs(row),
        returning=True,
    )


def place(row: Row, *, now: datetime, grid: Grid, defaults: Defaults) -> ConditionalUpdate:
    """The update that gives a scheduled task with a malformed bucket a valid one, and keeps its past attributes."""
    try:
        when = task_time(row, now=now, grid=grid, defaults=defaults)
    except InvalidInput as error:
        return reject(row, error, now=now, grid=grid, retention_days=defaults.retention_days)
    values = {"taskDateTime": str(when.bucket), "dueAt": format_instant(when.due_at)}
    return ConditionalUpdate(
        task_id=str(row["taskId"]),
        set=values,
        remove=premature_attributes(row),
        conditions=unchanged_inputs(row),
        returning=True,
    )


def rederive(old: Row, new: Row, *, now: datetime, grid: Grid, defaults: Defaults) -> ConditionalUpdate | None:
    """The update for a scheduled row whose time inputs a user has changed; None if there is nothing to write.

    Only the changed time is derived again. Dynatick's own moves are left alone: that of a retry (the old status is
    running), that of a placement (``movedTo`` is the bucket), and any to the bucket of the row's due instant.
    """
    waiting = str(Status.SCHEDULED)
    if old.get("status") != waiting or new.get("status") != waiting or is_terminal(new):
        return None
    stray = premature_attributes(new)
    changed = next((n for n in TIME_INPUTS if new.get(n) is not None and new[n] != old.get(n)), None)
    if (
        changed is None
        or (changed == "taskDateTime" and new.get("movedTo") == new["taskDateTime"])
        or (changed != "delaySeconds" and _is_in_own_bucket(new, grid))
    ):
        return (
            ConditionalUpdate(
                task_id=str(new["taskId"]), remove=stray, conditions=as_read(new, "outcome"), returning=True
            )
            if stray
            else None
        )
    try:
        when = task_time({"taskId": new["taskId"], changed: new[changed]}, now=now, grid=grid, defaults=defaults)
    except InvalidInput as error:
        return reject(new, error, now=now, grid=grid, retention_days=defaults.retention_days)
    values = {"taskDateTime": str(when.bucket), "dueAt": format_instant(when.due_at)}
    return ConditionalUpdate(
        task_id=str(new["taskId"]), set=values, remove=stray, conditions=unchanged_inputs(new), returning=True
    )


def reject(
    row: Row, reason: InvalidInput | str, *, now: datetime, grid: Grid, retention_days: int
) -> ConditionalUpdate:
    """The update from unscheduled or scheduled to failed, with the reason, in the current bucket, where it is listed.

    A further condition is that the malformed attribute is as in ``row``: a user may have corrected it.
    """
    task_id = str(row["taskId"])
    values = terminal(Status.FAILED, now, retention_days, str(reason))
    remove = _past_to_remove(row, values)
    if len(task_id.encode("utf-8", "replace")) <= MAX_TASK_ID_BYTES:
        values["taskDateTime"] = str(grid.bucket_of(task_id, now))
    elif "taskDateTime" in row:
        remove = (*remove, "taskDateTime")
    conditions = unchanged_inputs(row)
    malformed = reason.field.partition(".")[0] if isinstance(reason, InvalidInput) else ""
    if malformed in row and malformed != "taskId" and all(condition.attribute != malformed for condition in conditions):
        conditions = (*conditions, *as_read(row, malformed))
    if MALFORMED_REASON in row:
        conditions = (*conditions, *as_read(row, MALFORMED_REASON))
    return ConditionalUpdate(task_id=task_id, set=values, remove=remove, conditions=conditions, returning=True)


def defer_rejection(row: Row, rejection: ConditionalUpdate, bucket: Bucket) -> ConditionalUpdate:
    """The update instead of a rejection whose dead letter was refused: moves the row to ``bucket``, to try again then.

    It keeps the reason, because the bucket overwrites the row's own time, and removes ``attempt``, so that no claim
    succeeds. It has the rejection's conditions.
    """
    values = {"taskDateTime": str(bucket), "movedTo": str(bucket)}
    if "error" in rejection.set:
        values[MALFORMED_REASON] = str(rejection.set["error"])
    remove = ("attempt",) if "attempt" in row else ()
    return ConditionalUpdate(
        task_id=rejection.task_id, set=values, remove=remove, conditions=rejection.conditions, returning=True
    )


def rejection_reason(row: Row) -> str | None:
    """The reason of a rejection that ``defer_rejection`` has moved to the row's bucket; None for any other row."""
    reason = row.get(MALFORMED_REASON)
    waits = "attempt" not in row and row.get("movedTo") is not None and row["movedTo"] == row.get("taskDateTime")
    return reason if waits and isinstance(reason, str) and row.get("status") != str(Status.RUNNING) else None


def without_large_values(change: ConditionalUpdate, row: Row) -> ConditionalUpdate:
    """The update ``change`` that ends a task, but removing from ``row`` what makes it, or its index key, too large."""
    dropped = {name for name in _BULKY if name in row or name in change.set}
    freed = sum(len(repr(row[name])) for name in dropped if name in row)
    if len(change.task_id.encode("utf-8", "replace")) > MAX_TASK_ID_BYTES:
        dropped.add("taskDateTime")
    for name in sorted(row, key=lambda name: len(repr(row[name])), reverse=True)[:_MAX_DROPPED]:
        if freed >= _ROOM:
            break
        if name not in dropped and name not in change.set and name not in ("taskId", "lease"):
            dropped.add(name)
            freed += len(repr(row[name]))
    kept = {name: value for name, value in change.set.items() if name not in dropped}
    remove = tuple(sorted(name for name in dropped.union(change.remove) if name in row))
    return ConditionalUpdate(
        task_id=change.task_id, set=kept, remove=remove, conditions=change.conditions, returning=change.returning
    )


def _values(row: Row, now: datetime, grid: Grid, defaults: Defaults) -> dict[str, object]:
    for name in RECURRENCE:
        if row.get(name) is not None:
            raise InvalidInput(
                name,
                row[name],
                "a task runs once: leave it out, or insert a schedule",
            )
    if row.get("status") not in (None, str(Status.SCHEDULED)):
        raise InvalidInput("status", row["status"], "leave it out: it is set by Dynatick")
    check_names(row)
    action = action_name(row, defaults)
    check_payload(row.get("payload"))
    if row.get("retryPolicy") is not None:
        RetryPolicy.from_row(row["retryPolicy"])
    if row.get("timeoutSeconds") is not None:
        check_timeout(row["timeoutSeconds"])
    if row.get("scheduleId") is not None and not isinstance(row["scheduleId"], str):
        raise InvalidInput("scheduleId", row["scheduleId"], "expected text")
    when = task_time(row, now=now, grid=grid, defaults=defaults)
    return {
        "taskDateTime": str(when.bucket),
        "dueAt": format_instant(when.due_at),
        "action": action,
        "status": str(Status.SCHEDULED),
        "attempt": 0,
        "run": _run(row),
        # Not from a row that a user wrote: the idempotency key depends on it.
        "createdAt": format_instant(now) if needs_normalising(row) else created_at(row, now),
    }


def _placed(task_id: str, time: Bucket | datetime, row: Row, grid: Grid) -> TaskTime:
    if isinstance(time, datetime):
        return TaskTime(grid.bucket_of(task_id, time), time)
    # A bucket named without shard stays in shard 0, so that a query by that name finds the task.
    due = time.instant
    if row.get("dueAt") is not None:
        asked = parse_time(row["dueAt"], "dueAt")
        asked = asked.instant if isinstance(asked, Bucket) else asked
        due = asked if grid.tick_at_or_after(asked) == grid.tick_at_or_after(due) else due
    return TaskTime(Bucket(grid.tick_at_or_after(time.instant), time.shard), due)


def _delay(value: object) -> timedelta:
    expected = f"expected a number of seconds from 0 to {MAX_DELAY_SECONDS}"
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or not 0 <= value <= MAX_DELAY_SECONDS:
        raise InvalidInput("delaySeconds", value, expected)
    return timedelta(microseconds=int(Decimal(str(value)) * 1_000_000))


def _assigned(task_id: str, row: Row, now: datetime, grid: Grid, defaults: Defaults) -> TaskTime:
    task = Unassigned(
        task_id=task_id,
        action=action_name(row, defaults),
        payload=check_payload(row.get("payload")),
        attributes=row,
    )
    try:
        due = defaults.assign(task, now, grid)
    except Exception as error:  # the user's code: its error fails this row only
        raise InvalidInput(
            "taskDateTime", None, f"the assignment policy raised {type(error).__name__}: {error}"
        ) from error
    if due is None:
        return TaskTime(Bucket(grid.tick_after(minute_of(now)), grid.shard_of(task_id)), now)
    due = parse_instant(due, "the assignment policy's answer")
    return TaskTime(grid.bucket_of(task_id, due), due)


def action_name(row: Row, defaults: Defaults) -> str:
    """The row's action, or the default. Raises InvalidInput."""
    return check_action(defaults.action if row.get("action") is None else row["action"])


def created_at(row: Row, now: datetime) -> str:
    """The row's ``createdAt``, or ``now`` if it is missing or malformed."""
    try:
        return format_instant(parse_instant(row.get("createdAt", now), "createdAt"))
    except InvalidInput:  # informative only: a malformed value must not fail the task
        return format_instant(now)


def _run(row: Row) -> int:
    """The run: a row that is a task already keeps it; a user's row begins at 1."""
    own = row.get("run")
    return int(own) if row.get("status") is not None and is_count(own, 1) else 1


def is_count(value: object, minimum: int) -> TypeGuard[int | Decimal]:
    """Whether the value is a whole number from ``minimum`` to MAX_COUNT."""
    return is_whole(value) and minimum <= value <= MAX_COUNT


def has_value(row: Row, name: str, value: object) -> bool:
    """Whether the row has this value already."""
    return row.get(name) == value and not isinstance(row.get(name), bool)  # True is 1 to Python, but not to a table


def _is_in_own_bucket(row: Row, grid: Grid) -> bool:
    """Whether the row's bucket is that of its due instant."""
    bucket = Bucket.canonical(row.get("taskDateTime"))
    try:
        due = parse_instant(row.get("dueAt"), "dueAt")
    except InvalidInput:
        return False
    return (
        bucket is not None and row.get("dueAt") == format_instant(due) and grid.tick_at_or_after(due) == bucket.minute
    )


def unchanged_inputs(row: Row) -> tuple[Condition, ...]:
    """Conditions that the attributes on which the bucket depends are as in ``row``."""
    return as_read(row, "outcome", "status", "action", *TIME_INPUTS)


def past_attributes(row: Row) -> tuple[str, ...]:
    """The row's attributes that only a task that has run may have."""
    past = (
        "outcome",
        "expiresAt",
        "finishedAt",
        "lease",
        "leaseUntil",
        "startedAt",
        "attempts",
        "result",
        "error",
        "movedTo",
        "deferrals",
        MALFORMED_REASON,
    )
    return tuple(name for name in past if name in row)


def premature_attributes(row: Row) -> tuple[str, ...]:
    """The attributes of a row without outcome that only an ended task may have: ``expiresAt``, with which DynamoDB
    would delete it, and an ``outcome`` that is NULL, with which no claim's condition holds."""
    return tuple(name for name in ("outcome", "expiresAt") if name in row)


def _past_to_remove(row: Row, values: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(name for name in past_attributes(row) if name not in values)
