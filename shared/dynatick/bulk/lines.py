"""A stream of bytes cut into lines, each with its number and where it ends; none is larger than it may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dynatick.errors import InvalidInput

Read = Callable[[int], bytes]
"""Up to so many of the next bytes; none at the end."""

MAX_LINE_BYTES = 400 * 1024
"""As much as an item holds (DynamoDB quotas)."""

MAX_EMPTY_LINES = 100_000
"""One after another, in which nobody asks how much time is left. What has more of them is no file of records."""

_BOM = b"\xef\xbb\xbf"
_CHUNK = 1024 * 1024
_KEPT = 1000  # bytes of a line that is too long, to know it by


@dataclass(frozen=True, slots=True)
class Line:
    """``content``: with its end; of a line that is ``too_long``, the beginning."""

    number: int  # from 1
    end: int  # the offset of the next one
    content: bytes
    too_long: bool = False

    def without_bom(self) -> bytes:
        """The content; a file may begin with a byte order mark."""
        return self.content.removeprefix(_BOM) if self.number == 1 else self.content

    def text(self) -> str:
        """As it can stand in a message: what is no UTF-8 is written out."""
        return self.without_bom().decode("utf-8", "backslashreplace").rstrip("\r\n")


def too_many_empty() -> InvalidInput:
    """What is wrong where nothing but empty lines comes."""
    expected = f"expected at most {MAX_EMPTY_LINES:,} empty lines on end; nothing after them is read"
    return InvalidInput("line", "", expected)


def too_long(line: Line) -> InvalidInput:
    """What is wrong with a line of which only the beginning is here."""
    return InvalidInput("line", line.text(), f"expected a line of at most {MAX_LINE_BYTES} bytes")


def lines(read: Read, *, offset: int = 0, number: int = 1, limit: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """The lines of a stream that begins at ``offset`` of its file, with line ``number``.

    Holds a chunk and a line, not more. A line ends with LF or CR LF.
    """
    rest = b""  # of the line that has begun
    dropped = 0  # its bytes that are not kept any more
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
