"""From what somebody put into the table to a task in its bucket: one pure function and one conditional write.

Used by the scheduler function, by the processor for rows that it meets first, by the reconcile scan and by the
doors of our own, so that a task means the same however it came in.
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
"""No attempt or run that was counted comes near it."""

_BULKY = ("payload", "result", "attempts")
_ROOM = 4096  # characters as Python shows them: more than the end of a life takes
_MAX_DROPPED = 100  # attributes; an expression has its limits too


@dataclass(frozen=True, kw_only=True, slots=True)
class Unassigned:
    """What an assignment policy is shown of a task that came without a time."""

    task_id: str
    action: str
    payload: Mapping[str, object]
    attributes: Mapping[str, object]  # the whole row


Assign = Callable[[Unassigned, datetime, Grid], datetime | None]
"""An assignment policy: from (task, now, grid) to the aware instant at which the task is due; None: the next tick."""


def next_tick(task: Unassigned, now: datetime, grid: Grid) -> datetime | None:
    """The default policy: as soon as possible."""
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Defaults:
    """What a row that says nothing gets."""

    action: str = "log"
    retention_days: int = 30
    assign: Assign = next_tick


@dataclass(frozen=True, slots=True)
class When:
    """A task's time, understood."""

    bucket: Bucket
    due_at: datetime


