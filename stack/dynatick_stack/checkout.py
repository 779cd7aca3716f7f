"""A copy of the checkout with other handlers: template.yaml, layer and the other functions are the real ones."""

from __future__ import annotations

import shutil
from pathlib import Path

from dynatick_stack.template import ROOT

MODULE = "handlers_given"


def without_sample(root: Path) -> Path:
    """Makes the folder ``root`` afresh: all that is deployed but the sample handlers, which would hide a module of a
    project that has their name."""
    shutil.rmtree(root, ignore_errors=True)
    _make(root)
    (root / "functions" / "processor" / "handlers.py").unlink()
    return root


def with_handlers(root: Path, handlers: str) -> Path:
    """Makes the folder ``root``. ``handlers``: the source of the module ``MODULE``, which the parameter HandlersModule
    is to name."""
    _make(root)
    (root / "functions" / "processor" / f"{MODULE}.py").write_text(handlers, encoding="utf-8")
    return root


def _make(root: Path) -> None:
    root.mkdir(parents=True)
    for name in ("template.yaml", "shared", "requirements"):
        (root / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "functions", root / "functions", ignore=shutil.ignore_patterns("__pycache__"))
