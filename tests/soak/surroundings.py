"""Where the soak's processes meet: a folder with the clock, the journal, and what they tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.sandbox.clock import SharedClock
from tests.soak.journal import Journal

FOLDER = "DYNATICK_SOAK_FOLDER"


@dataclass(frozen=True)
class Surroundings:
    """The same for every process."""

    folder: Path

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Surroundings:
        return cls(Path(environ[FOLDER]))

    @cached_property
    def clock(self) -> SharedClock:
        """Fast: see run.py."""
        return SharedClock(self.folder / "clock")

    @property
    def journal_path(self) -> Path:
        return self.folder / "journal"

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.journal_path)

    @property
    def invocations(self) -> Path:
        """The asynchronous invocations that the processor has asked for."""
        return self.folder / "invocations"

    @property
    def unstreamed(self) -> Path:
        """Ids of rows whose writes the emulator's stream leaves out, which a real one shows (see watch.py)."""
        return self.folder / "unstreamed"

    @property
    def stop(self) -> Path:
        """Once it is there, clients end."""
        return self.folder / "stop"
