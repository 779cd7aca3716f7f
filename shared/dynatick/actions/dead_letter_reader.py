"""Reads the dead-letter queue in SQS."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from dynatick.actions.dead_letter_queue import HIDDEN_SECONDS, MAX_RECEIVED, Message, MessageCounts
from dynatick.errors import QueueError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_WAIT_SECONDS = 1  # a call that waits asks every server of SQS; one that does not may miss messages
_logger = logging.getLogger("dynatick.actions")


class SqsDeadLetterQueue:
    """A dead-letter queue in SQS. ``make_client`` is called with the first request."""

    def __init__(
        self, make_client: Callable[[], SQSClient], queue_url: str, *, wait_seconds: int = _WAIT_SECONDS
    ) -> None:
        self._make_client, self._queue_url, self._wait_seconds = make_client, queue_url, wait_seconds

    @cached_property
    def _client(self) -> SQSClient:
        return self._make_client()

    def receive(self) -> Sequence[Message]:
        try:
            answer = self._client.receive_message(
                QueueUrl=self._queue_url,
                MaxNumberOfMessages=MAX_RECEIVED,
                VisibilityTimeout=HIDDEN_SECONDS,
                WaitTimeSeconds=self._wait_seconds,
            )
        except (BotoCoreError, ClientError) as error:
            raise QueueError(f"cannot read the dead-letter queue: {error}") from error
        return [Message(one["MessageId"], one["ReceiptHandle"], one["Body"]) for one in answer.get("Messages", ())]

    def delete(self, messages: Sequence[Message]) -> Sequence[bool]:
        deleted = [False] * len(messages)
        for start in range(0, len(messages), MAX_RECEIVED):
            batch = messages[start : start + MAX_RECEIVED]
            try:
                answer = self._client.delete_message_batch(
                    QueueUrl=self._queue_url,
                    Entries=[{"Id": str(start + n), "ReceiptHandle": one.receipt} for n, one in enumerate(batch)],
                )
            except (BotoCoreError, ClientError) as error:
                self._log("dead_letters_undeleted", "dead letters were not deleted", error, len(batch))
                continue
            for one in answer.get("Successful", ()):
                deleted[int(one["Id"])] = True
        return deleted

    def release(self, messages: Sequence[Message]) -> None:
        for start in range(0, len(messages), MAX_RECEIVED):
            batch = messages[start : start + MAX_RECEIVED]
            try:
                self._client.change_message_visibility_batch(
                    QueueUrl=self._queue_url,
                    Entries=[
                        {"Id": str(n), "ReceiptHandle": one.receipt, "VisibilityTimeout": 0}
                        for n, one in enumerate(batch)
                    ],
                )
            except (BotoCoreError, ClientError) as error:
                self._log("dead_letters_unreleased", "dead letters stay hidden for a while", error, len(batch))

    def counts(self) -> MessageCounts:
        try:
            answer = self._client.get_queue_attributes(
                QueueUrl=self._queue_url,
                AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
            )
        except (BotoCoreError, ClientError) as error:
            raise QueueError(f"cannot read the dead-letter queue: {error}") from error
        numbers = answer["Attributes"]
        return MessageCounts(
            int(numbers["ApproximateNumberOfMessages"]), int(numbers["ApproximateNumberOfMessagesNotVisible"])
        )

    @staticmethod
    def _log(action: str, text: str, error: Exception, count: int) -> None:
        _logger.warning(text, extra={"action": action, "error_type": type(error).__name__, "count": count})
