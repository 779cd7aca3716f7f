"""The engine's ports: a store of rows, actions to run, a dead-letter queue, a clock, an invoker.

And what an error says: it may be of any class, which may do anything when it is asked. Its texts raise nothing, and
take no longer for a larger error.
"""

from __future__ import annotations

import json
import linecache
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Protocol

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Condition, ConditionalUpdate, Result
from dynatick.domain.occurrences import Overdue
from dynatick.domain.task import Row, Task

# -- ports -------------------------------------------------------------------------------------------------------------

Clock = Callable[[], datetime]
"""Returns the present instant, aware, in UTC."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A task as the index lists it in a bucket. ``outcome`` None: it has not ended; its status is in the table."""

    task_id: str
    bucket: str
    outcome: str | None = None
    action: str | None = None
    due_at: str | None = None
    finished_at: str | None = None
    error: str | None = None
    schedule_id: str | None = None
    next_attempt_at: str | None = None
    late_milliseconds: int | None = None
    limit_key: str | None = None


class Counted(Enum):
    """Which entries of a bucket are only counted: most of those that ran, or most of those that are to run. Not packs,
    which stand for several tasks, and no entry of which more than its status is of interest."""

    COMPLETED = "tasks that ran and completed"
    OPEN = "tasks that have not begun, without a schedule and a limit key"


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a bucket. ``after``: where the next page begins, None on the last one. ``counted``: how many
    entries it lists besides, if those were only to be counted."""

    entries: Sequence[Entry]
    after: str | None
    counted: int = 0


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of ids. ``after``: where the next page begins, None on the last one."""

    ids: Sequence[str]
    after: str | None


@dataclass(frozen=True, slots=True)
class ScanPage:
    """One page of a scan over the table. ``after``: the id to go on after, None on the last page."""

    rows: Sequence[Row]
    after: str | None


