"""What goes to stdout: tables for people, JSON under the table's names for programs. Messages go to stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from dynatick.actions.plain_value import to_json

_FRACTION = re.compile(r"\.\d+Z$")
_WIDE = 10_000  # where nobody looks at it, nothing is wrapped
_READABLE = 16  # characters that a column which folds should have
_MIN = 8  # that it must have
_GAP = 2
_STYLES = {
    "scheduled": "cyan",
    "running": "yellow",
    "completed": "green",
    "failed": "red",
    "missed": "red",
    "cancelled": "dim",
    "idle": "dim",
}


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
    folds: bool = False  # may go over several lines where a terminal is narrow
    spare: int = 0  # is left out where a terminal is too narrow for all, the higher the sooner; 0: only if it must
    to_seconds: bool = False  # an instant, of which people need no fractions


def say(message: str) -> None:
    """A message for whoever sits there."""
    print(message, file=sys.stderr)


def one_line(text: str) -> str:
    """On one line, and harmless to a terminal."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Without what a terminal would obey: a task's id may hold anything."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def show_one(row: Mapping[str, object], output: Output) -> None:
    """One thing: as a list of names and values, or as a document."""
    if output is not Output.TABLE:
        show_document(row, output)
        return
    show_pairs(row.items())


def show_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, for people; a name may stand there twice."""
    rows = [{"name": name, "value": value} for name, value in pairs]
    show_table(rows, [Column("name", "name"), Column("value", "value", folds=True)], headings=False)


def show_many(
    rows: Sequence[Mapping[str, object]],
    columns: Sequence[Column],
    output: Output,
    *,
    name: str,
    beside: Mapping[str, object] | None = None,
) -> None:
    """A list: as a table, as a document of ``name`` and what stands beside it, or as a document a row."""
    match output:
        case Output.TABLE:
            show_table(rows, columns)
        case Output.JSON:
            show_document({name: list(rows), **(beside or {})}, output)
        case Output.JSONL:
            for row in rows:
                show_document(row, output)


def show_list(values: Sequence[object], output: Output) -> None:
    """A list of plain values: one document, or one a line."""
    for document in [values] if output is Output.JSON else values:
        show_document(document, output)


def show_document(document: object, output: Output) -> None:
    """One JSON document: on one line, or, where it is all there is, in a form that people can read too."""
    text = to_json(document)
    print(text if output is Output.JSONL else json.dumps(json.loads(text), indent=2))


def show_table(rows: Iterable[Mapping[str, object]], columns: Sequence[Column], *, headings: bool = True) -> None:
    """Rows in columns, for people. Nothing where there are none."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[_cell(row.get(column.attribute), column) for column in columns] for row in rows]
    if not cells:
        return
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=_WIDE)
    shown = _fitting(columns, cells, console.width)
    table = Table(box=None, pad_edge=False, show_header=headings, header_style="bold", padding=(0, _GAP, 0, 0))
    for n in shown:
        side: Literal["left", "right"] = "right" if columns[n].right else "left"
        table.add_column(columns[n].heading, justify=side, overflow="fold", no_wrap=not columns[n].folds)
    for line in cells:
        table.add_row(*(Text(line[n], style=_STYLES.get(line[n], "")) for n in shown))
    with console.capture() as captured:
        console.print(table)
    for text in captured.get().splitlines():
        print(text.rstrip(" "))


def _fitting(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """Which columns are shown where there is no room for all: without those that are empty, then without spare ones.

    Where that is not enough, columns fold narrower, and then the last ones go. None is cut, so times stand whole.
    """
    from rich.cells import cell_len

    numbers = range(len(columns))
    shown = list(numbers)
    wanted = [max(map(cell_len, (column.heading, *(line[n] for line in cells)))) for n, column in enumerate(columns)]

    def leave_out(some: Iterable[int], readable: int) -> None:
        for n in some:
            room = (min(wanted[one], readable) if columns[one].folds else wanted[one] for one in shown)
            if sum(room) + _GAP * len(shown) <= width:
                return
            if n in shown:
                shown.remove(n)

    last_first = range(len(columns) - 1, 0, -1)
    leave_out((n for n in last_first if not any(line[n] for line in cells)), _READABLE)
    leave_out(sorted((n for n in last_first if columns[n].spare), key=lambda n: -columns[n].spare), _READABLE)
    leave_out(last_first, _MIN)
    return shown


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
