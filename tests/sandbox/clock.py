"""A clock that several processes share, and that runs from where it was set: days of outage take no time."""

from __future__ import annotations

import mmap
import struct
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2026, 12, 31, 12, 0, 10, tzinfo=UTC)
_FORM = struct.Struct("ddd")  # what it showed at first, when that was by the machine's clock, its speed
_FIRST = struct.Struct("d")


class SharedClock:
    """Kept in a file that each process maps. ``speed``: its seconds a second. Its maker gives both."""

    def __init__(self, path: Path, start: datetime = START, *, speed: float = 1.0) -> None:
        if not path.exists():
            path.write_bytes(_FORM.pack(start.timestamp(), time.time(), speed))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _FORM.size)

    @property
    def speed(self) -> float:
        """0: it stands."""
        return self._read()[2]

    def __call__(self) -> datetime:
        first, set_at, speed = self._read()
        return datetime.fromtimestamp(first + (time.time() - set_at) * speed, UTC)

    def forward(self, **delta: float) -> datetime:
        """Puts it forward for every process."""
        first = self._read()[0] + timedelta(**delta).total_seconds()
        self._shared[: _FIRST.size] = _FIRST.pack(first)
        return self()

    def to(self, instant: datetime) -> None:
        """Puts it forward to an instant; an earlier one changes nothing."""
        self.forward(seconds=max((instant - self()).total_seconds(), 0.0))

    def stop(self) -> None:
        """Stops the clock. Another process that reads it meanwhile could see half of the change."""
        self._shared[:] = _FORM.pack(self().timestamp(), time.time(), 0.0)

    def _read(self) -> tuple[float, float, float]:
        first, set_at, speed = _FORM.unpack(self._shared[:])
        return float(first), float(set_at), float(speed)
