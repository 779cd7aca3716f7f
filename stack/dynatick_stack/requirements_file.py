"""The file of a project's requirements, with those that it names: as pip reads them, for a pip that is given a copy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dynatick_stack.errors import BuildError

_NAMES_A_PATH = re.compile(
    r"\s*(?P<option>-r|-c|-f|--requirement\b|--constraint\b|--find-links\b)\s*=?\s*(?P<path>\S.*?)(?:\s+#.*)?\s*"
)
_OURSELVES = re.compile(r"\s*dynatick(?![-.\w])", re.IGNORECASE)


@dataclass(kw_only=True)
class Requirements:
    """Lines of pip's, none of which depends on where it stands. Without Dynatick, which is in the functions already."""

    wanted: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)


def read_requirements(file: Path) -> Requirements:
    """Raises BuildError for a file that can't be read, or names itself."""
    found = Requirements()
    _read(file, found.wanted, found, ())
    return found


def _read(file: Path, to: list[str], found: Requirements, within: Sequence[Path]) -> None:
    if file in within:
        raise BuildError(f"{file} names itself, by way of {within[-1]}")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        by = f", which {within[-1]} names" if within else ""
        raise BuildError(f"{file}{by}, can't be read: {error}") from None
    for line in lines:
        named = _NAMES_A_PATH.fullmatch(line)
        path = None if named is None else file.parent / named["path"].strip("\"'")
        if named is None or path is None or "://" in named["path"]:
            if not _OURSELVES.match(line):
                to.append(line)
        elif named["option"] in ("-f", "--find-links"):
            to.append(shlex.join(("--find-links", str(path.resolve()))) if path.exists() else line)
        else:
            is_constraint = named["option"] in ("-c", "--constraint")
            _read(path.resolve(), found.constraints if is_constraint else to, found, (*within, file))
