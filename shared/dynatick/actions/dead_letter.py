"""The dead-letter queue in SQS: one message for each task that failed for good, and how it is read.

    {"version": 1, "taskId": …, "createdAt": …, "run": …, "attempt": …, "action": …, "dueAt": …,
     "taskDateTime": …, "scheduleId": …, "error": …, "failedAt": …, "attempts": […], "payload": {…}}

Attributes that the row does not have are left out. If the payload is too large for a message, ``payloadOmitted``
replaces it; the row still contains the payload.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from dynatick.actions.calls import in_calls
from dynatick.actions.dead_letter_queue import HIDDEN_SECONDS, MAX_RECEIVED, Message, MessageCounts, letter_value
from dynatick.actions.plain_value import to_json
from dynatick.domain import attributes as attr
from dynatick.domain.instants import format_instant
from dynatick.engine.ports import DeadLetter
from dynatick.errors import QueueError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef as Entry

VERSION = 1
"""The version of the message format. A change that readers must follow raises it."""

MAX_BATCH_BYTES = 262_144
"""SQS accepts 1 MiB a call since 2025; older queues and emulators accept 256 KiB."""

MAX_BODY_BYTES = 250_000  # leaves room for the message attributes
_FROM_ROW = (attr.TASK_ID, attr.CREATED_AT, attr.RUN, attr.ACTION, attr.DUE_AT, attr.TASK_DATE_TIME, attr.SCHEDULE_ID)
_WAIT_SECONDS = 1  # a call that waits asks every server of SQS; one that does not may miss messages

_logger = logging.getLogger("dynatick.actions")


class QueueDeadLetters:
    """Sends dead letters to an SQS queue."""

    def __init__(self, client: SQSClient, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """Sends the letters in batches, and each refused message once more. After a call without an answer it sends
        nothing more.

        Returns for each letter whether the queue has confirmed its message. Logs failures and raises nothing for them.
        """
        sent = [False] * len(letters)
        entries = {index: _entry(index, letter) for index, letter in enumerate(letters)}
        try:
            self._send_twice(letters, entries, sent)
        except BotoCoreError as error:
            _log_unsent(error, sent.count(False))
        return sent

    def _send_twice(self, letters: Sequence[DeadLetter], entries: Mapping[int, Entry], sent: list[bool]) -> None:
        refused = self._send_once(entries, sent)
        # If the message itself is at fault, its payload may be the reason: send it without.
        minimal = {index: _entry(index, letters[index], minimal=True) for index in refused}
        again = {i: minimal[i] if own_fault else entries[i] for i, own_fault in refused.items()}
        for index in self._send_once(again, sent):
            _logger.error(
                "dead_letter_refused",
                extra={
                    "action": "dead_letter_refused",
                    "task_id": letters[index].row.get(attr.TASK_ID),
                },
            )

    def _send_once(self, entries: Mapping[int, Entry], sent: list[bool]) -> dict[int, bool]:
        """Sets ``sent`` for each confirmed message. Returns, for each refused one, whether it is itself at fault.

        One that the answer doesn't name counts as refused. Raises BotoCoreError if a call gets no answer.
        """
        refused: dict[int, bool] = {}
        for batch in in_calls(entries.values(), _bytes, max_bytes=MAX_BATCH_BYTES):
            refused.update((int(entry["Id"]), False) for entry in batch)
            try:
                answer = self._client.send_message_batch(QueueUrl=self._queue_url, Entries=batch)
            except ClientError as error:
                _log_unsent(error, len(batch))
                continue
            for taken in answer.get("Successful", ()):
                sent[int(taken["Id"])] = True
                refused.pop(int(taken["Id"]), None)
            for failed in answer.get("Failed", ()):
                refused[int(failed["Id"])] = bool(failed.get("SenderFault"))
        return refused


def _log_unsent(error: Exception, count: int) -> None:
    _logger.error(
        "dead_letters_unsent",
        extra={"action": "dead_letters_unsent", "error_type": type(error).__name__, "count": count},
        exc_info=error,
    )


class NoDeadLetters:
    """Takes the place of a dead-letter queue where there is none: failed tasks are only in the table."""

    def __init__(self) -> None:
        self._warned = False

    def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """Returns True for each letter. Logs a warning at the first."""
        if letters and not self._warned:
            self._warned = True
            _logger.warning("no_dead_letter_queue", extra={"action": "no_dead_letter_queue"})
        return [True] * len(letters)


def message_of(letter: DeadLetter, *, minimal: bool = False) -> str:
    """The message's body as ASCII JSON of at most ``MAX_BODY_BYTES``; ``minimal``: without payload and attempts."""
    row = letter.row
    fields: dict[str, object] = {"version": VERSION}
    fields.update({name: letter_value(row[name]) for name in _FROM_ROW if row.get(name) is not None})
    fields[attr.ATTEMPT] = letter.attempt
    fields[attr.ERROR] = letter_value(letter.error)
    fields["failedAt"] = format_instant(letter.failed_at)
    attempts = {attr.ATTEMPTS: row[attr.ATTEMPTS]} if row.get(attr.ATTEMPTS) else {}
    payload = {attr.PAYLOAD: row[attr.PAYLOAD]} if row.get(attr.PAYLOAD) is not None else {}
    omitted = {"payloadOmitted": "it is too large for a message, or the queue refused it"}
    fuller = ({**attempts, **payload}, {**attempts, **omitted})
    for more in () if minimal else fuller:
        try:
            body = to_json({**fields, **more})
        except ValueError:  # impossible for values from DynamoDB, but a dead letter must never fail
            continue
        if len(body) <= MAX_BODY_BYTES:
            return body
    return to_json({**fields, **omitted})


def _entry(index: int, letter: DeadLetter, *, minimal: bool = False) -> Entry:
    entry: Entry = {"Id": str(index), "MessageBody": message_of(letter, minimal=minimal)}
    action = letter.row.get(attr.ACTION)
    # For filters. SQS refuses some characters; the body contains the action in any case.
    if isinstance(action, str) and action.isascii() and action.isprintable() and action:
        entry["MessageAttributes"] = {attr.ACTION: {"DataType": "String", "StringValue": action}}
    return entry


def _bytes(entry: Entry) -> int:
    """The size as SQS counts it: the body, and the names, types and values of the attributes. All is ASCII."""
    attributes = entry.get("MessageAttributes", {})
    counted = sum(len(n) + len(a["DataType"]) + len(a.get("StringValue", "")) for n, a in attributes.items())
    return len(entry["MessageBody"]) + counted


# -- reading -----------------------------------------------------------------------------------------------------------


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
                _log_problem("dead_letters_undeleted", "dead letters were not deleted", error, len(batch))
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
                _log_problem("dead_letters_unreleased", "dead letters stay hidden for a while", error, len(batch))

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


def _log_problem(action: str, text: str, error: Exception, count: int) -> None:
    _logger.warning(text, extra={"action": action, "error_type": type(error).__name__, "count": count})
