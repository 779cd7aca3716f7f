"""Tables in Markdown, and the parts of a document that a command writes.

Such a part stands between `<!-- generated: NAME -->` and `<!-- /generated -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Table = tuple[Sequence[str], Iterable[Sequence[str]]]
"""Columns and rows."""

_PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of text; bars within cells are escaped."""
    head, *body = (" | ".join(cell.replace("|", "\\|").strip() for cell in line) for line in (columns, *rows))
    return "\n".join([f"| {head} |", "|---" * len(columns) + "|", *(f"| {line} |" for line in body)])


def figures(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose columns, from the second on, are aligned to the right: in the source too, as it is printed."""
    lines = [columns, *rows]
    widths = [max(3, *(len(line[n]) for line in lines)) for n in range(len(columns))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    aligned = [
        [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        for line in lines
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (aligned[0], rule, *aligned[1:]))


def part_names(text: str) -> list[str]:
    """The names of a document's generated parts."""
    return [found[2] for found in _PART.finditer(text)]


def with_parts(text: str, parts: Mapping[str, str]) -> str:
    """A document with these parts in the place of what stood there. Raises KeyError if one of them has no place."""
    if missing := parts.keys() - set(part_names(text)):
        raise KeyError(f"no place for {', '.join(sorted(missing))}")
    return _PART.sub(
        lambda found: f"{found[1]}\n{parts[found[2]]}\n\n{found[3]}" if found[2] in parts else found[0], text
    )


def write_parts(document: Path, parts: Mapping[str, str]) -> None:
    """Writes them into the document."""
    document.write_text(with_parts(document.read_text(encoding="utf-8"), parts), encoding="utf-8")


def one_line(text: str) -> str:
    return " ".join(text.split())
