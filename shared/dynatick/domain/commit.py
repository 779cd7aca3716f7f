"""What a handler returns to have its effects in DynamoDB written together with its outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dynatick.errors import InvalidInput

MAX_ITEMS: Final = 99
"""A transaction has 100 parts, and one is the task's own row."""

KINDS: Final = {"Put": "Item", "Update": "Key", "Delete": "Key", "ConditionCheck": "Key"}
"""Each kind of part, and the name of what says which item it is about."""

_EXPECTED: Final = (
    'expected an entry of TransactWriteItems, such as {"Put": {"TableName": "orders", "Item": {"id": "1"}}}'
)


@dataclass(frozen=True, slots=True)
class Commit:
    """A handler returns this to write to DynamoDB in the transaction that completes its task: both or neither.

    ``items``: up to 99 entries of ``TransactWriteItems``, with plain values as for ``table.meta.client`` of a boto3
    resource. ``result``: what is recorded. If a condition of an entry does not hold, the attempt has failed with that
    reason, and is retried as after any error. Raises InvalidInput for what is no such entry.
    """

    items: Sequence[Mapping[str, object]]
    result: object = None

    def __post_init__(self) -> None:
        given: object = self.items
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise InvalidInput("items", f"a {type(self.items).__name__}", "expected a list of entries")
        if len(self.items) > MAX_ITEMS:
            raise InvalidInput("items", f"{len(self.items)} entries", f"expected at most {MAX_ITEMS}")
        items: Sequence[object] = self.items
        for n, item in enumerate(items):
            if not isinstance(item, Mapping) or len(item) != 1 or (kind := next(iter(item))) not in KINDS:
                raise InvalidInput(f"items[{n}]", item, _EXPECTED)
            part = item[kind]
            if not isinstance(part, Mapping) or not isinstance(part.get("TableName"), str):
                raise InvalidInput(f"items[{n}].{kind}.TableName", part, _EXPECTED)
            if not isinstance(part.get(KINDS[kind]), Mapping):
                raise InvalidInput(f"items[{n}].{kind}.{KINDS[kind]}", part.get(KINDS[kind]), _EXPECTED)
