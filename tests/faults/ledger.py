"""What was really executed, kept outside of the table: a file to which each execution appends a line."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

DONE, TRIED = "done", "tried"


@dataclass(frozen=True, kw_only=True)
class Execution:
    """One attempt that reached its handler."""

    what: str  # DONE: its effect happened; TRIED: it failed on purpose, or was about to kill its process
    task_id: str
    run: int
    attempt: int
    key: str  # the idempotency key
    pid: int
    at: str  # by the shared clock, RFC 3339


class Ledger:
    """Appended to by many processes: a line is one write, so none is torn even if its writer is killed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, execution: Execution) -> None:
        line = json.dumps(asdict(execution)).encode() + b"\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)

    def all(self) -> list[Execution]:
        """In the order in which they happened."""
        if not self._path.exists():
            return []
        return [Execution(**json.loads(line)) for line in self._path.read_text().splitlines()]

    def done(self) -> list[Execution]:
        return [execution for execution in self.all() if execution.what == DONE]
