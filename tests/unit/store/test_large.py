"""Large answers: the same rows, with large values that stay encoded."""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import orjson
import pytest
from boto3.dynamodb.types import Binary
from hypothesis import given, settings
from hypothesis import strategies as st

from dynatick.domain.task import LargeRow, Task, size_of
from dynatick.store import large
from dynatick.store.codec import decode, encode, entry_of
from dynatick.store.large import LARGE_ITEM, LargeItem, is_large, read_answer

NUMBERS: list[object] = [Decimal(n) for n in range(20_000)]


def deep(levels: int, value: object) -> object:
    for level in range(levels):
        value = [value, "]}"] if level % 2 else {'a"\\{[': value}
    return value


HARD: dict[str, object] = {
    "taskId": "t", "M": {"S": {"L": "a member may be named as a type is"}}, "L": NUMBERS,
    "payload": {"": [], 'quoted "}],[{\\': '\\\\" ]}, \u2028 \u00e9 \U0001f600 \x00', "numbers": NUMBERS,
        "empty": [{}] * 5_000, "mixed": [None, True, Decimal("-1.5E+100"), {"a": [[], {}]}, Binary(b"\x00\xff")] * 500,
        "deep": [deep(29, "x" * 10)] * 20,
        "sets": {"a": {"x", "y"}, "b": {Decimal(1), Decimal(2)}, "c": {Binary(b"1")}}, "texts": [""] * 10_000},
    "bytes": Binary(b"\x01" * 40_000), "names": {f"n{n}" for n in range(5_000)}, "long": "é" * 40_000,
}  # fmt: skip
SMALL = {"taskId": {"S": "small"}, "attempt": {"N": "3"}}


def as_json(value: object) -> bytes:
    return orjson.dumps(value, default=lambda binary: base64.b64encode(bytes(binary)).decode())


@cache
def hard_item() -> dict[str, Any]:
    item: dict[str, Any] = orjson.loads(as_json(encode(HARD)))
    return item


def row_of(item: Any) -> LargeRow:
    assert isinstance(item, LargeItem)
    row = decode(item)
    assert isinstance(row, LargeRow)
    return row


@pytest.mark.parametrize(
    ("operation", "answer_with", "find"),
    [
        ("GetItem", lambda item: {"Item": item}, lambda found: [found["Item"]]),
        ("UpdateItem", lambda item: {"Attributes": item, "ConsumedCapacity": {"T": 1}},
         lambda found: [found["Attributes"]]),
        ("Query", lambda item: {"Items": [SMALL, item, SMALL, item, item], "Count": 3}, lambda found: found["Items"]),
        ("Scan", lambda item: {"Count": 3, "Items": [SMALL, item, SMALL, item, item]}, lambda found: found["Items"]),
        ("BatchGetItem", lambda item: {"Responses": {"Items": [SMALL, item]}, "UnprocessedKeys": {}},
         lambda found: found["Responses"]["Items"]),
        ("BatchExecuteStatement", lambda item: {"Responses": [
            {"TableName": "t", "Item": SMALL},
            {"Error": {"Code": "ConditionalCheckFailed", "Message": "no", "Item": item}, "TableName": "t"},
            {"TableName": "t"},
            {"Item": item},
        ]}, lambda found: [found["Responses"][1]["Error"]["Item"], found["Responses"][3]["Item"]]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
@pytest.mark.parametrize("indented", [False, True])
def test_a_large_answer_equals_its_plain_json(
    operation: str, answer_with: Callable[[Any], Any], find: Callable[[Any], list[Any]], indented: bool
) -> None:
    answer = answer_with(hard_item())
    content = orjson.dumps(answer, option=orjson.OPT_INDENT_2 if indented else 0)
    assert is_large(operation, content)
    found = read_answer(operation, content)
    larges = [item for item in find(found) if isinstance(item, LargeItem)]
    assert larges
    for item in larges:
        row = row_of(item)
        assert dict(row) == decode(hard_item()) == HARD
        assert set(item.large) == {"L", "payload", "bytes", "names", "long"}
    smalls = [item for item in find(found) if not isinstance(item, LargeItem)]
    assert all(item == SMALL for item in smalls)
    rest = {name: value for name, value in answer.items() if name not in ("Item", "Items", "Attributes", "Responses")}
    assert rest == {name: found[name] for name in rest}


def test_a_page_of_small_entries_is_decoded_at_once() -> None:
    """That takes a third of the time, and a poll has many of them."""
    entry = {name: {"S": "x" * 70} for name in ("taskId", "taskDateTime", "action", "dueAt", "outcome", "finishedAt")}
    assert not is_large("Query", orjson.dumps({"Items": [entry] * 2000, "Count": 2000}))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=8) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner, max_size=6),
    max_leaves=12,
)


