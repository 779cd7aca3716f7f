"""Events of ends on the user's EventBridge bus, and in a queue if the bus does not take them.

    {"source": "dynatick", "detail-type": "Task Failed", "detail": {"id": …, "table": …, "taskId": …, "outcome": …, …}}

A message of the queue is the entry for PutEvents, as JSON.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from dynatick.actions.calls import in_calls
from dynatick.domain import attributes as attr
from dynatick.domain.ends import End

SOURCE = "dynatick"
MAX_CALL_BYTES = 250_000
"""PutEvents takes 256 KB."""

TRIES = 3
"""How often an entry is put that the bus refuses alone."""

PUT_FOR = timedelta(seconds=10)
"""How long an invocation puts events; Lambda sends the records of the others again."""

QUIET_FOR = timedelta(seconds=10)
"""How long a bus is not asked again that did not answer."""

_logger = logging.getLogger("dynatick.actions")


class OutcomeEventBus:
    """Puts events of ends on a bus. ``sqs`` and ``queue_url``: the queue for what it does not take."""

    def __init__(
        self, events: Any, bus: str, *, table: str, sqs: Any, queue_url: str, clock: Callable[[], datetime]
    ) -> None:
        self._client, self._bus, self._table, self._clock = events, bus, table, clock
        self._sqs, self._queue_url = sqs, queue_url
        self._quiet_until: datetime | None = None

    def put(self, ends: Sequence[End]) -> tuple[int, str | None]:
        """As the engine's port: how many of the first are on the bus, and why the next is not."""
        if self._quiet_until is not None and self._clock() < self._quiet_until:
            return 0, "the bus gave no answer some seconds ago"
        return self._each_call(ends, self._put)

    def set_aside(self, ends: Sequence[End]) -> tuple[int, str | None]:
        """Sends the entries of events to the queue."""
        return self._each_call(ends, self._send)

    def _each_call(
        self, ends: Sequence[End], call: Callable[[Sequence[dict[str, str]]], str | None]
    ) -> tuple[int, str | None]:
        done, end = 0, self._clock() + PUT_FOR
        entries = (entry_of(one, self._bus, self._table) for one in ends)
        for batch in in_calls(entries, _bytes, max_bytes=MAX_CALL_BYTES):
            if self._clock() > end:
                return done, None
            try:
                problem = call(batch)
            except (BotoCoreError, ClientError) as error:
                problem = str(error)
            if problem is not None:
                _logger.error(
                    "outcome_events_unsent",
                    extra={"action": "outcome_events_unsent", "problem": problem, "count": len(ends) - done},
                )
                return done, problem
            done += len(batch)
        return done, None

    def _put(self, batch: Sequence[dict[str, str]]) -> str | None:
        """None: the bus has all of them."""
        left, problem = list(batch), ""
        for _ in range(TRIES):
            try:
                answers = self._client.put_events(Entries=left)["Entries"]
            except BotoCoreError:
                self._quiet_until = self._clock() + QUIET_FOR
                raise
            refused = [(entry, one) for entry, one in zip(left, answers, strict=False) if "EventId" not in one]
            left = [entry for entry, _ in refused] + left[len(answers) :]
            if not left:
                return None
            problem = "; ".join(f"{one.get('ErrorCode')}: {one.get('ErrorMessage')}" for _, one in refused[:1])
        return problem or "the answer names fewer events"

    def _send(self, batch: Sequence[dict[str, str]]) -> str | None:
        messages = [{"Id": str(n), "MessageBody": json.dumps(entry)} for n, entry in enumerate(batch)]
        answer = self._sqs.send_message_batch(QueueUrl=self._queue_url, Entries=messages)
        if len(answer.get("Successful", ())) == len(batch):
            return None
        return "; ".join(f"{one.get('Code')}: {one.get('Message')}" for one in answer.get("Failed", ())) or "no answer"


def entry_of(end: End, bus: str, table: str) -> dict[str, str]:
    """The entry for PutEvents. ``id`` in its detail is the same whenever the event of this end comes again."""
    # Of a run, too, there are several ends if a cancellation is taken back.
    parts = (str(end.detail.get(name, "")) for name in (attr.TASK_ID, attr.CREATED_AT, attr.RUN, attr.FINISHED_AT))
    return {
        "EventBusName": bus,
        "Source": SOURCE,
        "DetailType": f"Task {end.outcome.capitalize()}",
        "Detail": json.dumps({"id": "#".join(parts), "table": table, **end.detail}, separators=(",", ":")),
    }


def _bytes(entry: dict[str, str]) -> int:
    """All but the bus counts for EventBridge, all as JSON for SQS. The detail is ASCII."""
    return len(json.dumps(entry))
