"""Lines of the product, of its tests and of the local stack, and how they compare (`make lines`)."""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = {"product": ("shared", "functions"), "tests": ("tests",), "stack": ("stack",)}


def lines(*folders: str) -> int:
    """Returns the number of lines of all Python files."""
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


if __name__ == "__main__":
    found = {part: lines(*folders) for part, folders in PARTS.items()}
    for part, number in found.items():
        print(f"{part:<8} {number:>7,}   {number / found['product']:.2f} x the product")
