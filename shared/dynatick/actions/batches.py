"""Calls that take several entries: tasks that run at the same time share one, and each gets its own result.

Every task has a thread. The first that has something for a target waits a moment for others, sends for all, and hands
out the results. It waits no longer than that, however few the others are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynatick.actions.aws import Refused, error_of, failure_of
from dynatick.actions.plain_values import MAX_BYTES
from dynatick.errors import ActionError, RetryableError

MAX = 10
WAIT_SECONDS = 0.005

Send = Callable[[Sequence[Any]], Sequence[object | Refused]]
"""Sends entries in one call; one answer an entry, in order: its result, or why it was refused."""


@dataclass(slots=True)
class _Slot:
    entry: Any
    outcome: object = None
    error: ActionError | None = field(default_factory=lambda: RetryableError("its batch was not sent"))


@dataclass(slots=True)
class _Batch:
    slots: list[_Slot] = field(default_factory=list)
    bytes: int = 0
    full: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)


class Batches:
    """Batches under way, by target."""

    def __init__(self, *, most: int = MAX, most_bytes: int = MAX_BYTES, wait: float = WAIT_SECONDS) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._wait = wait
        self._lock = threading.Lock()
        self._open: dict[str, _Batch] = {}

    def put(self, target: str, entry: Any, size: int, send: Send) -> object:
        """Sends the entry, with others if there are any, and returns its result.

        ``size`` in bytes; ``send`` is the caller's own, used if it is the first. Raises PermanentError or
        RetryableError as this entry fared, whatever became of the others.
        """
        slot = _Slot(entry)
        with self._lock:
            batch = self._open.get(target)
            leads = batch is None or batch.bytes + size > self._most_bytes
            if batch is None or leads:
                if batch is not None:
                    batch.full.set()  # its leader need not wait for more
                batch = self._open[target] = _Batch()
            batch.slots.append(slot)
            batch.bytes += size
            if len(batch.slots) >= self._most:
                del self._open[target]
                batch.full.set()
        if leads:
            self._lead(target, batch, send)
        else:
            batch.done.wait()  # the leader's call has an end, and so has this
        if slot.error is not None:
            raise slot.error
        return slot.outcome

    def _lead(self, target: str, batch: _Batch, send: Send) -> None:
        try:
            batch.full.wait(self._wait)
            with self._lock:
                if self._open.get(target) is batch:
                    del self._open[target]
            _deliver(batch.slots, send)
        finally:
            batch.done.set()


def _deliver(slots: Sequence[_Slot], send: Send) -> None:
    try:
        answers = send([slot.entry for slot in slots])
    except Exception as error:
        if len(slots) > 1 and failure_of(error).permanent:
            # One bad entry can have the whole call refused; alone it harms no other.
            for slot in slots:
                _deliver([slot], send)
            return
        for slot in slots:
            slot.error = failure_of(error)
        return
    for slot, answer in zip(slots, answers, strict=True):
        if isinstance(answer, Refused):
            slot.error = error_of(answer)
        else:
            slot.outcome, slot.error = answer, None


def by_id(answer: Mapping[str, Any], number: int) -> list[object | Refused]:
    """The results of SNS and SQS, in order; the entries' ids are their positions."""
    found: list[object | Refused] = [Refused("NoAnswer")] * number
    for sent in answer.get("Successful", ()):
        found[int(sent["Id"])] = {"messageId": sent["MessageId"]}
    for failed in answer.get("Failed", ()):
        found[int(failed["Id"])] = Refused(str(failed.get("Code")))
    return found
