"""The action ``sqs``: sends a message to a queue.

{"queueArn": "arn:aws:sqs:…:orders", "message": {"order": 7}}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, Strict, model_validator
from pydantic.dataclasses import dataclass

from dynatick.actions.aws import Service
from dynatick.actions.batch import Batcher, by_id
from dynatick.actions.message import attributes_of, numbered, ordering, size_of, text_of
from dynatick.actions.payload import parsed
from dynatick.actions.payload_field import CONFIG, Attributes, GroupId, Message, Text, arn, invalid
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SqsPayload:
    """The message to send."""

    queue_arn: Annotated[Text, arn("sqs", r"[A-Za-z0-9_-]{1,80}(\.fifo)?"), Field(description="The queue.")]
    message: Message
    message_attributes: Attributes = Field(default_factory=dict)
    message_group_id: GroupId = None
    delay_seconds: Annotated[
        int | None,
        Strict(),
        Field(ge=0, le=900, description="How long the queue delays the message; not for a FIFO queue."),
    ] = None

    @model_validator(mode="after")
    def _fits(self) -> SqsPayload:
        if self.delay_seconds is not None and self.queue_arn.endswith(".fifo"):
            raise invalid("a FIFO queue can't delay a single message; leave it out", field="delaySeconds")
        return self


class Sqs:
    """Sends messages, up to ten in a call."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._batches = Batcher()

    def run(self, task: Task, context: ActionContext) -> object:
        """Sends one message. Returns ``{"messageId": …}``."""
        payload = parsed(SqsPayload, task.payload)
        self._service.check(payload.queue_arn, "payload.queueArn")
        text = text_of(payload.message)
        attributes = attributes_of(task, context, payload.message_attributes)
        entry: dict[str, Any] = {"MessageBody": text, "MessageAttributes": attributes}
        entry |= ordering(payload.queue_arn, payload.message_group_id, task, context)
        if payload.delay_seconds is not None:
            entry["DelaySeconds"] = payload.delay_seconds
        client = self._service.client(payload.queue_arn, task, context)
        account, name = payload.queue_arn.split(":")[4:]
        # Built from the client's endpoint, so that a payload can't name another.
        url = f"{client.meta.endpoint_url.rstrip('/')}/{account}/{name}"

        def send(entries: Sequence[Any]) -> Sequence[object]:
            return by_id(client.send_message_batch(QueueUrl=url, Entries=numbered(entries)), len(entries))

        return self._batches.put(payload.queue_arn, entry, size_of(text, attributes), send)
