"""Writes down what happens where engine and world meet, as events that ``proof/replay.py`` reads (docs/proof.md).

The engine takes no part in it. An event is a flat map that JSON can hold; a trace is a list of them, in the order in
which they took effect.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from boto3.dynamodb.types import Binary

from dynatick.domain.conditional_update import Absent, AtLeast, Condition, ConditionalUpdate, Is, Plus
from dynatick.domain.task import Row

WHOLE = ("pack", "retryPolicy")
"""Attributes whose maps the rules are about. Of any other map, list or long text a trace has a digest: enough for a
condition that it is unchanged."""

MAX_TEXT = 80
BYTES = (bytes, bytearray, Binary)  # the last as boto3 reads them

Event = Mapping[str, Any]


def plain(name: str, value: object) -> Any:
    """A value of an attribute, as a trace has it."""
    if isinstance(value, Plus):
        return {"plus": value.number}
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= MAX_TEXT):
        return value
    if name in WHOLE and isinstance(value, Mapping):
        return {key: bytes(one).hex() if isinstance(one, BYTES) else plain(key, one) for key, one in value.items()}
    text = json.dumps(value, sort_keys=True, default=_text)
    return f"~{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}"


def _text(value: object) -> object:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return bytes(value).hex() if isinstance(value, BYTES) else list(value)  # type: ignore[call-overload]


def row_of(row: Row) -> Event:
    return {name: row[name] if name == "taskId" else plain(name, row[name]) for name in row}


def conditions_of(conditions: Sequence[Condition]) -> list[list[Any]]:
    """Each as attribute, kind and value: ``["status", "is", "scheduled"]``, ``["outcome", "absent"]``."""
    found: list[list[Any]] = []
    for one in conditions:
        match one:
            case Is(name, value):
                found.append([name, "is", plain(name, value)])
            case Absent(name):
                found.append([name, "absent"])
            case AtLeast(name, value):
                found.append([name, "at least", value])
    return found


def change_of(change: ConditionalUpdate) -> dict[str, Any]:
    """The event of a conditional write, but for who has written it, when, and with which answer."""
    event: dict[str, Any] = {
        "id": change.task_id,
        "if": conditions_of(change.conditions),
        "set": {name: plain(name, value) for name, value in change.set.items()},
    }
    return event | ({"remove": list(change.remove)} if change.remove else {})
