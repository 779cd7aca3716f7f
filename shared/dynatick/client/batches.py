"""The client for batches in Python: any number of tasks of one action, inserted as one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

from dynatick.actions.plain_value import plain
from dynatick.client.batch_changes import BatchChanges, packs_in
from dynatick.client.batch_loading import Loader, batch_of, check_iterable, define, require_open, total_of
from dynatick.client.batch_members import members_of
from dynatick.client.history import check_limit
from dynatick.client.new_task import NewTask, seconds_of, time_of
from dynatick.client.settings_cache import SettingsCache
from dynatick.client.tasks import wait_until
from dynatick.client.views import NextPageToken, TaskView, instant_or_none, status_of
from dynatick.domain import attributes as attr
from dynatick.domain.batches import LISTED_AS_BATCH, MAX_OVER, OPEN, Batch, then_id
from dynatick.domain.buckets import Time, instant_of
from dynatick.domain.instants import LATEST, format_instant, parse_instant, up_to_millisecond
from dynatick.domain.lifecycle import state_of
from dynatick.domain.normalise import check_names
from dynatick.domain.numbers import is_count
from dynatick.domain.packs import DIGITS, MAX_MEMBERS, check_batch_id
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.selection import EVER, STATUSES
from dynatick.domain.task import TERMINAL, Row, Status
from dynatick.domain.view import View
from dynatick.engine.batches import standings
from dynatick.engine.conditional_write import create
from dynatick.engine.ports import Clock, Store
from dynatick.errors import (
    BatchDiffers,
    BatchNotFound,
    InvalidInput,
    TaskExists,
    TransitionRefused,
    shown,
)
from dynatick.tracing import insert_span

if TYPE_CHECKING:
    from dynatick.client.change_records import ChangeRecord

_MAX_PACKS: Final = 1000  # that are read for a page of members


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchInserted(View):
    """A batch that was inserted."""

    batch_id: str
    action: str
    due_at: datetime
    last_due_at: Annotated[datetime, "When its last members are due."]
    members: Annotated[int | None, "How many it has. None: it is loaded in parts, and not sealed yet."]
    packs_written: Annotated[int, "Rows that were written for them now; the others were there already."]

    def __str__(self) -> str:
        until = "" if self.last_due_at == self.due_at else f" to {format_instant(self.last_due_at)}"
        number = self.members
        members = "no members yet" if number is None else "1 member" if number == 1 else f"{number:,} members"
        return f"{self.batch_id}: {members}, due {format_instant(self.due_at)}{until}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PackLoaded(View):
    """A part of a batch that is in."""

    batch_id: str
    number: Annotated[int, "Of the part, from 0: its first member is number 500 times that."]
    members: int
    packs_written: Annotated[int, "Rows that were written for them now; the others were there already."]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchView(View):
    """A batch as it was when it was read."""

    batch_id: str
    status: Annotated[Status | str, "scheduled until it is due, running until all members have ended."]
    action: str
    due_at: datetime
    last_due_at: Annotated[datetime, "When its last members are due."]
    limit_key: Annotated[str | None, "What limits its members, such as customer:4711."] = None
    members: Annotated[int | None, "How many it has. None: not all are in yet."]
    counts: Annotated[
        Mapping[str, int],
        "Its members by status; open: those that have not ended. Empty: not all are in, or in a list: it is not due.",
    ]
    then: Annotated[str | None, "The id of the task that is inserted when all have ended."]
    ends_at: Annotated[datetime | None, "When it will end at its present rate; while its members run."]
    created_at: datetime | None
    finished_at: datetime | None

    @property
    def ended(self) -> Annotated[int | None, "How many of its members have ended. None: they are not counted."]:
        """How many of its members have ended; None if they are not counted."""
        is_counted = self.counts or self.members == 0
        return sum(self.counts.values()) - self.counts.get(OPEN, 0) if is_counted else None

    @property
    def failed(self) -> Annotated[int | None, "How many of them have failed."]:
        """How many of them have failed; None if they are not counted."""
        return None if self.ended is None else self.counts.get(Status.FAILED, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPage(View):
    """A page of the list of batches, the latest first. It may be empty without being the last one."""

    batches: tuple[BatchView, ...]
    next_page_token: NextPageToken = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberPage(View):
    """A page of the members of a batch, in order of number. It may be empty without being the last one."""

    members: tuple[TaskView, ...]
    next_page_token: NextPageToken = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchCancelled(View):
    """What the cancellation of a batch has found."""

    batch_id: str
    cancelled: Annotated[int, "Members that waited."]
    running: Annotated[
        int, "Members of packs that run. Those that have begun end by themselves; after some seconds, no more begin."
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRescheduled(View):
    """What a batch with another time has found."""

    batch_id: str
    due_at: datetime
    last_due_at: Annotated[datetime, "When its last members are due."]
    rescheduled: Annotated[int, "Members that waited, and have another time now."]
    running: Annotated[int, "Members of packs that run: these go on."]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRedriven(View):
    """How many members of a batch were started anew."""

    batch_id: str
    redriven: Annotated[int, "Members that had failed."]


class Batches:
    """The batches of a table, as ``TaskClient.batches``.

    Methods raise InvalidInput for invalid arguments; BatchNotFound; StoreError if the table does not answer.
    """

    def __init__(
        self,
        store: Store,
        settings_cache: SettingsCache,
        clock: Clock,
        *,
        recorded: Callable[[str, Mapping[str, object | None]], AbstractContextManager[ChangeRecord]],
    ) -> None:
        self._store, self._settings_cache, self._clock = store, settings_cache, clock
        self._recorded = recorded
        self._changes = BatchChanges(store, settings_cache, clock)

    def insert(
        self,
        payloads: Iterable[Mapping[str, object]] | None,
        *,
        batch_id: str,
        action: str,
        due_at: Time | None = None,
        delay: timedelta | None = None,
        over: timedelta | str | None = None,
        total: int | None = None,
        then: Mapping[str, object] | NewTask | None = None,
        retry_policy: RetryPolicy | Mapping[str, object] | None = None,
        timeout_seconds: int | Decimal | None = None,
        subject: str | None = None,
        limit_key: str | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> BatchInserted:
        """Inserts a task for each payload, as the members of one batch. Payloads are streamed.

        Without ``due_at`` and ``delay``, they run as soon as they can. ``over``: they are spread evenly over this
        time, a day at most; the number of ``payloads`` must be known then, so give ``total`` if they have no length.
        ``then``: a task that is inserted when all have ended, under the table's names (action, payload …), without id
        and time. The other arguments are those of ``TaskClient.insert``, for each member: with a ``limit_key``, all
        members have that one. ``payloads`` None: the batch
        is begun, with a ``total``; load it by ``load_pack`` and ``seal``.

        The same call again, after a crash or an error, goes on where it was. Raises BatchDiffers if it has other
        arguments, InvalidInput with the number of a payload that is invalid (``payloads[500001].to``): nothing of its
        pack, of 500 members at most, is written then, and TransitionRefused if the batch was cancelled.
        """
        definition = NewTask(
            task_id=batch_id,
            action=action,
            due_at=due_at,
            delay_seconds=seconds_of(delay),
            retry_policy=retry_policy,
            timeout_seconds=timeout_seconds,
            subject=subject,
            limit_key=limit_key,
            attributes={} if attributes is None else attributes,
        )
        with insert_span(action, batch_id=batch_id):
            loader = self._begin(definition, over=over, total=total_of(payloads, total), then=then)
            members = loader.batch.members
            if payloads is not None:
                with self._cancelling(batch_id):
                    members = loader.load(payloads)
            return _inserted(loader, members)

    def _begin(self, task: NewTask, *, over: timedelta | str | None, total: int | None, then: object) -> Loader:
        """Writes the row of a batch, unless it is there, and returns its loader."""
        batch, row = define(task, self._settings_cache, self._clock, over=over, total=total, then=then)
        self._settings_cache.current()
        is_new = create(self._store, row)
        if not is_new:
            row, own = self._own(task.task_id)
            # Of a delay, the due instant is that of the first call.
            given = batch if task.due_at is not None else replace(batch, due_at=own.due_at)
            if differences := _plain(own).differences(_plain(given)):
                raise BatchDiffers(task.task_id, differences)
            batch = own
        return self._loader(row, batch, is_new=is_new)

    def load_pack(self, batch_id: str, number: int, payloads: Iterable[Mapping[str, object]]) -> PackLoaded:
        """Loads a part of a batch that was begun without payloads: 500 members, or in the last part the rest. In any
        order, several at a time, and any number of times; once the batch is sealed, it only compares.

        ``number``: of the part, from 0. Raises InvalidInput for a payload that is invalid, or another one than that of
        an earlier call, and for another number of payloads; TransitionRefused if the batch was cancelled.
        """
        check_iterable(payloads)
        some = [*islice(payloads, MAX_MEMBERS + 1)]
        self._settings_cache.current()
        loader = self._loader(*batch_of(self._store, batch_id), is_new=False)
        with self._cancelling(batch_id):
            loader.load_pack(number, some)
        return PackLoaded(batch_id=batch_id, number=number, members=len(some), packs_written=loader.written)

    def seal(self, batch_id: str) -> BatchInserted:
        """Says that all members of a batch are in, which was begun without payloads. Any number of times. It reads a
        row for each 500 of them. Raises TransitionRefused with the parts that are missing, or if the batch was
        cancelled."""
        self._settings_cache.current()
        loader = self._loader(*batch_of(self._store, batch_id), is_new=False)
        with self._cancelling(batch_id):
            return _inserted(loader, loader.seal())

    def _loader(self, row: Row, batch: Batch, *, is_new: bool) -> Loader:
        """Raises TransitionRefused for a batch that was cancelled before all members were in."""
        require_open(row, batch)
        return Loader(
            store=self._store,
            settings_cache=self._settings_cache,
            clock=self._clock,
            batch_id=RowView(row).task_id,
            batch=batch,
            created_at=parse_instant(row[attr.CREATED_AT], attr.CREATED_AT),
            is_new=is_new,
        )

    @contextmanager
    def _cancelling(self, batch_id: str) -> Iterator[None]:
        """Cancels what was written to a batch since it was cancelled."""
        try:
            yield
        except TransitionRefused as refused:
            if refused.status in TERMINAL:
                self.cancel(batch_id)
            raise

    def get(self, batch_id: str) -> BatchView:
        """The batch, and how its members stand. While they run, it reads a row for each 500 of them."""
        row, batch = batch_of(self._store, batch_id)
        return self._view(row, batch, is_counted=batch.members is not None)

    def list(
        self,
        *,
        start: Time | None = None,
        end: Time | None = None,
        last: timedelta | str | None = None,
        next: timedelta | str | None = None,
        limit: int = 100,
        page_token: str | None = None,
    ) -> BatchPage:
        """The batches, the latest first by when their last members are due: all, or those of a range of at most 31
        days, by the arguments of ``TaskClient.select``.

        ``limit``: the maximum number, up to 1,000; a page may hold fewer. Only the last page has no
        ``next_page_token``. Of one whose members run, it reads a row for each 500 of them; those of one that is not due
        yet are not counted.
        """
        check_limit(limit)
        minutes = EVER
        if not start is end is last is next is None:
            minutes = self._settings_cache.select(start=start, end=end, last=last, next=next).minutes
        if not minutes:  # no minute begins in it
            return BatchPage(batches=())
        first, through = instant_of(minutes[0]), instant_of(minutes[-1]) + timedelta(seconds=59)
        _check_place(page_token, first, through)
        listed = self._store.latest_listed(
            LISTED_AS_BATCH, start=format_instant(first), end=format_instant(through), after=page_token, limit=limit
        )
        rows = self._store.get_many(listed.ids) if listed.ids else {}
        views: list[BatchView] = []
        for row in (rows[batch_id] for batch_id in listed.ids if batch_id in rows):
            with suppress(InvalidInput):  # it was written by hand
                if (batch := Batch.of(row)) is not None:
                    is_due = is_terminal(row) or batch.due_at <= self._clock()
                    views.append(self._view(row, batch, is_counted=batch.members is not None and is_due))
        return BatchPage(batches=tuple(views), next_page_token=listed.after)

    def _view(self, row: Row, batch: Batch, *, is_counted: bool) -> BatchView:
        now, batch_id, result = self._clock(), RowView(row).task_id, row.get(attr.RESULT)
        counts = Counter[str]()
        if is_terminal(row) and isinstance(result, Mapping):
            counts.update({str(name): int(n) for name, n in result.items() if name != attr.MEMBERS})
        elif is_counted and batch.members is not None:
            counts = standings(self._store, batch_id, batch.members)
        return BatchView(
            batch_id=batch_id,
            status=status_of(state_of(row) if is_terminal(row) else _open_status(batch, now)),
            action=batch.action,
            due_at=batch.due_at,
            last_due_at=batch.last_due_at,
            limit_key=batch.limit_key,
            members=batch.members,
            counts=dict(counts),
            then=None if batch.then is None else then_id(batch_id),
            ends_at=None if is_terminal(row) else _ends_at(batch, counts, now),
            created_at=instant_or_none(row.get(attr.CREATED_AT)),
            finished_at=instant_or_none(row.get(attr.FINISHED_AT)),
        )

    def members(self, batch_id: str, status: str | None = None) -> Iterator[TaskView]:
        """The members of one status or of all, in order of number, read as they are consumed. Those that were deleted
        are left out."""
        _check_status(status)
        _, batch = batch_of(self._store, batch_id)
        for row, pack in packs_in(self._store, batch_id, batch):
            yield from map(TaskView.from_row, members_of(self._store, row, pack, status))

    def members_page(
        self, batch_id: str, status: str | None = None, *, limit: int = 100, page_token: str | None = None
    ) -> MemberPage:
        """The same by page. ``limit``: the maximum number, up to 1,000; a page may hold fewer. Only the last page has
        no ``next_page_token``."""
        check_limit(limit)
        _check_status(status)
        since = _since(page_token)
        found: list[TaskView] = []
        _, batch = batch_of(self._store, batch_id)
        for packs, (row, pack) in enumerate(packs_in(self._store, batch_id, batch, since)):
            if packs == _MAX_PACKS:
                return MemberPage(members=tuple(found), next_page_token=str(pack.span.first))
            for member in members_of(self._store, row, pack, status):
                number = pack.number_of(str(member[attr.TASK_ID]))
                if number < since:
                    continue
                if len(found) == limit:
                    return MemberPage(members=tuple(found), next_page_token=str(number))
                found.append(TaskView.from_row(member))
        return MemberPage(members=tuple(found))

    def cancel(self, batch_id: str) -> BatchCancelled:
        """Cancels the members that wait, and what would follow; those that have begun end by themselves. The same call
        again goes on where it was. Raises TransitionRefused if all members have ended already."""
        with self._recorded("cancel batch", {"batch": batch_id}) as record:
            found = self._changes.cancel(batch_id, record)
        return BatchCancelled(batch_id=batch_id, cancelled=found["cancelled"], running=found["running"])

    def reschedule(
        self, batch_id: str, *, due_at: Time | None = None, delay: timedelta | None = None
    ) -> BatchRescheduled:
        """Gives the members that wait, and the batch, another time (one of the two); one that has passed means the next
        tick. They are spread over as much time as before. Members with rows of their own keep theirs: those that are
        retried, and those that were rescheduled by themselves.

        The same call again goes on where it was. Raises TransitionRefused if all have ended, or are not in yet.
        """
        times = {attr.DUE_AT: due_at, attr.DELAY_SECONDS: seconds_of(delay)}
        at = time_of(batch_id, times, now=self._clock(), grid=self._settings_cache.grid()).due_at
        batch_id, at = check_batch_id(batch_id), up_to_millisecond(at)
        with self._recorded("reschedule batch", {"batch": batch_id, "at": format_instant(at)}) as record:
            batch, found = self._changes.reschedule(batch_id, at, record)
        return BatchRescheduled(
            batch_id=batch_id,
            due_at=batch.due_at,
            last_due_at=batch.last_due_at,
            rescheduled=found["scheduled"],
            running=found["running"],
        )

    def redrive(self, batch_id: str) -> BatchRedriven:
        """Starts the members that have failed anew, at the next tick. A batch that has ended runs again until they have
        ended, too; what followed is not inserted again. The same call again goes on where it was."""
        with self._recorded("redrive batch", {"batch": batch_id}) as record:
            return BatchRedriven(batch_id=batch_id, redriven=self._changes.redrive(batch_id, record))

    def wait(
        self,
        batch_id: str,
        *,
        timeout: timedelta | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> BatchView:
        """Waits until every member has ended and what follows is inserted, and returns the batch. ``timeout``: None
        waits for ever. Raises WaitTimedOut."""
        wait_until(
            partial(self.has_ended, batch_id),
            bool,
            of=f"batch {shown(batch_id)}",
            timeout=timeout,
            seconds=self._seconds,
            pause=pause,
        )
        return self.get(batch_id)

    def _seconds(self) -> float:
        """The client's clock."""
        return self._clock().timestamp()

    def has_ended(self, batch_id: str) -> bool:
        """Whether it has ended: one read of one row."""
        return is_terminal(batch_of(self._store, batch_id)[0])

    def _own(self, batch_id: str) -> tuple[Row, Batch]:
        """The batch whose id is taken. Raises TaskExists if another row has it."""
        try:
            return batch_of(self._store, batch_id)
        except BatchNotFound:
            raise TaskExists(batch_id) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedLines:
    """How far the payloads of a file are in. ``is_stopped``: there may be more of them."""

    batch_id: str
    next_number: int
    members_written: int
    is_stopped: bool


