"""How late a task began. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from dynatick.domain.buckets import Grid, instant_of
from dynatick.domain.task import Task
from dynatick.engine.rules import Precision, Rules

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
    run it. Tasks of a limited action, and occurrences, are begun by ticks alone."""
    if rules.precision is Precision.TICK or task.action in rules.limited_actions:
        return False
    is_occurrence = task.schedule_id is not None and task.next_attempt_at is None
    return not is_occurrence and began - due_since(task) > WOKEN_LATE_AFTER


def milliseconds(delta: timedelta) -> int:
    return delta // _MILLISECOND
