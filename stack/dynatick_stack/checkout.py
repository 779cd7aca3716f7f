"""A copy of the checkout with other handlers: template.yaml, layer and the other functions are the real ones."""

from __future__ import annotations

import shutil
from pathlib import Path

from dynatick_stack.template import ROOT

MODULE = "handlers_given"


def with_handlers(root: Path, handlers: str) -> Path:
    """Makes the folder ``root``. ``handlers``: the source of the module ``MODULE``, which the parameter HandlersModule
    is to name."""
    root.mkdir()
    for name in ("template.yaml", "shared", "requirements"):
        (root / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "functions", root / "functions", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "functions" / "processor" / f"{MODULE}.py").write_text(handlers, encoding="utf-8")
    return root
