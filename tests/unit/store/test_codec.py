"""A row and its item: the size up to which a client inserts it, and the item that it keeps for the store."""

from __future__ import annotations

from decimal import Decimal

import pytest

from dynatick.errors import InvalidInput
from dynatick.store import codec
from dynatick.store.codec import MAX_ITEM_BYTES, OWN_BYTES, EncodedRow, encode, item_bytes, with_item

LIMIT = MAX_ITEM_BYTES - OWN_BYTES
ROW = {
    "taskId": "t-ä", "n": 5, "negative": Decimal("-1.50"), "large": Decimal("1E+100"), "yes": True, "nothing": None,
    "binary": b"\x00\xff", "texts": {"b", "a"}, "numbers": {1, 2}, "binaries": {b"b", b"a"}, "empty": {},
    "nested": {"list": [1, "x", [], {"deep": b"\x01"}]},
}  # fmt: skip


def of_size(size: int, filling: str) -> dict[str, object]:
    """A row of that many bytes."""
    row = {**ROW, "body": ""}
    room = size - item_bytes(row)
    return {**row, "body": filling * (room // len(filling.encode())) + "x" * (room % len(filling.encode()))}


def test_a_row_keeps_its_item_and_a_copy_of_it_does_not() -> None:
    row = with_item(ROW)
    assert row == ROW
    assert encode(row) is row.item == encode(ROW)
    assert not isinstance({**row, "more": 1}, EncodedRow)
    assert encode({**row, "more": 1})["more"] == {"N": "1"}


@pytest.mark.parametrize("filling", ["x", "ä", '"'])  # JSON needs two characters for the last
def test_a_row_is_as_large_as_the_limit_and_no_larger(filling: str) -> None:
    row = of_size(LIMIT, filling)
    assert item_bytes(row) == LIMIT
    assert with_item(row).item == encode(row)
    with pytest.raises(InvalidInput, match=f"body: '{LIMIT + 1} bytes in all' is not accepted"):
        with_item(of_size(LIMIT + 1, filling))


@pytest.mark.parametrize("name", ROW)
def test_what_is_within_the_limit_by_its_json_is_so_in_the_table(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of each type alone, as often as to pass the limit by its size: its JSON is longer, so it is weighed exactly."""
    limit = 40 * 1024  # a tenth, which takes a tenth of the time
    monkeypatch.setattr(codec, "MAX_ITEM_BYTES", limit + OWN_BYTES)
    one = {"a": ROW[name]}
    times = limit // (item_bytes({"values": [one, one]}) - item_bytes({"values": [one]})) + 1
    with pytest.raises(InvalidInput, match="bytes in all"):
        with_item({"taskId": "t", "values": [one] * times})
