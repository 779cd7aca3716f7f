"""Lines of the product, of its tests and of the stack, and how they compare (`make lines`).

Part of the stack is shipped: `dynatick init`, `dev` and `deploy`, and the local stack. The rest, which the wheel leaves
out, serves this repository: demo, benchmarks, reference.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = {"product": ("shared", "functions"), "tests": ("tests",), "stack": ("stack",)}


def lines(*parts: str) -> int:
    """Returns the number of lines of all Python files in these files and folders."""
    roots = [ROOT / part for part in parts]
    paths = [path for root in roots for path in ([root] if root.is_file() else root.rglob("*.py"))]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


if __name__ == "__main__":
    found = {part: lines(*folders) for part, folders in PARTS.items()}
    for part, number in found.items():
        print(f"{part:<8} {number:>7,}   {number / found['product']:.2f} x the product")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    here = lines(*project["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"])
    print(f"Of the stack, {found['stack'] - here:,} lines are in the wheel; {here:,} serve this repository alone")
