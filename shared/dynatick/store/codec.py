"""Conversion of rows to and from DynamoDB's attribute values, and the size of an item.

Frequent types are converted here, because boto3's serializer and deserializer try one type after another and take most
of the time of a row. boto3 still serializes the rare types.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

import orjson
from boto3.dynamodb.types import Binary, TypeSerializer

from dynatick.domain import attributes as attr
from dynatick.domain.numbers import MAX_DIGITS, stored_number
from dynatick.domain.task import LargeRow, Row
from dynatick.engine.ports import Entry
from dynatick.errors import InvalidInput
from dynatick.store.large import LARGE_VALUE, LargeItem

MAX_ITEM_BYTES = 400 * 1024
"""The limit for an item (DynamoDB quotas)."""

OWN_BYTES = 16 * 1024
"""Bytes that the interfaces keep free in an item for Dynatick's own attributes."""

MAX_DEPTH = 31
"""Nested lists and maps around a value; with the value itself, 32 levels (DynamoDB quotas)."""

MAX_NAME_BYTES = 65_535
"""The limit for the name of an attribute, or within a map (DynamoDB quotas)."""

Item = dict[str, dict[str, Any]]

_to_value: Any = TypeSerializer().serialize
NOT_PLAIN = (attr.OUTCOME, attr.LATE_MILLISECONDS, attr.NEXT_ATTEMPT_AT, attr.ERROR, attr.SCHEDULE_ID, attr.LIMIT_KEY,
             attr.PACK_MEMBERS)  # fmt: skip
"""An entry of the index with none of these is a task that has not begun (``Counted.OPEN``)."""

_SURELY_FITS = 10**MAX_DIGITS  # integers up to it


class EncodedRow(dict[str, object]):
    """A row with its item, so that a store does not encode it once more. It is not changed."""

    __slots__ = ("item",)

    def __init__(self, row: Row, item: Item) -> None:
        super().__init__(row)
        self.item = item


def encode(row: Row) -> Item:
    """The item of a row. Floats become exact decimals. Raises InvalidInput for a value that no table can hold."""
    if isinstance(row, EncodedRow):
        return row.item
    return {name: encode_value(value, name) for name, value in row.items()}


