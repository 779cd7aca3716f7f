"""The queue of wake-ups: SQS, which delivers a message after a delay of whole seconds."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from dynatick.actions.calls import in_calls

MAX_DELAY_SECONDS = 900
"""The longest delay that SQS accepts."""

_MAX_BATCH_BYTES = 250_000
_logger = logging.getLogger("dynatick.wake_ups")


class QueueWakeUps:
    """Sends wake-ups to an SQS queue.

    ``lead``: how long before its instant a wake-up is to be received, at least: delays are whole seconds. Its process
    waits for the rest.
    """

    def __init__(self, client: Any, queue_url: str, *, clock: Callable[[], datetime], lead: timedelta) -> None:
        self._client, self._queue_url, self._clock, self._lead = client, queue_url, clock, lead

    def send(self, wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> int:
        """Sends events, in batches. Returns how many were not sent. Nothing is tried twice, and after a call without an
        answer nothing more is sent."""
        unsent, left = 0, len(wake_ups)
        for batch in _batches(wake_ups):
            try:
                unsent += self._send(batch)
            except BotoCoreError as error:
                _log_unsent(left, str(error))
                return unsent + left
            left -= len(batch)
        return unsent

    def _send(self, batch: Sequence[tuple[str, datetime]]) -> int:
        """Raises BotoCoreError if there is no answer."""
        now = self._clock()
        entries = [
            {"Id": str(n), "MessageBody": body, "DelaySeconds": self._delay(at, now)}
            for n, (body, at) in enumerate(batch)
        ]
        try:
            answer = self._client.send_message_batch(QueueUrl=self._queue_url, Entries=entries)
            unsent = len(answer.get("Failed", ()))
            problem = str(answer["Failed"][0].get("Message")) if unsent else None
        except ClientError as error:
            unsent, problem = len(batch), str(error)
        if unsent:
            _log_unsent(unsent, problem)
        return unsent

    def _delay(self, at: datetime, now: datetime) -> int:
        return max(0, min(int((at - self._lead - now).total_seconds()), MAX_DELAY_SECONDS))


def _batches(wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> Iterator[Sequence[tuple[str, datetime]]]:
    """The events as JSON, with their instants, in batches that fit into one call."""
    bodies = ((json.dumps(event, separators=(",", ":")), at) for event, at in wake_ups)
    return in_calls(bodies, lambda one: len(one[0]), max_bytes=_MAX_BATCH_BYTES)


def _log_unsent(count: int, problem: str | None) -> None:
    _logger.warning(
        "wake-ups were not sent: their tasks run at the next tick",
        extra={"action": "wake_ups_unsent", "count": count, "problem": problem},
    )
