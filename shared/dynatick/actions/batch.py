"""Batched calls: tasks that run at the same time share a call, and each gets its own result.

Each task runs in its own thread. The first task with an entry for a target leads the batch: it waits
``WAIT_SECONDS`` for further entries, sends them all and sets the results.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynatick.actions.aws import FailedEntry, error_of, failure_of
from dynatick.actions.plain_value import MAX_BYTES
from dynatick.errors import ActionError, RetryableError

MAX_ENTRIES = 10
WAIT_SECONDS = 0.005

Send = Callable[[Sequence[Any]], Sequence[object | FailedEntry]]
"""Sends entries in one call. Returns one answer for each, in order: its result, or a FailedEntry."""


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


class Batcher:
    """Collects entries into batches, one open batch for each target."""

    def __init__(
        self, *, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES, wait: float = WAIT_SECONDS
    ) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._wait = wait
        self._lock = threading.Lock()
        self._open: dict[str, _Batch] = {}

    def put(self, target: str, entry: Any, size: int, send: Send) -> object:
        """Sends the entry, together with those of other threads, and returns its result.

        ``size`` in bytes. ``send`` is used if this entry is the first of its batch. Raises PermanentError or
        RetryableError if this entry failed.
        """
        slot = _Slot(entry)
        with self._lock:
            batch = self._open.get(target)
            leads = batch is None or batch.bytes + size > self._max_bytes
            if batch is None or leads:
                if batch is not None:
                    batch.full.set()  # its leader sends it now
                batch = self._open[target] = _Batch()
            batch.slots.append(slot)
            batch.bytes += size
            if len(batch.slots) >= self._max_entries:
                del self._open[target]
                batch.full.set()
        if leads:
            self._lead(target, batch, send)
        else:
            batch.done.wait()  # ends, because the leader's call has a timeout
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
            # One malformed entry can fail the whole call: send each by itself.
            for slot in slots:
                _deliver([slot], send)
            return
        for slot in slots:
            slot.error = failure_of(error)
        return
    for slot, answer in zip(slots, answers, strict=True):
        if isinstance(answer, FailedEntry):
            slot.error = error_of(answer.code)
        else:
            slot.outcome, slot.error = answer, None


def by_id(answer: Mapping[str, Any], number: int) -> list[object | FailedEntry]:
    """The results in an answer of SNS or SQS, in the order of the entries; an entry's id is its position."""
    found: list[object | FailedEntry] = [FailedEntry("NoAnswer")] * number
    for sent in answer.get("Successful", ()):
        found[int(sent["Id"])] = {"messageId": sent["MessageId"]}
    for failed in answer.get("Failed", ()):
        found[int(failed["Id"])] = FailedEntry(str(failed.get("Code")))
    return found
