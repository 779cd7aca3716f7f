"""How far an import is, noted beside its file: a run that was interrupted goes on there. Ineligible once all is in."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from dynatick.cli.output import say

ENDING = ".progress"
_EVERY = 1.0  # seconds: what a killed run does again
_BESIDE = 64 * 1024  # bytes before the place, by which the file is known again


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where to go on."""

    offset: int
    line: int
    latest: str | None  # the id of the latest task that is in
    counts: Mapping[str, int]
    errors: int | None = None  # bytes of the file of errors


@dataclass(slots=True)
class Checkpoint:
    """The note beside one file. A folder that cannot be written to costs the note, not the import."""

    file: Path
    _written_at: float = field(default_factory=time.monotonic)
    _fails: bool = False

    @property
    def path(self) -> Path:
        return self.file.with_name(self.file.name + ENDING)

    def read(self) -> Place | None:
        """The place that is noted; None if there is none, or if it is not of this file as it is now."""
        try:
            noted = json.loads(self.path.read_bytes())
            place = Place(**noted["place"])
            fits = noted["digest"] == digest(self.file, place.offset)
            numbers = (place.offset, place.line, *place.counts.values())
            counts = all(type(number) is int and number >= 0 for number in numbers)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return place if fits and counts else None

    def keep(self, place: Place, *, now: bool = False) -> None:
        """Notes a place, every second or so; ``now``: at once."""
        if self._fails or not (now or time.monotonic() - self._written_at >= _EVERY):
            return
        self._written_at = time.monotonic()
        partial = self.path.with_name(self.path.name + ".partial")
        try:
            partial.write_text(json.dumps({"digest": digest(self.file, place.offset), "place": asdict(place)}))
            partial.replace(self.path)
        except OSError as error:
            self._fails = True
            say(f"Cannot note how far it is ({error.strerror}): if it is interrupted, it begins anew")

    def forget(self) -> None:
        """All is in."""
        self.path.unlink(missing_ok=True)


def digest(path: Path, offset: int) -> str:
    """Of a file's beginning, and of what stands before a place in it: of a file that was changed it is another one."""
    with path.open("rb") as file:
        found = hashlib.sha256(file.read(min(_BESIDE, offset)))
        file.seek(max(0, offset - _BESIDE))
        found.update(file.read(min(_BESIDE, offset)))
    return found.hexdigest()


@dataclass(slots=True)
class ErrorsFile:
    """The file that ``--errors`` names: an NDJSON document for each line that is not in."""

    file: IO[bytes]
    size: int = 0

    def write(self, line: str) -> None:
        self.file.write(line.encode() + b"\n")
        self.size += len(line.encode()) + 1

    @classmethod
    def open(cls, path: Path, size: int | None) -> ErrorsFile:
        """Empty, or with its first ``size`` bytes kept. Raises OSError."""
        kept = size is not None and path.is_file() and path.stat().st_size >= size
        file = path.open("r+b" if kept else "wb")
        if kept and size is not None:
            file.truncate(size)
            file.seek(size)
        return cls(file, size if kept and size is not None else 0)
