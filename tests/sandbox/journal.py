"""What really happened, kept outside of the table: a file to which all processes append, in the order of events.

A line is one write, so none is torn or lost even if its writer is killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

INSERT, REPLACE, CANCEL, RESCHEDULE, RUN, DELETE = "insert", "replace", "cancel", "reschedule", "run", "delete"
YES, NO, UNCLEAR = "yes", "no", "unclear"  # unclear: no answer, or one that does not tell whose doing it was

RANDOM, TIME, INSIDE, ITSELF = "killed", "timed out", "killed at a call or by its task", "ended itself"


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A client is about to ask for something. Without an Answered it died, so that the outcome is unclear.

    ``life``: one task, from its insert until it is deleted or replaced by another under the same id.
    """

    number: str
    what: str  # INSERT, …
    interface: str
    task_id: str
    life: str
    at: float  # seconds since 1970 by the shared clock, here and below
    fails: bool = False  # an insert's: it is made to fail for good


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """What it was answered."""

    number: str
    answer: str  # YES, …
    at: float
    run: int | None = None  # of the task, as the answer shows it
    due_at: float | None = None  # likewise


@dataclass(frozen=True, kw_only=True, slots=True)
class Executed:
    """Of an attempt."""

    pid: int
    task_id: str
    life: str
    run: int
    attempt: int
    key: str  # the idempotency key
    at: float

    @property
    def instant(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)


@dataclass(frozen=True, kw_only=True, slots=True)
class Began(Executed):
    """An attempt has reached the action."""

    due_at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended(Executed):
    """The action has come to its end in this process."""

    done: bool  # its effect happened; False: it failed, as it was made to


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """The engine has answered to this process that it has recorded the outcomes of these tasks.

    ``not_before``: of those that are tried again, the next attempt's time.
    """

    pid: int
    task_ids: list[str]
    not_before: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Met:
    """A fault was injected. ``task_ids``: whose record it hit."""

    pid: int
    fault: str
    call: str
    task_ids: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Died:
    """A process has ended before its time."""

    pid: int
    role: str
    why: str  # RANDOM, …


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticked:
    """How a tick ended, or an invocation that one has started."""

    recorded_as: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Disturbed:
    """Something has happened around all processes."""

    what: str


Line = Asked | Answered | Began | Ended | Recorded | Met | Died | Ticked | Disturbed
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Asked, Answered, Began, Ended, Recorded, Met, Died, Ticked, Disturbed)
}


class Journal:
    """The file, to append to. Safe to share between threads and processes."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, *lines: Line) -> None:
        text = b"".join(json.dumps([type(line).__name__, asdict(line)]).encode() + b"\n" for line in lines)
        written = os.write(self._file, text)
        if written != len(text):
            raise OSError(f"the journal took {written} of {len(text)} bytes")


class Tail:
    """The whole lines of a file, each given once, also while it grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def new(self) -> list[bytes]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._at += len(whole) + len(newline)
        return whole.splitlines()

    @property
    def at_end(self) -> bool:
        return not self._path.exists() or self._path.stat().st_size == self._at


def parse(text: bytes) -> Line:
    kind, fields = json.loads(text)
    line: Line = _KINDS[kind](**fields)
    return line


def read(path: Path) -> Iterator[Line]:
    """All of it, in order."""
    return map(parse, Tail(path).new())


class Ledger:
    """The attempts in a journal, in the order in which they happened."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begun(self) -> list[Began]:
        return [line for line in read(self._path) if isinstance(line, Began)]

    def ended(self) -> list[Ended]:
        return [line for line in read(self._path) if isinstance(line, Ended)]

    def done(self) -> list[Ended]:
        """Those whose effect happened."""
        return [line for line in self.ended() if line.done]

    def died(self) -> list[Died]:
        return [line for line in read(self._path) if isinstance(line, Died)]
