"""From a file to its records, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from dynatick.bulk import csv_reader
from dynatick.bulk.formats import FileFormat
from dynatick.bulk.lines import MAX_EMPTY_LINES, MAX_LINE_BYTES, Line, lines, too_long, too_many_empty
from dynatick.bulk.records import Record, Source
from dynatick.errors import InvalidInput
from dynatick.json_reader import loads

_WANTED = 'expected a JSON object, such as {"taskId": "a"}'


def read(source: Source, form: FileFormat, *, offset: int = 0, number: int = 1) -> Iterator[Record]:
    """The records from an ``offset`` on, where line ``number`` begins. Empty lines are none.

    Holds a chunk of the file and a record, not more. Raises what reading the source raises.
    """
    if form is FileFormat.CSV:
        return csv_reader.read(source, offset, number)
    found = lines(source(offset), offset=offset, number=number)
    if form is FileFormat.JSON and offset == 0:
        return _document(found)
    return _by_line(found)


def _by_line(found: Iterator[Line]) -> Iterator[Record]:
    empty = 0  # lines, since the last that is none
    for line in found:
        content = line.without_bom()
        if not line.too_long and not content.strip():
            empty += 1
            if empty > MAX_EMPTY_LINES:
                yield Record(line.number, line.end, line.number + 1, "", None, too_many_empty(), is_last=True)
                return
            continue
        empty = 0
        row = error = None
        try:
            if line.too_long:
                raise too_long(line)
            row = _row(content, "line")
        except InvalidInput as wrong:
            error = wrong
        yield Record(line.number, line.end, line.number + 1, line.text(), row, error)


def _document(found: Iterator[Line]) -> Iterator[Record]:
    """A file that is one object. If it is too large for that, or its first line is an object, it is a file of lines."""
    held: list[Line] = []
    for line in found:
        held.append(line)
        if line.too_long or line.end > MAX_LINE_BYTES:
            yield from _by_line(chain(held, found))
            return
    filled = [line for line in held if line.without_bom().strip()]
    if len(filled) > 1 and not _is_object(filled[0].without_bom()):
        content = b"".join(line.without_bom() for line in held)
        row = error = None
        try:
            row = _row(content, "file")
        except InvalidInput as wrong:
            error = wrong
        text = "".join(line.text() + "\n" for line in held)
        yield Record(filled[0].number, held[-1].end, held[-1].number + 1, text.rstrip("\n"), row, error)
        return
    yield from _by_line(iter(held))


def _row(content: bytes, field: str) -> dict[str, object]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(field, content[:200], f"expected UTF-8: {error.reason}") from None
    row = loads(text.strip(), field)
    if isinstance(row, list):
        raise InvalidInput(field, row, f"{_WANTED}; a list's elements go one a line (jq -c '.[]')")
    if not isinstance(row, dict):
        raise InvalidInput(field, row, _WANTED)
    return row


def _is_object(content: bytes) -> bool:
    try:
        _row(content, "line")
    except InvalidInput:
        return False
    return True
