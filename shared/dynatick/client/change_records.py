"""The records of changes of many tasks: who asked for what, by which filter, and what came of it.

The client writes one, for whichever interface calls it: before it changes the first task, and once more when the change
has ended. So everybody who reads the table sees it, and what has come of the runs that a redrive began. It is kept for
31 days.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeVar

from dynatick.client.bulk_change import Changed, ChangeUnknown, ManyResult, Skipped
from dynatick.client.history import check_limit
from dynatick.client.task_update import Decide
from dynatick.client.tasks import watch
from dynatick.client.views import TaskView, instant_or_none, number_or, text_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.conditional_update import ConditionalUpdate, as_read
from dynatick.domain.instants import EPOCH, format_instant, up_to_millisecond
from dynatick.domain.lifecycle import state_of
from dynatick.domain.task import SYSTEM_PREFIX, Row, Status, check_task_id
from dynatick.domain.view import Json, View
from dynatick.engine.conditional_write import change_row, create
from dynatick.engine.ports import Clock, Store
from dynatick.errors import InvalidInput, StoreError, TransitionRefused
from dynatick.json_reader import parse

if TYPE_CHECKING:
    from dynatick.client.task_lists import TaskLists

KEPT: Final = timedelta(days=31)
LISTED_AS_CHANGE: Final = "change"

FOLLOWED: Final = ("redrive", "redrive batch", "redrive dead letters")
"""Changes whose records have the runs that they begin."""

RUNNING, DONE, FAILED, ABORTED = "running", "done", "failed", "aborted"

_PREFIX = f"{SYSTEM_PREFIX}change#"
_MAX_TEXT = 300  # characters of a value of the filter, and of a problem
_MAX_GIVEN = 20

MAX_FOLLOWED = 10_000
MAX_PACKED_BYTES = 64 * 1024
"""Of the runs in the record of a change, before they are compressed: some 2,000 of them."""

_MAX_READ = 1000  # rows at a time

_ENDED = {str(Status.COMPLETED): "completed", str(Status.FAILED): "failed", str(Status.CANCELLED): "cancelled"}

_logger = logging.getLogger("dynatick.client")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCounts(View):
    """What has come of the runs."""

    followed: Annotated[int, "How many runs."]
    completed: int
    failed: int
    cancelled: int
    changed: Annotated[int, "Their task was redriven or replaced since, or is gone."]

    @property
    def waiting(self) -> Annotated[int, "Have not ended: they wait, run, or are to be tried again."]:
        return self.followed - self.completed - self.failed - self.cancelled - self.changed

    def __str__(self) -> str:
        """``61 completed, 5 failed again, 2 waiting``; without zeros but of those that have completed. They are runs of
        redriven tasks."""
        parts = [f"{self.completed} completed"]
        for number, words in (
            (self.failed, "failed again"),
            (self.cancelled, "cancelled"),
            (self.changed, "changed since"),
            (self.waiting, "waiting"),
        ):
            if number:
                parts.append(f"{number} {words}")
        return ", ".join(parts)


@dataclass(slots=True)
class FollowedRuns:
    """Runs, until they have ended. Not safe for several threads at a time."""

    followed: int = 0
    not_followed: int = 0  # beyond the first 10,000
    _begun: dict[str, int] = field(default_factory=dict)  # the run of each task
    _open: dict[str, int] = field(default_factory=dict)  # those of them that have not ended
    _ended: dict[str, int] = field(default_factory=dict)  # how many, by how

    def add(self, task: TaskView) -> bool:
        """Follows the run that a task has now. False: it is followed already."""
        if self._begun.get(task.task_id) == task.run:
            return False
        if self.followed >= MAX_FOLLOWED:
            self.not_followed += 1
            return True
        self.followed += 1
        self._begun[task.task_id] = self._open[task.task_id] = task.run
        return True

    def refresh(self, store: Store) -> None:
        """Reads up to 1,000 of the tasks whose runs have not ended, those that were not read for longest first. Raises
        StoreError."""
        ids = list(self._open)[:_MAX_READ]
        if not ids:
            return
        rows = store.get_many(ids, only=(attr.STATUS, attr.OUTCOME, attr.RUN))
        for task_id in ids:
            run = self._open.pop(task_id)
            ended = _ended(rows.get(task_id), run)
            if ended is None:
                self._open[task_id] = run
            else:
                self._ended[ended] = self._ended.get(ended, 0) + 1

    def wait(
        self, store: Store, *, timeout: timedelta | None, pause: Callable[[float], None] = time.sleep
    ) -> RunCounts:
        """Waits until all have ended or the time is up (None: never), and returns the counts. Raises StoreError."""

        def poll() -> RunCounts:
            self.refresh(store)
            return self.counts()

        return watch(poll, lambda _: self.has_ended, timeout=timeout, seconds=time.monotonic, pause=pause)

    def refresh_all(self, store: Store) -> None:
        """Reads all of the tasks whose runs have not ended, once. Raises StoreError."""
        for _ in range(0, len(self._open), _MAX_READ):
            self.refresh(store)

    def packed(self) -> tuple[bytes | None, int]:
        """All runs, compressed, as far as they fit; None: there are none. And how many runs are not in it."""
        pairs: list[str] = []
        size = 0
        for task_id, run in self._begun.items():
            pair = json.dumps([task_id, run])
            size += len(pair) + 1
            if size > MAX_PACKED_BYTES:
                break
            pairs.append(pair)
        left_out = self.not_followed + len(self._begun) - len(pairs)
        return (zlib.compress(f"[{','.join(pairs)}]".encode()) if pairs else None), left_out

    @classmethod
    def unpacked(cls, content: object, not_followed: int = 0) -> FollowedRuns:
        """The runs of ``packed``; none, if the content is malformed."""
        found: dict[str, int] = {}
        try:
            # What would not have been written is not decompressed.
            packed: Any = getattr(content, "value", content)  # boto3's Binary, recognised by its attribute
            text = zlib.decompressobj().decompress(packed, 2 * MAX_PACKED_BYTES)
            pairs: Any = parse(text.decode())
            for task_id, run in pairs:
                found[str(task_id)] = int(run)
        except (ValueError, TypeError, zlib.error):
            return cls(not_followed=not_followed)
        return cls(followed=len(found), not_followed=not_followed, _begun=found, _open=dict(found))

    @property
    def has_ended(self) -> bool:
        """Whether all of them had ended when they were read."""
        return not self._open

    def counts(self) -> RunCounts:
        """As they were read."""
        found: Mapping[str, int] = {name: self._ended.get(name, 0) for name in (*_ENDED.values(), "changed")}
        return RunCounts(followed=self.followed, **found)


def _ended(row: Row | None, run: int) -> str | None:
    """How a run of a task has ended; None: it has not."""
    if row is None or number_or(row.get(attr.RUN), 1) != run:
        return "changed"
    return _ENDED.get(text_or_none(row.get(attr.OUTCOME)) or str(state_of(row)))


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeView(View):
    """A change of many tasks that was begun."""

    change_id: str
    at: Annotated[datetime, "When it began."]
    by: Annotated[str | None, "Who: the ARN of the credentials, else the user of the machine; or the program's name."]
    change: Annotated[str, "What was done to each task: redrive, cancel, …"]
    given: Annotated[Mapping[str, str], "The filter, and what else was given; no payload."]
    interface: Annotated[str | None, "Where it was asked for: command line, page, HTTP, Python."] = None
    state: Annotated[str, "running (or its process has died), done, failed, aborted."] = RUNNING
    ended_at: datetime | None = None
    changed: int = 0
    skipped: Annotated[int, "Another request had changed them first."] = 0
    unanswered: Annotated[int, "The table gave no answer."] = 0
    problem: str | None = None
    can_abort: Annotated[bool, Json(optional=True), "Its process looks whether it is asked to end early."] = False
    abort_by: Annotated[str | None, Json(optional=True), "Who has asked to end it early."] = None
    runs: Annotated[RunCounts | None, "Of a redrive: what has come of the runs that it began."] = None
    not_followed: Annotated[int, Json(optional=True), "Runs beyond those that are followed."] = 0
    packed_runs: Annotated[object, Json(hidden=True)] = field(default=None, repr=False)

    @property
    def words(self) -> str:
        """``68 changed, 2 skipped``."""
        named = (("skipped", self.skipped), ("without an answer", self.unanswered))
        return ", ".join([f"{self.changed:,} changed", *(f"{number:,} {word}" for word, number in named if number)])


@dataclass(slots=True)
class Tally:
    """What has come of a change, while it goes on."""

    changed: int = 0
    skipped: int = 0
    unanswered: int = 0
    runs: FollowedRuns | None = None  # of a redrive

    def add(self, result: ManyResult) -> None:
        match result:
            case Changed(task=task, tasks=tasks):
                self.changed += tasks
                if self.runs is not None:
                    self.runs.add(task)
            case Skipped():
                self.skipped += 1
            case ChangeUnknown():
                self.unanswered += 1


class ChangeRecords:
    """The records of a table, as ``client.operations.changes``. Methods raise StoreError."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def list(self, *, last: timedelta = KEPT, until: datetime | None = None, limit: int = 100) -> list[ChangeView]:
        """The changes of many tasks that were begun in the ``last`` time, and before ``until`` (default: now), the
        latest first, up to ``limit``; of a redrive, without what has come of its runs."""
        check_limit(limit)
        now = self._clock()
        last = min(last, now - EPOCH)
        start, end = now - last, now + timedelta(minutes=1) if until is None else until - timedelta(milliseconds=1)
        if end < start:
            return []
        listed = self._store.latest_listed(LISTED_AS_CHANGE, start=_place(start), end=_place(end), limit=limit)
        rows = self._store.get_many(listed.ids, consistent=False) if listed.ids else {}
        found = (_view(rows[row_id]) for row_id in listed.ids if row_id in rows)
        begun = (one for one in found if one is not None and (until is None or one.at < until))
        return sorted(begun, key=lambda one: one.at, reverse=True)

    def get(self, change_id: str) -> ChangeView | None:
        """A change, with what has come of its runs by now; None: there is none, or none any more."""
        row = self._store.get(f"{_PREFIX}{change_id}") if _is_id(change_id) else None
        view = None if row is None else _view(row)
        if view is None or view.packed_runs is None:
            return view
        runs = self.runs_of(view)
        runs.refresh_all(self._store)
        return replace(view, runs=runs.counts())

    def runs_of(self, view: ChangeView) -> FollowedRuns:
        """The runs that it began, to be followed."""
        return FollowedRuns.unpacked(view.packed_runs, view.not_followed)

    def new(
        self,
        change: str,
        *,
        by: str | None,
        interface: str | None,
        given: Mapping[str, object],
        change_id: str,
        can_abort: bool = False,
    ) -> ChangeView:
        """A change that begins now; nothing is written."""
        return ChangeView(
            change_id=change_id,
            at=up_to_millisecond(self._clock()),
            by=by,
            interface=interface,
            change=change,
            given={name: _short(str(value)) for name, value in [*given.items()][:_MAX_GIVEN]},
            can_abort=can_abort,
        )

    def begin(self, view: ChangeView) -> None:
        """Writes that a change begins, unless it is known to have ended."""
        create(self._store, _row(view))

    def abort(self, change_id: str, *, by: str | None = None) -> ChangeView | None:
        """Asks the process that makes a change to end it before the next tasks; None: there is no such change. Pages
        look for that while they change tasks. Raises TransitionRefused if the change has ended, or if its process does
        not look: then it ends where it was begun."""

        def decide(row: Row | None) -> tuple[ChangeView | None, ConditionalUpdate | None]:
            view = None if row is None else _view(row)
            if row is None or view is None:
                return None, None
            if view.ended_at is not None:
                raise TransitionRefused(change_id, "abort", view.state, (RUNNING,), what="change")
            if not view.can_abort:
                raise TransitionRefused(change_id, "abort", view.state, (), what="change",
                                        is_a="not one that looks whether it is to end",
                                        instead="end it where it was begun")  # fmt: skip
            if view.abort_by is not None:
                return view, None
            asked = replace(view, abort_by=by or "unknown")
            conditions = as_read(row, attr.STATUS, attr.CREATED_AT, attr.FINISHED_AT, attr.ABORT_BY)
            return asked, ConditionalUpdate(
                task_id=_row_id(view), set={attr.ABORT_BY: asked.abort_by}, conditions=conditions
            )

        if not _is_id(change_id):
            return None
        return change_row(self._store, f"{_PREFIX}{change_id}", "abort a change", decide)

    def is_to_end(self, view: ChangeView) -> bool:
        """Whether it was asked to end early. Raises StoreError."""
        return attr.ABORT_BY in (self._store.get(_row_id(view)) or {})

    def end(self, view: ChangeView, tally: Tally, *, state: str, problem: str | None = None) -> ChangeView:
        """Writes how it has ended, once."""
        packed, left_out = (None, 0) if tally.runs is None else tally.runs.packed()
        ended = replace(
            view,
            state=state,
            ended_at=up_to_millisecond(self._clock()),
            changed=tally.changed,
            skipped=tally.skipped,
            unanswered=tally.unanswered,
            problem=None if problem is None else _short(problem),
            packed_runs=packed,
            not_followed=left_out,
        )

        def decide(row: Row | None) -> tuple[ChangeView, ConditionalUpdate | None]:
            there = row or {}
            if attr.FINISHED_AT in there:
                return ended, None
            values = {name: value for name, value in _row(ended).items() if name != attr.TASK_ID}
            change = ConditionalUpdate(
                task_id=_row_id(ended), set=values, conditions=as_read(there, attr.FINISHED_AT, attr.CREATED_AT)
            )
            return ended, change

        return change_row(self._store, _row_id(view), "record the end of a change", decide)