def when_due(row: Row, *, now: datetime, grid: Grid, defaults: Defaults) -> When:
    """The bucket and the due instant of a row: from taskDateTime, else dueAt, else delaySeconds, else the policy.

    The bucket is rounded up to the grid; it may lie in the past. Raises InvalidInput.
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
    """Whether nobody has made a task of the row yet: it has no status, or one from hand without what a claim needs."""
    status = row.get("status")
    if is_terminal(row) or status not in (None, str(Status.SCHEDULED)):
        return False
    return status is None or not is_count(row.get("attempt"), 0)


def normalise(row: Row, *, now: datetime, grid: Grid, defaults: Defaults) -> ConditionalUpdate:
    """The write that makes a row without a status a scheduled task, or a failed one with the reason.

    On condition that its status, its time inputs and its action are as in ``row``. A task that was due already is
    left in its past bucket: settling moves it (protocol 5). Any status but *scheduled* in ``row`` is refused.
    """
    try:
        values = _values(row, now, grid, defaults)
    except InvalidInput as error:
        return reject(row, error, now=now, grid=grid, retention_days=defaults.retention_days)
    return ConditionalUpdate(
        task_id=str(row["taskId"]),
        set={name: value for name, value in values.items() if not same(row, name, value)},
        remove=_stray(row, values),
        conditions=as_polled(row),
        returning=True,
    )


def place(row: Row, *, now: datetime, grid: Grid, defaults: Defaults) -> ConditionalUpdate:
    """The write that gives a waiting task a bucket again after somebody has spoilt it; its past stays as it is."""
    try:
        when = when_due(row, now=now, grid=grid, defaults=defaults)
    except InvalidInput as error:
        return reject(row, error, now=now, grid=grid, retention_days=defaults.retention_days)
    values = {"taskDateTime": str(when.bucket), "dueAt": format_instant(when.due_at)}
    return ConditionalUpdate(
        task_id=str(row["taskId"]), set=values, remove=stray_of_live(row), conditions=as_polled(row), returning=True
    )


def rederive(old: Row, new: Row, *, now: datetime, grid: Grid, defaults: Defaults) -> ConditionalUpdate | None:
    """What to write when somebody changed a waiting row by hand; None if there is nothing to do.

    Only a time that changed is derived anew. Moves of our own are left alone: a retry's (it comes from running), a
    settled one (``movedTo`` says so), and any whose bucket and due instant agree (a delay is never one of ours).
    """
    waiting = str(Status.SCHEDULED)
    if old.get("status") != waiting or new.get("status") != waiting or is_terminal(new):
        return None
    stray = stray_of_live(new)
    changed = next((n for n in TIME_INPUTS if new.get(n) is not None and new[n] != old.get(n)), None)
    if (
        changed is None
        or (changed == "taskDateTime" and new.get("movedTo") == new["taskDateTime"])
        or (changed != "delaySeconds" and _publish_settings(new, grid))
    ):
        return (
            ConditionalUpdate(
                task_id=str(new["taskId"]), remove=stray, conditions=as_read(new, "outcome"), returning=True
            )
            if stray
            else None
        )
    try:
        when = when_due({"taskId": new["taskId"], changed: new[changed]}, now=now, grid=grid, defaults=defaults)
    except InvalidInput as error:
        return reject(new, error, now=now, grid=grid, retention_days=defaults.retention_days)
    values = {"taskDateTime": str(when.bucket), "dueAt": format_instant(when.due_at)}
    return ConditionalUpdate(
        task_id=str(new["taskId"]), set=values, remove=stray, conditions=as_polled(new), returning=True
    )


def reject(
    row: Row, reason: InvalidInput | str, *, now: datetime, grid: Grid, retention_days: int
) -> ConditionalUpdate:
    """unscheduled (or waiting) → failed with the reason, listed in the current bucket, so that it is seen.

    On condition, too, that the attribute that is to blame still is as in ``row``: somebody may have put it right.
    """
    task_id = str(row["taskId"])
    values = terminal(Status.FAILED, now, retention_days, str(reason))
    remove = _stray(row, values)
    if len(task_id.encode("utf-8", "replace")) <= MAX_TASK_ID_BYTES:
        values["taskDateTime"] = str(grid.bucket_of(task_id, now))
    elif "taskDateTime" in row:
        remove = (*remove, "taskDateTime")
    met = as_polled(row)
    blamed = reason.field.partition(".")[0] if isinstance(reason, InvalidInput) else ""
    if blamed in row and blamed != "taskId" and all(condition.attribute != blamed for condition in met):
        met = (*met, *as_read(row, blamed))
    if MALFORMED_REASON in row:
        met = (*met, *as_read(row, MALFORMED_REASON))
    return ConditionalUpdate(task_id=task_id, set=values, remove=remove, conditions=met, returning=True)


def keep_open(row: Row, rejection: ConditionalUpdate, bucket: Bucket) -> ConditionalUpdate:
    """Instead of a rejection of which the dead-letter queue took no message: into a bucket whose tick tries again.

    The reason is kept, since the bucket is written over the row's own time; and it can't be claimed without
    ``attempt``. On the rejection's conditions.
    """
    values = {"taskDateTime": str(bucket), "movedTo": str(bucket)}
    if "error" in rejection.set:
        values[MALFORMED_REASON] = str(rejection.set["error"])
    remove = ("attempt",) if "attempt" in row else ()
    return ConditionalUpdate(
        task_id=rejection.task_id, set=values, remove=remove, conditions=rejection.conditions, returning=True
    )


def kept_reason(row: Row) -> str | None:
    """Why ``keep_open`` has put a row into the bucket in which it lies; None for all others."""
    reason = row.get(MALFORMED_REASON)
    waits = "attempt" not in row and row.get("movedTo") is not None and row["movedTo"] == row.get("taskDateTime")
    return reason if waits and isinstance(reason, str) and row.get("status") != str(Status.RUNNING) else None


def slimmer(change: ConditionalUpdate, row: Row) -> ConditionalUpdate:
    """The same end of a life, without what makes ``row`` too large or too long to be indexed."""
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
    action = action_of(row, defaults)
    check_payload(row.get("payload"))
    if row.get("retryPolicy") is not None:
        RetryPolicy.from_row(row["retryPolicy"])
    if row.get("timeoutSeconds") is not None:
        check_timeout(row["timeoutSeconds"])
    if row.get("scheduleId") is not None and not isinstance(row["scheduleId"], str):
        raise InvalidInput("scheduleId", row["scheduleId"], "expected text")
    when = when_due(row, now=now, grid=grid, defaults=defaults)
    return {
        "taskDateTime": str(when.bucket),
        "dueAt": format_instant(when.due_at),
        "action": action,
        "status": str(Status.SCHEDULED),
        "attempt": 0,
        "run": _run(row),
        # Whatever a row from hand says: an idempotency key is made of it.
        "createdAt": format_instant(now) if needs_normalising(row) else created_at(row, now),
    }


def _placed(task_id: str, time: Bucket | datetime, row: Row, grid: Grid) -> When:
    if isinstance(time, datetime):
        return When(grid.bucket_of(task_id, time), time)
    # A bucket that is named plainly stays in shard 0: its readers look for it under that name.
    due = time.instant
    if row.get("dueAt") is not None:
        asked = parse_time(row["dueAt"], "dueAt")
        asked = asked.instant if isinstance(asked, Bucket) else asked
        due = asked if grid.tick_at_or_after(asked) == grid.tick_at_or_after(due) else due
    return When(Bucket(grid.tick_at_or_after(time.instant), time.shard), due)


def _delay(value: object) -> timedelta:
    expected = f"expected a number of seconds from 0 to {MAX_DELAY_SECONDS}"
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or not 0 <= value <= MAX_DELAY_SECONDS:
        raise InvalidInput("delaySeconds", value, expected)
    return timedelta(microseconds=int(Decimal(str(value)) * 1_000_000))


def _assigned(task_id: str, row: Row, now: datetime, grid: Grid, defaults: Defaults) -> When:
    task = Unassigned(
        task_id=task_id,
        action=action_of(row, defaults),
        payload=check_payload(row.get("payload")),
        attributes=row,
    )
    try:
        due = defaults.assign(task, now, grid)
    except Exception as error:  # the user's own code: whatever it raises concerns this row only
        raise InvalidInput(
            "taskDateTime", None, f"the assignment policy raised {type(error).__name__}: {error}"
        ) from error
    if due is None:
        return When(Bucket(grid.tick_after(minute_of(now)), grid.shard_of(task_id)), now)
    due = parse_instant(due, "the assignment policy's answer")
    return When(grid.bucket_of(task_id, due), due)


def action_of(row: Row, defaults: Defaults) -> str:
    return check_action(defaults.action if row.get("action") is None else row["action"])


def created_at(row: Row, now: datetime) -> str:
    try:
        return format_instant(parse_instant(row.get("createdAt", now), "createdAt"))
    except InvalidInput:  # a note, not an input: it must not cost the task
        return format_instant(now)


def _run(row: Row) -> int:
    """A row that is a task already keeps its run; one from hand begins at 1."""
    own = row.get("run")
    return int(own) if row.get("status") is not None and is_count(own, 1) else 1


def is_count(value: object, least: int) -> TypeGuard[int | Decimal]:
    """Whether it can have come from counting, and can be counted up."""
    return is_whole(value) and least <= value <= MAX_COUNT


def same(row: Row, name: str, value: object) -> bool:
    """Whether a row says this already."""
    return row.get(name) == value and not isinstance(row.get(name), bool)  # True is 1 to Python, but not to a table


def _publish_settings(row: Row, grid: Grid) -> bool:
    """Whether a row's bucket is the one that its due instant belongs to."""
    bucket = Bucket.canonical(row.get("taskDateTime"))
    try:
        due = parse_instant(row.get("dueAt"), "dueAt")
    except InvalidInput:
        return False
    return (
        bucket is not None and row.get("dueAt") == format_instant(due) and grid.tick_at_or_after(due) == bucket.minute
    )


def as_polled(row: Row) -> tuple[Condition, ...]:
    """Conditions that nothing has changed which a row's place depends on."""
    return as_read(row, "outcome", "status", "action", *TIME_INPUTS)


def past_attributes(row: Row) -> tuple[str, ...]:
    """What only a task with a past may have. A live row's expiresAt would let it vanish before its time."""
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


def stray_of_live(row: Row) -> tuple[str, ...]:
    """What a task that has not ended must not carry: an expiry, with which it would vanish before its time, and an
    ``outcome`` that is NULL, which is none to us, but one to a claim's condition."""
    return tuple(name for name in ("outcome", "expiresAt") if name in row)


def _stray(row: Row, values: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(name for name in past_attributes(row) if name not in values)
