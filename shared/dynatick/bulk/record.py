"""The lines of a file with their numbers, up to a maximum size, and its records: each is a row, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from dynatick.errors import InvalidInput

# -- lines -------------------------------------------------------------------------------------------------------------

Read = Callable[[int], bytes]
"""Returns up to the given number of bytes; none at the end."""

_MAX_ITEM_BYTES = 400 * 1024  # (DynamoDB quotas)

MAX_LINE_BYTES = 6 * _MAX_ITEM_BYTES
"""Of an item of which each byte is escaped, as in an export: ``\\u0001``; in CSV, quotes in JSON are three bytes."""

MAX_PAYLOAD_BYTES = _MAX_ITEM_BYTES
"""Of a line with the payload of a member of a batch: 500 of them are in memory."""

MAX_EMPTY_LINES = 100_000
"""Consecutive ones, between which the import can't stop. A file with more is refused."""

_BOM = b"\xef\xbb\xbf"
_CHUNK = 1024 * 1024
_KEPT = 1000  # bytes kept of a line that is too long


@dataclass(frozen=True, slots=True)
class Line:
    """``content`` includes the line end; of a line that is ``too_long``, it is the beginning."""

    number: int  # from 1
    end: int  # the offset of the next one
    content: bytes
    too_long: bool = False

    def without_bom(self) -> bytes:
        """The content without the byte order mark with which a file may begin."""
        return self.content.removeprefix(_BOM) if self.number == 1 else self.content

    def text(self) -> str:
        """The line as text without its end, as much of it as an item has; malformed UTF-8 is escaped."""
        return self.without_bom()[:_MAX_ITEM_BYTES].decode("utf-8", "backslashreplace").rstrip("\r\n")


def too_many_empty() -> InvalidInput:
    """The error for too many consecutive empty lines."""
    expected = f"expected at most {MAX_EMPTY_LINES:,} consecutive empty lines; nothing after them is read"
    return InvalidInput("line", "", expected)


def too_long(line: Line, limit: int) -> InvalidInput:
    """The error for a line that is too long."""
    return InvalidInput("line", line.text(), f"expected a line of at most {limit} bytes")


def lines(read: Read, *, offset: int = 0, number: int = 1, limit: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """The lines of a stream that begins at ``offset`` of its file, with line ``number``.

    Keeps only one chunk and one line in memory. A line ends with LF or CR LF.
    """
    rest = b""  # the beginning of an incomplete line
    dropped = 0  # bytes of that line that were dropped
    while chunk := read(_CHUNK):
        parts = (rest + chunk).split(b"\n")
        rest = parts.pop()
        for part in parts:
            line = _line(number, offset, part + b"\n", dropped, limit)
            yield line
            number, offset, dropped = number + 1, line.end, 0
        if len(rest) + dropped > limit + 2:
            dropped += max(0, len(rest) - _KEPT)
            rest = rest[:_KEPT]
    if rest:
        yield _line(number, offset, rest, dropped, limit)


def _line(number: int, start: int, content: bytes, dropped: int, limit: int) -> Line:
    end = start + len(content) + dropped
    if dropped or len(content.rstrip(b"\r\n")) > limit:
        return Line(number, end, content[:_KEPT], too_long=True)
    return Line(number, end, content)


# -- records -----------------------------------------------------------------------------------------------------------


class FileFormat(StrEnum):
    """The format of a file of tasks."""

    NDJSON = "ndjson"  # one JSON object in each line
    CSV = "csv"  # a heading, then one task in each row
    JSON = "json"  # one JSON object on any number of lines; otherwise as NDJSON


_BY_ENDING = {"ndjson": FileFormat.NDJSON, "jsonl": FileFormat.NDJSON, "json": FileFormat.JSON, "csv": FileFormat.CSV}


def format_of(name: str) -> FileFormat:
    """The format, from the ending of the file's name. Raises InvalidInput."""
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    if ending not in _BY_ENDING:
        endings = ", ".join(f".{one}" for one in _BY_ENDING)
        raise InvalidInput("file", name, f"expected a name that ends in one of {endings}")
    return _BY_ENDING[ending]


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
