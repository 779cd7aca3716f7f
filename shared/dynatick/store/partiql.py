"""Conditional writes as PartiQL statements, and what the answers to them say.

In the form that every engine takes: SET with commas, a REMOVE for each attribute, ``IS MISSING`` for what is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dynatick.domain.conditional_update import AtLeast, ConditionalUpdate, Is, Lost, Plus, Result, Unknown, Written
from dynatick.engine.ports import StoreFailure
from dynatick.store.codec import decode, encode_value
from dynatick.store.failures import is_too_large

MAX_BYTES = 8192
"""Where a statement's text ends (DynamoDB's API). A longer one would have its whole batch refused."""

Statement = dict[str, Any]
Answer = Mapping[str, Any]


def update(table: str, change: ConditionalUpdate) -> Statement | None:
    """An UPDATE in the comma form, the only one that every engine takes. It never creates a row. None: it sets nothing,
    or has a name that no statement can hold.
    """
    parameters: list[dict[str, Any]] = []
    sets: list[str | tuple[str, int]] = []
    for name, value in change.set.items():
        if type(value) is str:  # by far the most
            sets.append(name)
            parameters.append({"S": value})
        elif isinstance(value, Plus):
            sets.append((name, value.number))
        else:
            sets.append(name)
            parameters.append(encode_value(value, name))
    parameters.append({"S": change.task_id})
    where: list[str | tuple[str, int | None]] = []
    for part in change.conditions:
        if isinstance(part, Is):
            where.append(part.attribute)
            parameters.append(encode_value(part.value, part.attribute))
        else:
            where.append((part.attribute, part.value if isinstance(part, AtLeast) else None))
    text = _update_text(table, tuple(sets), change.remove, tuple(where), change.returning)
    if text is None:
        return None
    return {
        "Statement": text,
        "Parameters": parameters,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


@lru_cache(maxsize=256)  # a pass says the same few things all the time; only the parameters differ
def _update_text(
    table: str,
    sets: tuple[str | tuple[str, int], ...],
    remove: tuple[str, ...],
    where: tuple[str | tuple[str, int | None], ...],
    returning: bool,
) -> str | None:
    """The text of an UPDATE. A bare name stands for a parameter: to be set, or to be equal to. With a number it is to
    have that added, or to be at least that; with None, to be absent. (Text and numbers, for they are the cache's key.)
    """
    names = (*remove, *(part if isinstance(part, str) else part[0] for part in (*sets, *where)))
    # DynamoDB takes these for placeholders, quoted or not; only the users' own attributes have such names.
    if not sets or any(name.startswith(("#", ":")) for name in names):
        return None
    # Unquoted on the right: one engine takes no quoted name for a value. Only our own names come here.
    setting = [f"{_quoted(s)}=?" if isinstance(s, str) else f"{_quoted(s[0])}={s[0]}+{s[1]}" for s in sets]
    removing = "".join(f" REMOVE {_quoted(name)}" for name in remove)
    conditions = ['"taskId"=?']
    for part in where:
        match part:
            case (name, None):
                conditions.append(f"{_quoted(name)} IS MISSING")
            case (name, value):
                conditions.append(f"{_quoted(name)}>={value}")
            case name:
                conditions.append(f"{_quoted(name)}=?")
    ending = " RETURNING ALL NEW *" if returning else ""
    return f'UPDATE "{table}" SET {", ".join(setting)}{removing} WHERE {" AND ".join(conditions)}{ending}'


def insert(table: str, item: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    names = ", ".join(f"'{name.replace(chr(39), chr(39) * 2)}':?" for name in item)
    return {
        "Statement": f'INSERT INTO "{table}" VALUE {{{names}}}',
        "Parameters": list(item.values()),
    }


def fits(statement: Statement) -> bool:
    """Whether a statement may stand in a batch: the names of a row's attributes can be longer than its text may be."""
    return len(statement["Statement"].encode()) <= MAX_BYTES


def is_refused(answer: Answer) -> bool:
    """Whether a statement was not understood, or may not be: nothing was done."""
    return error_of(answer)[0] in ("ValidationException", "ValidationError")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_WRITTEN = Written()


def result_of(answer: Mapping[str, Any], returning: bool) -> Result:
    code, message = error_of(answer)
    if code is None:
        return Written(decode(answer["Item"])) if returning else _WRITTEN
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
