"""Makes a new or edited row a schedule that waits in the bucket of its next occurrence.

Pure decisions, each carried out as one conditional write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import TICK_MINUTES, Bucket, Grid, instant_of, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, as_read
from dynatick.domain.expressions import Rate, check_fires
from dynatick.domain.instants import format_instant
from dynatick.domain.limit_keys import check_limit_key
from dynatick.domain.normalise import (
    Defaults,
    action_name,
    check_schedule_names,
    created_at,
    has_value,
    past_attributes,
    reject,
)
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.row import RECURRING, RowView, in_own_shard
from dynatick.domain.schedule import (
    MAX_WINDOW_MINUTES,
    AwaitedOccurrence,
    FormerDefinition,
    Missed,
    MissedFor,
    Schedule,
    ScheduleState,
)
from dynatick.domain.task import Row, check_payload, check_subject, check_timeout
from dynatick.errors import InvalidInput

MAX_MISSED_ENTRIES = 10
MAX_EARLIER_DEFINITIONS = 10
MAX_PAUSED = 1000
"""Occurrences of a pause that are counted."""

_LONGEST_WAIT = timedelta(minutes=MAX_WINDOW_MINUTES + max(TICK_MINUTES))


def ready(row: Row, *, now: datetime, grid: Grid, defaults: Defaults, revision: int = 1) -> ConditionalUpdate | None:
    """The update that makes a row a schedule in the bucket of its next occurrence; None if the row is one already.

    A new row is checked and placed. An edited one is placed anew, from now on; occurrences that were due before the
    edit are still made. A row that cannot be understood becomes failed with the reason. The update is conditional on
    everything it depends on. ``revision``: the first revision of a new schedule.
    """
    try:
        change = edited(row, {}, now=now, grid=grid, defaults=defaults, revision=revision)
    except InvalidInput as error:
        return refused(row, error, now=now, grid=grid, retention_days=defaults.retention_days)
    return change if change.set or change.remove else None


def edited(
    row: Row, edits: Mapping[str, object], *, now: datetime, grid: Grid, defaults: Defaults, revision: int = 1
) -> ConditionalUpdate:
    """The update that changes attributes of a schedule (None: removes one), and places it anew if that is required.

    Raises InvalidInput for an edit that makes no valid schedule.
    """
    wanted = {name: value for name, value in {**row, **edits}.items() if value is not None}
    schedule = Schedule.from_row(wanted)
    if schedule.start is None and isinstance(schedule.expression, Rate):
        # A rate counts from its start: without a date, from the next tick.
        schedule = replace(schedule, start=instant_of(grid.tick_after(minute_of(now))))
    action = action_name(wanted, defaults)
    check_payload(wanted.get(attr.PAYLOAD))
    if wanted.get(attr.RETRY_POLICY) is not None:
        RetryPolicy.from_row(wanted[attr.RETRY_POLICY])
    if wanted.get(attr.TIMEOUT_SECONDS) is not None:
        check_timeout(wanted[attr.TIMEOUT_SECONDS])
    if wanted.get(attr.SUBJECT) is not None:
        check_subject(wanted[attr.SUBJECT])
    if wanted.get(attr.LIMIT_KEY) is not None:
        # One whose class is removed goes on, without limit.
        is_given = attr.LIMIT_KEY in edits or not RowView(row).is_recurring
        check_limit_key(wanted[attr.LIMIT_KEY], defaults.key_limits if is_given else None)
    if RowView(row).is_recurring:
        values, remove = _repaired(wanted, schedule, now, grid)
        bucket = None if is_pending(schedule, now) or attr.TASK_DATE_TIME in remove else schedule.bucket
        if bucket is not None:  # with another limit key, that of another shard
            values.setdefault(attr.TASK_DATE_TIME, str(in_own_shard(wanted, bucket, grid)))
        values[attr.ACTION] = action
    else:
        values, remove = _begun(wanted, schedule, now, grid, action, revision)
    values = {name: value for name, value in edits.items() if value is not None} | values
    remove = tuple(dict.fromkeys((*remove, *(name for name, value in edits.items() if value is None))))
    return ConditionalUpdate(
        task_id=schedule.schedule_id,
        set={name: value for name, value in values.items() if not has_value(row, name, value)},
        remove=tuple(name for name in remove if name in row and name not in values),
        conditions=_as_polled(row),
        returning=True,
    )


def refused(
    row: Row, reason: InvalidInput | str, *, now: datetime, grid: Grid, retention_days: int
) -> ConditionalUpdate:
    """→ failed with the reason, as a task that cannot be understood. Lists of schedules show it as FAILED."""
    change = reject(row, reason, now=now, grid=grid, retention_days=retention_days)
    return replace(change, set={**change.set, attr.SCHEDULE_STATE: str(ScheduleState.FAILED)})


def _begun(
    row: Row, schedule: Schedule, now: datetime, grid: Grid, action: str, revision: int
) -> tuple[dict[str, object], tuple[str, ...]]:
    """A row that was not read before becomes a schedule."""
    check_schedule_names(row)
    view = RowView(row)
    if view.is_unscheduled:
        for name in attr.TIME_INPUTS:
            is_ours = name == attr.TASK_DATE_TIME and view.is_moved  # of a rejection not yet delivered
            if row.get(name) is not None and not is_ours:
                raise InvalidInput(
                    name, row[name], "leave it out: a schedule's times follow from its expression, from startDate on"
                )
    created = created_at(row, now)
    first = _first_occurrence(schedule, now)
    values: dict[str, object] = {
        **_as_understood(row, schedule),
        attr.STATUS: RECURRING,
        attr.SCHEDULE_ID: schedule.schedule_id,
        attr.ACTION: action,
        attr.REVISION: revision,
        attr.CREATED_AT: created,
        **_position(schedule, now, grid, first),
    }
    stray = (
        *past_attributes(row),
        *attr.TIME_INPUTS,
        attr.ATTEMPT,
        attr.RUN,
        attr.CRON_EXPRESSION,
        attr.NEXT_OCCURRENCE_AT,
        attr.AWAITED,
    )
    return values, tuple(name for name in stray if name not in values)


def _repaired(row: Row, schedule: Schedule, now: datetime, grid: Grid) -> tuple[dict[str, object], tuple[str, ...]]:
    """A schedule whose row may have been edited: its definition, its bucket, or attributes that it must not have."""
    values: dict[str, object] = {attr.SCHEDULE_ID: schedule.schedule_id}
    remove: tuple[str, ...] = (attr.OUTCOME, attr.EXPIRES_AT, attr.CRON_EXPRESSION, attr.MALFORMED_REASON)
    paused = schedule.state is ScheduleState.DISABLED
    pending = is_pending(schedule, now)
    if schedule.defined != schedule.definition:
        values |= _as_understood(row, schedule) | _remembered(row, schedule, now)
        if pending:  # due occurrences stay due; later ones follow the new definition, from now on
            values[attr.DEFINED_AT] = format_instant(now)
            if due_before := _due_before(schedule, now):
                values[attr.DUE_BEFORE] = [former.to_row() for former in due_before]
            if not _is_next_due(schedule, now):  # only the buffered occurrence is pending
                first = None if paused else schedule.next_after(now)
                values |= {} if first is None else {attr.NEXT_OCCURRENCE_AT: format_instant(first)}
                remove = (*remove, attr.NEXT_OCCURRENCE_AT)
        else:
            if _is_paused_alone(schedule):  # it may have had its last occurrence
                values[attr.DEFINED_AT] = format_instant(now)
            else:
                values |= _position(schedule, now, grid, _first_occurrence(schedule, now))
            if paused:
                remove = (*remove, attr.TASK_DATE_TIME, attr.NEXT_OCCURRENCE_AT)
            if schedule.awaited:
                values[attr.TASK_DATE_TIME] = str(_bucket_with_awaited(schedule, values, now, grid))
    elif paused:
        if not pending and (not schedule.awaited or schedule.bucket is None):
            remove = (*remove, attr.TASK_DATE_TIME, attr.NEXT_OCCURRENCE_AT)
    elif schedule.next_occurrence_at is None and (schedule.buffered_occurrence_at is not None or schedule.awaited):
        first = schedule.next_after(max(now, schedule.buffered_occurrence_at or now))
        values |= {} if first is None else {attr.NEXT_OCCURRENCE_AT: format_instant(first)}
        if schedule.bucket is None:
            values[attr.TASK_DATE_TIME] = str(grid.bucket_of(schedule.shard_key, now))
    elif schedule.next_occurrence_at is None:
        values |= _position(schedule, now, grid, _first_occurrence(schedule, now))
    elif _is_misplaced(schedule, now, grid):
        values[attr.TASK_DATE_TIME] = str(bucket_of_occurrence(schedule, schedule.next_occurrence_at, grid))
    return values, tuple(name for name in remove if name not in values)


def _is_paused_alone(schedule: Schedule) -> bool:
    """Whether a schedule was paused, and nothing else of its definition was changed."""
    before = schedule.definition or {}
    return schedule.defined == {**before, attr.SCHEDULE_STATE: str(ScheduleState.DISABLED)}


def _remembered(row: Row, schedule: Schedule, now: datetime) -> dict[str, object]:
    """What the history still needs once the definition changes: the timing until now, and the occurrences that a pause
    skipped."""
    values: dict[str, object] = {}
    before = schedule.definition or {}
    former = FormerDefinition.from_row({**before, "until": format_instant(now)})
    if former is None:
        return values
    if any(former.to_row().get(name) != schedule.defined.get(name) for name in attr.TIMING):
        kept = row.get(attr.EARLIER)
        earlier = kept if isinstance(kept, (list, tuple)) else ()
        values[attr.EARLIER] = [*earlier, former.to_row()][-MAX_EARLIER_DEFINITIONS:]
    if before.get(attr.SCHEDULE_STATE) == str(ScheduleState.DISABLED) and schedule.defined_at is not None:
        skipped = _paused_occurrences(former, schedule.defined_at)
        if skipped is not None:
            values[attr.MISSED] = [entry.to_row() for entry in [*schedule.missed, skipped][-MAX_MISSED_ENTRIES:]]
    return values


def _paused_occurrences(former: FormerDefinition, paused_at: datetime) -> Missed | None:
    """The occurrences that a pause skipped. One that was due when the pause began is made all the same."""
    first: datetime | None = None
    last, number = paused_at, 0
    while number < MAX_PAUSED and (nominal := former.next_after(last)) is not None:
        first, last, number = first or nominal, nominal, number + 1
    if first is None:
        return None
    last = last if number < MAX_PAUSED else former.until  # beyond MAX_PAUSED they are not counted
    return Missed(first=first, last=last, occurrences=number, reason=MissedFor.PAUSED)


def is_pending(schedule: Schedule, now: datetime) -> bool:
    """Whether an occurrence is due or buffered that the schedule's tick has yet to make."""
    if schedule.bucket is None:
        return False
    if schedule.buffered_occurrence_at is not None:
        return True
    due = schedule.next_occurrence_at
    if due is None or due > now:
        return False
    return schedule.state is ScheduleState.ENABLED or schedule.defined != schedule.definition or _before_pause(schedule)


