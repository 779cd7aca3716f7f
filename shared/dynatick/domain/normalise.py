"""Normalising: makes a scheduled task of a row that a user put into the table, by one conditional update.

The scheduler, the processor, the reconcile and the interfaces use it, so that a row means the same wherever it came
from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from itertools import islice
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid, minute_of, parse_time
from dynatick.domain.conditional_update import Condition, ConditionalUpdate, as_read
from dynatick.domain.instants import format_instant, in_range, parse_instant, up_to_millisecond
from dynatick.domain.lifecycle import terminal
from dynatick.domain.limit_keys import KeyLimits, check_limit_key
from dynatick.domain.numbers import is_count
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.row import RowView, in_own_shard, is_terminal
from dynatick.domain.task import (
    MAX_TASK_ID_BYTES,
    Row,
    Status,
    check_action,
    check_payload,
    check_subject,
    check_task_id,
    check_timeout,
    check_users_action,
)
from dynatick.errors import InvalidInput

MAX_DELAY_SECONDS = 10 * 366 * 86_400

_BULKY = (attr.PAYLOAD, attr.RESULT, attr.ATTEMPTS)
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
    key_limits: KeyLimits | None = None  # None: not known
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
    task_id = check_task_id(row.get(attr.TASK_ID))
    if row.get(attr.TASK_DATE_TIME) is not None:
        return _placed(parse_time(row[attr.TASK_DATE_TIME]), row, grid)
    if row.get(attr.DUE_AT) is not None:
        return _placed(parse_time(row[attr.DUE_AT], attr.DUE_AT), row, grid)
    if row.get(attr.DELAY_SECONDS) is not None:
        return _placed(
            in_range(now + _delay(row[attr.DELAY_SECONDS]), row[attr.DELAY_SECONDS], attr.DELAY_SECONDS),
            row,
            grid,
        )
    return _assigned(task_id, row, now, grid, defaults)


def needs_normalising(row: Row) -> bool:
    """Whether the row is still to be normalised: it has no status, or is scheduled without a valid ``attempt``."""
    view = RowView(row)
    return not is_terminal(row) and (view.is_unscheduled or (view.is_scheduled and view.attempt is None))


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
        task_id=RowView(row).task_id,
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
    return _retimed(row, when)


def _retimed(row: Row, when: TaskTime) -> ConditionalUpdate:
    return ConditionalUpdate(
        task_id=RowView(row).task_id,
        set={attr.TASK_DATE_TIME: str(when.bucket), attr.DUE_AT: format_instant(when.due_at)},
        remove=(*premature_attributes(row), *_next_attempt(row)),
        conditions=unchanged_inputs(row),
        returning=True,
    )


def rederive(old: Row, new: Row, *, now: datetime, grid: Grid, defaults: Defaults) -> ConditionalUpdate | None:
    """The update for a scheduled row whose time inputs a user has changed; None if there is nothing to write.

    Only the changed time is derived again. Dynatick's own moves are left alone: that of a retry (the old status is
    running), that of a placement (``movedTo`` is the bucket), and any to the bucket of the row's due instant.
    """
    view = RowView(new)
    if not (RowView(old).is_scheduled and view.is_scheduled) or is_terminal(new):
        return None
    stray = premature_attributes(new)
    changed = next((n for n in attr.TIME_INPUTS if new.get(n) is not None and new[n] != old.get(n)), None)
    if (
        changed is None
        or (changed == attr.TASK_DATE_TIME and view.is_moved)
        or (changed != attr.DELAY_SECONDS and not _next_attempt(new) and _is_in_own_bucket(new, grid))
    ):
        if not stray:
            return None
        conditions = as_read(new, attr.OUTCOME)
        return ConditionalUpdate(task_id=view.task_id, remove=stray, conditions=conditions, returning=True)
    try:
        edit = {attr.TASK_ID: view.task_id, changed: new[changed]}
        when = task_time(edit, now=now, grid=grid, defaults=defaults)
    except InvalidInput as error:
        return reject(new, error, now=now, grid=grid, retention_days=defaults.retention_days)
    return _retimed(new, when)


def reject(
    row: Row, reason: InvalidInput | str, *, now: datetime, grid: Grid, retention_days: int
) -> ConditionalUpdate:
    """The update from unscheduled or scheduled to failed, with the reason, in the current bucket, where it is listed.

    A further condition is that the malformed attribute is as in ``row``: a user may have corrected it.
    """
    task_id = RowView(row).task_id
    values = terminal(Status.FAILED, now, retention_days, str(reason))
    remove = _past_to_remove(row, values)
    if len(task_id.encode("utf-8", "replace")) <= MAX_TASK_ID_BYTES:
        values[attr.TASK_DATE_TIME] = str(grid.bucket_of(RowView(row).shard_key, now))
    elif attr.TASK_DATE_TIME in row:
        remove = (*remove, attr.TASK_DATE_TIME)
    conditions = unchanged_inputs(row)
    malformed = reason.field.partition(".")[0] if isinstance(reason, InvalidInput) else ""
    is_compared = malformed == attr.TASK_ID or any(condition.attribute == malformed for condition in conditions)
    if malformed in row and not is_compared:
        conditions = (*conditions, *as_read(row, malformed))
    if attr.MALFORMED_REASON in row:
        conditions = (*conditions, *as_read(row, attr.MALFORMED_REASON))
    return ConditionalUpdate(task_id=task_id, set=values, remove=remove, conditions=conditions, returning=True)


def defer_rejection(row: Row, rejection: ConditionalUpdate, bucket: Bucket) -> ConditionalUpdate:
    """The update instead of a rejection whose dead letter was refused: moves the row to ``bucket``, to try again then.

    It keeps the reason, because the bucket overwrites the row's own time, and removes ``attempt``, so that no claim
    succeeds. It has the rejection's conditions.
    """
    values = {attr.TASK_DATE_TIME: str(bucket), attr.MOVED_TO: str(bucket)}
    if attr.ERROR in rejection.set:
        values[attr.MALFORMED_REASON] = str(rejection.set[attr.ERROR])
    remove = (attr.ATTEMPT,) if attr.ATTEMPT in row else ()
    return ConditionalUpdate(
        task_id=rejection.task_id, set=values, remove=remove, conditions=rejection.conditions, returning=True
    )


def rejection_reason(row: Row) -> str | None:
    """The reason of a rejection that ``defer_rejection`` has moved to the row's bucket; None for any other row."""
    reason = row.get(attr.MALFORMED_REASON)
    view = RowView(row)
    waits = attr.ATTEMPT not in row and view.is_moved and not view.is_running
    return reason if waits and isinstance(reason, str) else None


