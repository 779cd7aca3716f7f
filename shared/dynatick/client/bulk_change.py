"""Changing all tasks of a bucket or a range that fit a filter: one conditional write each, in batches.

What the index lists is judged again on the row itself, at the write too. So a task that somebody else has changed
meanwhile is left to them, and told; and doing it all once more changes nothing that was changed already.

They go 25 to a call, eight calls at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from dynatick.client.bucket_scope import Scope, Seen, backwards, check_prefix, read, read_ahead
from dynatick.client.task_update import carry_out, state_shown, try_many
from dynatick.client.views import TaskView, instant_or_none
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.task import TERMINAL, Row
from dynatick.engine.ports import Entry, Store
from dynatick.errors import InvalidInput, StoreError, TaskNotFound, TransitionRefused

BATCH = 25  # what one call to the table takes
AT_A_TIME = 8  # such calls
CHUNK = AT_A_TIME * BATCH  # tasks whose rows are held
PAGE = 1000  # entries that are read of a bucket at a time


@dataclass(frozen=True, slots=True)
class Changed:
    """Done. ``task`` as it was written."""

    task_id: str
    task: TaskView


@dataclass(frozen=True, slots=True)
class WouldChange:
    """A dry run: it would be done. ``task`` as it is."""

    task_id: str
    task: TaskView


@dataclass(frozen=True, slots=True)
class Left:
    """Somebody else was first, so it is not what was asked for any more. Nothing was written."""

    task_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The table could not take it, or gave no answer: whether it was written is not known."""

    task_id: str
    error: StoreError


ManyResult = Changed | WouldChange | Left | Unchanged

_Listed = tuple[Entry, Row | None]  # with its row, as it was read
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """Which tasks are meant."""

    states: tuple[str, ...]  # either ended ones or others, not both
    action: str | None = None
    schedule_id: str | None = None
    prefix: str | None = None  # how their ids begin
    error: str | None = None  # stands somewhere in the task's error, in whatever case
    unless: Callable[[Row], bool] = lambda row: False  # a row that has not ended and needs no change

    def __post_init__(self) -> None:
        """Raises InvalidInput."""
        check_prefix(self.prefix)

    @property
    def of_ended(self) -> bool:
        return self.states[0] in TERMINAL

    def fits(self, state: object, action: object, schedule_id: object, error: object) -> bool:
        """Whether a task is one of these, by what the index or the row says of it beside its id."""
        if state not in self.states or self.action not in (None, action) or self.schedule_id not in (None, schedule_id):
            return False
        return self.error is None or (isinstance(error, str) and self.error.casefold() in error.casefold())


