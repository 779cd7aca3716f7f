"""Changes all tasks of a selection: one conditional write each, in batches.

A task that the index lists is checked again by its row, and by the write. A task that another request has changed
meanwhile is skipped, and a second call changes nothing that the first has changed, unless it shifts times.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, Unpack

from dynatick.client import history as histories
from dynatick.client import task_update
from dynatick.client.batch_members import note_row
from dynatick.client.buckets import BucketPage, BucketReader, bucket_of, leave
from dynatick.client.ended_batches import reopen_batches
from dynatick.client.failures import HasFingerprint
from dynatick.client.schedule_views import delete_schedule, schedule_rows
from dynatick.client.task_decisions import PayloadChange, is_due
from dynatick.client.task_lists import TaskLists
from dynatick.client.task_update import Decide, Departures, carry_out, state_shown, try_many
from dynatick.client.thread_pool import thread_pool
from dynatick.client.views import TaskView, instant_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.batches import tasks_changed, tasks_in
from dynatick.domain.buckets import Bucket, Time
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.instants import parse_instant
from dynatick.domain.lifecycle import states_before
from dynatick.domain.row import RowView
from dynatick.domain.schedule import is_listed_as_schedule, is_schedule
from dynatick.domain.selection import Selected, Selection
from dynatick.domain.task import Row, Status
from dynatick.engine.ports import Entry, Store
from dynatick.errors import InvalidInput, StoreError, TaskNotFound, TransitionRefused

if TYPE_CHECKING:
    from dynatick.client.change_records import ChangeRecord

_BATCH = 25  # updates to a request
_MAX_AT_A_TIME = 8  # requests
_CHUNK = _MAX_AT_A_TIME * _BATCH  # tasks whose rows memory holds
_PAGE = 1000  # entries to a read of a bucket


@dataclass(frozen=True, slots=True)
class Changed:
    """The task was changed. ``task``: as it was written. ``tasks``: how many that are; of the pack of a batch, its
    members."""

    task_id: str
    task: TaskView
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class WouldChange:
    """A dry run: the task would be changed. ``task``: as it is. ``tasks``: as of ``Changed``."""

    task_id: str
    task: TaskView
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class Skipped:
    """The task no longer matches, since another request changed it first. Nothing was written."""

    task_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChangeUnknown:
    """The write failed or got no answer, so whether the task was changed is not known. Repeat the call to find out; but
    not one with a ``shift``, which would shift the others once more: read the task."""

    task_id: str
    error: StoreError


Stop = Callable[[], bool]
"""Asked from time to time whether to end."""


def _never() -> bool:
    return False


ManyResult = Changed | WouldChange | Skipped | ChangeUnknown


@dataclass(frozen=True, slots=True)
class ConfirmedChange:
    """A change of many tasks, for no more of them than a person has seen: others may match by now.

    ``change``: a method of the client, with its arguments but ``dry_run``, ``limit`` and ``stop``. ``number``: None for
    any. ``stop``: whether to end early.
    """

    change: Callable[..., Iterator[ManyResult]]
    number: int | None
    stop: Stop = _never
    _handled: set[str] = field(default_factory=set)

    def results(self) -> Iterator[ManyResult]:
        """Changes the tasks as the results are consumed."""
        for result in self.change(dry_run=False, limit=self.number, stop=self.stop):
            self._handled.add(result.task_id)
            yield result

    def has_more(self) -> bool:
        """Whether further tasks match."""
        return self.number is not None and any(
            isinstance(result, WouldChange) and result.task_id not in self._handled
            for result in self.change(dry_run=True)
        )


_ANOTHER = "another one"  # of a payload: it may hold anything
_Listed = tuple[Entry, Row | None]  # an index entry with its row, as it was read
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Change(ABC):
    """A change of the tasks of a selection. ``unless``: of those that need none. A task that ended after ``began`` is
    skipped: it may have been redriven by this call and failed again. ``goes_on``: with an earlier call, which began
    then; such a task is left out, instead of being reported by each call. ``latest_first``: buckets in reverse order,
    if tasks go to later ones, so that none is changed twice. ``departures``: counts those that leave past buckets."""

    store: Store
    selection: Selection
    began: datetime
    goes_on: bool = False
    unless: Callable[[Row], bool] = lambda row: False
    latest_first: bool = False
    departures: Departures | None = None

    def results(
        self, *, dry_run: bool, limit: int | None, stop: Stop, record: ChangeRecord | None
    ) -> Iterator[ManyResult]:
        """Yields one result per task, in the order of the selection. Memory does not grow with their number. ``limit``:
        of those that are not skipped.

        ``record`` gets the results of a chunk before the first of them is yielded, so that none is missing if the
        caller stops. Raises StoreError if the tasks cannot be listed.
        """

        def stops() -> bool:
            is_stopped = stop()
            if is_stopped and record is not None:
                record.is_aborted = True
            return is_stopped

        reader = BucketReader(store=self.store, selection=self.selection, latest_first=self.latest_first, limit=_PAGE)
        remaining = sys.maxsize if limit is None else limit
        with thread_pool(_MAX_AT_A_TIME, "dynatick-change") as pool:
            for page in (pages := reader.pages()):
                if stops():
                    leave(pages)
                    return
                for chunk in self._chunks(page):
                    while chunk:
                        selected, chunk = chunk[:remaining], chunk[remaining:]
                        if dry_run:
                            results = [self._preview(listed) for listed in selected]
                        else:
                            if record is not None:
                                record.begin()
                            results = self._written(pool, selected, record)
                        yield from results
                        remaining -= sum(not isinstance(result, Skipped) for result in results)
                        if not remaining or stops():
                            leave(pages)
                            return

    def _written(
        self, pool: ThreadPoolExecutor, selected: Sequence[_Listed], record: ChangeRecord | None
    ) -> list[ManyResult]:
        """Changes a chunk, and counts what was changed, also if that breaks off."""
        written: list[ManyResult] = []

        def write(batch: Sequence[_Listed]) -> list[ManyResult]:
            results = self.write(batch)
            written.extend(results)
            return results

        try:
            return [one for batch in pool.map(write, _batches(selected)) for one in batch]
        except BaseException:  # such as Ctrl-C: what has begun goes on to its end
            pool.shutdown()
            raise
        finally:
            if record is not None:
                record.add(written)
            self._count(written)

    @abstractmethod
    def require(self, row: Row) -> object:
        """Raises what forbids the change: TransitionRefused, InvalidInput."""

    @abstractmethod
    def tasks_of(self, row: Row) -> int:
        """How many tasks are changed with a row."""

    @abstractmethod
    def write(self, batch: Sequence[_Listed]) -> list[ManyResult]:
        """Changes a batch, in a thread of the pool. A task that another request changed first is decided again."""

    def _count(self, results: Sequence[ManyResult]) -> None:
        if self.departures is not None:
            for result in results:
                if isinstance(result, Changed):
                    self.departures.count(result.task_id)
            self.departures.write()

    def check(self, entry: Entry, row: Row | None) -> Row:
        """The row, if it still matches. Raises TaskNotFound, _NoLongerMatches."""
        if row is None:
            raise TaskNotFound(entry.task_id)
        if (reason := self._mismatch(row, entry)) is not None:
            raise _NoLongerMatches(reason)
        return row

    def _preview(self, listed: _Listed) -> ManyResult:
        """The result of a dry run. It decides, too: a change may be refused for what the task has."""
        entry, row = listed

        def would_change() -> WouldChange:
            checked = self.check(entry, row)
            self.require(checked)
            return WouldChange(entry.task_id, TaskView.from_row(checked), self.tasks_of(checked))

        return _result(entry, would_change)

    def _chunks(self, page: BucketPage) -> Iterator[list[_Listed]]:
        """The matching entries of a page, with their rows as they are now."""
        entries = [entry for entry in page.entries if self._matches(entry, page.rows.get(entry.task_id))]
        for start in range(0, len(entries), _CHUNK):
            chunk = entries[start : start + _CHUNK]
            ended = [entry.task_id for entry in chunk if entry.outcome is not None]
            rows = {**page.rows, **self.store.get_many(ended)} if ended else page.rows
            listed = [(entry, rows.get(entry.task_id)) for entry in chunk]
            yield [(entry, row) for entry, row in listed if not (self.goes_on and row and self._has_ended_since(row))]

    def _matches(self, entry: Entry, row: Row | None) -> bool:
        """Whether a listed task matches: an ended one by its index entry, which is complete then; another by its
        row."""
        if is_listed_as_schedule(entry.task_id, entry.schedule_id):
            return False
        if entry.outcome is not None:
            return self.selection.fits(entry.bucket, entry.outcome, entry.action, entry.schedule_id, entry.error)
        return (
            row is not None
            and not is_schedule(row)
            and bucket_of(row) == entry.bucket
            and _fits(row, self.selection)
            and not self.unless(row)
        )

    def _mismatch(self, row: Row, entry: Entry) -> str | None:
        """Why a listed task is skipped; None if it still matches."""
        if self.selection.subject not in (None, row.get(attr.SUBJECT)):
            return "it has another subject now"
        if not _fits(row, self.selection):
            return f"it is {state_shown(row)} now"
        if bucket_of(row) != entry.bucket:
            return f"it is in another bucket now, {row.get(attr.TASK_DATE_TIME)}"
        if self._has_ended_since(row):
            return f"it is {state_shown(row)} again, since this call began"
        return None

    def _has_ended_since(self, row: Row) -> bool:
        finished = instant_or_none(row.get(attr.FINISHED_AT))
        return finished is not None and finished > self.began


@dataclass(frozen=True, kw_only=True, slots=True)
class _Update(_Change):
    """Writes what ``decide`` makes of each row. ``reopen``: called before, with rows and their updates."""

    decide: Decide
    reopen: Callable[[Sequence[tuple[Row, ConditionalUpdate]]], None]

    def require(self, row: Row) -> ConditionalUpdate:
        return self.decide(row)

    def tasks_of(self, row: Row) -> int:
        return tasks_changed(row)

    def write(self, batch: Sequence[_Listed]) -> list[ManyResult]:
        decided = {entry.task_id: _result(entry, partial(self._decide, entry, row)) for entry, row in batch}
        changes = [one for one in decided.values() if isinstance(one, ConditionalUpdate)]
        rows = {entry.task_id: row for entry, row in batch if row is not None}
        try:
            self.reopen([(rows[change.task_id], change) for change in changes])
        except StoreError as error:  # then nothing is written
            decided |= {change.task_id: ChangeUnknown(change.task_id, error) for change in changes}
            changes = []
        tries = {tried.change.task_id: tried for tried in try_many(self.store, changes)}

        def finish(entry: Entry) -> Changed:
            tried = tries[entry.task_id]
            row = carry_out(self.store, entry.task_id, partial(self._decide, entry), tried=tried)
            return Changed(entry.task_id, TaskView.from_row(row), self.tasks_of(row))

        results: list[ManyResult] = []
        for entry, _ in batch:
            answer = decided[entry.task_id]
            results.append(_result(entry, partial(finish, entry)) if isinstance(answer, ConditionalUpdate) else answer)
        return results

    def _decide(self, entry: Entry, row: Row | None) -> ConditionalUpdate:
        return self.decide(self.check(entry, row))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Deletion(_Change):
    """Deletes each row; running ones are skipped. Of all of a subject, batches go with their members."""

    def require(self, row: Row) -> None:
        task_update.require_deletable(row, with_members=self.selection.is_all_of_subject)

    def tasks_of(self, row: Row) -> int:
        return tasks_in(row)

    def write(self, batch: Sequence[_Listed]) -> list[ManyResult]:
        return [_result(entry, partial(self._delete, entry, row)) for entry, row in batch]

    def _check_deletion(self, entry: Entry, row: Row) -> None:
        note_row(self.store, self.check(entry, row))

    def _delete(self, entry: Entry, listed: Row | None) -> Changed:
        self.require(self.check(entry, listed))  # one that runs is skipped without reading it again
        row = task_update.delete(
            self.store,
            entry.task_id,
            check=partial(self._check_deletion, entry),
            with_members=self.selection.is_all_of_subject,
        )
        return Changed(entry.task_id, TaskView.from_row(row), self.tasks_of(row))


class _NoLongerMatches(Exception):
    """A row has changed since it was listed."""


def _result(entry: Entry, call: Callable[[], _T]) -> _T | Skipped | ChangeUnknown:
    """What ``call`` returns, or the result that its error stands for."""
    try:
        return call()
    except TaskNotFound:
        return Skipped(entry.task_id, "it was deleted")
    except (_NoLongerMatches, TransitionRefused, InvalidInput) as error:
        return Skipped(entry.task_id, str(error))
    except StoreError as error:
        return ChangeUnknown(entry.task_id, error)


def _batches(listed: Sequence[_Listed]) -> Iterator[Sequence[_Listed]]:
    """Even batches, one per thread, since an engine without batches takes a request for each change."""
    size = -(-len(listed) // _MAX_AT_A_TIME)
    return (listed[start : start + size] for start in range(0, len(listed), size or 1))


def _fits(row: Row, selection: Selection) -> bool:
    """One that was released is running by its status, and waits: it is among the scheduled ones, too."""
    states = [state_shown(row), *([Status.SCHEDULED] if RowView(row).is_released else ())]
    of_row = row.get(attr.ACTION), row.get(attr.SCHEDULE_ID), row.get(attr.ERROR)
    return any(selection.fits(bucket_of(row), state, *of_row) for state in states)


def given_selection(selection: Selection) -> Mapping[str, str]:
    """A selection, in the record of a change."""
    words, error = selection.words(), selection.error
    if isinstance(error, HasFingerprint):
        return {**words, "fingerprint": error.fingerprint}
    return words if error is None else {**words, "error": error if isinstance(error, str) else "by a function"}


def given_payload(
    payload: Mapping[str, object] | None, set_fields: Mapping[str, object] | None, unset_fields: Collection[str]
) -> Mapping[str, str]:
    """That there is another payload, in the record of a change; not what it is."""
    values = {"payload": payload is not None, "set": bool(set_fields), "unset": bool(unset_fields)}
    return {name: _ANOTHER for name, is_given in values.items() if is_given}


_Client = TypeVar("_Client", bound="BulkTasks")
_SKEW = timedelta(minutes=1)  # between the clocks of two processes, at most


def going_on(client: _Client, began: str | None) -> tuple[_Client, datetime]:
    """The client, whose changes of many tasks go on with one that ``began`` then, and when that is. None: it begins
    now. Raises InvalidInput."""
    now = client._clock()
    since = now if began is None else parse_instant(began, "began")
    if since > now + _SKEW:
        raise InvalidInput("began", began, "expected an instant that has passed, that of the first answer")
    copied = copy(client)
    copied.began = since
    return copied, since


class BulkTasks(TaskLists):
    """Changes many tasks. ``TaskClient`` has these methods."""

    def redrive_many(
        self,
        bucket: str | Bucket | Selection | None = None,
        *,
        payload: Mapping[str, object] | None = None,
        set_fields: Mapping[str, object] | None = None,
        unset_fields: Collection[str] = (),
        dry_run: bool = False,
        limit: int | None = None,
        stop: Stop = _never,
        **selected: Unpack[Selected],
    ) -> Iterator[ManyResult]:
        """Redrives the failed tasks of a bucket, range or subject (arguments as for ``select``), with one result per
        task, as they are consumed. ``payload``, ``set_fields``, ``unset_fields``: as of ``redrive``; a task whose
        handler would refuse the new payload is skipped. ``dry_run``: returns the tasks and changes none. ``limit``: the
        maximum number of tasks that are changed; a pack of a batch is one, and those that are skipped don't count.
        ``stop``: asked before each 200 tasks whether to end. To consume no more results instead leaves it open which of
        the 200 are changed already.
        """
        selection = self._selected(bucket, selected, states_before("redrive"), instead=task_update.UNCANCELLED)
        change = PayloadChange.of(payload, set_fields, unset_fields, self._settings_cache.check_payload)
        given = given_payload(payload, set_fields, unset_fields)
        return self._change_many("redrive", selection, self._decisions.redriven(change), dry_run, limit, stop, given)

    def restore_many(
        self,
        bucket: str | Bucket | Selection | None = None,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        stop: Stop = _never,
        **selected: Unpack[Selected],
    ) -> Iterator[ManyResult]:
        """Takes the cancellations of a bucket, range or subject back, as ``restore`` does, with the arguments and
        results of ``redrive_many``."""
        selection = self._selected(bucket, selected, states_before("restore"))
        return self._change_many("restore", selection, self._decisions.restored(), dry_run, limit, stop)

    def run_now_many(
        self,
        bucket: str | Bucket | Selection | None = None,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        stop: Stop = _never,
        **selected: Unpack[Selected],
    ) -> Iterator[ManyResult]:
        """Runs the tasks of a bucket, range or subject at the next tick, with the arguments and results of
        ``redrive_many``: those that wait and aren't due yet. ``status``: only these; ended ones of this status run
        again."""
        return self._change_many(
            "run",
            self._selected(bucket, selected, states_before("run"), usual=task_update.UNBEGUN),
            self._decisions.run_at_once(),
            dry_run,
            limit,
            stop,
            unless=lambda row: is_due(row, self._clock()),
        )

    def cancel_many(
        self,
        bucket: str | Bucket | Selection | None = None,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        stop: Stop = _never,
        **selected: Unpack[Selected],
    ) -> Iterator[ManyResult]:
        """Cancels the tasks of a bucket, range or subject, with the arguments and results of ``redrive_many``.
        ``status``: only ``scheduled`` ones, or ``unscheduled``; or those ``waiting`` for a completion."""
        selection = self._selected(bucket, selected, states_before("cancel"), usual=task_update.UNBEGUN)
        return self._change_many("cancel", selection, self._decisions.cancelled(), dry_run, limit, stop)

    def delete_many(
        self,
        bucket: str | Bucket | Selection | None = None,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        stop: Stop = _never,
        **selected: Unpack[Selected],
    ) -> Iterator[ManyResult]:
        """Deletes the rows of the tasks of a bucket, range or subject, with the arguments of ``cancel_many``; a result
        has the task as it was. Running ones are skipped: repeat the call when they have ended.

        Of a ``subject`` alone, its schedules are deleted first, so that none of them makes another task, and batches
        with their members: what was to follow one is not inserted any more.
        """
        selection = self._selection(bucket, selected)
        histories.check_optional_limit(limit)
        return self._deleted(selection, dry_run, limit, stop)

    def _deleted(self, selection: Selection, dry_run: bool, limit: int | None, stop: Stop) -> Iterator[ManyResult]:
        began, left = self.began or self._clock(), limit
        with self._record("delete", selection, {"limit": limit}, dry_run) as record:
            if selection.is_all_of_subject:
                for schedule in islice(self._deleted_schedules(selection.subject, dry_run, record), limit):
                    yield schedule
                    left = None if left is None else left - 1
            if left != 0:
                deletion = _Deletion(store=self.store, selection=selection, began=began, goes_on=self.began is not None)
                yield from deletion.results(dry_run=dry_run, limit=left, stop=stop, record=record)

    def _deleted_schedules(
        self, subject: str | None, dry_run: bool, record: ChangeRecord | None
    ) -> Iterator[ManyResult]:
        for row in schedule_rows(self.store, (), subject=subject):
            view = TaskView.from_row(row)
            if dry_run:
                yield WouldChange(view.task_id, view)
                continue
            if record is not None:
                record.begin()
            result: ManyResult
            try:
                delete_schedule(self.store, view.task_id, row)
            except StoreError as error:
                result = ChangeUnknown(view.task_id, error)
            else:
                result = Changed(view.task_id, view)
            if record is not None:
                record.add([result])
            yield result

    def reschedule_many(
        self,
        bucket: str | Bucket | Selection | None = None,
        *,
        due_at: Time | None = None,
        delay_seconds: float | Decimal | None = None,
        shift: timedelta | None = None,
        dry_run: bool = False,
        limit: int | None = None,
        stop: Stop = _never,
        **selected: Unpack[Selected],
    ) -> Iterator[ManyResult]:
        """Gives the waiting tasks of a bucket, range or subject another time: the same to all, by ``due_at`` or
        ``delay_seconds``, or by ``shift`` each its own time, later or earlier. A time that has passed means the next
        tick. Each task is moved once; with ``due_at``, tasks that have this time already are skipped. With a ``shift``
        to later, the latest buckets come first, also for ``limit``; a second call shifts all once more.
        """
        rescheduling = self._decisions.rescheduling(due_at, delay_seconds, shift)
        given = {"at": due_at, "delay": delay_seconds, "by": shift}
        return self._change_many(
            "reschedule",
            self._selected(bucket, selected, task_update.UNBEGUN),
            rescheduling.decide,
            dry_run,
            limit,
            stop,
            given,
            unless=rescheduling.is_done,
            latest_first=shift is not None and shift > timedelta(),
        )

    def _selected(
        self,
        bucket: str | Bucket | Selection | None,
        selected: Selected,
        allowed: tuple[str, ...],
        *,
        usual: tuple[str, ...] = (),
        instead: str = "",
    ) -> Selection:
        """A selection of tasks to change. ``usual``: the statuses if none is asked for, all ``allowed`` by default."""
        selection = self._selection(bucket, selected, allowed, instead=instead)
        return replace(selection, statuses=selection.statuses or usual or allowed)

    def _change_many(
        self,
        change: str,
        selection: Selection,
        decide: Decide,
        dry_run: bool,
        limit: int | None,
        stop: Stop,
        given: Mapping[str, object | None] = MappingProxyType({}),
        *,
        unless: Callable[[Row], bool] = lambda row: False,
        latest_first: bool = False,
    ) -> Iterator[ManyResult]:
        histories.check_optional_limit(limit)
        departures = self._departures()
        update = _Update(
            store=self.store,
            selection=selection,
            began=self.began or self._clock(),
            goes_on=self.began is not None,
            unless=unless,
            latest_first=latest_first,
            decide=departures.noting(decide),
            reopen=partial(reopen_batches, self.store, self._decisions),
            departures=departures,
        )

        def results() -> Iterator[ManyResult]:
            with self._record(change, selection, {**given, "limit": limit}, dry_run) as record:
                yield from update.results(dry_run=dry_run, limit=limit, stop=stop, record=record)

        return results()

    def _record(
        self, change: str, selection: Selection, given: Mapping[str, object | None], dry_run: bool
    ) -> AbstractContextManager[ChangeRecord | None]:
        """What records a change; ``given``: what was given besides the selection. None: it is a dry run."""
        if dry_run:
            return nullcontext()
        return self._recorded(change, {**given_selection(selection), **given})

    def _recorded(self, change: str, given: Mapping[str, object | None]) -> AbstractContextManager[ChangeRecord]:
        """What records a change: a record of its own, or that of the caller, which the caller ends."""
        if self.record is not None:
            return nullcontext(self.record)
        from dynatick.client.change_records import new_record

        return new_record(self, change, given)
