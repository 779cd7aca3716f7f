"""The records of a file: each a row that may become a task, or what is wrong with it. One bad line harms no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dynatick.bulk.lines import Read
from dynatick.errors import InvalidInput

Source = Callable[[int], Read]
"""Opens a file at an offset."""


@dataclass(frozen=True, slots=True)
class Record:
    """``row`` or ``error``, never both. ``end`` and ``next_line`` say where the file goes on after it."""

    line: int  # its first
    end: int
    next_line: int
    text: str  # as it stands in the file
    row: Mapping[str, object] | None = None
    error: InvalidInput | None = None
    is_last: bool = False  # what follows cannot be told apart, or means nothing
