"""The records of changes of many tasks: who asked for what, by which filter, and what came of it.

The command line and the pages write one: before the change begins, and once more when it has ended. So everybody who
reads the table sees it, and what has come of the runs that a redrive began. It is kept for 31 days.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated, Final

from dynatick.client.bulk_change import Changed, ChangeUnknown, ManyResult, Skipped
from dynatick.client.followed_runs import FollowedRuns, RunCounts
from dynatick.client.history import check_limit
from dynatick.client.views import instant_or_none, number_or, text_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.conditional_update import ConditionalUpdate, as_read
from dynatick.domain.instants import format_instant, up_to_millisecond
from dynatick.domain.task import SYSTEM_PREFIX, Row
from dynatick.domain.view import Json, View
from dynatick.engine.conditional_write import change_row, create
from dynatick.engine.ports import Clock, Store
from dynatick.errors import DynatickError

KEPT: Final = timedelta(days=31)
LISTED_AS_CHANGE: Final = "change"

RUNNING, DONE, FAILED, ABORTED = "running", "done", "failed", "aborted"

_PREFIX = f"{SYSTEM_PREFIX}change#"
_MAX_TEXT = 300  # characters of a value of the filter, and of a problem
_MAX_GIVEN = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeView(View):
    """A change of many tasks that was begun."""

    change_id: str
    at: Annotated[datetime, "When it began."]
    by: Annotated[str | None, "Who: the ARN of the credentials, else the user of the machine."]
    change: Annotated[str, "What was done to each task: redrive, cancel, …"]
    given: Annotated[Mapping[str, str], "The filter, and what else was given; no payload."]
    state: Annotated[str, "running (or its process has died), done, failed, aborted."] = RUNNING
    ended_at: datetime | None = None
    changed: int = 0
    skipped: Annotated[int, "Another request had changed them first."] = 0
    unanswered: Annotated[int, "The table gave no answer."] = 0
    problem: str | None = None
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
            case Changed(task=task):
                self.changed += 1
                if self.runs is not None:
                    self.runs.add(task)
            case Skipped():
                self.skipped += 1
            case ChangeUnknown():
                self.unanswered += 1

    @property
    def is_empty(self) -> bool:
        return not (self.changed or self.skipped or self.unanswered)


class ChangeRecords:
    """The records of a table, as ``client.operations.changes``. Methods raise StoreError."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def list(self, *, last: timedelta = KEPT, limit: int = 100) -> list[ChangeView]:
        """The changes of many tasks that were begun in the ``last`` time, the latest first, up to ``limit``; of a
        redrive, without what has come of its runs."""
        check_limit(limit)
        now = self._clock()
        listed = self._store.latest_listed(
            LISTED_AS_CHANGE, start=_place(now - last), end=_place(now + timedelta(minutes=1)), limit=limit
        )
        rows = self._store.get_many(listed.ids, consistent=False) if listed.ids else {}
        found = (_view(rows[row_id]) for row_id in listed.ids if row_id in rows)
        return sorted((one for one in found if one is not None), key=lambda one: one.at, reverse=True)

    def get(self, change_id: str) -> ChangeView | None:
        """A change, with what has come of its runs by now; None: there is none, or none any more."""
        row = self._store.get(f"{_PREFIX}{change_id}")
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
        self, change: str, *, by: str | None, given: Mapping[str, object], change_id: str | None = None
    ) -> ChangeView:
        """A change that begins now; nothing is written."""
        return ChangeView(
            change_id=change_id or secrets.token_hex(5),
            at=up_to_millisecond(self._clock()),
            by=by,
            change=change,
            given={name: _short(str(value)) for name, value in [*given.items()][:_MAX_GIVEN]},
        )

    def begin(self, view: ChangeView) -> None:
        """Writes that a change begins, unless it is known to have ended."""
        create(self._store, _row(view))

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

    def forget(self, view: ChangeView) -> None:
        """Deletes the record of a change that found no task."""
        self._store.delete(_row_id(view))

    @contextmanager
    def recorded(self, change: str, *, by: str | None, given: Mapping[str, object]) -> Iterator[Tally]:
        """Records what is done within. The caller counts. If no task was found, no record is left."""
        view, tally = self.new(change, by=by, given=given), Tally()
        self.begin(view)
        try:
            yield tally
        except BaseException as error:
            is_ours = isinstance(error, Exception)
            with suppress(DynatickError):  # the caller's error is the one to see
                self.end(view, tally, state=FAILED if is_ours else ABORTED, problem=str(error) or type(error).__name__)
            raise
        if tally.is_empty:
            self.forget(view)
        else:
            self.end(view, tally, state=DONE)


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
        attr.CHANGE: view.change,
        attr.GIVEN: dict(view.given),
        attr.STATE: view.state,
        attr.CHANGED: view.changed,
        attr.SKIPPED: view.skipped,
        attr.UNANSWERED: view.unanswered,
        attr.PROBLEM: view.problem,
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
        change=text_or_none(row.get(attr.CHANGE)) or "change",
        given={name: str(given[name]) for name in sorted(given)} if isinstance(given, Mapping) else {},
        state=text_or_none(row.get(attr.STATE)) or RUNNING,
        ended_at=instant_or_none(row.get(attr.FINISHED_AT)),
        changed=number_or(row.get(attr.CHANGED), 0),
        skipped=number_or(row.get(attr.SKIPPED), 0),
        unanswered=number_or(row.get(attr.UNANSWERED), 0),
        problem=text_or_none(row.get(attr.PROBLEM)),
        packed_runs=row.get(attr.BODY),
        not_followed=number_or(row.get(attr.NOT_FOLLOWED), 0),
    )


def _place(at: datetime) -> str:
    return format_instant(at.replace(microsecond=0))


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
