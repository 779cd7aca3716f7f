"""A clock that several processes share, and that runs from where it was set: days of outage take no time."""

from __future__ import annotations

import mmap
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2026, 12, 31, 12, 0, 10, tzinfo=UTC)
_FORM = struct.Struct("d")


class SharedClock:
    """The machine's clock and an offset, kept in a file that each process maps. Who makes the file says ``start``."""

    def __init__(self, path: Path, start: datetime = START) -> None:
        if not path.exists():
            path.write_bytes(_FORM.pack((start - datetime.now(UTC)).total_seconds()))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _FORM.size)

    def __call__(self) -> datetime:
        (offset,) = _FORM.unpack(self._shared[:])
        return datetime.now(UTC) + timedelta(seconds=offset)

    def forward(self, **delta: float) -> datetime:
        """Puts it forward for every process."""
        (offset,) = _FORM.unpack(self._shared[:])
        self._shared[:] = _FORM.pack(offset + timedelta(**delta).total_seconds())
        return self()

    def to(self, instant: datetime) -> None:
        """Puts it forward to an instant; an earlier one changes nothing."""
        self.forward(seconds=max((instant - self()).total_seconds(), 0.0))
