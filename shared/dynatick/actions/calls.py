"""Grouping into calls, as SQS and EventBridge take them: up to ten entries, and a limit of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

MAX_ENTRIES = 10


def in_calls(entries: Iterable[T], size_of: Callable[[T], int], *, max_bytes: int) -> Iterator[list[T]]:
    """The entries in order, in lists that each fit into one call; an entry that is larger is alone."""
    call: list[T] = []
    size = 0
    for entry in entries:
        length = size_of(entry)
        if call and (len(call) == MAX_ENTRIES or size + length > max_bytes):
            yield call
            call, size = [], 0
        call.append(entry)
        size += length
    if call:
        yield call