def change_many(
    store: Store,
    scope: Scope,
    wanted: Filter,
    decide: Callable[[Row], ConditionalUpdate],
    *,
    began: datetime,
    dry_run: bool,
    limit: int | None = None,
    latest_first: bool = False,
) -> Iterator[ManyResult]:
    """One result a task, in order of time, shard and id; memory does not grow with their number.

    A task that ended after ``began`` is left alone: it may be one that was redriven here and has failed again.
    ``limit``: at most so many tasks, the first. ``latest_first``: buckets in the other order, where tasks go to later
    ones, so that none is met again.
    Raises StoreError if the tasks cannot be listed.
    """

    work = _Work(store, wanted, decide, began)
    left = sys.maxsize if limit is None else limit
    outcomes = wanted.states if wanted.of_ended else (None,)
    with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="dynatick-change") as pool:
        for outcome in outcomes:
            read_one = partial(
                read, store, open_only=outcome is None, outcome=outcome, limit=PAGE, prefix=wanted.prefix
            )
            for seen in (pages := read_ahead(backwards(scope) if latest_first else scope.positions(), read_one)):
                for chunk in _chunks(store, seen, wanted):
                    meant = chunk[:left]
                    if dry_run:
                        yield from map(work.look, meant)
                    else:
                        for results in pool.map(work.carry_out, _parts(meant)):
                            yield from results
                    left -= len(meant)
                    if not left:
                        pages.close()
                        return


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be done with tasks that were listed."""

    store: Store
    wanted: Filter
    decide: Callable[[Row], ConditionalUpdate]
    began: datetime

    def look(self, listed: _Listed) -> ManyResult:
        """A dry run."""
        entry, row = listed
        return _told(entry, lambda: WouldChange(entry.task_id, TaskView.from_row(self._still(entry, row))))

    def carry_out(self, part: Sequence[_Listed]) -> list[ManyResult]:
        """In one batch, in a thread of the pool. Where somebody was faster it is decided anew, one by one."""
        decided = {entry.task_id: _told(entry, partial(self._decide, entry, row)) for entry, row in part}
        changes = [one for one in decided.values() if isinstance(one, ConditionalUpdate)]
        tries = {tried.change.task_id: tried for tried in try_many(self.store, changes)}

        def finish(entry: Entry) -> Changed:
            tried = tries[entry.task_id]
            row = carry_out(self.store, entry.task_id, partial(self._decide, entry), tried=tried)
            return Changed(entry.task_id, TaskView.from_row(row))

        results: list[ManyResult] = []
        for entry, _ in part:
            answer = decided[entry.task_id]
            results.append(_told(entry, partial(finish, entry)) if isinstance(answer, ConditionalUpdate) else answer)
        return results

    def _decide(self, entry: Entry, row: Row | None) -> ConditionalUpdate:
        return self.decide(self._still(entry, row))

    def _still(self, entry: Entry, row: Row | None) -> Row:
        """The row, if it is what was listed. Raises TaskNotFound, _MovedOn."""
        if row is None:
            raise TaskNotFound(entry.task_id)
        reason = _moved_on(row, entry, self.wanted, self.began)
        if reason is not None:
            raise _MovedOn(reason)
        return row


class _MovedOn(Exception):
    """A row is not what was listed any more."""


def _told(entry: Entry, do: Callable[[], _T]) -> _T | Left | Unchanged:
    """What ``do`` says, or what kept it from that."""
    try:
        return do()
    except TaskNotFound:
        return Left(entry.task_id, "it was deleted")
    except (_MovedOn, TransitionRefused, InvalidInput) as error:
        return Left(entry.task_id, str(error))
    except StoreError as error:
        return Unchanged(entry.task_id, error)


def _parts(listed: Sequence[_Listed]) -> Iterator[Sequence[_Listed]]:
    """In batches, even ones: all threads are busy, also where an engine takes a call for each change."""
    size = -(-len(listed) // AT_A_TIME)
    return (listed[start : start + size] for start in range(0, len(listed), size or 1))


def _chunks(store: Store, seen: Seen, wanted: Filter) -> Iterator[list[_Listed]]:
    """The entries of a page that fit, with their rows as they are now."""
    rows: Mapping[str, Row] = seen.rows
    entries = [entry for entry in seen.entries if _listed(entry, rows.get(entry.task_id), wanted)]
    for start in range(0, len(entries), CHUNK):
        chunk = entries[start : start + CHUNK]
        if wanted.of_ended:
            rows = store.get_many([entry.task_id for entry in chunk])
        yield [(entry, rows.get(entry.task_id)) for entry in chunk]


def _listed(entry: Entry, row: Row | None, wanted: Filter) -> bool:
    """Whether a task is meant: by the index if it has ended, for that shows all of it then; else by its row."""
    if wanted.of_ended:
        return wanted.fits(entry.outcome, entry.action, entry.schedule_id, entry.error)
    return row is not None and row.get("taskDateTime") == entry.bucket and _fits(row, wanted) and not wanted.unless(row)


def _moved_on(row: Row, entry: Entry, wanted: Filter, began: datetime) -> str | None:
    """Why a row is not to be changed although it was listed; None if it is."""
    if not _fits(row, wanted):
        return f"it is {state_shown(row)} by now"
    if row.get("taskDateTime") != entry.bucket:
        return f"it is in another bucket by now, {row.get('taskDateTime')}"
    finished = instant_or_none(row.get("finishedAt"))
    if finished is not None and finished > began:
        return f"it is {state_shown(row)} once more, since this began"
    return None


def _fits(row: Row, wanted: Filter) -> bool:
    return wanted.fits(state_shown(row), row.get("action"), row.get("scheduleId"), row.get("error"))
