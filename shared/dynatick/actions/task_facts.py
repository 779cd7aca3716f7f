"""What every target is told about the task: the same five facts, whatever carries them. Pure."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

from dynatick.domain.instants import format_instant
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext

# Printable ASCII but the percent sign, and no space: it stands in a header, or in an attribute, as it is.
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


def facts(task: Task, context: ActionContext) -> dict[str, object]:
    """``taskId``, ``dueAt``, ``attempt``, ``idempotencyKey``, and ``scheduleId`` of a schedule's occurrence."""
    told: dict[str, object] = {
        "taskId": task.task_id,
        "dueAt": format_instant(context.due_at),
        "attempt": context.attempt,
        "idempotencyKey": context.idempotency_key,
    }
    return told if context.schedule_id is None else {**told, "scheduleId": context.schedule_id}


def escaped(text: object) -> str:
    """As a header or a message's attribute can hold it: other characters, and ``%``, are percent-encoded."""
    return quote(str(text), safe=_SAFE)


def repeat_id(context: ActionContext) -> str:
    """64 characters that are the same whenever a target is called for this run of this task, for services that drop
    repeats."""
    return hashlib.sha256(context.idempotency_key.encode("utf-8", "surrogatepass")).hexdigest()
