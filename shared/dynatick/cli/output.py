"""Prints data to stdout, as tables or as JSON under the table's names, and messages to stderr.

A list is printed while it grows, so that memory does not grow with it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Literal

from dynatick.actions.plain_value import to_json
from dynatick.domain import attributes as attr
from dynatick.domain.terminal_text import printable, quoted

_FRACTION = re.compile(r"\.\d+Z$")
_PIPE_WIDTH = 10_000  # without a terminal nothing is wrapped
_PREFERRED_WIDTH = 16  # characters of a column that folds
_MIN_WIDTH = 8
_GAP = 2
_STYLES = {
    "scheduled": "cyan",
    "running": "yellow",
    "waiting": "yellow",
    "completed": "green",
    "failed": "red",
    "missed": "red",
    "cancelled": "dim",
    "idle": "dim",
    "paused": "dim",
}

BATCH = 500  # rows of a table with the same column widths


class Output(StrEnum):
    """How data is printed."""

    TABLE = "table"
    JSON = "json"  # one document
    JSONL = "jsonl"  # one document a line


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its heading, and the attribute that it shows."""

    heading: str
    attribute: str
    right: bool = False
    folds: bool = False  # may take several lines on a narrow terminal
    spare: int = 0  # dropped on a narrow terminal, the highest first; 0: last
    to_seconds: bool = False  # an instant, shown without fractions


def say(message: str) -> None:
    """Prints a message to stderr."""
    print(message, file=sys.stderr)


def printable_lines(text: str) -> str:
    """The text with the control characters of each line escaped."""
    return "\n".join(map(printable, text.expandtabs(4).split("\n")))


def show_one(row: Mapping[str, object], output: Output) -> None:
    """Prints one row: as names and values, or as a document."""
    if output is not Output.TABLE:
        show_document(row, output)
        return
    show_pairs(row.items())


def show_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Prints names and values as a table; a name may occur twice."""
    rows = [{"name": name, "value": value} for name, value in pairs]
    show_table(rows, [Column("name", "name"), Column("value", "value", folds=True)], headings=False)


def show_many(
    rows: Sequence[Mapping[str, object]],
    columns: Sequence[Column],
    output: Output,
    *,
    name: str,
    more: Mapping[str, object] | None = None,
) -> None:
    """Prints a list: as a table, as a document of the list and ``more``, or as one document per row."""
    match output:
        case Output.TABLE:
            show_table(rows, columns)
        case Output.JSON:
            show_document({name: list(rows), **(more or {})}, output)
        case Output.JSONL:
            for row in rows:
                show_document(row, output)


def show_page(
    rows: Sequence[Mapping[str, object]],
    columns: Sequence[Column],
    output: Output,
    *,
    name: str,
    token: str | None,
    more: Mapping[str, object] | None = None,
) -> None:
    """Prints a page of a list, and how to get the next one. ``token``: its nextPageToken."""
    following = {} if token is None else {"nextPageToken": token}
    show_many(rows, columns, output, name=name, more={**(more or {}), **following})
    if token is not None and output is not Output.JSON:
        say(f"There are more: --page-token {quoted(token)}")
    elif not rows and output is Output.TABLE:
        say("There are none")


def show_list(values: Sequence[object], output: Output) -> None:
    """Prints a list of plain values: as one document, or one per line."""
    for document in [values] if output is Output.JSON else values:
        show_document(document, output)


def show_document(document: object, output: Output) -> None:
    """Prints one JSON document: on one line, or indented if it is the only one."""
    text = to_json(document)
    print(text if output is Output.JSONL else json.dumps(json.loads(text), indent=2))


def show_table(rows: Iterable[Mapping[str, object]], columns: Sequence[Column], *, headings: bool = True) -> None:
    """Prints rows in columns; nothing if there are none."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[_cell(row.get(column.attribute), column) for column in columns] for row in rows]
    if not cells:
        return
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=_PIPE_WIDTH)
    shown = _fitting(columns, cells, console.width)
    table = Table(box=None, pad_edge=False, show_header=headings, header_style="bold", padding=(0, _GAP, 0, 0))
    for n in shown:
        side: Literal["left", "right"] = "right" if columns[n].right else "left"
        wanted = max(cell_len(line[n]) for line in cells)
        table.add_column(
            columns[n].heading,
            justify=side,
            overflow="fold",
            no_wrap=not columns[n].folds,
            min_width=min(wanted, _readable(columns[n], 1, console.width)),
        )
    for line in cells:
        table.add_row(*(Text(line[n], style=_STYLES.get(line[n], "")) for n in shown))
    with console.capture() as captured:
        console.print(table)
    for text in captured.get().splitlines():
        print(text.rstrip(" "))


