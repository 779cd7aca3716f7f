"""Writes occurrences, and moves their schedule on to its next one.

An occurrence's id follows from its schedule and its nominal instant, and it is written before its schedule moves on. A
tick that is interrupted between the two writes, or that comes second, finds that the occurrence exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dynatick.domain import attributes as attr
from dynatick.domain.awaited_occurrence import AwaitedOccurrence
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import ConditionalUpdate, as_read
from dynatick.domain.instants import format_instant
from dynatick.domain.lifecycle import terminal
from dynatick.domain.normalise import has_value
from dynatick.domain.occurrence_plan import Plan
from dynatick.domain.recurrence import MAX_MISSED_ENTRIES, bucket_of_deadlines, bucket_of_occurrence
from dynatick.domain.schedule import Schedule, ScheduleState, handed_on, is_handed_on
from dynatick.domain.task import LargeRow, Row, Status

_HANDED_ON = (attr.PAYLOAD, attr.RETRY_POLICY, attr.TIMEOUT_SECONDS)  # to occurrences, with the user's own attributes


def advance(
    row: Row,
    schedule: Schedule,
    plan: Plan,
    awaited: Sequence[AwaitedOccurrence] = (),
    *,
    closed_through: int,
    grid: Grid,
    now: datetime,
    retention_days: int,
) -> ConditionalUpdate:
    """The update that moves a schedule on, once the occurrences of ``plan`` are written. ``awaited``: after that."""
    values: dict[str, object] = {}
    remove: list[str] = []
    if plan.last is not None:
        values |= {
            attr.LAST_OCCURRENCE_AT: format_instant(plan.last),
            attr.LAST_TASK_ID: schedule.occurrence_id(plan.last),
        }
    if plan.missed:
        kept = [*schedule.missed, *plan.missed][-MAX_MISSED_ENTRIES:]
        values[attr.MISSED] = [entry.to_row() for entry in kept]
        values[attr.MISSED_OCCURRENCES] = schedule.missed_occurrences + sum(entry.occurrences for entry in plan.missed)
    if plan.buffered is not None:
        values[attr.BUFFERED_OCCURRENCE_AT] = format_instant(plan.buffered)
    else:
        remove.append(attr.BUFFERED_OCCURRENCE_AT)
    if plan.next_occurrence_at is not None:
        values[attr.NEXT_OCCURRENCE_AT] = format_instant(plan.next_occurrence_at)
    else:
        remove.append(attr.NEXT_OCCURRENCE_AT)
    due_before = [
        one
        for one in schedule.due_before
        if plan.next_occurrence_at is not None and one.until >= plan.next_occurrence_at
    ]
    if due_before:
        values[attr.DUE_BEFORE] = [former.to_row() for former in due_before]
    else:
        remove.append(attr.DUE_BEFORE)
    if awaited:
        values[attr.AWAITED] = [one.to_row() for one in awaited]
    else:
        remove.append(attr.AWAITED)
    if not plan.more:
        following = plan.next_occurrence_at
        is_paused = schedule.state is ScheduleState.DISABLED and (following is None or schedule.is_paused_at(following))
        bucket = _bucket_of_next_poll(schedule, plan, awaited, closed_through, grid)
        if is_paused and plan.buffered is None:
            remove.append(attr.NEXT_OCCURRENCE_AT)
            values.pop(attr.NEXT_OCCURRENCE_AT, None)
        if bucket is not None:
            values[attr.TASK_DATE_TIME] = str(bucket)
        else:
            remove.append(attr.TASK_DATE_TIME)
            if not is_paused:
                values |= terminal(Status.COMPLETED, now, retention_days)
                values[attr.SCHEDULE_STATE] = str(ScheduleState.COMPLETED)
    return ConditionalUpdate(
        task_id=schedule.schedule_id,
        set={name: value for name, value in values.items() if not has_value(row, name, value)},
        remove=tuple(name for name in remove if name in row),
        conditions=as_read(row, *dict.fromkeys((attr.OUTCOME, attr.STATUS, *attr.DEFINITION, *attr.POSITION))),
        returning=True,
    )


def _bucket_of_next_poll(
    schedule: Schedule, plan: Plan, awaited: Sequence[AwaitedOccurrence], closed_through: int, grid: Grid
) -> Bucket | None:
    """The bucket of the tick that has to look at the schedule next; None: none has.

    That is the next run's; before that, the one at which an awaited occurrence must have completed; and while one is
    buffered, the next, in case the one before has ended by then.
    """
    soon = Bucket(grid.tick_after(closed_through), grid.shard_of(schedule.schedule_id))
    if plan.buffered is not None:
        return soon
    buckets = [max(soon, bucket_of_deadlines(schedule, awaited, grid))] if awaited else []
    following = plan.next_occurrence_at
    if following is not None and not schedule.is_paused_at(following):
        buckets.append(bucket_of_occurrence(schedule, following, grid))
    return min(buckets, default=None)


def occurrence_row(
    row: Row, schedule: Schedule, nominal: datetime, bucket: Bucket, *, now: datetime, extra: str = ""
) -> Row:
    """The row of an occurrence: a task that waits in ``bucket``. ``extra``: ends the id of one that run-now makes."""
    values = {
        attr.TASK_ID: schedule.occurrence_id(nominal, extra=extra),
        attr.SCHEDULE_ID: schedule.schedule_id,
        attr.TASK_DATE_TIME: str(bucket),
        attr.DUE_AT: format_instant(nominal),
        attr.ACTION: row[attr.ACTION],
        attr.STATUS: str(Status.SCHEDULED),
        attr.ATTEMPT: 0,
        attr.RUN: 1,
    }  # no createdAt, so that the idempotency key is the same whichever tick writes it
    if isinstance(row, LargeRow):
        return row.changed(values, only=lambda name: name in _HANDED_ON or is_handed_on(name))
    return handed_on(row) | values | {name: row[name] for name in _HANDED_ON if row.get(name) is not None}


def bucket_at(schedule: Schedule, nominal: datetime, *, found_in: Bucket, closed_through: int, grid: Grid) -> Bucket:
    """The bucket of an occurrence that a tick writes: its own time's, within the buckets that are still polled."""
    minute = grid.tick_at_or_after(schedule.starts_at(nominal))
    return Bucket(max(found_in.minute, min(minute, closed_through)), found_in.shard)
