"""The part of the client that reads the dead-letter queue, redrives the tasks of its letters, and deletes letters.

A letter is compared with its task before anything is done: if the task was redriven, replaced or deleted since, the
letter is obsolete. SQS promises no complete list: other readers hide messages for a while, and new ones come. So a list
is a sample, unless the queue was read until it was empty.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

from dynatick import json_reader
from dynatick.actions.dead_letter_queue import DeadLetterQueue, Message, letter_value
from dynatick.actions.plain_value import to_json
from dynatick.client.ended_batches import reopen_batches
from dynatick.client.history import check_optional_limit
from dynatick.client.task_decisions import TaskDecisions
from dynatick.client.task_update import Departures, carry_out, known_id, state_shown, try_many
from dynatick.client.views import TaskView, instant_or_none, number_or, text_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.conditional_update import ConditionalUpdate, as_read, merge_updates
from dynatick.domain.row import is_terminal
from dynatick.domain.selection import check_error_filter
from dynatick.domain.task import Row, Status
from dynatick.domain.view import Json, View
from dynatick.engine.ports import Clock, Store
from dynatick.errors import InvalidInput, StoreError, TaskNotFound, TransitionRefused

if TYPE_CHECKING:
    from dynatick.client.change_records import ChangeRecord, Tally

FAILED_AT: Final = "failedAt"
TASK_STATUS: Final = "taskStatus"
STATE: Final = "state"

MAX_HIDDEN = 10_000
"""Messages that one call hides from other readers at a time. It stops there."""

_CHUNK = 100  # messages whose tasks are read together
_BATCH = 25  # updates to a request
_T = TypeVar("_T")


class LetterState(StrEnum):
    """What has become of the failure that a dead letter reports."""

    FAILED = "failed"  # it is the task's state still
    OPEN = "open"  # it is not recorded, or not yet: the task waits or runs in the same run
    REDRIVEN = "redriven"  # the task has begun another run since
    ENDED = "ended"  # the task was run once more in the same run, and has ended otherwise
    GONE = "gone"  # there is no such task any more, or another one has its id
    UNREADABLE = "unreadable"  # the message is no dead letter


OBSOLETE: Final = frozenset({LetterState.REDRIVEN, LetterState.ENDED, LetterState.GONE})
"""The states of letters that need no action."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetterView(View):
    """A dead letter, with the state of its task when it was read. Without payload and attempts."""

    task_id: Annotated[str | None, "Left out, as all but the state: the message is no dead letter."]
    created_at: Annotated[str | None, "When the task was inserted."] = None
    run: Annotated[int, Json(optional=True)] = 1
    attempt: Annotated[int, Json(optional=True), "The last one; 0: the row could not be made a task."] = 0
    action: str | None = None
    error: str | None = None
    failed_at: datetime | None = None
    state: Annotated[
        LetterState,
        "failed: the task's state still. open: the failure is not recorded, so the task waits or runs. "
        "redriven: the task has begun another run since. ended: it was run once more in the same run, and has ended "
        "otherwise. gone: there is no such task any more, or another has its id. unreadable: no dead letter.",
    ] = LetterState.UNREADABLE
    task_status: Annotated[str | None, "The status of the task that has this id now. Left out: there is none."] = None

    @property
    def is_obsolete(self) -> bool:
        return self.state in OBSOLETE

    def to_row(self) -> dict[str, object]:
        return {STATE: str(self.state)} if self.task_id is None else View.to_row(self)


def letter_of(body: str) -> DeadLetterView:
    """The letter in a message, before its task was read; one without an id if the message is no dead letter."""
    unreadable = DeadLetterView(task_id=None)
    try:
        message = json_reader.parse(body)
        if not isinstance(message, Mapping) or not isinstance(message.get(attr.TASK_ID), str):
            return unreadable
        task_id = known_id(message[attr.TASK_ID])
    except (ValueError, InvalidInput):
        return unreadable
    return DeadLetterView(
        task_id=task_id,
        created_at=text_or_none(message.get(attr.CREATED_AT)),
        run=number_or(message.get(attr.RUN), 1),
        attempt=number_or(message.get(attr.ATTEMPT), 0),
        action=text_or_none(message.get(attr.ACTION)),
        error=text_or_none(message.get(attr.ERROR)),
        failed_at=instant_or_none(message.get(FAILED_AT)),
    )