def _is_next_due(schedule: Schedule, now: datetime) -> bool:
    """Whether the next occurrence was due under the definition that is being replaced."""
    due = schedule.next_occurrence_at
    if due is None or due > now:
        return False
    before = schedule.definition
    return before is None or before.get(attr.SCHEDULE_STATE) == str(ScheduleState.ENABLED) or _before_pause(schedule)


def _before_pause(schedule: Schedule) -> bool:
    due, paused_at = schedule.next_occurrence_at, schedule.defined_at
    return due is not None and paused_at is not None and due <= paused_at


def _due_before(schedule: Schedule, now: datetime) -> Sequence[FormerDefinition]:
    """The replaced definitions that have due occurrences after the next one, with the one that is replaced now."""
    former, first = schedule.former(now), schedule.next_occurrence_at
    if former is None or first is None:
        return schedule.due_before
    since = max([first, *(before.until for before in schedule.due_before)])
    return schedule.due_before if former.next_after(since) is None else [*schedule.due_before, former]


def _first_occurrence(schedule: Schedule, after: datetime) -> datetime:
    """The first nominal instant after ``after``. Raises InvalidInput if there is none."""
    return check_fires(schedule.expression, after=after, zone=schedule.zone, start=schedule.start, end=schedule.end)


def _as_understood(row: Row, schedule: Schedule) -> dict[str, object]:
    """The definition, in canonical notation."""
    values: dict[str, object] = {
        attr.SCHEDULE_EXPRESSION: schedule.expression.text,
        attr.SCHEDULE_EXPRESSION_TIMEZONE: schedule.zone,
        attr.SCHEDULE_STATE: str(schedule.state),
        attr.ACCEPTED_DEFINITION: schedule.defined,
    }
    for name, date in ((attr.START_DATE, schedule.start), (attr.END_DATE, schedule.end)):
        if date is not None:
            values[name] = format_instant(date)
    return values


