"""Why there is no task of an occurrence's id: it was not made, is to come, is over, or never was one."""

from __future__ import annotations

from datetime import datetime

from dynatick.client.explanation import Explanation
from dynatick.client.schedule_occurrences import RUN_NOW, ScheduleOccurrence, latest_occurrences, occurrences_between
from dynatick.client.views import number_or
from dynatick.domain import attributes as attr
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.row import is_terminal
from dynatick.domain.schedule import MissedFor, Schedule, is_or_was_schedule
from dynatick.domain.task import Row
from dynatick.engine.ports import Store
from dynatick.errors import InvalidInput

_REASONS = {
    MissedFor.OUTAGE: "its tick came too late, and catchUp skips it",
    MissedFor.OVERLAP: "the occurrence before it had not ended, and overlap skips it",
    MissedFor.PAUSED: "the schedule was paused",
    MissedFor.ALL_PAUSED: "the whole installation was paused, and catchUp skips it",
    MissedFor.TOO_OLD: "its tick came too late, and catchUp makes up fewer or later ones only",
    MissedFor.ID_TAKEN: "another task has its id",
    MissedFor.TOO_LARGE: "the table did not take its row, which is too large",
}


def parse_occurrence_id(task_id: str) -> tuple[str, int, datetime] | None:
    """The schedule, its revision, and the nominal instant; None if it is no id of an occurrence."""
    schedule_id, _, rest = task_id.removesuffix(RUN_NOW).rpartition("#")
    schedule_id, _, revision = schedule_id.rpartition("#")
    if not schedule_id or not (revision.isascii() and revision.isdigit()) or len(revision) > 9:
        return None
    try:
        return schedule_id, int(revision), parse_instant(rest, "instant")
    except InvalidInput:
        return None


def explain_missing_occurrence(store: Store, task_id: str, now: datetime) -> Explanation | None:
    """Why there is no task of this id; None if no schedule says. Reads the schedule. Raises StoreError."""
    parsed = parse_occurrence_id(task_id)
    if parsed is None:
        return None
    schedule_id, revision, instant = parsed
    row = store.get(schedule_id)
    if row is None or not (is_or_was_schedule(row)):
        return None
    why = _why(store, row, revision, instant, now, is_extra=task_id.endswith(RUN_NOW))
    return Explanation(task_id=task_id, status=None, schedule_id=schedule_id, sentence=f"there is no such task: {why}")


def _why(store: Store, row: Row, revision: int, instant: datetime, now: datetime, *, is_extra: bool) -> str:
    present = number_or(row.get(attr.REVISION), 0)
    if revision != present:
        return f"the occurrences of its schedule are of revision {present} now, since it was inserted anew"
    if is_extra:
        return "no run-now made it, or it was deleted, or has expired"
    at = format_instant(instant)
    if instant > now:
        try:
            coming = not is_terminal(row) and occurrences_between(Schedule.from_row(row), instant, instant, 1)
        except InvalidInput:  # malformed since
            coming = False
        return f"it is made at its tick, at {at}" if coming else f"its schedule has no occurrence at {at}"
    found = [one for one in latest_occurrences(store, row, instant, instant, 1, now) if not one.run_now]
    return _said(found[0], at) if found else f"its schedule had no occurrence at {at}"


def _said(one: ScheduleOccurrence, at: str) -> str:
    match one.status:
        case "missed":
            reason = "" if one.reason is None else f": {_REASONS.get(MissedFor(one.reason), one.reason)}"
            return f"the occurrence at {at} was not made{reason}"
        case "due":
            return f"the occurrence at {at} is due, and is made at the next tick"
        case _:
            return f"the occurrence at {at} was made, and was deleted, or has expired"
