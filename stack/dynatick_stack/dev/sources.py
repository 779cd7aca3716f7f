"""A project's files: as they are now, which have changed, and the layer that holds them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from dynatick_stack.files import write_zip
from dynatick_stack.project import Project
from dynatick_stack.project_files import project_files

Snapshot = Mapping[Path, tuple[int, int]]
"""Files with the times of their last change, in nanoseconds, and their sizes."""


def snapshot(project: Project) -> Snapshot:
    """The files of the handlers. One that disappears meanwhile is left out."""
    found = {}
    for path in project_files(project):
        try:
            state = path.stat()
        except FileNotFoundError:
            continue
        found[path] = state.st_mtime_ns, state.st_size
    return found


def changed(before: Snapshot, after: Snapshot) -> list[Path]:
    """The files that are new, gone, or of another time or size."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


class Saves:
    """Which files were saved. A file is so once two looks find it the same: many editors empty it first and write it
    then, and a deployment in between would run without its handlers."""

    def __init__(self, files: Snapshot) -> None:
        self.taken = self._seen = files

    def take(self, files: Snapshot) -> list[Path]:
        """Those that were saved since the last ones were taken. ``files``: as this look finds them."""
        moving, self._seen = set(changed(self._seen, files)), files
        still = {path: state for path, state in files.items() if path not in moving}
        before = self.taken
        self.taken = still | {path: state for path, state in before.items() if path in moving}
        return changed(before, self.taken)


def layer(folder: Path, files: Snapshot) -> bytes:
    """A Lambda layer of these files, as a zip: the same for the same content."""
    zipped = io.BytesIO()
    write_zip(zipped, {f"python/{path.relative_to(folder).as_posix()}": path for path in files})
    return zipped.getvalue()