def without_large_values(change: ConditionalUpdate, row: Row) -> ConditionalUpdate:
    """The update ``change`` that ends a task, but removing from ``row`` what makes it, or its index key, too large."""
    dropped = {name for name in _BULKY if name in row or name in change.set}
    freed = sum(len(repr(row[name])) for name in dropped if name in row)
    if len(change.task_id.encode("utf-8", "replace")) > MAX_TASK_ID_BYTES:
        dropped.add(attr.TASK_DATE_TIME)
    for name in sorted(row, key=lambda name: len(repr(row[name])), reverse=True)[:_MAX_DROPPED]:
        if freed >= _ROOM:
            break
        if name not in dropped and name not in change.set and name not in (attr.TASK_ID, attr.LEASE):
            dropped.add(name)
            freed += len(repr(row[name]))
    kept = {name: value for name, value in change.set.items() if name not in dropped}
    remove = tuple(sorted(name for name in dropped.union(change.remove) if name in row))
    return replace(change, set=kept, remove=remove)


_CHECKS: Final[Mapping[str, Callable[[object], object]]] = {
    attr.RETRY_POLICY: RetryPolicy.from_row,
    attr.TIMEOUT_SECONDS: check_timeout,
    attr.SUBJECT: check_subject,
}


def _values(row: Row, now: datetime, grid: Grid, defaults: Defaults) -> dict[str, object]:
    """Raises InvalidInput for whatever in the row is malformed."""
    for name in attr.RECURRENCE:
        if row.get(name) is not None:
            raise InvalidInput(name, row[name], "a task runs once: leave it out, or insert a schedule")
    if not RowView(row).is_unbegun:
        raise InvalidInput(attr.STATUS, row[attr.STATUS], "leave it out: it is set by Dynatick")
    check_names(row)
    for name in (attr.PACK, attr.BATCH_ID):
        if name in row:
            raise InvalidInput(
                name, row[name], "leave it out: it is set by Dynatick; a batch is inserted by its client"
            )
    action = check_users_action(action_name(row, defaults))
    check_payload(row.get(attr.PAYLOAD))
    for name, check in _CHECKS.items():
        if row.get(name) is not None:
            check(row[name])
    if row.get(attr.LIMIT_KEY) is not None:
        check_limit_key(row[attr.LIMIT_KEY], defaults.key_limits)
    if row.get(attr.SCHEDULE_ID) is not None and not isinstance(row[attr.SCHEDULE_ID], str):
        raise InvalidInput(attr.SCHEDULE_ID, row[attr.SCHEDULE_ID], "expected text")
    return scheduled_values(row, action, now=now, grid=grid, defaults=defaults)