def _fitting(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns that fit into a width: first it drops empty ones, then spare ones.

    If that is not enough, columns fold narrower, and then the last ones are dropped. No text is cut.
    """
    from rich.cells import cell_len

    numbers = range(len(columns))
    shown = list(numbers)
    wanted = [max(map(cell_len, (column.heading, *(line[n] for line in cells)))) for n, column in enumerate(columns)]

    def leave_out(some: Iterable[int], readable: int) -> None:
        for n in some:
            room = (
                min(wanted[n], _readable(columns[n], readable, width)) if columns[n].folds else wanted[n] for n in shown
            )
            if sum(room) + _GAP * (len(shown) - 1) <= width:
                return
            if n in shown:
                shown.remove(n)

    last_first = range(len(columns) - 1, 0, -1)
    leave_out((n for n in last_first if not any(line[n] for line in cells)), _PREFERRED_WIDTH)
    leave_out(sorted((n for n in last_first if columns[n].spare), key=lambda n: -columns[n].spare), _PREFERRED_WIDTH)
    leave_out(last_first, _MIN_WIDTH)
    return shown


def _readable(column: Column, readable: int, width: int) -> int:
    """How narrow a column may fold if others may as narrow as ``readable``: an id, which is one word and is copied, has
    half of the ``width`` of the terminal."""
    return max(readable, width // 2) if column.attribute == attr.TASK_ID else readable


def _cell(value: object, column: Column) -> str:
    if isinstance(value, (list, tuple)) and value and all(isinstance(part, Mapping) for part in value):
        return "\n".join(printable(to_json(part)) for part in value)
    return printable(_text(value, column))


def _text(value: object, column: Column) -> str:
    if value is None:
        return ""
    if column.to_seconds:
        return _FRACTION.sub("Z", str(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)) and value and all(isinstance(part, str) for part in value):
        return ", ".join(value)
    return to_json(value) if isinstance(value, (Mapping, list, tuple, set, bytes)) else str(value)


class Listing:
    """Prints rows one by one. As a context manager it closes the document, unless there was an error."""

    def __init__(self, columns: Sequence[Column], output: Output, *, name: str) -> None:
        self._columns = columns
        self._output = output
        self._name = name
        self._waiting: list[Mapping[str, object]] = []
        self._printed = 0
        self.more: Mapping[str, object] = {}  # further members of the document

    def __enter__(self) -> Listing:
        return self

    def add(self, row: Mapping[str, object]) -> None:
        """Prints a row, or keeps it until a batch is complete."""
        match self._output:
            case Output.JSONL:
                show_document(row, self._output)
            case Output.JSON:
                print("," if self._printed else f'{{\n  "{self._name}": [')
                print(_indented(row, "    "), end="")
            case Output.TABLE:
                self._waiting.append(row)
                if len(self._waiting) == BATCH:
                    self._flush()
        self._printed += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._output is Output.TABLE:
            self._flush()
        if self._output is Output.JSON and error is None:
            print("\n  ]" if self._printed else f'{{\n  "{self._name}": []', end="")
            for name, value in self.more.items():
                print(f',\n  "{name}": {_indented(value, "  ").lstrip()}', end="")
            print("\n}")

    def _flush(self) -> None:
        if self._waiting:
            show_table(self._waiting, self._columns, headings=self._printed <= BATCH)
            self._waiting = []


def _indented(value: object, indent: str) -> str:
    text = json.dumps(json.loads(to_json(value)), indent=2)
    return "\n".join(indent + line for line in text.splitlines())
