"""From arguments to a batch: checks what is asked for, makes the row that begins it, writes its packs, several at a
time, and seals it.

Whatever dies meanwhile, the same call goes on where it was: ids are derived, and creates are conditional. Memory does
not grow with the number of payloads.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from dynatick.client.new_task import NewTask, check_own_names, checked_row, payload_of, row_of, scheduled, time_of
from dynatick.client.settings_cache import SettingsCache
from dynatick.client.thread_pool import thread_pool
from dynatick.domain import attributes as attr
from dynatick.domain.batches import BATCH_ACTION, MAX_OVER, Batch
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Unknown, Written, as_read
from dynatick.domain.durations import duration_of
from dynatick.domain.instants import format_instant, up_to_millisecond
from dynatick.domain.lifecycle import state_of
from dynatick.domain.numbers import is_count
from dynatick.domain.packs import (
    MAX_BATCH,
    MAX_MEMBERS,
    Pack,
    Span,
    body_id,
    check_batch_id,
    packed,
    payload_text,
    payloads_of,
    spans_of,
    spans_with,
)
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.task import Row
from dynatick.engine.batches import packs_of
from dynatick.engine.conditional_write import create_many, write
from dynatick.engine.ports import Clock, Store, StoreFailure
from dynatick.errors import (
    BatchDiffers,
    BatchNotFound,
    InvalidInput,
    InvalidInputs,
    ItemTooLarge,
    StoreError,
    TransitionRefused,
)
from dynatick.json_reader import dumps
from dynatick.store.codec import with_item
from dynatick.tracing import current_traceparent

THREADS: Final = 8
_AT_A_TIME: Final = 25  # packs to a call
_MAX_BYTES: Final = 500_000  # of their bodies
BODY_KEPT: Final = timedelta(days=366)  # after the pack is due
_TRIES: Final = 20
_MISSING_SHOWN: Final = 10  # packs in an error
_READ_AT_A_TIME: Final = 100 * MAX_MEMBERS  # members whose packs are read together
_MAX_OF_MEMBERS: Final = 256 * 1024  # as JSON, which is longer than DynamoDB's form
_NOT_OF_MEMBERS = (attr.TASK_ID, attr.ACTION, *attr.TIME_INPUTS)

_Packed = tuple[Span, bytes]


def batch_of(store: Store, batch_id: str) -> tuple[Row, Batch]:
    """The row of a batch, and what it says. Raises BatchNotFound, InvalidInput."""
    row = store.get(check_batch_id(batch_id))
    batch = None if row is None else Batch.of(row)
    if row is None or batch is None:
        raise BatchNotFound(batch_id)
    return row, batch


def define(
    task: NewTask,
    settings_cache: SettingsCache,
    clock: Clock,
    *,
    over: timedelta | str | None,
    total: int | None,
    then: object,
) -> tuple[Batch, Row]:
    """The batch that is asked for, by the current settings, and its row. Raises InvalidInput."""
    wrong = InvalidInputs()
    now = clock()
    with wrong:
        check_batch_id(task.task_id)
    values = row_of(replace(task, task_id="-"), wrong)  # its own is checked as a batch's
    with wrong:
        if task.action is None:
            raise InvalidInput(attr.ACTION, None, "expected the name of an action")
        if attr.ACTION in values:
            settings_cache.check_action(str(values[attr.ACTION]))
    settings_cache.check_limits(values, wrong)
    with wrong:
        check_own_names(task, values)
    length = timedelta()
    with wrong:
        length = _length(over)
    if over is None:
        with wrong:
            _check_not_over(values)
    if length and total is None:
        with wrong:
            raise InvalidInput("total", None, "expected the number of payloads, over which the time is spread")
    follows = None
    with wrong:
        follows = _then(then, settings_cache, now)
    of_members = {name: value for name, value in values.items() if name not in _NOT_OF_MEMBERS}
    with wrong:
        _check_size(of_members)
    wrong.raise_all()
    times: dict[str, object] = {name: values[name] for name in attr.TIME_INPUTS if name in values}
    due_at = time_of(task.task_id, times, now=now, grid=settings_cache.grid()).due_at if times else now
    batch = Batch(
        action=str(values[attr.ACTION]),
        due_at=up_to_millisecond(due_at),
        over=length,
        total=total,
        then=follows,
        of_members=of_members,
    )
    row: dict[str, object] = {
        attr.TASK_ID: task.task_id,
        attr.DUE_AT: format_instant(batch.last_due_at),
        attr.PAYLOAD: batch.to_payload(),
        **batch.listed(),
    }
    if attr.SUBJECT in of_members:  # it is found with its members
        row[attr.SUBJECT] = of_members[attr.SUBJECT]
    if (parent := of_members.get(attr.TRACEPARENT, current_traceparent())) is not None:
        row[attr.TRACEPARENT] = parent
    return batch, scheduled(row, BATCH_ACTION, settings_cache, created=now, now=now)


def _then(then: object, settings_cache: SettingsCache, now: datetime) -> Mapping[str, object] | None:
    """The row of the task that follows, without its id. Raises InvalidInput."""
    if then is None:
        return None
    if isinstance(then, Mapping):
        if attr.TASK_ID in then:
            raise InvalidInput(f"then.{attr.TASK_ID}", then[attr.TASK_ID], "leave it out: it follows from the batch")
        then = NewTask.from_row({attr.TASK_ID: "-", **then})
    if not isinstance(then, NewTask):
        raise InvalidInput("then", then, "expected a task, such as handler.after(payload)")
    wrong = InvalidInputs()
    row = checked_row(then, settings_cache, wrong)
    for name in (attr.TASK_DATE_TIME, attr.DUE_AT):
        if name in row:
            with wrong:
                raise InvalidInput(name, row[name], "leave it out: it runs when all members have ended")
    if attr.DELAY_SECONDS in row:
        with wrong:
            time_of("-", {attr.DELAY_SECONDS: row[attr.DELAY_SECONDS]}, now=now, grid=settings_cache.grid())
    wrong.raise_all(within="then")
    return {name: value for name, value in row.items() if name != attr.TASK_ID}


def _check_size(of_members: Row) -> None:
    """Raises InvalidInput for attributes beside which there might be no room for a member's payload and its errors."""
    if (size := len(dumps(of_members).encode())) > _MAX_OF_MEMBERS:
        expected = f"expected at most {_MAX_OF_MEMBERS} bytes as JSON: a row of a member has them beside its payload"
        raise InvalidInput("attributes", f"{size} bytes", expected)