def scheduled_values(row: Row, action: str, *, now: datetime, grid: Grid, defaults: Defaults) -> dict[str, object]:
    """What makes a scheduled task of a row that is checked. Raises InvalidInput for its time."""
    when = task_time(row, now=now, grid=grid, defaults=defaults)
    return {
        attr.TASK_DATE_TIME: str(when.bucket),
        attr.DUE_AT: format_instant(when.due_at),
        attr.ACTION: action,
        attr.STATUS: str(Status.SCHEDULED),
        attr.ATTEMPT: 0,
        attr.RUN: _run(row),
        # Not from a row that a user wrote: the idempotency key depends on it.
        attr.CREATED_AT: format_instant(now) if needs_normalising(row) else created_at(row, now),
    }


def _placed(time: Bucket | datetime, row: Row, grid: Grid) -> TaskTime:
    if isinstance(time, datetime):
        return TaskTime(grid.bucket_of(RowView(row).shard_key, time), up_to_millisecond(time))
    # A bucket named without shard stays in shard 0, so that a query by that name finds the task; unless it has a key.
    due = time.instant
    if row.get(attr.DUE_AT) is not None:
        asked = parse_time(row[attr.DUE_AT], attr.DUE_AT)
        asked = asked.instant if isinstance(asked, Bucket) else asked
        due = asked if grid.tick_at_or_after(asked) == grid.tick_at_or_after(due) else due
    bucket = Bucket(grid.tick_at_or_after(time.instant), time.shard)
    return TaskTime(in_own_shard(row, bucket, grid), up_to_millisecond(due))


def _delay(value: object) -> timedelta:
    expected = f"expected a number of seconds from 0 to {MAX_DELAY_SECONDS}"
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or not 0 <= value <= MAX_DELAY_SECONDS:
        raise InvalidInput(attr.DELAY_SECONDS, value, expected)
    return timedelta(microseconds=int(Decimal(str(value)) * 1_000_000))


