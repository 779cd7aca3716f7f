"""The values of a task that requests share, described for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema

from dynatick.domain.limit_keys import MAX_BYTES
from dynatick.domain.task import MAX_ACTION_CHARACTERS, MAX_SUBJECT_BYTES, MAX_TASK_ID_BYTES, MAX_TIMEOUT_SECONDS

EXAMPLE_TASK: dict[str, Any] = {
    "taskId": "welcome-42",
    "dueAt": "2026-12-31T12:00:00Z",
    "action": "webhook",
    "payload": {"url": "https://example.com/hook", "data": {"n": 1}},
}


def value(description: str, example: object, *kinds: dict[str, Any]) -> WithJsonSchema:
    """The description of a value, which may be null, too. (Powertools accepts no list of types.)"""
    return WithJsonSchema({"anyOf": [*kinds, {"type": "null"}], "description": description, "examples": [example]})


def text(maximum: int, minimum: int = 1) -> dict[str, Any]:
    """The schema of a text, with the fewest and the most characters."""
    return {"type": "string", "minLength": minimum, "maxLength": maximum}


def whole(minimum: int, maximum: int) -> dict[str, Any]:
    """The schema of a whole number."""
    return {"type": "integer", "minimum": minimum, "maximum": maximum}


TEXT_OR_NUMBER: tuple[dict[str, Any], ...] = ({"type": "string"}, {"type": "number"})

TaskId = Annotated[
    Any,
    value(
        f"Your own name for the task; at most {MAX_TASK_ID_BYTES} bytes in UTF-8.",
        "welcome-42",
        text(MAX_TASK_ID_BYTES),
    ),
]
TaskDateTime = Annotated[
    Any,
    value(
        "The bucket, by its name or as an instant (RFC 3339 with its offset, or epoch seconds), rounded up to a tick.",
        "2026-12-31#12:00",
        *TEXT_OR_NUMBER,
    ),
]
DueAt = Annotated[
    Any,
    value(
        "When the task is due: an instant in RFC 3339 with its offset, or epoch seconds.",
        "2026-12-31T12:00:00Z",
        *TEXT_OR_NUMBER,
    ),
]
DelaySeconds = Annotated[Any, value("When the task is due, in seconds from now.", 60, {"type": "number", "minimum": 0})]
Action = Annotated[
    Any,
    value(
        "What to run: a handler's name, or a built-in action. Default: the installation's.",
        "webhook",
        text(MAX_ACTION_CHARACTERS),
    ),
]
Payload = Annotated[Any, value("The action's arguments.", EXAMPLE_TASK["payload"], {"type": "object"})]
_COUNT = {"type": "integer", "minimum": 0}
RetryPolicy = Annotated[
    Any,
    value(
        "How often and how long a failed attempt is retried.",
        {"maximumRetryAttempts": 5},
        {
            "type": "object",
            "properties": {
                "maximumRetryAttempts": _COUNT,
                "maximumEventAgeInSeconds": _COUNT,
                "minBackoffSeconds": _COUNT,
                "maxBackoffSeconds": _COUNT,
            },
        },
    ),
]
TimeoutSeconds = Annotated[
    Any,
    value(
        "The longest that an attempt may take: it does not start with less time left. Default: the handler's.",
        60,
        whole(1, MAX_TIMEOUT_SECONDS),
    ),
]
Subject = Annotated[
    Any,
    value(
        f"What it is about, to find it by; it can't be changed. At most {MAX_SUBJECT_BYTES} bytes in UTF-8.",
        "customer:4711",
        text(MAX_SUBJECT_BYTES),
    ),
]
LimitKey = Annotated[
    Any,
    value(
        "What limits it: a class of the parameter KeyLimits, a colon, and one of that class. At most "
        f"{MAX_BYTES} bytes in UTF-8.",
        "customer:4711",
        text(MAX_BYTES, minimum=3),
    ),
]