NotWritten = Callable[[ChangeView, StoreError], None]
"""Gets the error of a record that can't be written."""


class ChangeRecord:
    """The record of a change that goes on, as a context manager. What changes tasks within calls ``begin`` before the
    first of them, and ``add`` with the results. If no task was found, nothing is written.

    The change is made all the same if its record can't be written: ``not_written`` gets the error, which is logged by
    default.
    """

    def __init__(
        self,
        records: ChangeRecords,
        view: Callable[[], ChangeView],
        *,
        change_id: str,
        follows_runs: bool = False,
        not_written: NotWritten | None = None,
    ) -> None:
        self.change_id = change_id
        self.tally = Tally(runs=FollowedRuns() if follows_runs else None)
        self.is_aborted = False
        self._records, self._new, self._not_written = records, view, not_written or _log_not_written
        self._view: ChangeView | None = None  # None: no task was found so far
        self._lock = Lock()

    def begin(self) -> None:
        """Writes that the change begins, once. Safe for several threads."""
        with self._lock:
            if self._view is None:
                view = self._view = self._new()
                self._write(view, lambda: self._records.begin(view))

    def before(self, decide: Decide) -> Decide:
        """``decide``, with the record before the first write."""

        def decided(row: Row) -> ConditionalUpdate:
            change = decide(row)
            self.begin()
            return change

        return decided

    def add(self, results: Iterable[ManyResult]) -> None:
        for result in results:
            self.tally.add(result)

    def is_to_end(self) -> bool:
        """Whether the change was asked to end early, as far as that is known. Reads the record, once it has begun."""
        if self._view is None:
            return False
        try:
            return self._records.is_to_end(self._view)
        except StoreError:  # then the change goes no further either
            return False

    def end(self, *, state: str = DONE, problem: str | None = None) -> None:
        """Writes how it has ended, if it has begun."""
        view = self._view
        if view is not None:
            ended = ABORTED if state == DONE and self.is_aborted else state
            self._write(view, lambda: self._records.end(view, self.tally, state=ended, problem=problem))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.end()
        elif isinstance(error, GeneratorExit):  # the caller takes no further results
            self.end(state=ABORTED)
        else:
            state = FAILED if isinstance(error, Exception) else ABORTED
            self.end(state=state, problem=str(error) or type(error).__name__)

    def _write(self, view: ChangeView, write: Callable[[], object]) -> None:
        try:
            write()
        except StoreError as error:
            self._not_written(view, error)


