"""From arguments to the row of a task: everything is checked here, before anything is written."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, TypedDict

from dynatick.client.settings_cache import SettingsCache
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid, Time, minute_of, parse_time
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.limit_keys import check_limit_key
from dynatick.domain.normalise import Defaults, TaskTime, check_names, scheduled_values, task_time
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.row import RowView
from dynatick.domain.task import Row, check_payload, check_subject, check_task_id, check_timeout, check_users_action
from dynatick.domain.traceparent import check_traceparent
from dynatick.errors import InvalidInput, InvalidInputs
from dynatick.store.codec import MAX_DEPTH, MAX_NAME_BYTES, with_item
from dynatick.tracing import current_traceparent

_TIMES = {attr.TASK_DATE_TIME: "task_date_time", attr.DUE_AT: "due_at", attr.DELAY_SECONDS: "delay_seconds"}
_ARGUMENTS = {
    attr.TASK_ID: "task_id", **_TIMES, attr.ACTION: "action", attr.PAYLOAD: "payload",
    attr.RETRY_POLICY: "retry_policy", attr.TIMEOUT_SECONDS: "timeout_seconds", attr.SUBJECT: "subject",
    attr.LIMIT_KEY: "limit_key",
}  # fmt: skip
_OF_SCHEDULES = frozenset({*attr.RECURRENCE, attr.SCHEDULE_EXPRESSION_TIMEZONE, attr.SCHEDULE_STATE})
_NO_SCHEDULES = "a task runs once: leave it out, or insert it as a schedule"


class RetryPolicyRow(TypedDict, total=False):
    """How often and how long a failed attempt is retried."""

    maximumRetryAttempts: int
    maximumEventAgeInSeconds: int
    minBackoffSeconds: int
    maxBackoffSeconds: int


class _WithoutId(TypedDict, total=False):
    taskDateTime: str | int | float | Decimal | datetime | Bucket
    dueAt: str | int | float | Decimal | datetime | Bucket
    delaySeconds: float | Decimal
    action: str
    payload: Mapping[str, object]
    retryPolicy: RetryPolicyRow
    timeoutSeconds: int | Decimal
    subject: str
    limitKey: str


class TaskRow(_WithoutId):
    """A task for ``insert_many``. For attributes of your own, use any mapping."""

    taskId: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NewTask:
    """A task to insert, with at most one time. Arguments mean what the attributes of the same name mean."""

    task_id: str
    task_date_time: Time | None = None
    due_at: Time | None = None
    delay_seconds: float | Decimal | None = None  # from the insert on
    action: str | None = None  # None: the installation's default
    payload: Mapping[str, object] | None = None
    retry_policy: RetryPolicy | Mapping[str, object] | None = None
    timeout_seconds: int | Decimal | None = None  # None: as the handler declares, if it does
    subject: str | None = None  # what it is about, such as customer:4711, to find it by
    limit_key: str | None = None  # what limits how many of its kind run at once, such as customer:4711
    attributes: Mapping[str, object] = field(default_factory=dict)  # more attributes of the row, the caller's own

    @classmethod
    def from_row(cls, row: Mapping[str, object]) -> NewTask:
        """Reads a map under the table's names; unknown names are the caller's own attributes."""
        values: dict[str, Any] = {argument: row.get(name) for name, argument in _ARGUMENTS.items()}
        return cls(**values, attributes={name: value for name, value in row.items() if name not in _ARGUMENTS})


@dataclass(frozen=True, slots=True)
class Composed:
    """A row to insert. ``complete``: it is a scheduled task; else the scheduler completes it."""

    row: Row
    complete: bool


def compose(
    task: NewTask,
    settings_cache: SettingsCache,
    *,
    now: datetime,
    own: Mapping[str, object | None] = MappingProxyType({}),
) -> Composed:
    """The row of a new task. ``own``: further attributes of Dynatick's; None: it is left out. Raises InvalidInput.

    With a time and known settings it is complete, which saves the scheduler a write.
    """
    wrong = InvalidInputs()
    row = checked_row(task, settings_cache, wrong)
    if attr.TRACEPARENT not in row and (parent := current_traceparent()) is not None:
        row[attr.TRACEPARENT] = parent
    has_time = _has_time(task)
    settings = settings_cache.current()
    action = _action(task, row, settings_cache)

    def check_time() -> None:
        placed = task_time({attr.TASK_ID: "-", **row}, now=now, grid=settings_cache.grid(), defaults=Defaults())
        settings_cache.check_shard(placed.bucket.shard)

    if wrong:
        if any(name in row for name in _TIMES):
            with wrong:  # so that every error is reported
                check_time()
        wrong.raise_all()
    row |= {name: value for name, value in own.items() if value is not None}
    if has_time and settings is not None and action is not None:
        return Composed(scheduled(row, str(action), settings_cache, created=now, now=now), complete=True)
    if has_time:
        check_time()
        if not isinstance(row.get(attr.TASK_DATE_TIME, ""), str):  # DynamoDB refuses a number as the index's key
            row[attr.TASK_DATE_TIME] = format_instant(parse_instant(row[attr.TASK_DATE_TIME], attr.TASK_DATE_TIME))
    # The scheduler sets createdAt: without a token, another's task with the same attributes would pass for this one.
    return Composed(with_item({**row, attr.INSERT_TOKEN: uuid.uuid4().hex}), complete=False)


def checked_row(task: NewTask, settings_cache: SettingsCache, wrong: InvalidInputs) -> dict[str, object]:
    """The row of ``row_of``, whose values are checked against the settings, too, but for its time."""
    row = row_of(task, wrong)
    with wrong:
        check_own_names(task, row)
    if attr.ACTION in row:
        with wrong:
            settings_cache.check_action(str(row[attr.ACTION]))
    settings_cache.check_limits(row, wrong)
    action = _action(task, row, settings_cache)
    if isinstance(action, str) and (task.payload is None or attr.PAYLOAD in row):
        with wrong:
            settings_cache.check_payload(action, row.get(attr.PAYLOAD))
    return row


def _action(task: NewTask, row: Row, settings_cache: SettingsCache) -> object:
    """The action of a task: its own, else the installation's default, if that is known."""
    settings = settings_cache.current()
    return row.get(attr.ACTION) or (settings.default_action if settings and task.action is None else None)


