"""CSV files: a heading with attribute names, then one task in each row. RFC 4180: commas, doubled quotes in quotes.

A column has the name of its attribute. ``payload.to`` is a text in the payload, ``retryPolicy.…`` a number in the
policy; a column whose name ends in ``:json`` (``payload.n:json``) contains JSON. ``payload``, ``retryPolicy`` and ``*``
(all attributes without a column) contain a JSON object. An empty cell leaves the attribute out.

In a file of payloads a column is a field of the payload, whatever its name: a text, or with ``:json`` JSON.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from dynatick.bulk.record import MAX_EMPTY_LINES, MAX_LINE_BYTES, Line, Record, Source, lines, too_many_empty
from dynatick.domain import attributes as attr
from dynatick.errors import InvalidInput
from dynatick.json_reader import loads

REST = "*"
_JSON = ":json"
_NUMBER = re.compile(r"[+-]?\d{1,30}(?:\.\d{1,30})?", re.ASCII)
_TIMES = (attr.TASK_DATE_TIME, attr.DUE_AT)
_NUMBERS = {
    attr.DELAY_SECONDS: "seconds",
    attr.TIMEOUT_SECONDS: "seconds",
    attr.EXPECTED_WITHIN_SECONDS: "seconds",
    attr.FLEXIBLE_TIME_WINDOW: "minutes",
}
_OBJECTS = (attr.PAYLOAD, attr.RETRY_POLICY, REST)
_SHOWN = 400  # characters of a row whose end is unknown
_NOTHING_MORE = "; nothing after it can be read"


class _StructureLost(Exception):
    """It is unknown where the row ends, so the rest of the file can't be read."""


@dataclass(slots=True)
class _Rows:
    """The rows of a file as lists of cells, and the lines of the latest row."""

    lines: Iterator[Line]
    taken: list[Line] = field(default_factory=list)
    size: int = 0  # of these lines
    is_unreadable: bool = False

    def __iter__(self) -> Iterator[list[str] | InvalidInput]:
        """Yields rows and errors. Ends after an error that makes the rest unreadable."""
        csv.field_size_limit(MAX_LINE_BYTES + 2)
        parser = csv.reader(self._feed(), strict=True)
        empty = 0  # consecutive empty rows
        while True:
            self.taken, self.size = [], 0
            try:
                cells = next(parser, None)
            except csv.Error as error:
                # The file ended within quotes, which may have begun anywhere in these lines.
                self.is_unreadable = "end of data" in str(error)
                rest = _NOTHING_MORE if self.is_unreadable else ""
                yield InvalidInput("line", self.text(), f"expected a row of CSV: {error}{rest}")
            except _StructureLost as error:
                self.is_unreadable = True
                yield InvalidInput("line", self.text(), f"{error}{_NOTHING_MORE}")
            else:
                if cells is None:
                    return
                if cells and cells != [""]:
                    empty = 0
                    yield cells
                elif (empty := empty + 1) > MAX_EMPTY_LINES:
                    self.is_unreadable = True
                    yield too_many_empty()
            if self.is_unreadable:
                return

    def _feed(self) -> Iterator[str]:
        """The lines for the parser, which reads as many as a row has."""
        for line in self.lines:
            self.taken.append(line)
            self.size += len(line.content)
            if line.too_long or self.size > MAX_LINE_BYTES + 2:
                raise _StructureLost(f"expected a row of at most {MAX_LINE_BYTES} bytes (is a quote left open?)")
            # Malformed UTF-8 passes here, so that only its row is refused and not the file.
            yield line.without_bom().decode("utf-8", "surrogateescape")

    def text(self) -> str:
        text = "\n".join(line.text() for line in self.taken)
        return text[:_SHOWN] if self.is_unreadable else text

    def record(self, row: dict[str, object] | None, error: InvalidInput | None, *, is_last: bool = False) -> Record:
        first, last = self.taken[0], self.taken[-1]
        return Record(first.number, last.end, last.number + 1, self.text(), row, error, is_last)


