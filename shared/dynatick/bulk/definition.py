"""Which attributes of a row say what the task is to do, and when; the others say what became of it."""

from __future__ import annotations

from collections.abc import Mapping

from dynatick.domain.task import OWN_ATTRIBUTES

TIMES = ("taskDateTime", "dueAt", "delaySeconds")
DEFINITION = ("taskId", *TIMES, "action", "payload", "retryPolicy")
STATE = tuple(sorted(OWN_ATTRIBUTES - set(DEFINITION)))
"""What Dynatick has noted of a task. No door takes it."""


def definition(row: Mapping[str, object]) -> dict[str, object]:
    """What an import takes of a row: its definition with a single time, and the attributes of the user's own.

    Of a task that has its bucket, the time is the instant at which it is due; that of one that nobody has looked at
    yet is the one that would be taken.
    """
    times = ("dueAt", *TIMES) if row.get("status") is not None else TIMES
    time = next((name for name in times if row.get(name) is not None), None)
    dropped = {*STATE, *TIMES} - {time}
    return {name: value for name, value in row.items() if name not in dropped and value is not None}
