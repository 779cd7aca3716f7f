"""Prints a list while it grows. Memory does not grow with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import TracebackType

from dynatick.actions.plain_value import to_json
from dynatick.cli.output import Column, Output, show_document, show_table

BATCH = 500  # rows of a table with the same column widths


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
