"""Conditional writes as PartiQL statements, and the meaning of the answers.

In the form that every engine accepts: SET with commas, a REMOVE for each attribute, ``IS MISSING`` for an absent one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dynatick.domain import attributes as attr
from dynatick.domain.conditional_update import AtLeast, ConditionalUpdate, Is, Lost, Plus, Result, Unknown, Written
from dynatick.engine.ports import StoreFailure
from dynatick.store.codec import decode, encode_value
from dynatick.store.failures import SENT_AGAIN, is_too_large

MAX_BYTES = 8192
"""The limit for a statement's text (DynamoDB's API). A longer one would fail its whole batch."""

Statement = dict[str, Any]
Answer = Mapping[str, Any]


def update(table: str, change: ConditionalUpdate) -> Statement | None:
    """The UPDATE statement of a change; it never creates a row. None if the change sets nothing, or has an attribute
    whose name a statement can't contain.
    """
    parameters: list[dict[str, Any]] = []
    sets: list[str | tuple[str, int]] = []
    for name, value in change.set.items():
        if type(value) is str:  # most values
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


@lru_cache(maxsize=256)  # a pass uses few texts; only the parameters differ
def _update_text(
    table: str,
    sets: tuple[str | tuple[str, int], ...],
    remove: tuple[str, ...],
    where: tuple[str | tuple[str, int | None], ...],
    returning: bool,
) -> str | None:
    """The text of an UPDATE. The arguments are hashable, because they are the cache's key.

    ``sets``: a name is set to a parameter; (name, n) adds n. ``where``: a name must equal a parameter; (name, n) must
    be at least n; (name, None) must be absent.
    """
    names = (*remove, *(part if isinstance(part, str) else part[0] for part in (*sets, *where)))
    # DynamoDB reads such names as placeholders, even quoted. Only users' own attributes have them.
    if not sets or any(name.startswith(("#", ":")) for name in names):
        return None
    # Unquoted on the right, where one engine accepts no quoted name. Only Dynatick's own attributes are added to.
    setting = [f"{_quoted(s)}=?" if isinstance(s, str) else f"{_quoted(s[0])}={s[0]}+{s[1]}" for s in sets]
    removing = "".join(f" REMOVE {_quoted(name)}" for name in remove)
    conditions = [f'"{attr.TASK_ID}"=?']
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


def insert(table: str, item: Mapping[str, dict[str, Any]]) -> Statement:
    """The INSERT statement of an item."""
    names = ", ".join(f"'{name.replace(chr(39), chr(39) * 2)}':?" for name in item)
    return {
        "Statement": f'INSERT INTO "{table}" VALUE {{{names}}}',
        "Parameters": list(item.values()),
    }


def fits(statement: Statement) -> bool:
    """Whether a statement's text is short enough for a batch; the names of attributes can make it too long."""
    return len(statement["Statement"].encode()) <= MAX_BYTES


def is_refused(answer: Answer) -> bool:
    """Whether the engine refused a statement as invalid, so that nothing was written."""
    return error_of(answer)[0] in ("ValidationException", "ValidationError")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_WRITTEN = Written()


def result_of(answer: Mapping[str, Any], returning: bool) -> Result:
    """The result of an UPDATE. ``returning``: whether the statement asked for the row."""
    code, message = error_of(answer)
    if code is None:
        return Written(decode(answer["Item"])) if returning else _WRITTEN
    if code == "ConditionalCheckFailed":
        present = answer["Error"].get("Item")
        return Lost(decode(present) if present else None)
    return Unknown(f"{code}: {message}", is_too_large(code, message))


def created_of(answer: Answer) -> bool | StoreFailure:
    """The result of an INSERT: whether the row was inserted, or why that is unknown."""
    code, message = error_of(answer)
    if code is None or code == "DuplicateItem":
        return code is None
    return StoreFailure(f"{code}: {message}", is_too_large(code, message))


def unless_sent_again(answer: Answer) -> Answer:
    """The answer to a statement that was sent more than once: "the id is taken" may be said of its own row."""
    if error_of(answer)[0] != "DuplicateItem":
        return answer
    return {"Error": {"Code": "DuplicateItem, perhaps its own", "Message": SENT_AGAIN}}


def error_of(answer: Mapping[str, Any]) -> tuple[str | None, str]:
    """The error's code and message; the code is None if there is no error."""
    error = answer.get("Error")
    return (error.get("Code", "Unknown"), error.get("Message", "")) if error else (None, "")
