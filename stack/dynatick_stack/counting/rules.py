"""How large an item is and what a request costs: DynamoDB's published rules, as functions.

Sizes: "DynamoDB item sizes and formats". Units: "DynamoDB read and write operations" and "Using Global Secondary
Indexes: provisioned throughput considerations", in the DynamoDB developer guide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Value = Mapping[str, Any]
"""An attribute value as the API writes it: {"S": "text"}."""

Item = Mapping[str, Value]


class Refused(Exception):
    """A request that is not carried out, with DynamoDB's code for it."""

    def __init__(
        self,
        message: str,
        code: str = "ValidationException",
        *,
        item: Item | None = None,
        reasons: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reasons = reasons  # of a transaction, one for each of its parts
        self.item = item  # the one that was met, when a condition did not hold


class Throttled(Refused):
    """A request for which there is no capacity at the moment."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "ProvisionedThroughputExceededException")


WRITE_BYTES = 1024
READ_BYTES = 4096
PAGE_BYTES = 1024 * 1024  # a page of a query or scan ends there, before the filter


def item_bytes(item: Item) -> int:
    """The size of an item: its attributes' names and values."""
    size = 0
    for name, value in item.items():
        text = value.get("S")
        if text is not None and text.isascii() and name.isascii():  # nearly all
            size += len(name) + len(text)
        else:
            size += _text_bytes(name) + value_bytes(value)
    return size


def value_bytes(value: Value) -> int:
    """The size of one value."""
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return _text_bytes(content)
        case "N":
            return _number_bytes(content)
        case "B":
            return _binary_bytes(content)
        case "BOOL" | "NULL":
            return 1
        case "SS":
            return sum(map(_text_bytes, content))
        case "NS":
            return sum(map(_number_bytes, content))
        case "BS":
            return sum(map(_binary_bytes, content))
        case "L":
            return 3 + sum(1 + value_bytes(part) for part in content)
        case "M":
            return 3 + sum(1 + _text_bytes(name) + value_bytes(part) for name, part in content.items())
    raise ValueError(f"no attribute value: {value!r}")


def table_write_units(before: int | None, after: int | None) -> int:
    """Units of one write to a table, by the item's size before and after (None: not there). The larger one counts; a
    write that changes nothing, for its condition failed or there was nothing to delete, costs as one of that item."""
    return _units(max(before or 0, after or 0), WRITE_BYTES)


def index_write_units(before: Item | None, after: Item | None, keys: tuple[str, ...]) -> int:
    """Units of what one write does to a global index, by the index entry before and after (None: there is none).

    A changed key deletes one entry and puts another; an entry that stays as it is costs nothing.
    """
    if before is None or after is None:
        there = before or after
        return 0 if there is None else _units(item_bytes(there), WRITE_BYTES)
    if any(before[key] != after[key] for key in keys):
        return _units(item_bytes(before), WRITE_BYTES) + _units(item_bytes(after), WRITE_BYTES)
    return 0 if before == after else _units(max(item_bytes(before), item_bytes(after)), WRITE_BYTES)


def read_units(size: int, *, consistent: bool) -> float:
    """Units of reading ``size`` bytes: of one item by its key, or of all that a query or scan has read together."""
    return _units(size, READ_BYTES) * (1 if consistent else 0.5)


def _units(size: int, unit: int) -> int:
    return max(1, -(-size // unit))


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _number_bytes(text: str) -> int:
    """About a byte for two significant digits, and one more; another one for a sign."""
    digits = text.lstrip("+-").lower().split("e")[0].replace(".", "").strip("0")
    return (len(digits) + 1) // 2 + 1 + text.startswith("-")


def _binary_bytes(content: str | bytes) -> int:
    """Over HTTP it comes in Base64."""
    return len(content) if isinstance(content, bytes) else len(content.rstrip("=")) * 3 // 4
