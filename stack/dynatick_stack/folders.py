"""Where things lie.

In a checkout, all of it beside ``template.yaml``. Of an installed wheel, what it brings lies read-only in the package,
what belongs to a project in the project's ``.dynatick``, and what projects share in the user's cache.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PROJECT_FILE = "dynatick.toml"
_PACKAGED = Path(__file__).resolve().parent / "packaged"  # pyproject.toml puts it into the wheel

IS_CHECKOUT = not _PACKAGED.is_dir()
ROOT = Path(__file__).resolve().parents[2] if IS_CHECKOUT else _PACKAGED
"""Has template.yaml, functions/ and requirements/."""


def user_cache(environ: Mapping[str, str]) -> Path:
    """The user's cache folder for Dynatick. A relative XDG_CACHE_HOME counts as none, as its specification says."""
    given = Path(environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "dynatick"


def project_of(folder: Path) -> Path | None:
    """The nearest folder with a dynatick.toml, from this one upwards."""
    return next((one for one in (folder, *folder.parents) if (one / PROJECT_FILE).is_file()), None)


def state_of(folder: Path) -> Path:
    """Where the local stack of a folder keeps its state: in its project, else in the checkout, else in the folder."""
    return (project_of(folder) or (ROOT if IS_CHECKOUT else folder)) / ".dynatick" / "local"


CACHE = ROOT / ".dynatick" / "cache" if IS_CHECKOUT else user_cache(os.environ)
STATE = state_of(Path.cwd())