_Client = TypeVar("_Client", bound="TaskLists")


def new_record(
    client: TaskLists,
    change: str,
    given: Mapping[str, object | None],
    *,
    by: str | None = None,
    interface: str | None = None,
    can_abort: bool = False,
    not_written: NotWritten | None = None,
) -> ChangeRecord:
    """The record of a change of many tasks that is about to begin. ``given``: its filter, and what else was given.
    ``by`` and ``interface``: who, and where, else what the client says. ``can_abort``: the caller looks whether it
    ``is_to_end``. A redrive's record has the runs that it begins."""
    records, change_id = ChangeRecords(client.store, client._clock), secrets.token_hex(5)
    shown = {name: value for name, value in given.items() if value is not None}

    def view() -> ChangeView:
        who = by or (client.caller() if callable(client.caller) else client.caller)
        where = interface or client.interface
        return records.new(change, by=who, interface=where, given=shown, change_id=change_id, can_abort=can_abort)

    follows = change in FOLLOWED
    return ChangeRecord(records, view, change_id=change_id, follows_runs=follows, not_written=not_written)


def counted_in(client: _Client, record: ChangeRecord) -> _Client:
    """The client, whose changes of many tasks count in a record that the caller ends."""
    counting = copy(client)
    counting.record = record
    return counting


