"""Which files of a project its handlers have at hand: all of its folder, but those that are no part of them.

To AWS go fewer: what a project has in git, or names. An export with customers' addresses may lie beside the handlers.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from dynatick_stack.errors import BuildError
from dynatick_stack.folders import PROJECT_FILE
from dynatick_stack.project import Project

NEVER = (
    ".*",
    "__pycache__", "node_modules", "build", "dist", "*.egg-info",
    "test", "tests", "test_*.py", "*_test.py", "conftest.py",
    "*.pyc", "*.pyi", "*.whl", "*.log", "*.sqlite3", "*.sqlite3-*", PROJECT_FILE,
)  # fmt: skip
"""Names of files and folders. Virtual environments and the file of the requirements are left out besides."""

MAYBE_SECRET = (
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p12", "*.pfx", "*.env", "*.tfstate*",
)  # fmt: skip
"""Names of what stays here as well. A deployment says so, since handlers may need one, such as a certificate."""

TAKEN = "app"
"""The module that each function begins with. A project's own would take its place, or be hidden by it."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which files of a project go to AWS with its handlers. Each path is one of ``project_files``."""

    files: Sequence[Path]
    undecided: Sequence[Path] = ()  # the others, if neither git nor the project says which of them are to go
    left_out: Sequence[Path] = ()  # the others, if one of them does


def select(project: Project) -> Selection:
    """What git tracks or ``include`` names; where git tracks nothing, Python files and what ``include`` names. Raises
    BuildError if git does not answer."""
    tracked = _tracked(project.folder)
    files: list[Path] = []
    others: list[Path] = []
    for path in project_files(project):
        places = _places(project, path)
        goes = all(project.folder / place in tracked if tracked else place.suffix == ".py" for place in places)
        (files if goes or _is_named(places[0], project.include or ()) else others).append(path)
    if tracked or project.include is not None:
        return Selection(files=files, left_out=others)
    return Selection(files=files, undecided=others)


def _is_named(path: Path, patterns: Iterable[str]) -> bool:
    """Whether a pattern fits the name or the path of a file, or of a folder that it is in."""
    parts = [path, *path.parents[:-1]]
    return any(fnmatchcase(part.name, one) or fnmatchcase(part.as_posix(), one) for one in patterns for part in parts)


def _tracked(folder: Path) -> set[Path]:
    """What git tracks in a folder; nothing if that is in no work tree."""
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return set()
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # a hook's are for git
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--recurse-submodules"]
    try:
        ran = subprocess.run(command, env=own, capture_output=True, check=False)
    except OSError as error:
        raise BuildError(f"git is needed to know what it tracks in {folder}: {error.strerror}") from None
    if ran.returncode != 0:
        raise BuildError(f"git does not say what it tracks in {folder}: {os.fsdecode(ran.stderr).strip()}")
    return {folder / os.fsdecode(name) for name in ran.stdout.split(b"\0") if name}


def project_files(project: Project) -> Iterator[Path]:
    """Yields the files in a stable order. A name or a path that a pattern of ``exclude`` fits is left out, with all
    that is in it."""
    return (path for path in _files(project) if not _may_be_secret(project, path))


def kept_here(project: Project) -> Iterator[Path]:
    """Yields those that would be among the files, but may be secret."""
    return (path for path in _files(project) if _may_be_secret(project, path))


def _may_be_secret(project: Project, path: Path) -> bool:
    parts = [part for place in _places(project, path) for part in place.parts]
    return any(fnmatchcase(part, pattern) for part in parts for pattern in MAYBE_SECRET)


def _places(project: Project, path: Path) -> list[Path]:
    """Where a file is in the folder, and if it is a link, where the file is whose content it has."""
    own = path.relative_to(project.folder)
    return [own, path.resolve().relative_to(project.folder.resolve())] if path.is_symlink() else [own]


def _files(project: Project) -> Iterator[Path]:
    folder = project.folder.resolve()

    def is_never_part(path: Path) -> bool:
        return any(fnmatchcase(path.name, pattern) for pattern in NEVER) or (path / "pyvenv.cfg").exists()

    def leads_to_no_part(link: Path) -> bool:
        target = link.resolve()
        if not target.is_relative_to(folder):
            return True
        inside = target.relative_to(folder)
        return any(is_never_part(folder / part) for part in (inside, *inside.parents[:-1]))

    def is_part(path: Path) -> bool:
        whole = path.relative_to(project.folder).as_posix()
        return not (
            is_never_part(path)
            or any(fnmatchcase(name, pattern) for name in (path.name, whole) for pattern in project.exclude)
            or path == project.requirements
            or whole in (TAKEN, f"{TAKEN}.py")
            or (path.is_symlink() and leads_to_no_part(path))
        )

    for parent, folders, files in os.walk(project.folder):
        folders[:] = sorted(name for name in folders if is_part(Path(parent, name)))
        yield from (path for name in sorted(files) if is_part(path := Path(parent, name)) and path.is_file())
