"""Which attributes of a row define the task, since Dynatick has set the others; and the id of one without."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from dynatick.domain import attributes as attr
from dynatick.domain.row import RowView
from dynatick.domain.schedule import ScheduleState
from dynatick.errors import InvalidInput
from dynatick.json_reader import dumps

_WHAT = (attr.ACTION, attr.PAYLOAD, attr.RETRY_POLICY, attr.TIMEOUT_SECONDS, attr.SUBJECT, attr.LIMIT_KEY)
DEFINITION = (attr.TASK_ID, *attr.TIME_INPUTS, *_WHAT)
STATE = tuple(sorted(attr.OWN_ATTRIBUTES - set(DEFINITION)))
"""Set by Dynatick. No interface accepts these."""

_RECURRENCE = tuple(name for name in attr.DEFINITION if name != attr.CRON_EXPRESSION)
_POLICIES = (attr.CATCH_UP, attr.OVERLAP, attr.EXPECTED_WITHIN_SECONDS)
SCHEDULE_DEFINITION = (attr.TASK_ID, *_RECURRENCE, *_POLICIES, attr.STATE_REASON, *_WHAT)


def definition(row: Mapping[str, object]) -> dict[str, object]:
    """The attributes of a row that an import accepts: those that define the task, with one time, and the user's own.

    The time of a task with a status is ``dueAt``; that of an unscheduled row is the one that normalising would use.
    """
    if RowView(row).has_expression:
        return _of_schedule(row)
    times = attr.TIME_INPUTS if RowView(row).is_unscheduled else (attr.DUE_AT, *attr.TIME_INPUTS)
    time = next((name for name in times if row.get(name) is not None), None)
    dropped = {*STATE, *attr.TIME_INPUTS} - {time}
    return {name: value for name, value in row.items() if name not in dropped and value is not None}


def _of_schedule(row: Mapping[str, object]) -> dict[str, object]:
    dropped = (
        (attr.OWN_ATTRIBUTES | attr.SCHEDULE_ATTRIBUTES) - {*SCHEDULE_DEFINITION, *attr.RECURRENCE}
    ) | _default_state(row)
    return {name: value for name, value in row.items() if name not in dropped and value is not None}


def _default_state(row: Mapping[str, object]) -> set[str]:
    """The state attributes to drop: all schedules but a disabled one are imported as enabled."""
    return (
        set()
        if row.get(attr.SCHEDULE_STATE) == str(ScheduleState.DISABLED)
        else {attr.SCHEDULE_STATE, attr.STATE_REASON}
    )


# -- ids for tasks without one -----------------------------------------------------------------------------------------
#
# Derived from the attributes, so that importing a file again inserts no second task.

PREFIX = "import-"


def with_id(row: Mapping[str, object], prefix: str = PREFIX) -> dict[str, object]:
    """The row with a ``taskId``: its own, or one derived from its attributes, independent of their order.

    Equal rows get the same id and so are one task. Raises InvalidInput for an empty row, and for a row in which
    ``taskId`` seems misspelt.
    """
    if attr.TASK_ID in row:
        return dict(row)
    for name in row:
        if name.lower().replace("_", "").replace("-", "").replace(" ", "") == "taskid":
            raise InvalidInput(name, row[name], "expected the name taskId")
    if not row:
        raise InvalidInput("line", dict(row), "expected a task: at least one attribute")
    return {attr.TASK_ID: prefix + hashlib.sha256(dumps(_sorted(row)).encode()).hexdigest()[:32], **row}


def _sorted(value: object) -> object:
    """The value, with the names in its maps sorted."""
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(part) for part in value] if isinstance(value, list) else value