def _assigned(task_id: str, row: Row, now: datetime, grid: Grid, defaults: Defaults) -> TaskTime:
    task = Unassigned(
        task_id=task_id,
        action=action_name(row, defaults),
        payload=check_payload(row.get(attr.PAYLOAD)),
        attributes=row,
    )
    try:
        due = defaults.assign(task, now, grid)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the user's code: its error, or a sys.exit(), fails this row only
        raise InvalidInput(
            attr.TASK_DATE_TIME, None, f"the assignment policy raised {type(error).__name__}: {error}"
        ) from error
    if due is None:
        bucket = Bucket(grid.tick_after(minute_of(now)), grid.shard_of(RowView(row).shard_key))
        return TaskTime(bucket, up_to_millisecond(now))
    due = parse_instant(due, "the assignment policy's answer")
    return TaskTime(grid.bucket_of(RowView(row).shard_key, due), up_to_millisecond(due))


def action_name(row: Row, defaults: Defaults) -> str:
    """The row's action, or the default. Raises InvalidInput."""
    return check_action(defaults.action if row.get(attr.ACTION) is None else row[attr.ACTION])


def created_at(row: Row, now: datetime) -> str:
    """The row's ``createdAt``, or ``now`` if it is missing or malformed."""
    try:
        return format_instant(parse_instant(row.get(attr.CREATED_AT, now), attr.CREATED_AT))
    except InvalidInput:  # informative only: a malformed value must not fail the task
        return format_instant(now)


def _run(row: Row) -> int:
    """The run: a row that is a task already keeps it; a user's row begins at 1."""
    own = row.get(attr.RUN)
    return int(own) if not RowView(row).is_unscheduled and is_count(own, 1) else 1


def has_value(row: Row, name: str, value: object) -> bool:
    """Whether the row has this value already."""
    return row.get(name) == value and not isinstance(row.get(name), bool)  # True is 1 to Python, but not to a table


def _is_in_own_bucket(row: Row, grid: Grid) -> bool:
    """Whether the row's bucket is that of its due instant."""
    bucket = RowView(row).bucket
    try:
        due = parse_instant(row.get(attr.DUE_AT), attr.DUE_AT)
    except InvalidInput:
        return False
    return (
        bucket is not None
        and row.get(attr.DUE_AT) == format_instant(due)
        and grid.tick_at_or_after(due) == bucket.minute
    )


def unchanged_inputs(row: Row) -> tuple[Condition, ...]:
    """Conditions that the attributes on which the bucket depends are as in ``row``."""
    return as_read(row, attr.OUTCOME, attr.STATUS, attr.ACTION, *attr.TIME_INPUTS)


def past_attributes(row: Row) -> tuple[str, ...]:
    """The row's attributes that only a task that has run may have."""
    past = (
        attr.OUTCOME,
        attr.EXPIRES_AT,
        attr.FINISHED_AT,
        attr.LEASE,
        attr.LEASE_UNTIL,
        attr.STARTED_AT,
        attr.ATTEMPTS,
        attr.RESULT,
        attr.ERROR,
        attr.MOVED_TO,
        attr.DEFERRALS,
        attr.MALFORMED_REASON,
        attr.TURN,
        attr.FIRST_STARTED_AT,
        attr.NEXT_ATTEMPT_AT,
        attr.LATE_MILLISECONDS,
    )
    return tuple(name for name in past if name in row)


def premature_attributes(row: Row) -> tuple[str, ...]:
    """The attributes of a row without outcome that only an ended task may have: ``expiresAt``, with which DynamoDB
    would delete it, and an ``outcome`` that is NULL, with which no claim's condition holds."""
    return tuple(name for name in (attr.OUTCOME, attr.EXPIRES_AT) if name in row)


def _next_attempt(row: Row) -> tuple[str, ...]:
    """The attribute that a row loses when it gets another time."""
    return (attr.NEXT_ATTEMPT_AT,) if attr.NEXT_ATTEMPT_AT in row else ()


