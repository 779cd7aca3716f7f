"""Schedules and their occurrences as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dynatick.cli.output import Column, Output, say, show_one
from dynatick.cli.session import Session
from dynatick.domain import attributes as attr

if TYPE_CHECKING:
    from dynatick.client import ScheduleView

_SHOWN = (
    attr.TASK_ID, attr.SCHEDULE_EXPRESSION, attr.CRON_EXPRESSION, attr.SCHEDULE_EXPRESSION_TIMEZONE, attr.START_DATE,
    attr.END_DATE, attr.FLEXIBLE_TIME_WINDOW, attr.CATCH_UP, attr.OVERLAP, attr.EXPECTED_WITHIN_SECONDS, attr.ACTION,
    attr.PAYLOAD, attr.RETRY_POLICY, attr.TIMEOUT_SECONDS, attr.SCHEDULE_STATE, attr.STATE_REASON, attr.ERROR,
    attr.NEXT_OCCURRENCE_AT, attr.TASK_DATE_TIME, attr.BUFFERED_OCCURRENCE_AT, attr.LAST_OCCURRENCE_AT,
    attr.LAST_TASK_ID, attr.MISSED_OCCURRENCES, attr.CREATED_AT,
)  # fmt: skip
"""The attributes that the table shows, in this order, before the user's own. JSON has all of them."""

_IN_TIME = "inTime"

COLUMNS = (
    Column("SCHEDULE", attr.TASK_ID, folds=True),
    Column("STATE", attr.SCHEDULE_STATE),
    Column("EXPRESSION", attr.SCHEDULE_EXPRESSION, folds=True),
    Column("ZONE", attr.SCHEDULE_EXPRESSION_TIMEZONE, spare=1),
    Column("ACTION", attr.ACTION, folds=True, spare=1),
    Column("NEXT OCCURRENCE", attr.NEXT_OCCURRENCE_AT),
    Column("LAST OCCURRENCE", attr.LAST_OCCURRENCE_AT, spare=1),
    Column("EXPECTED WITHIN", attr.EXPECTED_WITHIN_SECONDS, right=True, spare=2),
    Column("MISSED", attr.MISSED_OCCURRENCES, right=True, spare=1),
    Column("WHY", "why", folds=True),
)
CHANGED = (
    Column("SCHEDULE", attr.TASK_ID, folds=True),
    Column("WHAT", "result"),
    Column("STATE", attr.SCHEDULE_STATE, spare=1),
    Column("NEXT OCCURRENCE", attr.NEXT_OCCURRENCE_AT, spare=1),
    Column("WHY", "why", folds=True),
)
PREVIEW = (Column("OCCURRENCE", "occurrenceAt"), Column("LOCAL TIME", "local"), Column("NOTES", "notes", folds=True))
HISTORY = (
    Column("OCCURRENCE", "occurrenceAt"),
    Column("STATUS", attr.STATUS),
    Column("BUCKET", attr.TASK_DATE_TIME, spare=1),
    Column("FINISHED", attr.FINISHED_AT, to_seconds=True, spare=1),
    Column("IN TIME", _IN_TIME),
    Column("REASON", "reason"),
    Column("ERROR", attr.ERROR, folds=True),
    Column("TASK", attr.TASK_ID, folds=True),
)


def columns_of(columns: Sequence[Column], rows: Sequence[Mapping[str, object]]) -> list[Column]:
    """The columns of a list, without those about deadlines where no schedule has one."""
    optional = (attr.EXPECTED_WITHIN_SECONDS, _IN_TIME)
    return [one for one in columns if one.attribute not in optional or any(one.attribute in row for row in rows)]


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