def _position(schedule: Schedule, now: datetime, grid: Grid, first: datetime) -> dict[str, object]:
    values: dict[str, object] = {attr.DEFINED_AT: format_instant(now)}
    if schedule.state is ScheduleState.ENABLED:
        values[attr.NEXT_OCCURRENCE_AT] = format_instant(first)
        values[attr.TASK_DATE_TIME] = str(bucket_of_occurrence(schedule, first, grid))
    return values


def bucket_of_occurrence(schedule: Schedule, nominal: datetime, grid: Grid) -> Bucket:
    return grid.bucket_of(schedule.shard_key, schedule.starts_at(nominal))


def bucket_of_deadlines(schedule: Schedule, awaited: Sequence[AwaitedOccurrence], grid: Grid) -> Bucket:
    """The bucket of the tick at which the first of the awaited occurrences must have completed."""
    return grid.bucket_of(schedule.shard_key, min(one.expected_by for one in awaited))


def _bucket_with_awaited(schedule: Schedule, values: Mapping[str, object], now: datetime, grid: Grid) -> Bucket:
    """The bucket of a schedule that is placed anew while occurrences are awaited: at the first deadline, unless its
    next run comes before."""
    deadline = max(bucket_of_deadlines(schedule, schedule.awaited, grid), grid.bucket_of(schedule.shard_key, now))
    following = values.get(attr.TASK_DATE_TIME)
    return deadline if following is None else min(deadline, Bucket.parse(following))


def _is_misplaced(schedule: Schedule, now: datetime, grid: Grid) -> bool:
    """Whether the schedule is in no bucket, or in one after its next occurrence's that no tick moved it to.

    One whose next occurrence is due waits for the tick of the interval and the window that it was placed by.
    """
    due = schedule.next_occurrence_at
    if schedule.bucket is None or due is None:
        return True
    if schedule.buffered_occurrence_at is not None or schedule.is_moved:
        return False
    if due <= now and schedule.bucket.instant <= due + _LONGEST_WAIT:
        return False
    return schedule.bucket.minute > bucket_of_occurrence(schedule, due, grid).minute


def _as_polled(row: Row) -> tuple[Any, ...]:
    names = (attr.OUTCOME, attr.STATUS, attr.ACTION, attr.LIMIT_KEY, *attr.TIME_INPUTS, *attr.DEFINITION)
    return as_read(row, *dict.fromkeys((*names, *attr.POSITION)))
