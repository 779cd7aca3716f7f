"""The journal of what really happened, outside of the table: a file to which all processes append, in order.

A line is one write, so none is torn or lost even if its writer is killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

INSERT, REPLACE, CANCEL, RESCHEDULE, RUN, DELETE = "insert", "replace", "cancel", "reschedule", "run", "delete"
OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"  # unknown: no response, or one that may be to an earlier try

REDRIVE = "redrive"  # of a batch
BATCH = "batch"  # the interface by which members come in
SCHEDULE = "schedule"  # what occurrences come from

KILLED, TIMED_OUT, KILLED_INSIDE, EXITED = "killed", "timed out", "killed at a call or by its task", "exited"


@dataclass(frozen=True, kw_only=True, slots=True)
class Requested:
    """A client is about to send a request. Without a response the client died, and the outcome is unknown.

    ``incarnation``: one task, from its insert until it is deleted or replaced by another under the same id.
    """

    request_id: str
    operation: str  # INSERT, …
    interface: str
    task_id: str
    incarnation: str
    at: float  # seconds since 1970 by the shared clock, here and below
    fails: bool = False  # an insert's: the task is made to fail for good
    due_at: float | None = None  # an insert's: the earliest instant at which the task may begin, if it is known
    delayed: bool = False  # an insert's: that counts from the call on
    limited: bool = False  # an insert's: the task has a limit key, and may have to wait for its turn


@dataclass(frozen=True, kw_only=True, slots=True)
class Responded:
    request_id: str
    status: str  # OK, …
    at: float
    run: int | None = None  # of the task, as the response shows it
    due_at: float | None = None  # likewise


@dataclass(frozen=True, kw_only=True, slots=True)
class Executed:
    """An execution of an attempt."""

    pid: int
    task_id: str
    incarnation: str
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
    until: float = 0.0  # the hard end of its process
    limit_key: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended(Executed):
    """The action has come to its end in this process."""

    done: bool  # its effect happened; False: it failed, as it was made to


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """DynamoDB has responded to this process that it has recorded the outcomes of these tasks.

    ``not_before``: of those that are tried again, the next attempt's time.
    """

    pid: int
    task_ids: list[str]
    not_before: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultInjected:
    """``task_ids``: whose record it hit."""

    pid: int
    fault: str
    call: str
    task_ids: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Died:
    """A process has ended before its time."""

    pid: int
    role: str
    why: str  # KILLED, …


@dataclass(frozen=True, kw_only=True, slots=True)
class Disturbance:
    """Something has happened to a tick, to an invocation that one has started, or around all processes."""

    of: str  # TICK or ENVIRONMENT
    what: str
    at: float | None = None  # of a tick of the rule: when its event comes, if it does


TICK, ENVIRONMENT = "tick", "environment"
Line = Requested | Responded | Began | Ended | Recorded | FaultInjected | Died | Disturbance
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Line)}
_Kind = TypeVar("_Kind")


class Tail:
    """The whole lines of a file, each given once, also while it grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def new(self) -> list[Any]:
        """The new lines, whose content is JSON."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._at += len(whole) + len(newline)
        return [json.loads(line) for line in whole.splitlines()]


def append(path: Path, *values: object) -> None:
    """Adds lines of JSON in one write, so that none is torn even if its writer is killed."""
    if not values:
        return
    text = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if os.write(file, text) != len(text):
            raise OSError(f"{path} has not taken all of {len(text)} bytes")
    finally:
        os.close(file)


def parse(content: Any) -> Line:
    kind, fields = content
    line: Line = _KINDS[kind](**fields)
    return line


class Journal:
    """The file. Safe to share between threads and processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, *lines: Line) -> None:
        append(self.path, *([type(line).__name__, asdict(line)] for line in lines))

    def __iter__(self) -> Iterator[Line]:
        return map(parse, Tail(self.path).new())

    def of(self, kind: type[_Kind]) -> list[_Kind]:
        return [line for line in self if isinstance(line, kind)]

    def done(self) -> list[Ended]:
        """The attempts whose effect happened, in the order in which they ended."""
        return [line for line in self.of(Ended) if line.done]
