"""The folder that the processes of a test share: the clock, the journal, and what they pass on to each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.sandbox.clock import SharedClock
from tests.sandbox.journal import Journal

FOLDER = "DYNATICK_SANDBOX_FOLDER"


class SharedFolder:
    """The same for every process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = SharedClock(path / "clock")
        self.journal = Journal(path / "journal")
        self.invocations = path / "invocations"  # asynchronous ones, that functions have started: lines of JSON
        self.wake_ups = path / "wake-ups"  # that functions have sent: lines of JSON; event, and seconds since 1970
        self.unstreamed = path / "unstreamed"  # ids of rows whose writes the emulator's stream leaves out
        self.stop = path / "stop"  # once it is there, clients end

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> SharedFolder:
        return cls(Path(environ[FOLDER]))

    def now(self) -> float:
        """Seconds since 1970 by the shared clock."""
        return self.clock().timestamp()
