"""The records of a file: each is the row of a task, or an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dynatick.bulk.line_reader import Read
from dynatick.errors import InvalidInput

Source = Callable[[int], Read]
"""Opens the file at an offset in bytes."""


@dataclass(frozen=True, slots=True)
class Record:
    """Has either ``row`` or ``error``. ``end`` and ``next_line``: the offset and the number of the line after it."""

    line: int  # number of its first line
    end: int
    next_line: int
    text: str  # its text in the file
    row: Mapping[str, object] | None = None
    error: InvalidInput | None = None
    is_last: bool = False  # nothing after it can be read
