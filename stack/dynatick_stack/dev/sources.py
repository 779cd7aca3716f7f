"""A project's Python files: which there are, which have changed, and the layer that holds them."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

Snapshot = Mapping[Path, tuple[int, int]]
"""Files with the times of their last change, in nanoseconds, and their sizes."""

_NEVER = ("__pycache__", "node_modules")


def python_files(folder: Path) -> Iterator[Path]:
    """The Python files of a project: none of hidden folders, of virtual environments, of caches."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in _NEVER and not Path(parent, name, "pyvenv.cfg").exists()
        )
        yield from (Path(parent, name) for name in sorted(files) if name.endswith(".py"))


def snapshot(folder: Path) -> Snapshot:
    """The Python files as they are now. One that disappears meanwhile is left out."""
    found = {}
    for path in python_files(folder):
        try:
            state = path.stat()
        except FileNotFoundError:
            continue
        found[path] = state.st_mtime_ns, state.st_size
    return found


def changed(before: Snapshot, after: Snapshot) -> list[Path]:
    """The files that are new, gone, or of another time or size."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def layer(folder: Path, files: Snapshot) -> bytes:
    """A Lambda layer of these files, as a zip: the same for the same content."""
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(f"python/{path.relative_to(folder).as_posix()}")
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return zipped.getvalue()
