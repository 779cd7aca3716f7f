"""Lines of the product, of its tests and of the stack, and what one reads to understand a pass (`make lines`).

Part of the stack is shipped: `dynatick init`, `dev` and `deploy`, and the local stack. The rest, which the wheel leaves
out, serves this repository: demo, benchmarks, reference.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import tomllib
from pathlib import Path

from grimp import build_graph

ROOT = Path(__file__).parents[1]
PARTS = {"product": ("shared", "functions"), "engine": ("shared/dynatick/engine",), "tests": ("tests",),
         "stack": ("stack",)}  # fmt: skip
PASS = "dynatick.engine.drain"


def lines(*parts: str) -> int:
    """Returns the number of lines of all Python files in these files and folders."""
    roots = [ROOT / part for part in parts]
    paths = [path for root in roots for path in ([root] if root.is_file() else root.rglob("*.py"))]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def closure(module: str) -> list[str]:
    """Returns the module and what it imports, directly or not, packages without code left out."""
    graph = build_graph("dynatick", cache_dir=None)
    found = {module} | graph.find_upstream_modules(module)
    return sorted(name for name in found if lines(_path(name)))


def _path(module: str) -> str:
    stem = "shared/" + module.replace(".", "/")
    return f"{stem}.py" if (ROOT / f"{stem}.py").is_file() else f"{stem}/__init__.py"


if __name__ == "__main__":
    found = {part: lines(*folders) for part, folders in PARTS.items()}
    for part, number in found.items():
        print(f"{part:<8} {number:>7,}   {number / found['product']:.2f} x the product")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    here = lines(*project["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"])
    print(f"Of the stack, {found['stack'] - here:,} lines are in the wheel; {here:,} serve this repository alone")
    modules = closure(PASS)
    print(f"A pass, {PASS}, and all that it imports: {len(modules)} modules, {lines(*map(_path, modules)):,} lines")
