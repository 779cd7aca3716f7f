"""JSON with numbers that keep their digits, both ways: a table's numbers are decimal."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from dynatick.errors import InvalidInput

MAX_DEPTH = 100
"""Lists and objects, one in another; the table takes 32."""


class TooDeep(ValueError):
    """A value is nested deeper than MAX_DEPTH."""

    def __init__(self) -> None:
        super().__init__("it is nested too deeply")


def loads(text: str, field: str) -> object:
    """A JSON value. Raises InvalidInput as ``parse`` raises ValueError."""
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidInput(field, text, f"expected JSON: {error}") from None


def parse(text: str) -> object:
    """A JSON value. Raises ValueError, also for NaN and for a name that an object has twice, and TooDeep."""
    try:
        value: object = json.loads(text, parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=_unique)
    except RecursionError:
        raise TooDeep from None
    _check_depth(value)
    return value


def documents(text: str) -> Iterator[tuple[int, object]]:
    """Each JSON value of a text in which they follow one another, with the line that it begins on, from 1.

    Raises ValueError as ``parse`` does.
    """
    decoder = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=_unique)
    position = 0
    while rest := text[position:].lstrip():
        position = len(text) - len(rest)
        try:
            value, end = decoder.raw_decode(text, position)
        except RecursionError:
            raise TooDeep from None
        _check_depth(value)
        yield text.count("\n", 0, position) + 1, value
        position = end


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object, from its members. Raises ValueError if a name is there twice."""
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


def _check_depth(value: object) -> None:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            part
            for one in level
            if isinstance(one, (dict, list))
            for part in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return
    raise TooDeep


def _number(value: Decimal) -> str:
    # A whole number as such, however the table writes it; but 1E+126 not with all its zeros.
    if value == value.to_integral_value() and abs(value.adjusted()) < 38:
        return str(int(value))
    return str(value)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number that a table can hold")
