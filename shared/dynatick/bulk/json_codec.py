"""Reads and writes JSON with exact decimal numbers, as the table stores them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from dynatick.errors import InvalidInput


def loads(text: str, field: str) -> object:
    """The value of a JSON text. Raises InvalidInput, also if an object has a name twice."""
    try:
        value: object = json.loads(text, parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInput(field, text, f"expected JSON: {reason}") from None
    return value


def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The object with these members. Raises ValueError if a name is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the name {name!r} is there twice")
    return found


def dumps(value: object) -> str:
    """A row's value on one line, in ASCII: binaries as base64, sets as sorted lists. Numbers keep their digits."""
    match value:
        case Decimal():
            return _number(value)
        case Mapping():
            return "{%s}" % ", ".join(f"{json.dumps(str(name))}: {dumps(part)}" for name, part in value.items())  # noqa: UP031
        case list() | tuple():
            return f"[{', '.join(map(dumps, value))}]"
        case set() | frozenset():
            return f"[{', '.join(sorted(map(dumps, value)))}]"
        case None | bool() | int() | float() | str():
            return json.dumps(value, allow_nan=False)
        case _:
            held: Any = getattr(value, "value", value)  # boto3's Binary, recognised by its attribute
            return json.dumps(b64encode(bytes(held)).decode())


def _number(value: Decimal) -> str:
    # A whole number without exponent, except a very large one such as 1E+126.
    if value == value.to_integral_value() and abs(value.adjusted()) < 38:
        return str(int(value))
    return str(value)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number that a table can hold")
