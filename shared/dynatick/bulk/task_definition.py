"""Which attributes of a row define the task; Dynatick has set the others."""

from __future__ import annotations

from collections.abc import Mapping

from dynatick.domain.schedule import DEFINITION as OF_SCHEDULE
from dynatick.domain.schedule import RECURRENCE, SCHEDULE_ATTRIBUTES, ScheduleState
from dynatick.domain.task import OWN_ATTRIBUTES

TIMES = ("taskDateTime", "dueAt", "delaySeconds")
_WHAT = ("action", "payload", "retryPolicy", "timeoutSeconds")
DEFINITION = ("taskId", *TIMES, *_WHAT)
STATE = tuple(sorted(OWN_ATTRIBUTES - set(DEFINITION)))
"""Set by Dynatick. No interface accepts these."""

_RECURRENCE = (*(name for name in OF_SCHEDULE if name != "cronExpression"), "catchUp", "overlap", "stateReason")
SCHEDULE_DEFINITION = ("taskId", *_RECURRENCE, *_WHAT)


def definition(row: Mapping[str, object]) -> dict[str, object]:
    """The attributes of a row that an import accepts: those that define the task, with one time, and the user's own.

    The time of a task with a status is ``dueAt``; that of an unscheduled row is the one that normalising would use.
    """
    if any(row.get(name) is not None for name in RECURRENCE):
        return _of_schedule(row)
    times = ("dueAt", *TIMES) if row.get("status") is not None else TIMES
    time = next((name for name in times if row.get(name) is not None), None)
    dropped = {*STATE, *TIMES} - {time}
    return {name: value for name, value in row.items() if name not in dropped and value is not None}


def _of_schedule(row: Mapping[str, object]) -> dict[str, object]:
    dropped = ((OWN_ATTRIBUTES | SCHEDULE_ATTRIBUTES) - {*SCHEDULE_DEFINITION, *RECURRENCE}) | _default_state(row)
    return {name: value for name, value in row.items() if name not in dropped and value is not None}


def _default_state(row: Mapping[str, object]) -> set[str]:
    """The state attributes to drop: all schedules but a disabled one are imported as enabled."""
    return set() if row.get("scheduleState") == str(ScheduleState.DISABLED) else {"scheduleState", "stateReason"}
