"""Dead letters as the client returns them, each with the state of its task now; and their reading from the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from dynatick import json_reader
from dynatick.actions.dead_letter_queue import DeadLetterQueue, Message, letter_value
from dynatick.actions.plain_value import to_json
from dynatick.client.task_update import known_id, state_shown
from dynatick.client.views import instant_or_none, number_or, text_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.row import is_terminal
from dynatick.domain.task import Row, Status
from dynatick.domain.view import Json, View
from dynatick.engine.ports import Store
from dynatick.errors import InvalidInput

FAILED_AT: Final = "failedAt"
TASK_STATUS: Final = "taskStatus"
STATE: Final = "state"

MAX_HIDDEN = 10_000
"""Messages that one call hides from other readers at a time. It stops there."""

_CHUNK = 100  # messages whose tasks are read together


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

    def __enter__(self) -> LetterReading:
        return self

    def __exit__(self, *error: object) -> None:
        self.queue.release(list(self.hidden.values()))

    def chunks(self, limit: int) -> Iterator[Sequence[Letter]]:
        """Up to ``limit`` letters, with their rows, until the queue shows no more."""
        remaining = limit
        while remaining > 0 and not self.complete:
            messages: list[Message] = []
            while len(messages) < min(_CHUNK, remaining):
                if self.stop() or len(self.hidden) >= MAX_HIDDEN:
                    break
                received = self.queue.receive()
                new = [one for one in received if one.message_id not in self.hidden]
                self.hidden |= {one.message_id: one for one in received}
                messages += new
                if not new:  # only those that were hidden for too long come again
                    self.complete = not received
                    break
            if not messages:
                return
            yield self._read(messages[:remaining])
            remaining -= len(messages)

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