def load_lines(
    batches: Batches,
    settings: Mapping[str, object],
    payloads: Iterable[Mapping[str, object]],
    *,
    since: int,
    should_stop: Callable[[], bool],
) -> LoadedLines:
    """Loads payloads of a file, from the number ``since`` on, into a batch with these settings: those of ``POST
    /v1/batches`` under the same names. It stops before the next 500 once ``should_stop`` returns True; the last call
    seals the batch. Raises what ``Batches.insert`` does."""
    row = dict(settings)
    if "payloads" in row:
        raise InvalidInput("payloads", "some", "leave it out: each line after the first is one")
    check_names(row)
    batch_id, over, total, then = (row.pop(name, None) for name in (attr.BATCH_ID, "overSeconds", "total", "then"))
    if over is not None and not is_count(over, 0):
        raise InvalidInput("overSeconds", over, "expected whole seconds, a day at most")
    task = NewTask.from_row({**row, attr.TASK_ID: check_batch_id(batch_id)})
    length = None if over is None else timedelta(seconds=min(int(over), 2 * MAX_OVER.total_seconds()))
    loader = batches._begin(task, over=length, total=total_of(iter(()), total), then=then)
    with batches._cancelling(task.task_id):
        number = loader.load(payloads, since=since, should_stop=should_stop)
    return LoadedLines(
        batch_id=task.task_id,
        next_number=number,
        members_written=loader.members_written,
        is_stopped=loader.is_stopped,
    )


