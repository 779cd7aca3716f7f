"""Schedules and their occurrences as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynatick.cli.output import Column, Output, say, show_one
from dynatick.cli.session import Session

if TYPE_CHECKING:
    from dynatick.client import ScheduleView

_SHOWN = (
    "taskId", "scheduleExpression", "cronExpression", "scheduleExpressionTimezone", "startDate", "endDate",
    "flexibleTimeWindow", "catchUp", "overlap", "action", "payload", "retryPolicy", "timeoutSeconds",
    "scheduleState", "stateReason", "error", "nextOccurrenceAt", "taskDateTime", "bufferedOccurrenceAt",
    "lastOccurrenceAt", "lastTaskId", "missedOccurrences", "createdAt",
)  # fmt: skip
"""The attributes that the table shows, in this order, before the user's own. JSON has all of them."""

COLUMNS = (
    Column("SCHEDULE", "taskId", folds=True),
    Column("STATE", "scheduleState"),
    Column("EXPRESSION", "scheduleExpression", folds=True),
    Column("ZONE", "scheduleExpressionTimezone", spare=1),
    Column("ACTION", "action", folds=True, spare=1),
    Column("NEXT OCCURRENCE", "nextOccurrenceAt"),
    Column("LAST OCCURRENCE", "lastOccurrenceAt", spare=1),
    Column("MISSED", "missedOccurrences", right=True, spare=1),
    Column("WHY", "why", folds=True),
)
CHANGED = (
    Column("SCHEDULE", "taskId", folds=True),
    Column("WHAT", "result"),
    Column("STATE", "scheduleState", spare=1),
    Column("NEXT OCCURRENCE", "nextOccurrenceAt", spare=1),
    Column("WHY", "why", folds=True),
)
PREVIEW = (Column("OCCURRENCE", "occurrenceAt"), Column("LOCAL TIME", "local"), Column("NOTES", "notes", folds=True))
HISTORY = (
    Column("OCCURRENCE", "occurrenceAt"),
    Column("STATUS", "status"),
    Column("BUCKET", "taskDateTime", spare=1),
    Column("FINISHED", "finishedAt", to_seconds=True, spare=1),
    Column("REASON", "reason"),
    Column("ERROR", "error", folds=True),
    Column("TASK", "taskId", folds=True),
)


def show_schedule(session: Session, view: ScheduleView, *, notes: bool = True) -> None:
    """Prints a schedule. ``notes``: with its warnings."""
    if session.output is not Output.TABLE:
        show_one(view.to_row(), session.output)
        return
    row = view.to_row()
    shown = {name: row[name] for name in _SHOWN if name in row} | dict(view.attributes)
    show_one(shown, session.output)
    if notes:
        say_notes(view)


def say_notes(view: ScheduleView) -> None:
    """Prints its warnings to stderr."""
    for warning in view.warnings:
        say(f"note: {warning}")