def state_of(letter: DeadLetterView, row: Row | None) -> LetterState:
    """What has become of a letter's failure, by the present row of its id."""
    if letter.task_id is None:
        return LetterState.UNREADABLE
    if row is None:
        return LetterState.GONE
    run, created_at = number_or(row.get(attr.RUN), 1), _created_at(row)
    # A row that could not be made a task has no createdAt before it is redriven.
    if created_at != letter.created_at and (letter.created_at is not None or run <= letter.run):
        return LetterState.GONE
    if run != letter.run:
        return LetterState.REDRIVEN if run > letter.run else LetterState.GONE
    if not is_terminal(row):
        return LetterState.OPEN
    return LetterState.FAILED if state_shown(row) == Status.FAILED else LetterState.ENDED


def _created_at(row: Row) -> str | None:
    """Returns ``createdAt`` in the form that a letter has it."""
    value = row.get(attr.CREATED_AT)
    return None if value is None else text_or_none(json_reader.parse(to_json(letter_value(value))))


@dataclass(frozen=True, slots=True)
class Letter:
    message: Message
    view: DeadLetterView
    row: Row | None


@dataclass(slots=True)
class LetterReading:
    """The messages that a call has received. At its end, whatever it be, those that were not deleted are released."""

    queue: DeadLetterQueue
    store: Store
    stop: Callable[[], bool]
    complete: bool = False
    hidden: dict[str, Message] = field(default_factory=dict)  # by id
    _unread: list[Message] = field(default_factory=list)  # those whose tasks are not read

    def __enter__(self) -> LetterReading:
        return self

    def __exit__(self, *error: object) -> None:
        self.queue.release(list(self.hidden.values()))

    def receive(self, maximum: int) -> Sequence[Letter]:
        """Some letters that were not received before, with their rows; none: the queue shows no more, or the call has
        received what it may."""
        while len(self._unread) < min(_CHUNK, maximum) and not self.complete:
            if self.stop() or len(self.hidden) >= MAX_HIDDEN:
                break
            received = self.queue.receive()
            new = [one for one in received if one.message_id not in self.hidden]
            self.hidden |= {one.message_id: one for one in received}
            self._unread += new
            if not new:  # only those that were hidden for too long come again
                self.complete = not received
                break
        read, self._unread = self._unread[:maximum], self._unread[maximum:]
        return self._read(read)

    def delete(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Deletes messages. Returns those that the queue has not confirmed."""
        confirmed = self.queue.delete(messages) if messages else ()
        for message, done in zip(messages, confirmed, strict=True):
            if done:
                self.hidden.pop(message.message_id, None)
        return [message for message, done in zip(messages, confirmed, strict=True) if not done]

    def _read(self, messages: Sequence[Message]) -> list[Letter]:
        letters = [(message, letter_of(message.body)) for message in messages]
        ids = [view.task_id for _, view in letters if view.task_id is not None]
        rows = self.store.get_many(ids) if ids else {}
        return [_letter(message, view, rows.get(view.task_id or "")) for message, view in letters]


def _letter(message: Message, view: DeadLetterView, row: Row | None) -> Letter:
    status = None if row is None else state_shown(row)
    return Letter(message, replace(view, state=state_of(view, row), task_status=status), row)


def _has_failed_since(view: DeadLetterView, began: datetime) -> bool:
    return view.failed_at is not None and view.failed_at > began


class LetterResult(StrEnum):
    """What was done about a letter."""

    REDRIVEN = "redriven"  # its task begins another run, and the letter is deleted
    DROPPED = "dropped"  # obsolete: the letter is deleted
    PURGED = "purged"  # deleted, although its failure is current, or not known to be obsolete
    KEPT = "kept"
    UNKNOWN = "unknown"  # the table gave no answer: the letter is kept. Repeat the call


@dataclass(frozen=True, kw_only=True, slots=True)
class HandledLetter(View):
    """A letter, and what was done about it; of a dry run, what would be."""

    letter: Annotated[DeadLetterView, Json(inline=True)]
    result: Annotated[
        LetterResult,
        "redriven: its task begins another run, and the letter is deleted. dropped: obsolete, and deleted. "
        "purged: deleted. unknown: the table gave no answer, so that the letter is kept. Repeat the request.",
    ]
    reason: Annotated[str | None, Json(name="detail"), "Why it was kept."] = None
    task: Annotated[TaskView | None, Json(hidden=True)] = None  # as it was redriven; the same for all letters of a task


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetterPage(View):
    """Dead letters, in no order. The numbers of messages are SQS's estimates, from before they were read."""

    FORM = "DeadLetterList"

    letters: Annotated[tuple[DeadLetterView, ...], Json(name="deadLetters")]
    complete: Annotated[bool, "The queue was read until it was empty. If not, there may be more."]
    messages: Annotated[int, "Messages that could be read."]
    hidden: Annotated[int, "Messages that another reader had just received."]


class HandledLetters(Iterator[HandledLetter]):
    """The results of a call, which does its work as they are consumed."""

    def __init__(self, results: Generator[HandledLetter, None, None], reading: LetterReading) -> None:
        self._results, self._reading = results, reading

    def __next__(self) -> HandledLetter:
        return next(self._results)

    def close(self) -> None:
        """Ends the call before its last result."""
        self._results.close()

    @property
    def complete(self) -> bool:
        """Whether the queue was read until it was empty. Valid at the end of the results."""
        return self._reading.complete


class DeadLetters:
    """The letters of one queue. ``TaskClient.dead_letters`` returns it.

    Methods raise QueueError if the queue does not answer, and StoreError if the table can't be read. During a call, the
    messages that it has received are hidden from other readers; after two minutes they are visible again in any case.
    """

    def __init__(
        self,
        store: Store,
        queue: DeadLetterQueue,
        decisions: TaskDecisions,
        departures: Callable[[], Departures],
        clock: Clock,
        new_record: Callable[[str, Mapping[str, object | None]], ChangeRecord],
    ) -> None:
        self._store, self._queue, self._clock, self._new_record = store, queue, clock, new_record
        self._decisions, self._departures = decisions, departures

    def list(self, *, limit: int = 100, stop: Callable[[], bool] = lambda: False) -> DeadLetterPage:
        """Letters with the state of their tasks. ``limit``: the maximum number, up to 10,000. ``stop``: asked between
        requests whether to be content with what there is."""
        if not 1 <= limit <= MAX_HIDDEN:
            raise InvalidInput("limit", limit, f"expected a whole number from 1 to {MAX_HIDDEN}")
        counts = self._queue.counts()
        letters: list[DeadLetterView] = []
        with LetterReading(self._queue, self._store, stop=stop) as reading:
            while received := reading.receive(limit - len(letters)):
                letters += [letter.view for letter in received]
        return DeadLetterPage(
            letters=tuple(letters), complete=reading.complete, messages=counts.visible, hidden=counts.hidden
        )

    def count(self) -> int:
        """How many messages there are to be read, by SQS's estimate."""
        return self._queue.counts().visible

    def redrive(
        self,
        *,
        action: str | None = None,
        error: str | None = None,
        dry_run: bool = False,
        limit: int | None = None,
        stop: Callable[[], bool] = lambda: False,
        began: datetime | None = None,
    ) -> HandledLetters:
        """Redrives the tasks whose failure is current, and deletes their letters once that is written. Deletes obsolete
        letters, too. One result for each letter, as they are consumed.

        ``action``; ``error``, a part of the letter's: only these letters, and no result for others. ``dry_run``:
        changes nothing. ``limit``: the maximum number of letters; those that are kept don't count. The letter of a task
        that failed after the call began is kept: this call may have redriven the task. ``began``: of an earlier call,
        with which this one goes on; letters of tasks that failed since are passed over, without a result.
        """
        check_optional_limit(limit)
        since = began or self._clock()
        chosen = _Choice(action, error)

        def is_selected(letter: DeadLetterView) -> bool:
            return chosen.fits(letter) and (began is None or not _has_failed_since(letter, began))

        def handle(letters: Sequence[Letter]) -> Iterator[tuple[Letter, HandledLetter, bool]]:
            yield from self._redrive([letter for letter in letters if is_selected(letter.view)], since, record)

        given = {"action": action, "error": error, "limit": limit}
        record = None if dry_run else self._new_record("redrive dead letters", given)
        return self._handle(handle, record, limit=limit, stop=stop)

    def purge(
        self,
        *,
        obsolete: bool = False,
        action: str | None = None,
        error: str | None = None,
        dry_run: bool = False,
        limit: int | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> HandledLetters:
        """Deletes letters: all, or with ``obsolete`` only those whose failure is no longer current. The tasks stay as
        they are. Arguments and results as for ``redrive``, without a result for letters that are not selected."""
        check_optional_limit(limit)
        chosen = _Choice(action, error)

        def handle(letters: Sequence[Letter]) -> Iterator[tuple[Letter, HandledLetter, bool]]:
            for letter in letters:
                if chosen.fits(letter.view) and (letter.view.is_obsolete or not obsolete):
                    result = LetterResult.DROPPED if letter.view.is_obsolete else LetterResult.PURGED
                    yield letter, HandledLetter(letter=letter.view, result=result), True

        given = {"obsolete": "only" if obsolete else None, "action": action, "error": error, "limit": limit}
        record = None if dry_run else self._new_record("purge dead letters", given)
        return self._handle(handle, record, limit=limit, stop=stop)

    def _handle(
        self,
        handle: Callable[[Sequence[Letter]], Iterator[tuple[Letter, HandledLetter, bool]]],
        record: ChangeRecord | None,
        *,
        limit: int | None,
        stop: Callable[[], bool],
    ) -> HandledLetters:
        """Handles chunk after chunk. ``handle`` returns for each letter its result, and whether it is to be deleted.
        ``record`` None: it is a dry run. Those that are kept don't count for ``limit``: each call would read them."""
        reading = LetterReading(self._queue, self._store, stop=stop)

        def results() -> Generator[HandledLetter, None, None]:
            left = sys.maxsize if limit is None else limit
            with reading, record or nullcontext():
                while chunk := reading.receive(left):
                    handled = list(handle(chunk))
                    left -= sum(one.result is not LetterResult.KEPT for _, one, _ in handled)
                    done = [letter.message for letter, _, is_done in handled if is_done and record is not None]
                    if done and record is not None and record.tally.runs is None:  # of a purge
                        record.begin()
                    stay = reading.delete(done)
                    if record is not None:
                        _count(record.tally, handled, stay)
                    for letter, result, _ in handled:
                        yield replace(result, reason=_STAYS) if letter.message in stay else result

        return HandledLetters(results(), reading)

    def _redrive(
        self, letters: Sequence[Letter], began: datetime, record: ChangeRecord | None
    ) -> Iterator[tuple[Letter, HandledLetter, bool]]:
        first: dict[str, Letter] = {}  # of each task: it may have several
        others: list[Letter] = []
        for letter in letters:
            view = letter.view
            failed_since = _has_failed_since(view, began)
            if view.state is LetterState.FAILED and not failed_since and view.task_id is not None:
                if view.task_id in first:
                    others.append(letter)
                first.setdefault(view.task_id, letter)
            elif view.is_obsolete:
                yield letter, HandledLetter(letter=view, result=LetterResult.DROPPED), True
            else:
                reason = "its task failed again since this call began" if failed_since else _KEPT[view.state]
                yield letter, HandledLetter(letter=view, result=LetterResult.KEPT, reason=reason), False
        results: dict[str, HandledLetter] = {}
        chosen = list(first.items())
        for start in range(0, len(chosen), _BATCH):
            results |= self._redrive_batch(dict(chosen[start : start + _BATCH]), record)
        for letter in (*first.values(), *others):
            result = results[str(letter.view.task_id)]
            yield letter, result, result.result in (LetterResult.REDRIVEN, LetterResult.DROPPED)

    def _redrive_batch(self, letters: dict[str, Letter], record: ChangeRecord | None) -> dict[str, HandledLetter]:
        """The result by task. A task that another request changes first is decided again. ``record`` None: of a dry
        run."""
        departures = self._departures()
        redriven = departures.noting(self._decisions.redriven())

        def decide(view: DeadLetterView, row: Row) -> ConditionalUpdate:
            if (state := state_of(view, row)) is not LetterState.FAILED:
                raise _NoLongerCurrent(state)
            return merge_updates(redriven(row), conditions=as_read(row, attr.CREATED_AT))

        rows = {task_id: letter.row for task_id, letter in letters.items() if letter.row is not None}
        decided: dict[str, ConditionalUpdate] = {}
        results: dict[str, HandledLetter] = {}
        for task_id, letter in letters.items():
            answer = _result(letter.view, partial(decide, letter.view, rows[task_id]))
            if isinstance(answer, ConditionalUpdate) and record is not None:
                decided[task_id] = answer
            else:
                done = HandledLetter(letter=letter.view, result=LetterResult.REDRIVEN)
                results[task_id] = answer if isinstance(answer, HandledLetter) else done
        if decided and record is not None:
            record.begin()
        reopen_batches(self._store, self._decisions, [(rows[task_id], change) for task_id, change in decided.items()])
        for tried in try_many(self._store, list(decided.values())):
            view = letters[tried.change.task_id].view
            write = partial(carry_out, self._store, tried.change.task_id, partial(decide, view), tried=tried)
            written = _result(view, write)
            if isinstance(written, HandledLetter):
                results[tried.change.task_id] = written
            else:
                departures.count(tried.change.task_id)
                task = TaskView.from_row(written)
                results[tried.change.task_id] = HandledLetter(letter=view, result=LetterResult.REDRIVEN, task=task)
        departures.write()
        return results


def _count(tally: Tally, handled: Sequence[tuple[Letter, HandledLetter, bool]], stay: Collection[object]) -> None:
    """Counts the tasks that were redriven, of a purge the messages that were deleted."""
    for letter, one, _ in handled:
        if one.result is LetterResult.UNKNOWN:
            tally.unanswered += 1
        elif tally.runs is None:
            tally.changed += letter.message not in stay
        elif one.task is not None:
            tally.changed += tally.runs.add(one.task)


_STAYS = "its message could not be deleted; a later call drops it"
_KEPT = {
    LetterState.OPEN: "the failure is not recorded: its task waits or runs",
    LetterState.UNREADABLE: "it is no dead letter of a task; purge deletes it",
}


class _NoLongerCurrent(Exception):
    """A letter's task has changed since it was read."""

    def __init__(self, state: LetterState) -> None:
        super().__init__(state)
        self.state = state


def _result(view: DeadLetterView, call: Callable[[], _T]) -> _T | HandledLetter:
    """What ``call`` returns, or the result that its error stands for."""
    try:
        return call()
    except TaskNotFound:
        return HandledLetter(letter=replace(view, state=LetterState.GONE), result=LetterResult.DROPPED)
    except _NoLongerCurrent as error:
        now = replace(view, state=error.state)
        if now.is_obsolete:
            return HandledLetter(letter=now, result=LetterResult.DROPPED)
        return HandledLetter(letter=now, result=LetterResult.KEPT, reason=_KEPT[error.state])
    except (TransitionRefused, InvalidInput) as error:
        return HandledLetter(letter=view, result=LetterResult.KEPT, reason=str(error))
    except StoreError as error:
        return HandledLetter(letter=view, result=LetterResult.UNKNOWN, reason=str(error))


@dataclass(frozen=True, slots=True)
class _Choice:
    """The letters that a call is for."""

    action: str | None
    error: str | None

    def __post_init__(self) -> None:
        check_error_filter(self.error)

    def fits(self, letter: DeadLetterView) -> bool:
        if self.action not in (None, letter.action):
            return False
        return self.error is None or (letter.error is not None and self.error.casefold() in letter.error.casefold())