def _past_to_remove(row: Row, values: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(name for name in past_attributes(row) if name not in values)


# -- misspelt names ----------------------------------------------------------------------------------------------------

# A task whose only time has such a name would run at once.

TIMES: Final = (*attr.TIME_INPUTS, *attr.RECURRENCE)
"""The attributes that set when a row runs."""

_RIGHT_NAMES: Final = {
    **{name.lower(): name for name in TIMES},
    **dict.fromkeys(
        (
            "due", "duedate", "duedatetime", "dueon", "duetime", "executeat", "executeon", "executiontime", "fireat",
            "runat", "rundate", "runon", "scheduleat", "scheduledat", "scheduledate", "scheduledatetime",
            "scheduledfor", "scheduledon", "scheduledtime", "schedulefor", "scheduletime", "sendat", "startat",
            "triggerat",
        ),
        attr.DUE_AT,
    ),
    **dict.fromkeys(("bucket", "taskdate", "tasktime"), attr.TASK_DATE_TIME),
    **dict.fromkeys(
        ("delay", "delayms", "delayminutes", "delaysec", "delaysecs", "delayinseconds"), attr.DELAY_SECONDS
    ),
    **dict.fromkeys(("cron", "rateexpression", "schedulerexpression"), attr.SCHEDULE_EXPRESSION),
}  # fmt: skip
"""The right name for each other name, which is in lower case and without separators."""

_LONG_NAMES: Final = [name.lower() for name in TIMES if len(name) >= 12]  # recognisable with a wrong letter
_LIKENESS = 0.9
_LIKENESS_OF_DUE_AT = 0.85  # a letter too many, or one too few
_MAX_NAMES, _MAX_CHARACTERS = 100, 40  # of the names to check; a row can have thousands


def right_name(name: str) -> str | None:
    """The time attribute that ``name`` probably stands for. None for a right name, and for any other name."""
    if name in TIMES or len(name) > _MAX_CHARACTERS:
        return None
    plain = _plain(name)
    found = _RIGHT_NAMES.get(plain)
    if found is None and (like := get_close_matches(plain, _LONG_NAMES, 1, _LIKENESS)):
        found = _RIGHT_NAMES[like[0]]
    if found is None and get_close_matches(plain, ["dueat"], 1, _LIKENESS_OF_DUE_AT):
        found = attr.DUE_AT
    return found


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def check_names(row: Row, names: Iterable[str] | None = None) -> None:
    """Refuses a row whose only time has a misspelt name. Raises InvalidInput.

    ``names``: the names to check; None: all names of the row. In a row that also has a time under its right name, such
    an attribute counts as the user's own.
    """
    if any(row.get(name) is not None for name in TIMES):
        return
    for name in islice(row if names is None else names, _MAX_NAMES):
        right = right_name(name)
        if right is not None:
            raise InvalidInput(
                name, row[name], f"expected {right}: under this name it sets no time, and the task would run at once"
            )


# A new schedule with such a name would run at other times than it was meant to.

_OF_SCHEDULES: Final = (
    attr.SCHEDULE_EXPRESSION_TIMEZONE, attr.START_DATE, attr.END_DATE, attr.FLEXIBLE_TIME_WINDOW, attr.SCHEDULE_STATE,
    attr.CATCH_UP, attr.OVERLAP, attr.EXPECTED_WITHIN_SECONDS,
)  # fmt: skip
_RIGHT_NAMES_OF_SCHEDULES: Final = {
    **{name.lower(): name for name in _OF_SCHEDULES},
    "timezone": attr.SCHEDULE_EXPRESSION_TIMEZONE,
}


def check_schedule_names(row: Row) -> None:
    """The same for a new schedule: refuses an attribute of schedules whose name is misspelt. Raises InvalidInput."""
    for name in islice(row, _MAX_NAMES):
        right = _RIGHT_NAMES_OF_SCHEDULES.get(_plain(name)) if len(name) <= _MAX_CHARACTERS else None
        if right is not None and row.get(right) is None and row[name] is not None:
            raise InvalidInput(name, row[name], f"expected {right}: under this name it changes nothing of the schedule")