@settings(max_examples=50)
@given(rows=st.lists(st.dictionaries(st.text(min_size=1, max_size=6), VALUES, max_size=6), max_size=4))
def test_a_large_row_equals_its_decoded_row(rows: list[dict[str, object]]) -> None:
    """The limits are so low that each branch is used."""
    text = as_json({"Items": [encode(row) for row in rows]})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(large, "LARGE_ITEM", 20)
        patched.setattr(large, "LARGE_VALUE", 12)
        found = [decode(item) for item in read_answer("Query", text)["Items"]]
        assert [dict(row) for row in found] == [decode(item) for item in orjson.loads(text)["Items"]]


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"Items"', b'{"Items":[', b'{"Items":[{"a":{"S":"x"}', b'{"Items":{}}', b'{1"Items":[]}',
     b'{"Items":[{"a":]}', b"<html>", b'{"a":nonsense}', b'{"Items":[{"a":{"S":"x\\"}]}'],
)  # fmt: skip
def test_malformed_json_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        read_answer("Query", content)


def test_a_large_row_is_a_mapping_like_any_other_and_decodes_at_each_read() -> None:
    row = row_of(read_answer("GetItem", orjson.dumps({"Item": hard_item()}))["Item"])
    assert row == HARD
    assert row == row_of(read_answer("GetItem", orjson.dumps({"Item": dict(reversed(hard_item().items()))}))["Item"])
    assert row != {**HARD, "L": NUMBERS[1:]}
    assert ("payload" in row, "nothing" in row, row.get("nothing"), len(row)) == (True, False, None, len(HARD))
    assert set(row) == set(HARD) == {*row.keys()}
    with pytest.raises(KeyError):
        row["nothing"]
    assert row["payload"] is not row["payload"]
    assert (size_of(row) > 0, size_of(decode(SMALL))) == (True, 0)


def test_without_action_values_leaves_out_what_only_the_action_reads() -> None:
    attempts = [{"run": 1, "attempt": n, "error": "e" * 300} for n in range(10)]
    known = {"taskId": "t", "taskDateTime": "2026-12-31#12:00", "action": "log", "status": "running"}
    row = {**known, "attempts": attempts, "payload": {"n": NUMBERS}, "mine": NUMBERS, "result": {"n": NUMBERS}}
    item = read_answer("GetItem", orjson.dumps({"Item": encode(row)}))["Item"]
    assert set(item.large) == {"attempts", "payload", "mine", "result"}
    found = row_of(item)
    bare, whole = Task.from_row(found.without_action_values()), Task.from_row(found)
    assert (bare.payload, bare.attributes, len(bare.attempts)) == ({}, {}, 10)
    assert (whole.payload, whole.attributes) == ({"n": NUMBERS}, {"mine": NUMBERS})


def test_an_entry_contains_the_beginning_of_a_large_value() -> None:
    listed = {"taskId": {"S": "t"}, "taskDateTime": {"S": "2026-12-31#12:00"}, "action": {"L": [{"N": "1"}] * 40_000}}
    (item,) = read_answer("Query", orjson.dumps({"Items": [listed]}))["Items"]
    entry = entry_of(item)
    assert (entry.task_id, entry.outcome) == ("t", None)
    assert entry.action is not None
    assert entry.action.startswith('{"L":[{"N":"1"}')
    assert len(entry.action) < LARGE_ITEM
