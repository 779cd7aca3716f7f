"""The dead-letter queue: a message for each task that failed for good.

    {"version": 1, "taskId": …, "createdAt": …, "run": …, "attempt": …, "action": …, "dueAt": …,
     "taskDateTime": …, "scheduleId": …, "error": …, "failedAt": …, "attempts": […], "payload": {…}}

What the row does not have is left out. A payload that is too large for a message is left out too,
and ``payloadOmitted`` says so; the row in the table has it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from dynatick.actions.plain_values import to_json
from dynatick.domain.instants import format_instant
from dynatick.engine.ports import DeadLetter

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef as Entry

VERSION = 1
"""Of the message's form: it goes up when a reader would have to change."""

MAX_BATCH = 10
MAX_BATCH_BYTES = 262_144
"""SQS takes 1 MiB a call since 2025. Queues made before, and emulators, end at 256 KiB."""

MAX_BODY_BYTES = 250_000  # leaves room in a call for the attributes
MAX_TEXT_CHARACTERS = 4096
_FROM_ROW = ("taskId", "createdAt", "run", "action", "dueAt", "taskDateTime", "scheduleId")

_logger = logging.getLogger("dynatick.actions")


class QueueDeadLetters:
    """Sends to an SQS queue."""

    def __init__(self, client: SQSClient, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """Sends in batches; what the queue does not take is sent once more.

        True where the queue has confirmed the message. Raises nothing for what it refuses.
        """
        sent = [False] * len(letters)
        entries = {index: _entry(index, letter) for index, letter in enumerate(letters)}
        refused = self._send_once(entries, sent)
        # A fault of the message's own will come again: its payload may be what is wrong with it.
        slim = {index: _entry(index, letters[index], slim=True) for index in refused}
        again = {i: slim[i] if own_fault else entries[i] for i, own_fault in refused.items()}
        for index in self._send_once(again, sent):
            _logger.error(
                "dead_letter_refused",
                extra={
                    "action": "dead_letter_refused",
                    "task_id": letters[index].row.get("taskId"),
                },
            )
        return sent

    def _send_once(self, entries: Mapping[int, Entry], sent: list[bool]) -> dict[int, bool]:
        """Marks what was taken. Returns what was refused: whether it was the message's own fault.

        What got no answer of its own is in neither: the SDK has tried again already.
        """
        refused: dict[int, bool] = {}
        for batch in _batches(entries):
            try:
                answer = self._client.send_message_batch(QueueUrl=self._queue_url, Entries=batch)
            except (BotoCoreError, ClientError) as error:
                _logger.exception(
                    "dead_letters_unsent",
                    extra={
                        "action": "dead_letters_unsent",
                        "error_type": type(error).__name__,
                        "count": len(batch),
                    },
                )
                continue
            for taken in answer.get("Successful", ()):
                sent[int(taken["Id"])] = True
            for failed in answer.get("Failed", ()):
                refused[int(failed["Id"])] = bool(failed.get("SenderFault"))
        return refused


class NoDeadLetters:
    """Stands in where there is no queue: failed tasks are in the table only."""

    def __init__(self) -> None:
        self._warned = False

    def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """True for each: nothing more is to be done. Warns at the first."""
        if letters and not self._warned:
            self._warned = True
            _logger.warning("no_dead_letter_queue", extra={"action": "no_dead_letter_queue"})
        return [True] * len(letters)


def message_of(letter: DeadLetter, *, slim: bool = False) -> str:
    """The message's body as JSON in ASCII, at most ``MAX_BODY_BYTES``; slim: without payload."""
    row = letter.row
    said: dict[str, object] = {"version": VERSION}
    said.update({name: _short(row[name]) for name in _FROM_ROW if row.get(name) is not None})
    said["attempt"] = letter.attempt
    said["error"] = _short(letter.error)
    said["failedAt"] = format_instant(letter.failed_at)
    attempts = {"attempts": row["attempts"]} if row.get("attempts") else {}
    payload = {"payload": row["payload"]} if row.get("payload") is not None else {}
    omitted = {"payloadOmitted": "it is too large for a message, or the queue refused it"}
    fuller = ({**attempts, **payload}, {**attempts, **omitted})
    for more in () if slim else fuller:
        try:
            body = to_json({**said, **more})
        except ValueError:  # nothing that DynamoDB holds, but a letter must never fail
            continue
        if len(body) <= MAX_BODY_BYTES:
            return body
    return to_json({**said, **omitted})


def _short(value: object) -> object:
    """What stands in every message, so that at least that always fits; it may be a spoilt row's."""
    if isinstance(value, int) or (isinstance(value, Decimal) and value.is_finite()):
        return value
    # Not str() of anything: it raises for boto3's binaries.
    return (str(value) if isinstance(value, (str, Decimal)) else ascii(value))[:MAX_TEXT_CHARACTERS]


def _entry(index: int, letter: DeadLetter, *, slim: bool = False) -> Entry:
    entry: Entry = {"Id": str(index), "MessageBody": message_of(letter, slim=slim)}
    action = letter.row.get("action")
    # To filter by; SQS refuses some characters, and the body says it anyway.
    if isinstance(action, str) and action.isascii() and action.isprintable() and action:
        entry["MessageAttributes"] = {"action": {"DataType": "String", "StringValue": action}}
    return entry


def _batches(entries: Mapping[int, Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    size = 0
    for entry in entries.values():
        length = _bytes(entry)
        if batch and (len(batch) == MAX_BATCH or size + length > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += length
    if batch:
        yield batch


def _bytes(entry: Entry) -> int:
    """As SQS counts: the body, and names, types and values of the attributes. All is ASCII."""
    attributes = entry.get("MessageAttributes", {})
    counted = sum(len(n) + len(a["DataType"]) + len(a.get("StringValue", "")) for n, a in attributes.items())
    return len(entry["MessageBody"]) + counted