def scheduled(row: Row, action: str, settings_cache: SettingsCache, *, created: datetime, now: datetime) -> Row:
    """A checked row as a scheduled task that was ``created`` at some time, in a bucket whose tick is to come. Raises
    InvalidInput for its time, and for a row that the table would refuse."""
    grid = settings_cache.grid()
    values = scheduled_values(row, action, now=created, grid=grid, defaults=Defaults())
    bucket = Bucket.parse(values[attr.TASK_DATE_TIME])
    settings_cache.check_shard(bucket.shard)
    values[attr.TASK_DATE_TIME] = str(not_before_next_tick(bucket, RowView(row).shard_key, now=now, grid=grid))
    return with_item({**row, **values})


def times_of(task: NewTask) -> dict[str, object]:
    """The task's times, under the table's names; None: it is not given."""
    return {name: getattr(task, argument) for name, argument in _TIMES.items()}


def check_own_names(task: NewTask, row: Row) -> None:
    """Refuses the row of a task without a time if an attribute of the caller's probably stands for one. Raises
    InvalidInput."""
    if not _has_time(task):
        check_names(row, [name for name in row if name not in _ARGUMENTS])


def _has_time(task: NewTask) -> bool:
    return any(value is not None for value in times_of(task).values())


def payload_of(payload: object) -> object:
    """A payload in the form of a row. Raises InvalidInput."""
    return _kept(check_payload(payload), attr.PAYLOAD)


def text_of(value: object, field: str) -> str:
    """A text in the form of a row. Raises InvalidInput."""
    if not isinstance(value, str):
        raise InvalidInput(field, value, "expected text")
    return str(_kept(value, field))