def _check_not_over(values: Row) -> None:
    """Refuses an attribute that probably stands for ``over``, which is not given. Raises InvalidInput."""
    for name in values:
        if "".join(filter(str.isalnum, name)).lower() in ("over", "overseconds"):
            expected = (
                "expected over, in JSON overSeconds: as an attribute it spreads nothing, and all would run at once"
            )
            raise InvalidInput(name, values[name], expected)


def _length(over: object) -> timedelta:
    length = timedelta() if over is None else duration_of(over, "over") if isinstance(over, str) else over
    if not isinstance(length, timedelta) or not timedelta() <= length <= MAX_OVER or length.microseconds:
        raise InvalidInput("over", over, "expected whole seconds, a day at most, such as timedelta(hours=2) or 2h")
    return length


def check_iterable(payloads: object) -> None:
    if isinstance(payloads, Mapping | str | bytes) or not isinstance(payloads, Iterable):
        raise InvalidInput("payloads", f"a {type(payloads).__name__}", "expected an iterable of payloads")


def total_of(payloads: object, total: object) -> int | None:
    """The number of payloads, as far as it is known before they are read. Raises InvalidInput."""
    if payloads is not None:
        check_iterable(payloads)
    elif total is None:
        raise InvalidInput("total", None, "expected payloads, or the number of those that are loaded in parts")
    if total is not None and (not is_count(total, 0) or total > MAX_BATCH):
        raise InvalidInput("total", total, f"expected a whole number up to {MAX_BATCH}")
    length = len(payloads) if isinstance(payloads, Sized) else None
    if length is not None and total not in (None, length):
        raise InvalidInput("total", total, f"expected the number of payloads, {length}")
    if length is not None and length > MAX_BATCH:
        raise InvalidInput("payloads", f"{length} payloads", f"expected at most {MAX_BATCH}")
    return length if length is not None else None if total is None else int(total)