class Store(Protocol):
    """Rows of one table. Every method raises StoreError if the table can't be reached."""

    table: str
    """Its name."""

    def get(self, task_id: str) -> Row | None:
        """The row, read consistently; None: it does not exist."""

    def get_many(
        self, task_ids: Iterable[str], *, consistent: bool = True, only: Collection[str] = ()
    ) -> Mapping[str, Row]:
        """The rows that exist, by id; any number of ids, repetitions allowed. ``only``: the attributes to read beside
        the id; empty: all."""

    def create(self, row: Row) -> bool:
        """Puts a row if its id is free; False if another row has it. Raises ItemTooLarge, and StoreError if the row may
        have been put: there was no answer, or the id was taken when the request was sent again."""

    def create_many(self, rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        """``create`` for many, in batches; one result for each row, in order. Ids must differ."""

    def write(self, change: ConditionalUpdate) -> Result:
        """One conditional write."""

    def write_many(self, changes: Sequence[ConditionalUpdate]) -> Sequence[Result]:
        """Many, in batches; one result for each change, in order. Ids must differ."""

    def transact(
        self,
        change: ConditionalUpdate | None = None,
        row: Row | None = None,
        items: Sequence[Mapping[str, object]] = (),
        *,
        token: str | None = None,
    ) -> Result | Cancelled:
        """Some of these in one transaction, so that all take effect or none: a conditional write, a row put if its id
        is free, and ``items``, entries of TransactWriteItems with plain values, for other tables too.

        ``token``: by which the same transaction, sent again within ten minutes, takes effect once. Lost, without the
        present row: the write's conditions do not hold, or the row's id is taken. Raises InvalidInput for an item that
        can't be sent.
        """

    def query_bucket(self, bucket: Bucket, *, after: str | None = None, open_only: bool = True,
                     outcome: str | None = None, limit: int | None = None,
                     prefix: str | None = None, count: Counted | None = None) -> Page:  # fmt: skip
        """A page of a bucket's entries in order of id, eventually consistent: those not ended, or all, or
        those of one outcome. ``limit`` bounds the entries that are read, before they are filtered; None: a full
        page. ``prefix``: only ids that begin with it are read; so must ``after``. ``count``: of all, which
        entries are only counted."""

    def listed_by(self, name: str, value: str, *, after: str | None = None, limit: int | None = None) -> Listing:
        """A page of the ids of the rows with this value of an attribute, in order, eventually consistent. ``name``:
        ``scheduleState`` or ``subject``, the keys of indexes that only such rows are in."""

    def latest_listed(
        self, name: str, *, start: str, end: str, after: str | None = None, limit: int | None = None
    ) -> Listing:
        """A page of the ids of the rows that are ``listedAs`` a name and ``listedAt`` the instants from ``start`` to
        ``end``, the latest first, eventually consistent. ``after``: that of the page before, in which the place of its
        last row comes first, then a blank."""

    def scan(self, *, after: str | None = None, open_only: bool = True) -> ScanPage:
        """A page of the table, read consistently: rows without an outcome (or with NULL for one), or all. ``after``: an
        id; its row need not exist."""

    def delete(self, task_id: str, conditions: Sequence[Condition] = ()) -> bool:
        """Deletes a row, if it exists. False: a condition doesn't hold, and the row stays."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Why a transaction had no effect, if that is not a condition of ours. ``permanent``: it never will have."""

    error: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class StoreFailure:
    """Why one row of a batch got no answer: it may have been written, unless it is ``too_large``."""

    error: str
    too_large: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionContext:
    """What an action gets beside the task. The idempotency key is the same for every attempt of one run and turn."""

    attempt: int
    run: int
    turn: int = 0
    due_at: datetime
    idempotency_key: str
    deadline: datetime  # when this process ends; work that takes longer should not begin
    schedule_id: str | None = None
    follow_ups: list[str] = field(default_factory=list)  # ids of the tasks that the action has inserted meanwhile


class Actions(Protocol):
    """Runs tasks."""

    def run(self, task: Task, context: ActionContext) -> object:
        """Does the task's work and returns its result: None, or what JSON can hold.

        Raises PermanentError or RetryableError; any other exception counts as retryable.
        """

    def names(self) -> Sequence[str]:
        """The actions that can be run."""

    def payload_schemas(self) -> Mapping[str, str]:
        """The JSON Schemas of payloads, as text, by action; only for actions that have one."""

    def timeout_seconds(self, task: Task) -> int | None:
        """The timeout of the task, else of its action; None: neither has one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """A failed task, for its message."""

    row: Row  # as it was before the failure was recorded
    attempt: int
    error: str
    failed_at: datetime


class DeadLetters(Protocol):
    """The dead-letter queue."""

    def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """Sends each letter. One result for each, in order: whether the queue took it. Doesn't raise if it refuses."""


class WakeUps(Protocol):
    """The queue of wake-ups."""

    def send(self, wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> int:
        """Sends events, each to be received shortly before its instant, or at once. Returns how many were not sent.
        Doesn't raise: a wake-up is a hint."""


ReportOverdue = Callable[[Sequence[Overdue]], None]
"""Logs occurrences that were missed or did not complete in time, and counts them, before it returns."""


ENVELOPE = "dynatick"
"""The attribute of an event that holds an order."""


def size_in_event(text: str) -> int:
    """Bytes of a text as JSON in an event: up to six for one that UTF-8 has in one."""
    return len(json.dumps(text))


class Invoker(Protocol):
    """Starts another invocation of a function, asynchronously."""

    def invoke(self, event: Mapping[str, object]) -> None:
        """Raises DynatickError if it could not be started."""


# -- trace -------------------------------------------------------------------------------------------------------------

MAX_FRAMES = 4
MAX_BYTES = 800
"""The limit for a trace, in UTF-8."""

MAX_MESSAGE_CHARACTERS = 10_000
"""The limit for a message, before a row shortens it further."""

_UNREADABLE = "(the error has no readable message)"
_MAX_STATEMENT = 120
_PACKAGE = str(Path(__file__).parents[1])
_ROOTS = ("/opt/python/", "/var/task/", "site-packages/", "dist-packages/")


def message_of(error: BaseException) -> str:
    """What ``str`` returns for an error, shortened."""
    try:
        return str.__getitem__(str(error), slice(MAX_MESSAGE_CHARACTERS))  # a str, even of a subclass of it
    except BaseException:  # its __str__ may even call sys.exit
        return _UNREADABLE


def described(error: BaseException) -> str:
    """``ValueError: no such mailbox``."""
    try:
        name = str(type(error).__name__)
    except BaseException:  # of a metaclass
        name = "Exception"
    return f"{name}: {message_of(error)}"


def trace_of(error: BaseException) -> str | None:
    """One line for each frame, the innermost last: ``handlers.py:14 in send: deliver(mail)``. Dynatick's own frames are
    left out, and so are values of variables. None: there is no other frame, or the error doesn't say where."""
    try:
        # One that is raised in place of the handler's own names that one as its cause.
        frames = _frames(error) or (_frames(error.__cause__) if error.__cause__ is not None else [])
        lines = [_line(frame, number) for frame, number in frames]
    except BaseException:  # of an error whose traceback or cause is a property
        return None
    while len("\n".join(lines).encode()) > MAX_BYTES and len(lines) > 1:
        del lines[0]
    return "\n".join(lines).encode()[:MAX_BYTES].decode(errors="ignore") or None


def _frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """The last frames that are not Dynatick's own, with their lines."""
    walked = traceback.walk_tb(error.__traceback__)
    return list(deque((one for one in walked if not _file(one[0]).startswith(_PACKAGE)), MAX_FRAMES))


def _line(frame: FrameType, number: int) -> str:
    statement = _statement(frame, number)
    shown = statement if len(statement) <= _MAX_STATEMENT else statement[: _MAX_STATEMENT - 1] + "…"
    return _printable(
        f"{_short(_file(frame)[-MAX_BYTES:])}:{number} in {frame.f_code.co_name[:MAX_BYTES]}"
        + (f": {shown}" if shown else "")
    )


def _statement(frame: FrameType, number: int) -> str:
    """The line of source; empty if it can't be read."""
    try:
        linecache.checkcache(_file(frame))
        return linecache.getline(_file(frame), number, frame.f_globals).strip()
    except Exception:  # a module's loader, or a file's name that no system has
        return ""


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


def _printable(text: str) -> str:
    """A text without control characters and lone surrogates, which no table takes."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _short(file: str) -> str:
    """A file as its author knows it: below the folder that Lambda or pip has put it in."""
    for root in _ROOTS:
        _, found, below = file.rpartition(root)
        if found:
            return below
    return "/".join(Path(file).parts[-2:])