def read(source: Source, offset: int, number: int, *, of_payloads: bool = False) -> Iterator[Record]:
    """The records from ``offset`` on (0: the first). A malformed heading is the only record."""
    rows = _Rows(lines(source(0)))
    heading = next(found := iter(rows), None)
    if heading is None:
        return
    try:
        if isinstance(heading, InvalidInput):
            raise heading
        columns = [Column.of_payload(name) if of_payloads else Column.of(name) for name in heading]
        _check(columns)
    except InvalidInput as error:
        rest = "" if _NOTHING_MORE in error.expected else _NOTHING_MORE
        wrong = InvalidInput(error.field, error.value, f"{error.expected}{rest}")
        yield rows.record(None, wrong, is_last=True)
        return
    if offset > rows.taken[-1].end:
        rows = _Rows(lines(source(offset), offset=offset, number=number))
        found = iter(rows)
    for cells in found:
        if isinstance(cells, InvalidInput):
            yield rows.record(None, cells, is_last=rows.is_unreadable)
            continue
        try:
            row = _row(columns, cells)
        except InvalidInput as error:
            yield rows.record(None, error)
        else:
            yield rows.record(row, None)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the attribute of its cells, and how to read them."""

    name: str  # as in the heading
    attribute: str
    part: str | None  # a name in the attribute, which is then a map
    is_json: bool
    is_of_payload: bool = False  # its attribute is a field of a payload

    @classmethod
    def of_payload(cls, name: str) -> Column:
        """The column of a field of a payload. Raises InvalidInput."""
        stripped = name.strip()
        plain = stripped.removesuffix(_JSON)
        if not plain:
            raise InvalidInput("heading", name, "expected the name of a field in each column")
        _utf8(name, "heading")
        return cls(stripped, plain, None, stripped != plain, is_of_payload=True)

    @classmethod
    def of(cls, name: str) -> Column:
        """The column of a name in the heading. Raises InvalidInput."""
        plain = name.strip().removesuffix(_JSON)
        attribute, dot, part = plain.partition(".")
        if not dot or attribute not in (attr.PAYLOAD, attr.RETRY_POLICY):
            attribute, part = plain, ""
        if not attribute or (dot and attribute in _OBJECTS and not part):
            raise InvalidInput("heading", name, "expected the name of an attribute in each column")
        _utf8(name, "heading")
        is_json = name.strip().endswith(_JSON) or attribute == attr.RETRY_POLICY or (not part and attribute in _OBJECTS)
        return cls(name.strip(), attribute, part or None, is_json)

    def value(self, cell: str) -> object:
        """The value of a cell. Raises InvalidInput."""
        _utf8(cell, self.name)
        if self.is_json:
            value = loads(cell, self.name)
            if (
                not self.is_of_payload
                and self.part is None
                and self.attribute in _OBJECTS
                and not isinstance(value, dict)
            ):
                raise InvalidInput(self.name, value, "expected a JSON object")
            return value
        if self.is_of_payload:
            return cell
        if self.attribute in _NUMBERS or (self.attribute in _TIMES and _NUMBER.fullmatch(cell.strip())):
            if not _NUMBER.fullmatch(cell.strip()):
                raise InvalidInput(self.name, cell, f"expected a number of {_NUMBERS[self.attribute]}")
            return Decimal(cell.strip())
        return cell


def _check(columns: Sequence[Column]) -> None:
    """Refuses a heading with two columns for one attribute, or with another separator. Raises InvalidInput."""
    whole = {column.attribute for column in columns if column.part is None}
    seen: set[tuple[str, str | None]] = set()
    for column in columns:
        if (column.attribute, column.part) in seen or (column.part is not None and column.attribute in whole):
            raise InvalidInput("heading", column.name, "expected each attribute once")
        seen.add((column.attribute, column.part))
    if len(columns) == 1 and (";" in columns[0].name or "\t" in columns[0].name):
        raise InvalidInput("heading", columns[0].name, "expected columns separated by commas")


def _row(columns: Sequence[Column], cells: Sequence[str]) -> dict[str, object]:
    if len(cells) != len(columns):
        raise InvalidInput(
            "line", ",".join(cells), f"expected {len(columns)} cells, as the heading has; found {len(cells)}"
        )
    row: dict[str, object] = {}
    for column, cell in zip(columns, cells, strict=True):
        if not cell:
            continue
        value = column.value(cell)
        if column.attribute == REST and not column.is_of_payload:
            assert isinstance(value, dict)
            own = {one.attribute for one in columns if one is not column}
            for name in value:
                if name in own:
                    raise InvalidInput(REST, name, "it has a column of its own")
            row |= value
        elif column.part is None:
            row[column.attribute] = value
        else:
            inner = row.setdefault(column.attribute, {})
            assert isinstance(inner, dict)
            inner[column.part] = value
    return row


def _utf8(text: str, field: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(field, text, "expected UTF-8") from None
