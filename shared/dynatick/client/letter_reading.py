"""Reads letters from the queue, each with its task's row, and releases or deletes what it has read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dynatick.actions.dead_letter_queue import DeadLetterQueue, Message
from dynatick.client.letter_views import DeadLetterView, letter_of, state_of
from dynatick.client.task_update import state_shown
from dynatick.domain.task import Row
from dynatick.engine.ports import Store

MAX_HIDDEN = 10_000
"""Messages that one call hides from other readers at a time. It stops there."""

_CHUNK = 100  # messages whose tasks are read together


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
