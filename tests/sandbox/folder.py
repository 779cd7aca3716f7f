"""Where the processes of a test meet: a folder with the clock, the journal, and what they pass on to each other."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.sandbox.clock import SharedClock
from tests.sandbox.journal import Journal, Ledger

FOLDER = "DYNATICK_SANDBOX_FOLDER"


@dataclass(frozen=True)
class SharedFolder:
    """The same for every process."""

    path: Path

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> SharedFolder:
        return cls(Path(environ[FOLDER]))

    @cached_property
    def clock(self) -> SharedClock:
        return SharedClock(self.path / "clock")

    def now(self) -> float:
        """Seconds since 1970 by the shared clock."""
        return self.clock().timestamp()

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.path / "journal")

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.path / "journal")

    @property
    def invocations(self) -> Path:
        """The asynchronous invocations that the functions have asked for, as lines of JSON."""
        return self.path / "invocations"

    @property
    def wake_ups(self) -> Path:
        """The wake-ups that the functions have sent, as lines of JSON: event, and seconds since 1970."""
        return self.path / "wake-ups"

    @property
    def unstreamed(self) -> Path:
        """Ids of rows whose writes the emulator's stream leaves out, which a real one shows."""
        return self.path / "unstreamed"

    @property
    def stop(self) -> Path:
        """Once it is there, clients end."""
        return self.path / "stop"

    def note_invocation(self, event: Mapping[str, object]) -> None:
        append(self.invocations, [event])


def append(path: Path, values: Sequence[object]) -> None:
    """Adds lines of JSON in one write, so that none is torn even if its writer is killed."""
    if not values:
        return
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, b"".join(json.dumps(value).encode() + b"\n" for value in values))
    finally:
        os.close(file)
