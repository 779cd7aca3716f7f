"""The tables of docs/simulation.md, which `make simulate WRITE=1` writes: between `<!-- simulate: NAME -->` and
`<!-- /simulate -->`."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "simulation.md"
_PART = re.compile(r"(<!-- simulate: (\w+) -->\n).*?(<!-- /simulate -->)", re.DOTALL)


def replaced(text: str, name: str, table: str) -> str:
    """A document with another table of that name. Raises KeyError if it has none."""
    if name not in {found[2] for found in _PART.finditer(text)}:
        raise KeyError(name)
    return _PART.sub(lambda found: f"{found[1]}\n{table}\n\n{found[3]}" if found[2] == name else found[0], text)


def write(name: str, table: str) -> None:
    DOCUMENT.write_text(replaced(DOCUMENT.read_text(encoding="utf-8"), name, table), encoding="utf-8")
