"""The metadata of a task that every target gets: the same five fields for each action. Pure."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

from dynatick.domain import attributes as attr
from dynatick.domain.instants import format_instant
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext

# Printable ASCII without the percent sign and without space: these characters stay as they are.
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


def task_metadata(task: Task, context: ActionContext) -> dict[str, object]:
    """``taskId``, ``dueAt``, ``attempt``, ``idempotencyKey``, and ``scheduleId`` of a schedule's occurrence."""
    metadata: dict[str, object] = {
        attr.TASK_ID: task.task_id,
        attr.DUE_AT: format_instant(context.due_at),
        attr.ATTEMPT: context.attempt,
        "idempotencyKey": context.idempotency_key,
    }
    return metadata if context.schedule_id is None else {**metadata, attr.SCHEDULE_ID: context.schedule_id}


def percent_encoded(text: object) -> str:
    """The text for a header or a message attribute: other characters, and ``%``, are percent-encoded."""
    return quote(str(text), safe=_SAFE)


def deduplication_id(context: ActionContext) -> str:
    """64 characters that are the same for each attempt of one run of the task, for services that drop repeats."""
    return hashlib.sha256(context.idempotency_key.encode("utf-8", "surrogatepass")).hexdigest()