def seconds_of(delay: object) -> Decimal | None:
    """A delay as a row holds it. Raises InvalidInput."""
    if delay is None:
        return None
    if not isinstance(delay, timedelta):
        raise InvalidInput("delay", delay, "expected a timedelta, such as timedelta(hours=2)")
    return Decimal(delay // timedelta(microseconds=1)) / 1_000_000


def time_of(task_id: str, times: Mapping[str, object], *, now: datetime, grid: Grid) -> TaskTime:
    """The bucket and the due instant of a time, under one of the table's names. Raises InvalidInput."""
    named = {name: _time(value, name) for name, value in times.items() if value is not None}
    if not named:
        raise InvalidInput(attr.TASK_DATE_TIME, None, f"expected a time: one of {', '.join(_TIMES)}")
    _check_single(named)
    return task_time({attr.TASK_ID: task_id, **named}, now=now, grid=grid, defaults=Defaults())


def not_before_next_tick(bucket: Bucket, shard_key: str, *, now: datetime, grid: Grid) -> Bucket:
    """The bucket, if its tick is yet to come; else that of the next tick, in the task's own shard."""
    if bucket.minute > minute_of(now):
        return bucket
    return Bucket(grid.tick_after(minute_of(now)), grid.shard_of(shard_key))


def row_of(task: NewTask, wrong: InvalidInputs) -> dict[str, object]:
    """The row as put-item takes it: checked, and a copy that the caller cannot change. An invalid attribute is not in
    it, and its error is added to ``wrong``."""
    row: dict[str, object] = {}
    with wrong:
        row[attr.TASK_ID] = check_task_id(task.task_id)
    times = times_of(task)
    with wrong:
        _check_single({name: value for name, value in times.items() if value is not None})
    for name, value in times.items():
        if value is not None:
            with wrong:
                row[name] = _time(value, name)
    for name, stored in _STORED.items():
        if (value := getattr(task, _ARGUMENTS[name])) is not None:
            with wrong:
                row[name] = stored(value)
    with wrong:
        if not isinstance(task.attributes, Mapping):
            raise InvalidInput("attributes", task.attributes, "expected a map of names to values")
        for name, value in task.attributes.items():
            with wrong:
                if name == attr.TRACEPARENT:
                    row[name] = check_traceparent(value)
                else:
                    row[_own_name(name, value)] = _kept(value, name)
    return row


def _check_single(row: Row) -> None:
    times = [name for name in _TIMES if name in row]
    if len(times) > 1:
        raise InvalidInput(times[1], row[times[1]], f"expected one time only, and there is {times[0]} too")


def _time(value: object, name: str) -> object:
    """A time in the form of a row."""
    if isinstance(value, Bucket):
        return str(value)
    if isinstance(value, datetime):
        return format_instant(parse_instant(value, name))
    if isinstance(value, Decimal) and not value.is_finite():  # comparing it would raise
        raise InvalidInput(name, value, "expected a finite number")
    return value


def _policy(value: object) -> Mapping[str, object]:
    if isinstance(value, RetryPolicy):
        return value.to_row()
    RetryPolicy.from_row(value)
    assert isinstance(value, Mapping)
    return dict(value)


def _own_name(name: object, value: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidInput("attributes", name, "expected names that are text and not empty")
    _check_length(name, "attributes")
    if name in _OF_SCHEDULES:
        raise InvalidInput(name, value, _NO_SCHEDULES)
    if name in _ARGUMENTS:
        raise InvalidInput(name, value, "it has an argument of its own")
    if name in attr.OWN_ATTRIBUTES:
        raise InvalidInput(name, value, "leave it out: it is set by Dynatick")
    return str(_kept(name, "attributes"))


def _kept(value: object, field: str, depth: int = 0) -> object:
    """A copy, checked for what only a real table refuses. The codec checks numbers and types."""
    if depth > MAX_DEPTH:
        raise InvalidInput(field, "a deeper value", f"expected at most {MAX_DEPTH} lists and maps, one in another")
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidInput(field, value, "expected text that UTF-8 can hold (no lone surrogates)") from None
        return str.__str__(value)  # of a member of an enum too, whose own may give its name
    if isinstance(value, Mapping):
        if "" in value:
            raise InvalidInput(field, "", "expected names that are not empty")
        for name in value:
            _check_length(name, field)
        return {_kept(name, field): _kept(part, f"{field}.{name}", depth + 1) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_kept(part, f"{field}[{n}]", depth + 1) for n, part in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        if not value:
            raise InvalidInput(field, value, "expected a set that is not empty")
        return {_kept(part, field) for part in value}
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def _check_length(name: object, field: str) -> None:
    if isinstance(name, str) and len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
        raise InvalidInput(field, name, f"expected names of at most {MAX_NAME_BYTES} bytes")


_STORED: Mapping[str, Callable[[Any], object]] = {
    attr.ACTION: lambda name: _kept(check_users_action(name), attr.ACTION),
    attr.PAYLOAD: payload_of,
    attr.RETRY_POLICY: _policy,
    attr.TIMEOUT_SECONDS: check_timeout,
    attr.SUBJECT: check_subject,
    attr.LIMIT_KEY: check_limit_key,
}
"""For each attribute that an argument sets, what makes the value in the row of that of the argument."""


def stored_value(name: str, value: object) -> object:
    """The value of an argument as the row of a task or of a schedule holds it, under the attribute's ``name``. Raises
    InvalidInput."""
    if value is None:
        return None
    match name:
        case attr.START_DATE | attr.END_DATE:
            time = parse_time(str(value) if isinstance(value, Bucket) else value, name)
            return format_instant(time.instant if isinstance(time, Bucket) else time)
        case attr.CATCH_UP | attr.OVERLAP:
            return str(value)
        case attr.STATE_REASON:
            return text_of(value, name)
        case _:
            return _STORED[name](value) if name in _STORED else value
