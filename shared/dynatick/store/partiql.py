"""Conditional writes as PartiQL statements, and what the answers to them say.

In the form that every engine takes: SET with commas, one REMOVE at the most, ``IS MISSING`` for what is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynatick.domain.change import Absent, AtLeast, Change, Is, Lost, Plus, Result, Unknown, Written
from dynatick.engine.ports import StoreFailure
from dynatick.store.codec import decode, encode_value
from dynatick.store.failures import is_too_large

MAX_BYTES = 8192
"""Where a statement's text ends (DynamoDB's API). A longer one would have its whole batch refused."""

Statement = dict[str, Any]
Answer = Mapping[str, Any]


def is_expressible(change: Change) -> bool:
    """Whether one statement can say it."""
    return bool(change.set) and len(change.remove) <= 1


def update(table: str, change: Change) -> dict[str, Any]:
    """An UPDATE in the comma form, the only one that every engine takes. It never creates a row."""
    parameters: list[dict[str, Any]] = []
    sets: list[str] = []
    for name, value in change.set.items():
        if isinstance(value, Plus):
            # Unquoted on the right: one engine takes no quoted name for a value. Only our own names come here.
            sets.append(f"{_quoted(name)}={name}+{value.number}")
        else:
            sets.append(f"{_quoted(name)}=?")
            parameters.append(encode_value(value, name))
    remove = "".join(f" REMOVE {_quoted(name)}" for name in change.remove)
    where = ['"taskId"=?']
    parameters.append({"S": change.task_id})
    for part in change.when:
        match part:
            case Is(name, value):
                where.append(f"{_quoted(name)}=?")
                parameters.append(encode_value(value, name))
            case Absent(name):
                where.append(f"{_quoted(name)} IS MISSING")
            case AtLeast(name, value):
                where.append(f"{_quoted(name)}>={value}")
    returning = " RETURNING ALL NEW *" if change.returning else ""
    text = f'UPDATE "{table}" SET {", ".join(sets)}{remove} WHERE {" AND ".join(where)}{returning}'
    return {
        "Statement": text,
        "Parameters": parameters,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def insert(table: str, item: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    names = ", ".join(f"'{name.replace(chr(39), chr(39) * 2)}':?" for name in item)
    return {
        "Statement": f'INSERT INTO "{table}" VALUE {{{names}}}',
        "Parameters": list(item.values()),
    }


def fits(statement: Statement) -> bool:
    """Whether a statement may stand in a batch: the names of a row's attributes can be longer than its text may be."""
    return len(statement["Statement"].encode()) <= MAX_BYTES


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def result_of(answer: Mapping[str, Any], returning: bool) -> Result:
    code, message = error_of(answer)
    if code is None:
        return Written(decode(answer["Item"]) if returning else None)
    if code == "ConditionalCheckFailed":
        present = answer["Error"].get("Item")
        return Lost(decode(present) if present else None)
    return Unknown(f"{code}: {message}", is_too_large(code, message))


def created_of(answer: Answer) -> bool | StoreFailure:
    """What an INSERT says: whether the row is in, or why that is not known."""
    code, message = error_of(answer)
    if code is None or code == "DuplicateItem":
        return code is None
    return StoreFailure(f"{code}: {message}", is_too_large(code, message))


def error_of(answer: Mapping[str, Any]) -> tuple[str | None, str]:
    error = answer.get("Error")
    return (error.get("Code", "Unknown"), error.get("Message", "")) if error else (None, "")
