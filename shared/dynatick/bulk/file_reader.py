"""Reads the records of a file of any format."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from dynatick.bulk import csv_reader
from dynatick.bulk.record import (
    MAX_EMPTY_LINES,
    MAX_LINE_BYTES,
    MAX_PAYLOAD_BYTES,
    FileFormat,
    Line,
    Record,
    Source,
    lines,
    too_long,
    too_many_empty,
)
from dynatick.errors import InvalidInput
from dynatick.json_reader import loads

_WANTED = 'expected a JSON object, such as {"taskId": "a"}'


def read(
    source: Source, form: FileFormat, *, offset: int = 0, number: int = 1, of_payloads: bool = False
) -> Iterator[Record]:
    """The records from ``offset`` on, where line ``number`` begins. Empty lines are skipped. ``of_payloads``: they are
    payloads, and not rows.

    Keeps only one chunk of the file and one record in memory. Raises what ``source`` raises.
    """
    if form is FileFormat.CSV:
        return csv_reader.read(source, offset, number, of_payloads=of_payloads)
    limit = MAX_PAYLOAD_BYTES if of_payloads else MAX_LINE_BYTES
    found = lines(source(offset), offset=offset, number=number, limit=limit)
    if form is FileFormat.JSON and offset == 0:
        return _document(found, limit)
    return _by_line(found, limit)


def _by_line(found: Iterator[Line], limit: int) -> Iterator[Record]:
    empty = 0  # consecutive empty lines
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
                raise too_long(line, limit)
            row = _row(content, "line")
        except InvalidInput as wrong:
            error = wrong
        yield Record(line.number, line.end, line.number + 1, line.text(), row, error)


def _document(found: Iterator[Line], limit: int) -> Iterator[Record]:
    """The record of a file that is one object. A large file, or one whose first line is an object, is read as lines."""
    read_lines: list[Line] = []
    for line in found:
        read_lines.append(line)
        if line.too_long or line.end > limit:
            yield from _by_line(chain(read_lines, found), limit)
            return
    filled = [line for line in read_lines if line.without_bom().strip()]
    if len(filled) > 1 and not _is_object(filled[0].without_bom()):
        content = b"".join(line.without_bom() for line in read_lines)
        row = error = None
        try:
            row = _row(content, "file")
        except InvalidInput as wrong:
            error = wrong
        text = "".join(line.text() + "\n" for line in read_lines)
        yield Record(filled[0].number, read_lines[-1].end, read_lines[-1].number + 1, text.rstrip("\n"), row, error)
        return
    yield from _by_line(iter(read_lines), limit)


def _row(content: bytes, field: str) -> dict[str, object]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(field, content[:200], f"expected UTF-8: {error.reason}") from None
    row = loads(text.strip(), field)
    if isinstance(row, list):
        raise InvalidInput(field, row, f"{_WANTED}; put each element of a list in a line of its own (jq -c '.[]')")
    if not isinstance(row, dict):
        raise InvalidInput(field, row, _WANTED)
    return row


def _is_object(content: bytes) -> bool:
    try:
        _row(content, "line")
    except InvalidInput:
        return False
    return True
