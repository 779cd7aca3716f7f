"""DynamoDB's published rules of sizes and units, with figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from dynatick.store.codec import decode, item_bytes
from dynatick_stack.counting import rules

SIZES: list[tuple[str, dict[str, Any], int]] = [
    ("name and text", {"taskId": {"S": "t1"}}, 6 + 2),
    ("UTF-8, not characters", {"ü": {"S": "é€😀"}}, 2 + 2 + 3 + 4),
    ("empty text", {"a": {"S": ""}}, 1),
    ("a digit", {"n": {"N": "7"}}, 1 + 2),
    ("two digits to a byte", {"n": {"N": "1234"}}, 1 + 3),
    ("a sign", {"n": {"N": "-1234"}}, 1 + 4),
    ("zeros at the ends are not kept", {"n": {"N": "120000"}}, 1 + 2),
    ("nor those of a fraction", {"n": {"N": "0.0012"}}, 1 + 2),
    ("binary, not its base64", {"b": {"B": "AQID"}}, 1 + 3),
    ("padded base64", {"b": {"B": "AQ=="}}, 1 + 1),
    ("null and boolean", {"a": {"NULL": True}, "b": {"BOOL": False}}, 2 + 2),
    ("list: 3, and 1 an element", {"l": {"L": [{"S": "ab"}, {"N": "1"}]}}, 1 + 3 + (1 + 2) + (1 + 2)),
    ("map: 3, and 1 a pair", {"m": {"M": {"key": {"S": "v"}}}}, 1 + 3 + 1 + 3 + 1),
    ("empty map", {"m": {"M": {}}}, 1 + 3),
    ("sets", {"s": {"SS": ["a", "bc"]}, "n": {"NS": ["1", "22"]}}, 1 + 3 + 1 + 4),
]


@pytest.mark.parametrize(("item", "size"), [case[1:] for case in SIZES], ids=[case[0] for case in SIZES])
def test_the_size_of_an_item(item: dict[str, Any], size: int) -> None:
    """Counted by the endpoint and by the client: two readings of the same rules, made apart from each other."""
    assert rules.item_bytes(item) == size
    if not any("B" in value for value in item.values()):  # base64 here, bytes there
        assert item_bytes(decode(item)) == size


def test_the_units_of_a_write_are_those_of_the_larger_row() -> None:
    sizes = ((None, 1), (None, 1024), (None, 1025), (3000, 100), (100, 3000), (2049, None), (5000, 5000))
    assert [rules.table_write_units(*one) for one in sizes] == [1, 1, 2, 3, 3, 3, 5]
    assert rules.table_write_units(None, None) == 1, "nothing there, or a condition that did not hold"


def entry(**more: str) -> dict[str, dict[str, str]]:
    return {name: {"S": value} for name, value in ({"taskDateTime": "2026-12-31#12:00", "taskId": "t"} | more).items()}


@pytest.mark.parametrize(
    ("before", "after", "units"),
    [
        (None, None, 0),  # in the index neither before nor after
        (None, entry(), 1),
        (entry(), None, 1),
        (entry(), entry(), 0),  # nothing that is projected has changed
        (entry(), entry(outcome="completed"), 1),
        (entry(), entry(taskDateTime="2026-12-31#12:01"), 2),  # one deleted, one put
        (entry(error="x" * 1100), entry(taskDateTime="2026-12-31#12:01"), 2 + 1),
        (None, entry(error="x" * 2000), 2),
    ],
)
def test_the_units_of_an_index(before: rules.Item | None, after: rules.Item | None, units: int) -> None:
    assert rules.index_write_units(before, after, ("taskDateTime",)) == units


def test_the_units_of_a_read() -> None:
    assert [rules.read_units(size, consistent=True) for size in (0, 4096, 4097)] == [1, 1, 2]
    assert [rules.read_units(size, consistent=False) for size in (0, 4097, 1024 * 1024)] == [0.5, 1, 128]
