"""Which attributes of a row say what it is to do, and when; the others say what became of it."""

from __future__ import annotations

from collections.abc import Mapping

from dynatick.domain.schedule import DEFINITION as OF_SCHEDULE
from dynatick.domain.schedule import RECURRENCE, SCHEDULE_ATTRIBUTES, ScheduleState
from dynatick.domain.task import OWN_ATTRIBUTES

TIMES = ("taskDateTime", "dueAt", "delaySeconds")
_WHAT = ("action", "payload", "retryPolicy", "timeoutSeconds")
DEFINITION = ("taskId", *TIMES, *_WHAT)
STATE = tuple(sorted(OWN_ATTRIBUTES - set(DEFINITION)))
"""What Dynatick has noted of a task. No door takes it."""

_RECURRENCE = (*(name for name in OF_SCHEDULE if name != "cronExpression"), "catchUp", "overlap", "stateReason")
SCHEDULE_DEFINITION = ("taskId", *_RECURRENCE, *_WHAT)


def definition(row: Mapping[str, object]) -> dict[str, object]:
    """What an import takes of a row: its definition, a task's with a single time, and the attributes of the user's own.

    Of a task that has its bucket, the time is the instant at which it is due; that of one that nobody has looked at
    yet is the one that would be taken.
    """
    if any(row.get(name) is not None for name in RECURRENCE):
        return _of_schedule(row)
    times = ("dueAt", *TIMES) if row.get("status") is not None else TIMES
    time = next((name for name in times if row.get(name) is not None), None)
    dropped = {*STATE, *TIMES} - {time}
    return {name: value for name, value in row.items() if name not in dropped and value is not None}


def _of_schedule(row: Mapping[str, object]) -> dict[str, object]:
    dropped = ((OWN_ATTRIBUTES | SCHEDULE_ATTRIBUTES) - {*SCHEDULE_DEFINITION, *RECURRENCE}) | _unsaid(row)
    return {name: value for name, value in row.items() if name not in dropped and value is not None}


def _unsaid(row: Mapping[str, object]) -> set[str]:
    """That it runs goes without saying; one that has ended is imported to run again."""
    return set() if row.get("scheduleState") == str(ScheduleState.DISABLED) else {"scheduleState", "stateReason"}
