"""The file of a project's requirements, with those that it names: as pip reads them, for a pip that is given a copy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from dynatick_stack.errors import BuildError

_NAMES_A_PATH = re.compile(
    r"\s*(?P<option>-r|-c|-f|--requirement\b|--constraint\b|--find-links\b)\s*=?\s*(?P<path>\S.*?)(?:\s+#.*)?\s*"
)
_ARCHIVES = (".whl", ".zip", ".tar.gz")
_NAMES_AN_ARCHIVE = re.compile(
    r"\s*(?:[\w.-]+\s*(?:\[[^]]*\])?\s*@\s*)?(?:file:(?://(?:localhost)?(?=/))?)?(?P<path>.*?(?:\.whl|\.zip|\.tar\.gz))(?![\w.])"
)
_OURSELVES = re.compile(r"\s*dynatick(?![-.\w])", re.IGNORECASE)


@dataclass(kw_only=True)
class Requirements:
    """Lines of pip's, none of which depends on where it stands. Without Dynatick, which is in the functions already."""

    wanted: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)

    @property
    def content(self) -> list[bytes | str]:
        """What decides what is installed: the lines, and the archives here that they name or find, which may be built
        anew under the same name."""
        lines = [*self.wanted, "", *self.constraints]
        return [*lines, *(part for path in self._archives() for part in (str(path), path.read_bytes()))]

    def _archives(self) -> Iterator[Path]:
        for line in (*self.wanted, *self.constraints):
            found = _NAMES_A_PATH.fullmatch(line)
            if found is not None and (folder := Path(found["path"].strip("\"'"))).is_dir():
                yield from sorted(path for path in folder.iterdir() if path.name.endswith(_ARCHIVES))
            elif found is None and (named := _NAMES_AN_ARCHIVE.match(line)) is not None:
                path = Path(unquote(named["path"]))  # from where pip is called, as pip takes it
                if path.is_file():
                    yield path


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