def encode_value(value: object, field: str) -> dict[str, Any]:
    """One attribute value. Raises InvalidInput, which names ``field``."""
    if isinstance(value, str):  # most values
        return {"S": value}
    try:
        return _value(value, field, 0)
    except (TypeError, ArithmeticError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(field, value, f"a table cannot hold it ({error})") from None


def decode(item: Mapping[str, Mapping[str, Any]]) -> Row:
    """The row of an item: numbers as Decimal, binaries as boto3's Binary. A LargeItem becomes a LargeRow.

    Binaries may be bytes, as from botocore, or base64, as in JSON.
    """
    # Most values are text; a function call for each would take longer.
    row = {name: text if (text := value.get("S")) is not None else _from_value(value) for name, value in item.items()}
    return LargeRow(row, item.large, _decode_large) if isinstance(item, LargeItem) else row


def entry_of(item: Mapping[str, Mapping[str, Any]]) -> Entry:
    """The bucket entry of an item of the index. Values of other types than text, which a row can have, become text."""
    if isinstance(item, LargeItem):
        item = {
            **item,
            **{name: {"S": text[:LARGE_VALUE].decode(errors="replace")} for name, text in item.large.items()},
        }
    return Entry(
        _text(item[attr.TASK_ID]),
        _text(item[attr.TASK_DATE_TIME]),
        _text(item.get(attr.OUTCOME)),
        _text(item.get(attr.ACTION)),
        _text(item.get(attr.DUE_AT)),
        _text(item.get(attr.FINISHED_AT)),
        _text(item.get(attr.ERROR)),
        _text(item.get(attr.SCHEDULE_ID)),
        _text(item.get(attr.NEXT_ATTEMPT_AT)),
        _count(item.get(attr.LATE_MILLISECONDS)),
        _text(item.get(attr.LIMIT_KEY)),
    )


def item_bytes(row: Row) -> int:
    """The size of a row in bytes, by DynamoDB's rules for names, values, numbers and nesting."""
    return encoded_bytes(encode(row))


def encoded_bytes(item: Item) -> int:
    """``item_bytes`` of a row that is encoded already."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def with_item(row: Row) -> EncodedRow:
    """The row with its item, if that leaves room for Dynatick's own attributes. Raises InvalidInput."""
    item, limit = encode(row), MAX_ITEM_BYTES - OWN_BYTES
    if (size := _json_bytes(item)) > limit and (size := encoded_bytes(item)) > limit:
        largest = max(item, key=lambda name: _value_bytes(item[name]))
        raise InvalidInput(
            largest,
            f"{size} bytes in all",
            f"expected an item of at most {limit} bytes; store the data in S3 and put its key here",
        )
    return EncodedRow(row, item)


def _json_bytes(item: Item) -> int:
    """The length of the item's JSON, which is never less than its size, and takes a tenth of the time."""
    return len(orjson.dumps(item, default=lambda binary: base64.b64encode(bytes(binary)).decode()))


def _text(value: Mapping[str, Any] | None) -> Any:
    """The value as text; None if it is missing or NULL."""
    if value is None:
        return None
    if (text := value.get("S")) is not None:  # nearly always
        return text
    return None if "NULL" in value else str(next(iter(value.values())))


def _count(value: Mapping[str, Any] | None) -> int | None:
    """The value as a whole number from 0 on; None if it is anything else."""
    text = "" if value is None else value.get("N", "")
    return int(text) if text.isdecimal() else None


def _decode_large(raw: bytes) -> object:
    return _from_value(orjson.loads(raw))


def _from_value(value: Mapping[str, Any]) -> object:
    ((kind, content),) = value.items()
    match kind:  # the most frequent types first
        case "S" | "BOOL":
            return content
        case "N":
            return _number(content)
        case "M":
            return {name: _from_value(part) for name, part in content.items()}
        case "L":
            return [_from_value(part) for part in content]
        case "NULL":
            return None
        case "B":
            return _binary(content)
        case "SS":
            return set(content)
        case "NS":
            return {_number(part) for part in content}
        case "BS":
            return {_binary(part) for part in content}
        case _:
            raise TypeError(f"DynamoDB has no values of type {kind}")


def _number(text: str) -> Decimal:
    """The number, without the zeros beyond DynamoDB's precision in a text such as that of 1E+100."""
    number = Decimal(text)
    return number if len(text) <= MAX_DIGITS else number.normalize(Context(prec=MAX_DIGITS))


def _binary(content: bytes | str) -> Binary:
    return Binary(base64.b64decode(content) if isinstance(content, str) else content)


def _value(value: object, field: str, depth: int) -> dict[str, Any]:
    """The attribute value of a text, bool, whole number, map, list or set; boto3 converts the other types."""
    if depth > MAX_DEPTH:
        raise InvalidInput(field, "a deeper value", f"expected at most {MAX_DEPTH} lists and maps, one in another")
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bool):
        return {"BOOL": value}
    if type(value) is int and -_SURELY_FITS < value < _SURELY_FITS:
        return {"N": str(value)}
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise InvalidInput(field, name, "expected names that are text")
        return {"M": {name: _value(part, f"{field}.{name}", depth + 1) for name, part in value.items()}}
    if isinstance(value, (list, tuple)):
        return {"L": [_value(part, f"{field}[{i}]", depth + 1) for i, part in enumerate(value)]}
    if isinstance(value, (set, frozenset)):
        if depth == MAX_DEPTH:
            raise InvalidInput(field, "a deeper value", f"expected at most {MAX_DEPTH} lists and maps, one in another")
        ((kind, parts),) = _to_value({_exact(part, field) for part in value}).items()
        return {kind: sorted(parts)}  # always in the same order, which a set does not have
    return dict(_to_value(_exact(value, field)))


def _exact(value: object, field: str) -> object:
    """The number that the table stores: a float becomes an exact decimal. Other values are returned unchanged."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return value
    number = stored_number(value)
    if number is None:
        raise InvalidInput(
            field, value, f"expected a number of at most {MAX_DIGITS} digits, 0 or from 1E-130 to below 1E+126"
        )
    return number


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode("utf-8", "surrogatepass"))
        case "N":
            return _number_bytes(content)
        case "B":
            return len(bytes(content))
        case "BOOL" | "NULL":
            return 1
        case "SS":
            return sum(len(part.encode()) for part in content)
        case "NS":
            return sum(_number_bytes(part) for part in content)
        case "BS":
            return sum(len(bytes(part)) for part in content)
        case "L":
            return 3 + sum(1 + _value_bytes(part) for part in content)
        case _:
            return 3 + sum(1 + len(name.encode()) + _value_bytes(part) for name, part in content.items())


def _number_bytes(text: str) -> int:
    digits = text.lstrip("-").split("E")[0].split("e")[0].replace(".", "").strip("0")
    return (len(digits) + 1) // 2 + 1 + text.startswith("-")