def _log_not_written(view: ChangeView, error: StoreError) -> None:
    more = {"action": "change_not_recorded", "change": view.change, "change_id": view.change_id}
    _logger.warning("the record of a change can't be written: %s", error, extra=more)


def _row_id(view: ChangeView) -> str:
    return f"{_PREFIX}{view.change_id}"


def _row(view: ChangeView) -> dict[str, object]:
    values: dict[str, object | None] = {
        attr.TASK_ID: _row_id(view),
        attr.STATUS: "change",
        attr.OUTCOME: "none",  # so that scans for open tasks pass it over
        attr.LISTED_AS: LISTED_AS_CHANGE,
        attr.LISTED_AT: _place(view.at),
        attr.CREATED_AT: format_instant(view.at),
        attr.FINISHED_AT: None if view.ended_at is None else format_instant(view.ended_at),
        attr.EXPIRES_AT: int((view.at + KEPT).timestamp()),
        attr.BY: view.by,
        attr.INTERFACE: view.interface,
        attr.CHANGE: view.change,
        attr.GIVEN: dict(view.given),
        attr.STATE: view.state,
        attr.CHANGED: view.changed,
        attr.SKIPPED: view.skipped,
        attr.UNANSWERED: view.unanswered,
        attr.PROBLEM: view.problem,
        attr.CAN_ABORT: view.can_abort or None,
        attr.ABORT_BY: view.abort_by,
        attr.BODY: view.packed_runs,
        attr.NOT_FOLLOWED: view.not_followed,
    }
    return {name: value for name, value in values.items() if value is not None}


