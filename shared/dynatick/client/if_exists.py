"""What an insert does with a task that has its id already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from dynatick.client.new_task import Composed, NewTask, times_of
from dynatick.client.task_decisions import TaskDecisions, next_run, own_time
from dynatick.client.task_update import Decide, Unchanged, require
from dynatick.client.views import instant_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.batches import BATCH_ACTION
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.lifecycle import postpone, redrive, replace_definition, reschedule
from dynatick.domain.normalise import TaskTime, has_value
from dynatick.domain.row import RowView, in_own_shard, is_terminal
from dynatick.domain.schedule import is_or_was_schedule
from dynatick.domain.task import Row
from dynatick.errors import InvalidInput, shown
from dynatick.store.codec import decode, encode

IF_EXISTS: Final = ("refuse", "keep", "replace", "postpone")
CREATED: Final = "created"
KEPT: Final = "kept"
RESTARTED: Final = "restarted"
_EFFECTS: Final = {"replace": "replaced", "postpone": "postponed"}
MAX_UNTIL: Final = timedelta(days=366)
_OF_DEFINITION: Final = (
    attr.ACTION, attr.PAYLOAD, attr.RETRY_POLICY, attr.TIMEOUT_SECONDS, attr.SUBJECT, attr.LIMIT_KEY,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class IfExists:
    """``mode``: one of IF_EXISTS. ``until``: how long after its first time a task may be postponed; None: for ever."""

    mode: str
    until: timedelta | None

    @classmethod
    def of(cls, mode: object, until: object, task: NewTask) -> IfExists:
        """Raises InvalidInput."""
        if not isinstance(mode, str) or mode not in IF_EXISTS:
            raise InvalidInput("if_exists", mode, f"expected {', '.join(IF_EXISTS[:-1])} or {IF_EXISTS[-1]}")
        if until is not None and mode != "postpone":
            raise InvalidInput("until", str(until), 'leave it out: it belongs to if_exists="postpone"')
        if until is not None and not (isinstance(until, timedelta) and timedelta() < until <= MAX_UNTIL):
            expected = f"expected a timedelta of more than zero, and of {MAX_UNTIL.days} days at most"
            raise InvalidInput("until", str(until), expected)
        if mode in _EFFECTS and not any(value is not None for value in times_of(task).values()):
            expected = f"expected a time, one of {', '.join(times_of(task))}: if_exists={mode!r} needs one"
            raise InvalidInput(attr.DUE_AT, None, expected)
        return cls(mode, until if isinstance(until, timedelta) else None)

    def effect_on(self, row: Row) -> str:
        """That of a change of a task with this row."""
        return RESTARTED if is_terminal(row) else _EFFECTS[self.mode]

    def decision(self, decisions: TaskDecisions, task: NewTask, composed: Composed) -> Decide | None:
        """The change of the task that is there; None: it is kept. Raises InvalidInput for an invalid time."""
        if self.mode not in _EFFECTS:
            return None
        place, grid = decisions.placing(task.task_id, times_of(task)), decisions.settings_cache.grid()
        definition = _definition(composed.row)

        def decide(row: Row) -> ConditionalUpdate:
            require(row, self.mode)
            now = decisions.clock()
            when, bucket, due_at = place(row, now)
            if is_terminal(row):
                change = restarted(row, when, bucket=bucket, due_at=due_at, definition=definition, now=now)
            elif self.mode == "postpone":
                return postponed(row, when, until=self.until, grid=grid, now=now)
            else:
                change = replaced(row, bucket=bucket, due_at=due_at, definition=definition, now=now)
            return _with_origin(change, row, composed.row)

        return decide


def replaced(
    row: Row, *, bucket: Bucket, due_at: datetime, definition: Mapping[str, object], now: datetime
) -> ConditionalUpdate:
    """Gives a task that waits another definition and time. Raises InvalidInput for another action, subject or limit
    key, and Unchanged for a task that has all that."""
    _check_same(row, definition)
    moved = reschedule(row, bucket=bucket, due_at=due_at)
    change = replace_definition(row, moved, definition=definition, now=now, run=next_run(row))
    differs = {name for name, value in change.set.items() if not has_value(row, name, value)}
    if differs <= {attr.TASK_DATE_TIME, attr.REPLACED_AT} and not change.remove:
        raise Unchanged(row)
    return change


def restarted(
    row: Row, when: TaskTime, *, bucket: Bucket, due_at: datetime, definition: Mapping[str, object], now: datetime
) -> ConditionalUpdate:
    """Begins another run of a task that has ended, with this definition. Raises InvalidInput for another action,
    subject or limit key, and Unchanged for a task that had all that and was due no earlier: the insert was repeated."""
    _check_same(row, definition)
    moved = redrive(row, bucket=bucket, due_at=due_at, run=next_run(row))
    change = replace_definition(row, moved, definition=definition, now=now, run=next_run(row))
    last = instant_or_none(row.get(attr.DUE_AT))
    if last is not None and when.due_at <= last and all(has_value(row, name, one) for name, one in definition.items()):
        raise Unchanged(row)
    return change


def postponed(row: Row, when: TaskTime, *, until: timedelta | None, grid: Grid, now: datetime) -> ConditionalUpdate:
    """Moves a task that waits to a later time, at most ``until`` after its first. Raises Unchanged if that is not later
    than its time, or has passed."""
    try:
        own = own_time(row, now=now, grid=grid)
    except InvalidInput:  # that of a raw row, which gets one that can be understood
        own = now
    first = instant_or_none(row.get(attr.FIRST_DUE_AT)) or instant_or_none(row.get(attr.DUE_AT)) or own
    due_at = when.due_at if until is None or when.due_at - first <= until else first + until
    if due_at <= max(own, now):
        raise Unchanged(row)
    bucket = (
        in_own_shard(row, when.bucket, grid)
        if due_at == when.due_at
        else grid.bucket_of(RowView(row).shard_key, due_at)
    )
    return postpone(row, bucket=bucket, due_at=due_at, first_due_at=first)


def _check_same(row: Row, definition: Mapping[str, object]) -> None:
    for name in (attr.ACTION, attr.SUBJECT, attr.LIMIT_KEY):
        own, given = row.get(name), definition.get(name)
        if own != given and not (name == attr.ACTION and None in (own, given)):  # one is left to the installation
            expected = "none" if own is None else shown(own)
            raise InvalidInput(name, given, f"expected {expected}, as the task has; choose another id for another task")


def _with_origin(change: ConditionalUpdate, row: Row, given: Row) -> ConditionalUpdate:
    """The change of a row that comes from the span of this insert from now on, if it has one."""
    if attr.TRACEPARENT in given:
        return replace(change, set={**change.set, attr.TRACEPARENT: given[attr.TRACEPARENT]})
    return replace(change, remove=(*change.remove, attr.TRACEPARENT)) if attr.TRACEPARENT in row else change


def check_is_task(row: Row) -> None:
    """Raises InvalidInput for a schedule, and for what belongs to a batch."""
    batch_id = row.get(attr.BATCH_ID)
    for has_it, what in (
        (is_or_was_schedule(row), "a schedule"),
        (row.get(attr.ACTION) == BATCH_ACTION, "a batch"),
        (RowView(row).is_pack, "the pack of a batch"),
        (batch_id is not None, f"a member of the batch {shown(batch_id)}"),
    ):
        if has_it:
            raise InvalidInput(
                attr.TASK_ID, RowView(row).task_id, f"{what} has it: expected an id of a task of its own"
            )


def _definition(row: Row) -> Mapping[str, object]:
    """What a user says of a task, but for its id and time, as it is read from the table."""
    names = {name for name in row if name in _OF_DEFINITION or name not in attr.OWN_ATTRIBUTES}
    return {name: value for name, value in decode(encode(row)).items() if name in names}
