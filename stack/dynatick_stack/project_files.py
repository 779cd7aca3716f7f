"""Which files of a project its handlers have at hand: all of its folder, but those that are no part of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from dynatick_stack.folders import PROJECT_FILE
from dynatick_stack.project import Project

NEVER = (
    ".*",
    "__pycache__", "node_modules", "build", "dist", "*.egg-info",
    "test", "tests", "test_*.py", "*_test.py", "conftest.py",
    "*.pyc", "*.pyi", "*.whl", "*.log", PROJECT_FILE,
)  # fmt: skip
"""Names of files and folders. Virtual environments and the file of the requirements are left out besides."""

MAYBE_SECRET = (
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p12", "*.pfx", "*.env", "*.tfstate*",
)  # fmt: skip
"""Names of what stays here as well. A deployment says so, since handlers may need one, such as a certificate."""

TAKEN = "app"
"""The module that each function begins with. A project's own would take its place, or be hidden by it."""


def project_files(project: Project) -> Iterator[Path]:
    """Yields the files in a stable order. A name or a path that a pattern of ``exclude`` fits is left out, with all
    that is in it."""
    return (path for path in _files(project) if not _may_be_secret(path.relative_to(project.folder)))


def kept_here(project: Project) -> Iterator[Path]:
    """Yields those that would be among the files, but may be secret."""
    return (path for path in _files(project) if _may_be_secret(path.relative_to(project.folder)))


def _may_be_secret(path: Path) -> bool:
    return any(fnmatchcase(part, pattern) for part in path.parts for pattern in MAYBE_SECRET)


def _files(project: Project) -> Iterator[Path]:
    folder = project.folder.resolve()

    def is_part(path: Path) -> bool:
        whole = path.relative_to(project.folder).as_posix()
        return not (
            any(fnmatchcase(path.name, pattern) for pattern in (*NEVER, *project.exclude))
            or any(fnmatchcase(whole, pattern) for pattern in project.exclude)
            or path == project.requirements
            or whole in (TAKEN, f"{TAKEN}.py")
            or (path / "pyvenv.cfg").exists()
            or not path.resolve().is_relative_to(folder)  # a link to somewhere else
        )

    for parent, folders, files in os.walk(project.folder):
        folders[:] = sorted(name for name in folders if is_part(Path(parent, name)))
        yield from (path for name in sorted(files) if is_part(path := Path(parent, name)) and path.is_file())
