"""The action ``sns``: publishes a message to a topic.

{"topicArn": "arn:aws:sns:…:reminders", "subject": "A reminder", "message": "The train leaves at two."}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from dynatick.actions.aws import Service
from dynatick.actions.batch import Batcher, by_id
from dynatick.actions.message import attributes_of, numbered, ordering, size_of, text_of
from dynatick.actions.payload import parsed
from dynatick.actions.payload_field import CONFIG, Attributes, GroupId, Message, Text, arn
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SnsPayload:
    """The message to publish."""

    topic_arn: Annotated[Text, arn("sns", r"[A-Za-z0-9_-]{1,256}(\.fifo)?"), Field(description="The topic.")]
    message: Message
    subject: Annotated[
        Text | None, Field(pattern=r"^[!-~][ -~]{0,99}$", description="Of e-mails: up to 100 ASCII characters.")
    ] = None
    message_attributes: Attributes = Field(default_factory=dict)
    message_group_id: GroupId = None


class Sns:
    """Publishes messages, up to ten in a call."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._batches = Batcher()

    def run(self, task: Task, context: ActionContext) -> object:
        """Publishes one message. Returns ``{"messageId": …}``."""
        payload = parsed(SnsPayload, task.payload)
        self._service.check(payload.topic_arn, "payload.topicArn")
        text = text_of(payload.message)
        attributes = attributes_of(task, context, payload.message_attributes)
        entry: dict[str, Any] = {"Message": text, "MessageAttributes": attributes}
        entry |= ordering(payload.topic_arn, payload.message_group_id, task, context)
        if payload.subject is not None:
            entry["Subject"] = payload.subject
        client = self._service.client(payload.topic_arn, task, context)

        def send(entries: Sequence[Any]) -> Sequence[object]:
            request = numbered(entries)
            return by_id(
                client.publish_batch(TopicArn=payload.topic_arn, PublishBatchRequestEntries=request), len(entries)
            )

        return self._batches.put(payload.topic_arn, entry, size_of(text, attributes), send)
