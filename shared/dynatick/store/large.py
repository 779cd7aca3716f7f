"""Reads large answers item by item, to save memory.

As Python objects, DynamoDB's JSON takes up to thirty times its size: 25 rows of 390 KB, 30 MB of JSON, took a gigabyte.
So the large attributes of a large item stay JSON until they are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

LARGE_ITEM = 16 * 1024  # bytes, as all that follow
LARGE_VALUE = 1024
"""The bytes of a large attribute in a large item: smaller ones are decoded, and texts up to LARGE_ITEM, which may be
keys."""

_LARGE_ANSWER = 256 * 1024  # to a batch: a smaller one is decoded as a whole, which is faster and takes some megabytes
_LARGE_PAGE = 1536 * 1024  # of a query or a scan: DynamoDB's limit of 1 MB, which is somewhat more as JSON
_LARGE = {"GetItem": LARGE_ITEM, "UpdateItem": LARGE_ITEM, "Query": _LARGE_PAGE, "Scan": _LARGE_PAGE}


class LargeItem(dict[str, dict[str, Any]]):
    """An item's small attributes. ``large``: the JSON of its large ones, by name."""

    def __init__(self, small: Mapping[str, dict[str, Any]], large: Mapping[str, bytes]) -> None:
        super().__init__(small)
        self.large = large


def is_large(operation: str, content: bytes) -> bool:
    """Whether ``read_answer`` should read the answer."""
    return len(content) > _LARGE.get(operation, _LARGE_ANSWER)


def read_answer(operation: str, content: bytes) -> Mapping[str, Any]:
    """Decodes a large answer; its large items become LargeItems. Raises ValueError for malformed JSON."""
    reader = _Reader(content)
    answer: dict[str, Any] = {}
    for name in reader.members():
        match operation, name:
            case ("GetItem", "Item") | ("UpdateItem", "Attributes"):
                answer[name] = _item(reader.value())
            case (("Query" | "Scan"), "Items"):
                answer[name] = [_item(raw) for raw in reader.elements()]
            case "BatchGetItem", "Responses":
                answer[name] = {table: [_item(raw) for raw in reader.elements()] for table in reader.members()}
            case "BatchExecuteStatement", "Responses":
                answer[name] = [_statement(raw) for raw in reader.elements()]
            case _:
                answer[name] = orjson.loads(reader.value())
    return answer


def _item(raw: bytes) -> Mapping[str, Any]:
    item: dict[str, Any] = orjson.loads(raw)
    return _with_large_values(item) if len(raw) > LARGE_ITEM else item


def _statement(raw: bytes) -> Mapping[str, Any]:
    """The answer to one statement of a batch: an item, or an error that may contain one."""
    answer: dict[str, Any] = orjson.loads(raw)
    if len(raw) > LARGE_ITEM:
        for part in (answer, answer.get("Error", {})):
            if "Item" in part:
                part["Item"] = _with_large_values(part["Item"])
    return answer


def _with_large_values(item: dict[str, Any]) -> Mapping[str, Any]:
    large: dict[str, bytes] = {}
    for name, value in item.items():
        raw = orjson.dumps(value)
        if len(raw) > (LARGE_ITEM if "S" in value else LARGE_VALUE):
            large[name] = raw
    return LargeItem({name: value for name, value in item.items() if name not in large}, large) if large else item


class _Reader:
    """Iterates over the texts of the values in JSON, once, from beginning to end.

    The standard library's decoder finds the end of a value. It also builds the value, which is dropped.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._text = content.decode("latin-1")  # one character for each byte, so that positions are the same
        self._at = 0

    def members(self) -> Iterator[str]:
        """The names of an object's members. The caller must read each value before the next name."""
        for _ in self._within("{", "}"):
            name = orjson.loads(self.value())
            self._expect(":")
            yield name

    def elements(self) -> Iterator[bytes]:
        """The texts of an array's elements."""
        return (self.value() for _ in self._within("[", "]"))

    def value(self) -> bytes:
        """The text of the next value."""
        begin = self._skip_space()
        _, self._at = _DECODER.raw_decode(self._text, begin)
        return self._content[begin : self._at]

    def _within(self, opening: str, closing: str) -> Iterator[None]:
        self._expect(opening)
        if not self._text.startswith(closing, self._skip_space()):
            yield
            while self._text.startswith(",", self._skip_space()):
                self._expect(",")
                yield
        self._expect(closing)

    def _expect(self, sign: str) -> None:
        if not self._text.startswith(sign, self._skip_space()):
            raise ValueError(f"expected {sign} at byte {self._at} of an answer")
        self._at += len(sign)

    def _skip_space(self) -> int:
        found = _SPACE.match(self._text, self._at)
        self._at = self._at if found is None else found.end()
        return self._at


_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