def _view(row: Row) -> ChangeView | None:
    """None: it was written by hand."""
    at, given = instant_or_none(row.get(attr.CREATED_AT)), row.get(attr.GIVEN)
    if at is None or row.get(attr.STATUS) != "change":
        return None
    return ChangeView(
        change_id=str(row[attr.TASK_ID]).removeprefix(_PREFIX),
        at=at,
        by=text_or_none(row.get(attr.BY)),
        interface=text_or_none(row.get(attr.INTERFACE)),
        change=text_or_none(row.get(attr.CHANGE)) or "change",
        given={name: str(given[name]) for name in sorted(given)} if isinstance(given, Mapping) else {},
        state=text_or_none(row.get(attr.STATE)) or RUNNING,
        ended_at=instant_or_none(row.get(attr.FINISHED_AT)),
        changed=number_or(row.get(attr.CHANGED), 0),
        skipped=number_or(row.get(attr.SKIPPED), 0),
        unanswered=number_or(row.get(attr.UNANSWERED), 0),
        problem=text_or_none(row.get(attr.PROBLEM)),
        can_abort=row.get(attr.CAN_ABORT) is True,
        abort_by=text_or_none(row.get(attr.ABORT_BY)),
        packed_runs=row.get(attr.BODY),
        not_followed=number_or(row.get(attr.NOT_FOLLOWED), 0),
    )


def _is_id(value: str) -> bool:
    """Whether a change can have this id. The table is not asked for a longer one: it would refuse the key."""
    try:
        return bool(check_task_id(value))
    except InvalidInput:
        return False


def _place(at: datetime) -> str:
    return format_instant(at.replace(microsecond=0))


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
