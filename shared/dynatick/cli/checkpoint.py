"""Records next to a file how far its import or export is, so that an interrupted run can be continued."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from dynatick.cli.output import say

_SUFFIX = ".progress"
_INTERVAL = 1.0  # seconds between two writes: what a killed run repeats
_DIGEST_BYTES = 64 * 1024  # at the beginning of the file, and before the offset


class Place(Protocol):
    """A dataclass that says where to continue. ``offset``: in bytes of the file."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def offset(self) -> int: ...


P = TypeVar("P", bound=Place)


@dataclass(slots=True)
class Checkpoint(Generic[P]):
    """The file FILE.progress. If it cannot be written, the run continues without it.

    ``parse`` makes a place of its JSON; raises ValueError, TypeError or KeyError.
    """

    file: Path
    parse: Callable[[Mapping[str, Any]], P]
    _written_at: float = -_INTERVAL
    _fails: bool = False

    @property
    def path(self) -> Path:
        return self.file.with_name(self.file.name + _SUFFIX)

    @property
    def is_due(self) -> bool:
        """Whether it was written a second ago or more."""
        return not self._fails and time.monotonic() - self._written_at >= _INTERVAL

    def read(self) -> P | None:
        """The recorded place; None if there is none, or if the file has changed since."""
        try:
            recorded = json.loads(self.path.read_bytes())
            place = self.parse(recorded["place"])
            unchanged = self.file.stat().st_size >= place.offset and recorded["digest"] == self._digest(place.offset)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return place if unchanged else None

    def keep(self, place: P, *, now: bool = False) -> None:
        """Records a place, once a second at most; ``now``: at once."""
        if self._fails or not (now or self.is_due):
            return
        self._written_at = time.monotonic()
        partial = self.path.with_name(self.path.name + ".partial")
        try:
            partial.write_text(json.dumps({"digest": self._digest(place.offset), "place": asdict(place)}))
            partial.replace(self.path)
        except OSError as error:
            self._fails = True
            say(f"Cannot write {self.path.name} ({error.strerror}): an interrupted run will begin anew")

    def forget(self) -> None:
        """Deletes it, once the run is complete."""
        self.path.unlink(missing_ok=True)

    def _digest(self, offset: int) -> str:
        """Returns the digest of the file's beginning and of the bytes before an offset."""
        with self.file.open("rb") as file:
            found = hashlib.sha256(file.read(min(_DIGEST_BYTES, offset)))
            file.seek(max(0, offset - _DIGEST_BYTES))
            found.update(file.read(min(_DIGEST_BYTES, offset)))
        return found.hexdigest()