@dataclass(slots=True)
class Loader:
    """Loads the payloads of one batch. ``created_at``: of the batch's row, and so of every member, however often it is
    loaded. ``is_new`` False: packs of it may be there."""

    store: Store
    settings_cache: SettingsCache
    clock: Clock
    batch_id: str
    batch: Batch
    created_at: datetime
    is_new: bool
    written: int = 0  # packs that were not there
    members_written: int = 0  # in them
    is_stopped: bool = False  # there may be more payloads
    first: int = 0  # the number of the first of the payloads that are given
    traceparent: str | None = field(default_factory=current_traceparent)  # of the span in which it is made

    def load(
        self, payloads: Iterable[object], *, since: int = 0, should_stop: Callable[[], bool] = lambda: False
    ) -> int:
        """Writes what is missing, seals the batch, and returns the number of its members. Of one that is sealed, the
        payloads are compared. Raises InvalidInput, with the number of the payload; BatchDiffers, StoreError, and
        TransitionRefused for a batch that was cancelled.

        ``since``: the number of the first payload; all before it are in. ``should_stop`` is asked before each 500 are
        read: then those that were read are in, the batch is not sealed, and it returns the number of the next."""
        members = self._load(self._chunks(payloads, since, should_stop), since)
        if self.batch.members is None and not self.is_stopped:
            self._note(members, sealed=True)
        return members

    def load_pack(self, number: int, payloads: Sequence[object]) -> None:
        """Writes a whole span of members, as far as it is missing. The number of all must be known. Raises what
        ``load`` does."""
        total = self._known_total()
        packs = -(-total // MAX_MEMBERS)
        if not is_count(number, 0) or number >= packs:
            expected = (
                f"expected a number from 0 to {packs - 1}" if packs else "expected none: the batch has no members"
            )
            raise InvalidInput("number", number, f"{expected}, since the batch was begun with {total} members")
        span = Span(number * MAX_MEMBERS, min(MAX_MEMBERS, total - number * MAX_MEMBERS))
        if len(payloads) != span.members:
            expected = f"expected {span.members}, those of the members {span.first} to {span.last} of {total}"
            raise InvalidInput("payloads", f"{len(payloads)} payloads", expected)
        self.first = span.first
        texts = [self._text(payload, span.first + n) for n, payload in enumerate(payloads)]
        self._load([(span, texts)])
        if self.batch.members is None:
            require_open(*batch_of(self.store, self.batch_id))

    def seal(self) -> int:
        """Notes that all members are in, and returns their number. Raises TransitionRefused if some are missing, or if
        the batch was cancelled."""
        if self.batch.members is not None:
            return self.batch.members
        total = self._known_total()
        missing = list(islice(self._missing(total), _MISSING_SHOWN + 1))
        if missing:
            self._check_not_deleted("seal", [part for span in missing for part in spans_with(span.first, total)])
            named = ", ".join(str(span.first // MAX_MEMBERS) for span in missing[:_MISSING_SHOWN])
            named += ", …" if len(missing) > _MISSING_SHOWN else ""
            instead = f"load what is missing first: {'pack' if len(missing) == 1 else 'packs'} {named}"
            is_a = "not complete"
            raise TransitionRefused(self.batch_id, "seal", "scheduled", (), what="batch", is_a=is_a, instead=instead)
        self._note(total, sealed=True)
        return total

    def _missing(self, total: int) -> Iterator[Span]:
        """The packs that are not whole, in order. It reads hardly further than it is asked: a pack that
        is not there is looked for by all of its parts."""
        for since in range(0, total, _READ_AT_A_TIME):
            through = min(total, since + _READ_AT_A_TIME)
            loaded = Counter[int]()
            for row, pack in packs_of(self.store, self.batch_id, through, since):
                if self._is_own(row):
                    loaded[pack.span.first - pack.span.first % MAX_MEMBERS] += pack.span.members
            yield from (span for span in spans_of(through, since) if loaded[span.first] != span.members)

    def _known_total(self) -> int:
        total = self.batch.total if self.batch.members is None else self.batch.members
        if total is None:
            expected = "begin the batch with the number of its members, if it is to be loaded in parts"
            raise InvalidInput("total", None, expected)
        return total

    def _load(self, chunks: Iterable[tuple[Span, Sequence[str]]], since: int = 0) -> int:
        """Writes the packs of chunks that follow each other. Returns the number after that of the last member."""
        under_way: deque[Future[Sequence[Span]]] = deque()
        with thread_pool(THREADS, "dynatick-batch") as pool:
            waiting: list[_Packed] = []

            def send(maximum: int) -> None:
                if waiting:
                    under_way.append(pool.submit(self._write, tuple(waiting)))
                    waiting.clear()
                while len(under_way) > maximum:
                    written = under_way.popleft().result()
                    self.written += len(written)
                    self.members_written += sum(span.members for span in written)

            members = since
            for span, texts in chunks:
                for one in packed(span, texts):
                    waiting.append(one)
                    if len(waiting) == _AT_A_TIME or sum(len(body) for _, body in waiting) > _MAX_BYTES:
                        send(2 * THREADS)
                members = span.last + 1
            send(0)
        return members

    def _chunks(
        self, payloads: Iterable[object], since: int, should_stop: Callable[[], bool]
    ) -> Iterator[tuple[Span, Sequence[str]]]:
        """The payloads of one whole span after the other. Each is checked before any of them is written."""
        rest = iter(payloads)
        first = since
        while not (stopped := should_stop()) and (chunk := list(islice(rest, MAX_MEMBERS))):
            span = Span(first, len(chunk))
            total = MAX_BATCH if self.batch.total is None else self.batch.total
            if span.last >= total:
                if self.batch.members is not None:
                    raise self._other_members(span.last + 1 + sum(1 for _ in rest))
                raise InvalidInput("payloads", f"more than {total}", f"expected {total}, as the batch was begun with")
            texts = [self._text(payload, first + n) for n, payload in enumerate(chunk)]
            first = span.last + 1
            if span.members < MAX_MEMBERS and self.batch.total is None:
                self._note(first)  # before its last pack is written, whose id follows from it
            yield span, texts
        self.is_stopped = stopped
        if not stopped and self.batch.total not in (None, first):
            if self.batch.members is not None:
                raise self._other_members(first)
            expected = f"expected {self.batch.total}, as the batch was begun with"
            raise InvalidInput("payloads", f"{first} payloads", expected)

    def _other_members(self, number: int) -> BatchDiffers:
        return BatchDiffers(self.batch_id, {attr.MEMBERS: (self.batch.members, number)})

    def _text(self, payload: object, number: int) -> str:
        try:
            kept = payload_of(payload)
            self.settings_cache.check_payload(self.batch.action, kept)
            with_item({attr.PAYLOAD: kept})
        except InvalidInput as error:
            raise invalid_payload(error, number - self.first) from None
        return payload_text(kept, number - self.first)

    # -- rows ------------------------------------------------------------------------------------------------------

    def _write(self, some: Sequence[_Packed]) -> Sequence[Span]:
        """Writes packs, each body before its pack's row. Returns those that were not there. Runs in a thread."""
        self._check_spans([span for span, _ in some])
        bodies = [self._body(span, body) for span, body in some]
        if self.batch.members is not None:
            self._compare([span for span, _ in some], bodies)
            return ()
        self._check_not_deleted("load", [span for span, _ in some])
        are_new = self._create(bodies)
        there = [n for n, is_new in enumerate(are_new) if not is_new]
        if there:
            self._compare([some[n][0] for n in there], [bodies[n] for n in there])
            self._check_own([some[n][0] for n in there])  # before any of these is written
        created = self._create([self._pack(span) for span, _ in some])
        self._check_own([span for (span, _), is_new in zip(some, created, strict=True) if not is_new])
        return [span for (span, _), is_new in zip(some, created, strict=True) if is_new]

    def _create(self, rows: Sequence[Row]) -> list[bool]:
        answers = create_many(self.store, rows)
        for answer in answers:
            if isinstance(answer, StoreFailure):
                kind = ItemTooLarge if answer.too_large else StoreError
                raise kind(f"cannot load batch {self.batch_id!r}: {answer.error}; the same call goes on from there")
        return [answer is True for answer in answers]

    def _check_spans(self, spans: Sequence[Span]) -> None:
        """Raises InvalidInput if members are in other packs: with other payloads, or another zlib, more or fewer fit
        into one. They would run twice. Of an earlier batch, a larger pack is refused: it would be taken for theirs."""
        total = MAX_BATCH if self.batch.total is None else self.batch.total
        others = {
            other.pack_id(self.batch_id): (span, other)
            for span in reversed(spans)  # so that the first is named
            for other in spans_with(span.first, total)
            if other.members > span.members or (other != span and not self.is_new)
        }
        rows = self.store.get_many(others, only=(attr.CREATED_AT,)) if others else {}
        for pack_id, row in rows.items():
            span, other = others[pack_id]
            if self._is_own(row):
                instead = "give the payloads that the batch was begun with, from the same system"
                expected = f"its pack is {pack_id}: {instead}"
                raise InvalidInput(f"payloads[{span.first - self.first}]", "another pack", expected)
            if other.members > span.members:
                raise self._taken(pack_id)

    def _check_own(self, spans: Sequence[Span]) -> None:
        """Raises InvalidInput for a pack that is there, and not this batch's: its members would not run."""
        ids = [span.pack_id(self.batch_id) for span in spans]
        rows = self.store.get_many(ids, only=(attr.CREATED_AT,)) if ids else {}
        for pack_id, row in rows.items():
            if not self._is_own(row):
                raise self._taken(pack_id)

    def _is_own(self, row: Row) -> bool:
        """Whether the row of a pack is this batch's, not that of an earlier one of its id."""
        return row.get(attr.CREATED_AT) == format_instant(self.created_at)

    def _taken(self, pack_id: str) -> InvalidInput:
        expected = f"{pack_id} is that of an earlier batch of this id; choose another batch id, and cancel this batch"
        return InvalidInput(attr.BATCH_ID, self.batch_id, expected)

    def _check_not_deleted(self, operation: str, spans: Sequence[Span]) -> None:
        """Raises TransitionRefused for packs that may have ended, and been deleted since: loaded again, they would run
        twice. Their payloads are kept for longer."""
        days = self.settings_cache.defaults().retention_days
        kept_until = max(self.batch.due_at, self.created_at) + timedelta(days=days)
        if self.clock() < kept_until:
            return
        ids = {span: span.pack_id(self.batch_id) for span in spans}
        rows = self.store.get_many([*ids.values(), *map(body_id, ids.values())], only=(attr.STATUS,))
        for span, pack_id in ids.items():
            if pack_id not in rows and body_id(pack_id) in rows:
                is_a = f"older than the {days} days for which tasks are kept after they end"
                instead = (
                    f"its members {span.first} to {span.last} were loaded, and may have run: cancel it, and insert "
                    "those that have not run as another batch"
                )
                raise TransitionRefused(
                    self.batch_id, operation, "scheduled", (), what="batch", is_a=is_a, instead=instead
                )

    def _compare(self, spans: Sequence[Span], bodies: Sequence[Row]) -> None:
        """Raises InvalidInput if a pack was written before with other payloads."""
        present = self.store.get_many([str(body[attr.TASK_ID]) for body in bodies])
        for span, body in zip(spans, bodies, strict=True):
            own = payloads_of(present.get(str(body[attr.TASK_ID])), span.members)
            for n, (kept, given) in enumerate(zip(own, payloads_of(body, span.members), strict=True)):
                if kept != given:
                    expected = "it is not the payload that the batch was begun with; choose another batch id"
                    raise InvalidInput(f"payloads[{span.first + n - self.first}]", "another payload", expected)

    def _body(self, span: Span, body: bytes) -> Row:
        return {
            attr.TASK_ID: body_id(span.pack_id(self.batch_id)),
            attr.BODY: body,
            attr.STATUS: "body",
            attr.OUTCOME: "none",
            attr.EXPIRES_AT: body_expires_at(self.batch.due_of(span, self.batch.total or 0)),
        }

    def _pack(self, span: Span) -> Row:
        row = {
            **({} if self.traceparent is None else {attr.TRACEPARENT: self.traceparent}),
            **self.batch.of_members,
            attr.TASK_ID: span.pack_id(self.batch_id),
            attr.DUE_AT: format_instant(self.batch.due_of(span, self.batch.total or 0)),
            attr.PACK: Pack(batch_id=self.batch_id, span=span).to_attribute(),
            attr.PACK_MEMBERS: span.members,
        }
        return scheduled(row, self.batch.action, self.settings_cache, created=self.created_at, now=self.clock())

    def _note(self, number: int, *, sealed: bool = False) -> None:
        """Notes how many members there are, or that all of them are in."""
        for _ in range(_TRIES):
            row, own = batch_of(self.store, self.batch_id)
            for known in (own.total, own.members):
                if known not in (None, number):
                    raise BatchDiffers(self.batch_id, {attr.MEMBERS: (known, number)})
            noted = replace(own, total=number, members=number if sealed else own.members)
            if noted == own:
                self.batch = noted
                return
            if is_terminal(row):
                raise TransitionRefused(self.batch_id, "load", state_of(row), ("scheduled",), what="batch")
            payload = noted.to_payload()
            change = ConditionalUpdate(
                task_id=self.batch_id,
                set={attr.PAYLOAD: payload},
                conditions=as_read(row, attr.OUTCOME, attr.PAYLOAD),
                mark=(Is(attr.PAYLOAD, payload),),
            )
            result = write(self.store, change)
            if isinstance(result, Unknown):
                raise StoreError(
                    f"cannot load batch {self.batch_id!r}: {result.error}; the same call goes on from there"
                )
            if isinstance(result, Written):
                self.batch = noted
                return
        raise StoreError(f"cannot load batch {self.batch_id!r}: other requests changed it {_TRIES} times")


def body_expires_at(due_at: datetime) -> int:
    """When the table may drop the payloads of a pack. In seconds, since no datetime might be so late."""
    return int(due_at.timestamp()) + int(BODY_KEPT.total_seconds())


def require_open(row: Row, batch: Batch) -> None:
    """Raises TransitionRefused for a batch that was cancelled before all members were in."""
    if is_terminal(row) and batch.members is None:
        raise TransitionRefused(RowView(row).task_id, "load", state_of(row), ("scheduled",), what="batch")


def invalid_payload(error: InvalidInput, number: int) -> InvalidInput:
    """The error of one payload, with its number."""
    return InvalidInput(f"payloads[{number}]{error.field.removeprefix(attr.PAYLOAD)}", error.value, error.expected)
