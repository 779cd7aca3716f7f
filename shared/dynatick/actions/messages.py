"""What SNS and SQS have in common: a message, its attributes, and what a FIFO target wants besides."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from dynatick.actions.plain_values import MAX_BYTES, to_json
from dynatick.actions.task_facts import escaped, facts, repeat_id
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick.errors import PermanentError


def text_of(message: object) -> str:
    """A text as it is, anything else as JSON. Raises PermanentError."""
    if isinstance(message, str):
        try:
            message.encode()
        except UnicodeEncodeError:
            raise PermanentError("payload.message: expected text that UTF-8 can hold") from None
        return message
    try:
        return to_json(message)
    except ValueError as error:
        raise PermanentError(f"payload.message: {error}") from None


def attributes_of(
    task: Task, context: ActionContext, users: Mapping[str, str | int | float]
) -> dict[str, dict[str, str]]:
    """The user's attributes and ours: ``dynatickTaskId`` and so on."""
    found = {
        name: {"DataType": "String" if isinstance(value, str) else "Number", "StringValue": str(value)}
        for name, value in users.items()
    }
    for name, value in facts(task, context).items():
        number = isinstance(value, int)
        found[f"dynatick{name[0].upper()}{name[1:]}"] = {
            "DataType": "Number" if number else "String",
            "StringValue": escaped(value),
        }
    return found


def ordering(arn: str, group: str | None, task: Task, context: ActionContext) -> dict[str, str]:
    """Message group and deduplication id, so that a FIFO target drops what comes twice within its five minutes."""
    if not arn.endswith(".fifo"):
        return {} if group is None else {"MessageGroupId": group}
    own = hashlib.sha256(task.task_id.encode()).hexdigest()
    return {"MessageGroupId": group or own, "MessageDeduplicationId": repeat_id(context)}


def size_of(text: str, attributes: Mapping[str, Mapping[str, str]]) -> int:
    """In bytes, as both services count. Raises PermanentError for a message that is too large for either."""
    counted = sum(len(name) + sum(len(part.encode()) for part in value.values()) for name, value in attributes.items())
    size = len(text.encode()) + counted
    if size > MAX_BYTES:
        raise PermanentError(f"payload.message: it is {size} bytes with its attributes; expected at most {MAX_BYTES}")
    return size


def numbered(entries: Any) -> list[dict[str, Any]]:
    """Entries of a batch, with their positions for ids."""
    return [{"Id": str(position), **entry} for position, entry in enumerate(entries)]