def _inserted(loader: Loader, members: int | None) -> BatchInserted:
    return BatchInserted(
        batch_id=loader.batch_id,
        action=loader.batch.action,
        due_at=loader.batch.due_at,
        last_due_at=loader.batch.last_due_at,
        members=members,
        packs_written=loader.written,
    )


def _ends_at(batch: Batch, counts: Mapping[str, int], now: datetime) -> datetime | None:
    """When a batch will end, if its members go on ending as they did since it was due."""
    waiting, members = counts.get(OPEN, 0), sum(counts.values())
    if not waiting or waiting == members or now <= batch.due_at:
        return None
    since, rate = now - batch.due_at, waiting / (members - waiting)
    return max(now + since * rate, batch.last_due_at) if rate < (LATEST - now) / since else None


def _check_status(status: object) -> None:
    if status is not None and status not in STATUSES:
        raise InvalidInput(attr.STATUS, status, f"expected one of {', '.join(STATUSES)}")


def _since(page_token: object) -> int:
    """The number of the member that a page begins with. Raises InvalidInput."""
    if page_token is None:
        return 0
    if not (
        isinstance(page_token, str) and page_token.isascii() and page_token.isdigit() and len(page_token) <= DIGITS
    ):
        raise InvalidInput("pageToken", page_token, "expected the token of the page before, of the same batch")
    return int(page_token)


def _check_place(page_token: object, first: datetime, through: datetime) -> None:
    """Raises InvalidInput for a token that is none of a list of batches in this range."""
    if page_token is None:
        return
    expected = "expected the token of the page before, of the same range"
    at, _, batch_id = page_token.partition(" ") if isinstance(page_token, str) else ("", "", "")
    try:
        check_batch_id(batch_id)
        if first <= parse_instant(at, "pageToken") <= through and format_instant(parse_instant(at, "pageToken")) == at:
            return
    except InvalidInput:
        pass
    raise InvalidInput("pageToken", page_token, expected)


def _plain(batch: Batch) -> Batch:
    """The same with plain values, as they compare."""
    return Batch.of_payload(plain(batch.to_payload()))


def _open_status(batch: Batch, now: datetime) -> str:
    return str(Status.SCHEDULED if now < batch.due_at else Status.RUNNING)
