"""Messages for SNS and SQS: text, attributes, size, and the ids for FIFO targets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from dynatick.actions.plain_value import MAX_BYTES, to_json
from dynatick.actions.task_metadata import deduplication_id, percent_encoded, task_metadata
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick.errors import PermanentError


def text_of(message: object) -> str:
    """The message's text: a text unchanged, anything else as JSON. Raises PermanentError."""
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
    """The message attributes: the user's, and those of the task, such as ``dynatickTaskId``."""
    found = {
        name: {"DataType": "String" if isinstance(value, str) else "Number", "StringValue": str(value)}
        for name, value in users.items()
    }
    for name, value in task_metadata(task, context).items():
        number = isinstance(value, int)
        found[f"dynatick{name[0].upper()}{name[1:]}"] = {
            "DataType": "Number" if number else "String",
            "StringValue": percent_encoded(value),
        }
    return found


def ordering(arn: str, group: str | None, task: Task, context: ActionContext) -> dict[str, str]:
    """Message group and deduplication id: a FIFO target drops a message that comes again within five minutes."""
    if not arn.endswith(".fifo"):
        return {} if group is None else {"MessageGroupId": group}
    own = hashlib.sha256(task.task_id.encode()).hexdigest()
    return {"MessageGroupId": group or own, "MessageDeduplicationId": deduplication_id(context)}


def size_of(text: str, attributes: Mapping[str, Mapping[str, str]]) -> int:
    """The message's size in bytes, as both services count. Raises PermanentError if it is too large for them."""
    counted = sum(len(name) + sum(len(part.encode()) for part in value.values()) for name, value in attributes.items())
    size = len(text.encode()) + counted
    if size > MAX_BYTES:
        raise PermanentError(f"payload.message: it is {size} bytes with its attributes; expected at most {MAX_BYTES}")
    return size


def numbered(entries: Any) -> list[dict[str, Any]]:
    """The entries of a batch, each with its position as id."""
    return [{"Id": str(position), **entry} for position, entry in enumerate(entries)]
