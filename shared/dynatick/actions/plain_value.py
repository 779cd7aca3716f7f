"""A row's values as plain Python and as JSON, and results as a row can hold them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from decimal import Decimal

from dynatick.domain.numbers import stored_number
from dynatick.errors import shown

MAX_RESULT_BYTES = 4096
"""A longer result is not recorded whole: small rows cost little."""

MAX_BYTES = 262_144
"""Accepted by SNS, SQS, EventBridge and Step Functions: for a message, all messages of a call, or an input."""

_MAX_DEPTH = 100  # DynamoDB allows 32; deeper values could exceed Python's recursion limit
_MAX_RESULT_DEPTH = 20


def plain(value: object, *, _depth: int = 0) -> object:
    """The same value without DynamoDB's types: numbers as int or float, binaries as bytes.

    A whole number keeps all its digits; a fraction becomes the nearest float. Maps, lists and sets are copied. Raises
    ValueError for a value that no row can hold.
    """
    if value is None or isinstance(value, (str, bool, int, float, bytes)):
        return value
    if isinstance(value, Decimal):
        return _number(value)
    if _depth >= _MAX_DEPTH:
        raise ValueError(f"values are nested more than {_MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        return {str(name): plain(part, _depth=_depth + 1) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part, _depth=_depth + 1) for part in value]
    if isinstance(value, (set, frozenset)):
        try:
            return {plain(part, _depth=_depth + 1) for part in value}
        except TypeError:
            raise ValueError("a set holds what no set of a row can hold") from None
    # boto3's Binary, recognised by its attribute: importing boto3 is slow.
    held = getattr(value, "value", value)
    if isinstance(held, (bytes, bytearray, memoryview)):
        return bytes(held)
    raise ValueError(f"a {type(value).__name__} is not a value that a row can hold")


def to_json(value: object) -> str:
    """A row's value as ASCII JSON: binaries as base64, sets as sorted lists.

    Raises ValueError for a value that JSON can't represent.
    """
    return json.dumps(_jsonable(plain(value)), allow_nan=False, separators=(",", ":"))


def kept_result(result: object) -> object:
    """The result to record: the result itself, or a note if it is too large or a row can't hold it.

    That is not an error, because the task has done its work.
    """
    if result is None or result is True or result is False:
        return result
    try:
        text = json.dumps(_jsonable(plain(result)), allow_nan=False, ensure_ascii=False)
        size = len(text.encode())
    except Exception:  # the result may be of any class, and its methods raise anything
        return _note(f"a {type(result).__name__} that JSON cannot hold")
    if size > MAX_RESULT_BYTES:
        return _note(f"{size} bytes, more than {MAX_RESULT_BYTES}")
    kept: object = json.loads(text)
    problem = _unwritable(kept)
    return kept if problem is None else _note(problem)


def _number(value: Decimal) -> int | float:
    if not value.is_finite():
        raise ValueError(f"{value} is not a number that a row can hold")
    return int(value) if value == value.to_integral_value() else float(value)


def _jsonable(value: object) -> object:
    """A value returned by ``plain``, with sets as lists and bytes as base64."""
    if isinstance(value, dict):
        return {name: _jsonable(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_jsonable(part) for part in value]
    if isinstance(value, set):
        parts = [_jsonable(part) for part in value]
        return sorted(parts, key=lambda part: (isinstance(part, str), part is not None and part))
    return b64encode(value).decode() if isinstance(value, bytes) else value


def _unwritable(value: object, depth: int = 0) -> str | None:
    """Why DynamoDB would refuse a JSON value; None if it accepts it.

    Checked before the write: a task whose outcome can't be written would run again.
    """
    if depth > _MAX_RESULT_DEPTH:
        return f"nested more than {_MAX_RESULT_DEPTH} deep"
    if isinstance(value, dict):
        if "" in value:
            return "a name in it is empty"
        return next((p for part in value.values() if (p := _unwritable(part, depth + 1))), None)
    if isinstance(value, list):
        return next((p for part in value if (p := _unwritable(part, depth + 1))), None)
    if isinstance(value, (int, float)) and stored_number(value) is None:
        return f"the number {shown(value)} does not fit a row"
    return None


def _note(reason: str) -> dict[str, object]:
    return {"note": f"the result was not kept: {reason}"}
