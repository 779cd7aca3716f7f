"""Prints data to stdout, as tables or as JSON under the table's names, and messages to stderr.

A list is printed while it grows, so that memory does not grow with it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from dynatick.actions.plain_value import to_json
from dynatick.domain import attributes as attr
from dynatick.domain.terminal_text import printable, quoted

if TYPE_CHECKING:
    from rich.console import Console

    from dynatick.domain.view import View

_FRACTION = re.compile(r"\.\d+Z$")
_PIPE_WIDTH = 10_000  # without a terminal nothing is wrapped, unless COLUMNS says how wide it is
_PREFERRED_WIDTH = 16  # characters of a column that folds
_MIN_WIDTH = 8
_GAP = 2
_IDS = (attr.TASK_ID, attr.BATCH_ID)  # which are copied
_INDENT = "  "
_ROW = "\ue000"  # stands for the id of a row: no text that is printed has it
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

NONE = "There are none"
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


def show_outcome(words: str, view: View, output: Output) -> None:
    """Says what a command has done: in words to a person, else as a document."""
    if output is Output.TABLE:
        say(words)
    else:
        show_document(view.to_row(), output)


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
    nothing: str | None = None,
) -> None:
    """Prints a list: as a table, as a document of the list and ``more``, or as one document per row. ``nothing``: what
    to say instead of an empty table."""
    match output:
        case Output.TABLE:
            show_table(rows, columns)
            if nothing is not None and not rows:
                say(nothing)
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
    nothing = NONE if token is None else None
    show_many(rows, columns, output, name=name, more={**(more or {}), **following}, nothing=nothing)
    if token is not None and output is not Output.JSON:
        say(f"There are more: --page-token {quoted(token)}")


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
    from rich.console import Console

    cells = [[_cell(row.get(column.attribute), column) for column in columns] for row in rows]
    if not cells:
        return
    is_wrapped = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    console = Console(highlight=False) if is_wrapped else Console(highlight=False, width=_PIPE_WIDTH)
    number = next((n for n, column in enumerate(columns) if column.attribute in _IDS), None)
    if number is not None and len(columns) > 1 and _needs_own_line(number, columns, cells, console.width):
        lines = _under_ids(number, console, columns, cells, headings=headings)
    else:
        lines = _table(console, columns, cells, console.width, headings=headings)
    for text in lines:
        print(text.rstrip(" "))


def _table(
    console: Console, columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int, *, headings: bool
) -> list[str]:
    """The lines of a table of this width."""
    from rich.table import Table
    from rich.text import Text

    widths = _Room.of(columns, cells, width).widths()
    table = Table(box=None, pad_edge=False, show_header=headings, header_style="bold", padding=(0, _GAP, 0, 0))
    for n in widths:
        side: Literal["left", "right"] = "right" if columns[n].right else "left"
        # Rich would make one with a min_width wider than there is room for, and cut the others.
        table.add_column(columns[n].heading, justify=side, overflow="fold", width=widths[n])
    for line in cells:
        table.add_row(*(Text(line[n], style=_STYLES.get(line[n], "")) for n in widths))
    with console.capture() as captured:
        console.print(table, width=width)
    return captured.get().splitlines()


def _needs_own_line(number: int, columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> bool:
    """Whether the ids in the column of this number would be dropped or folded, and so could not be copied, or would
    leave no room for what matters most."""
    room = _Room.of(columns, cells, width)
    kept = {n for n, column in enumerate(columns) if not column.spare and not column.folds and room.is_used[n]}
    return room.widths().get(number, 0) < room.wanted[number] or not kept <= set(room.shown)


def _under_ids(
    number: int, console: Console, columns: Sequence[Column], cells: Sequence[Sequence[str]], *, headings: bool
) -> list[str]:
    """The lines of a table with the ids, the column of this number, each on a line of its own, and the other columns
    below it."""
    from rich.text import Text

    def without_id(values: Sequence[Any]) -> list[Any]:
        return [*values[:number], *values[number + 1 :]]

    before = [_ROW, *("" for _ in columns[2:])]
    rest = [line for of in cells for line in (before, without_id(of))]
    below = _table(console, without_id(columns), rest, console.width - len(_INDENT), headings=headings)
    ids = (of[number] for of in cells)
    lines = [columns[number].heading] if headings else []
    for text in below:
        if text.strip() == _ROW:
            lines += (one.plain for one in Text(next(ids)).wrap(console, console.width, overflow="fold"))
        else:
            lines.append(_INDENT + text)
    return lines


@dataclass(frozen=True, slots=True)
class _Room:
    """How columns fit into a width: first the empty ones are dropped, then spare ones.

    If that is not enough, columns fold narrower, and then the last ones are dropped. No text is cut, and no word of up
    to 16 characters is folded.
    """

    columns: Sequence[Column]
    width: int
    wanted: Sequence[int]  # the width of each column without folds
    minimum: Sequence[int]  # how narrow each may be
    is_used: Sequence[bool]
    shown: Sequence[int]  # the numbers of the columns that are not dropped

    @classmethod
    def of(cls, columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> _Room:
        from rich.cells import cell_len

        numbers = range(len(columns))
        texts = [[column.heading, *(line[n] for line in cells)] for n, column in enumerate(columns)]
        wanted = [max(cell_len(line) for text in of for line in text.split("\n")) for of in texts]
        words = [max((cell_len(word) for text in of for word in text.split()), default=0) for of in texts]
        is_used = [any(of[1:]) for of in texts]

        def narrow(n: int, readable: int) -> int:
            """How narrow a column may fold; an id, which is one word and is copied, has half of the terminal."""
            if not columns[n].folds:
                return wanted[n]
            return min(wanted[n], max(readable, width // 2) if columns[n].attribute in _IDS else readable)

        preferred = [narrow(n, _PREFERRED_WIDTH) for n in numbers]
        minimum = [narrow(n, max(_MIN_WIDTH, min(words[n], _PREFERRED_WIDTH))) for n in numbers]
        shown = list(numbers)

        def leave_out(some: Iterable[int], room: Sequence[int]) -> None:
            for n in some:
                if sum(room[one] for one in shown) + _GAP * (len(shown) - 1) <= width:
                    return
                if n in shown:
                    shown.remove(n)

        last_first = range(len(columns) - 1, 0, -1)
        leave_out((n for n in last_first if not is_used[n]), preferred)
        leave_out(sorted((n for n in last_first if columns[n].spare), key=lambda n: -columns[n].spare), preferred)
        leave_out(last_first, minimum)
        return cls(columns, width, wanted, minimum, is_used, shown)

    def widths(self) -> Mapping[int, int]:
        """The width of each column that is shown: those that fold share what the others leave, an id first."""
        found = {n: self.minimum[n] for n in self.shown}
        left = self.width - sum(found.values()) - _GAP * (len(found) - 1)
        if left < 0:  # nothing but the first column is left
            return {n: min(wide, self.width) for n, wide in found.items()}
        for part in ([n for n in found if self.columns[n].attribute in _IDS], self.shown):
            while left > 0 and (narrow := [n for n in part if found[n] < self.wanted[n]]):
                each = max(1, left // len(narrow))
                for n in narrow:
                    more = min(each, self.wanted[n] - found[n], left)
                    found[n], left = found[n] + more, left - more
        return found


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


def show_rows(
    rows: Iterable[Mapping[str, object]],
    columns: Sequence[Column],
    output: Output,
    *,
    name: str,
    more: Callable[[], Mapping[str, object]] = dict,
) -> None:
    """Prints a list row by row, as they come: a table in batches, and a document as ``show_many`` does. ``more``: its
    further members, at the end. After an error, a document is not closed."""
    match output:
        case Output.JSONL:
            for row in rows:
                show_document(row, output)
        case Output.JSON:
            is_empty = True
            for row in rows:
                print(f'{{\n  "{name}": [' if is_empty else ",")
                print(_indented(row, "    "), end="")
                is_empty = False
            print(f'{{\n  "{name}": []' if is_empty else "\n  ]", end="")
            for key, value in more().items():
                print(f',\n  "{key}": {_indented(value, "  ").lstrip()}', end="")
            print("\n}")
        case Output.TABLE:
            waiting: list[Mapping[str, object]] = []
            headings = True
            try:
                for row in rows:
                    waiting.append(row)
                    if len(waiting) == BATCH:
                        show_table(waiting, columns, headings=headings)
                        waiting, headings = [], False
            finally:
                show_table(waiting, columns, headings=headings)


def _indented(value: object, indent: str) -> str:
    text = json.dumps(json.loads(to_json(value)), indent=2)
    return "\n".join(indent + line for line in text.splitlines())
