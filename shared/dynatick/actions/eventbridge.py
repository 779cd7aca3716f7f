"""The action ``eventbridge``: puts an event on a bus.

    {"eventBusArn": "arn:aws:events:…:event-bus/default", "detailType": "Trial ended", "detail": {"account": 7}}

The event's detail is the payload's plus a key ``dynatick`` with the task's id, due time, attempt, idempotency key and
schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from dynatick.actions.aws import FailedEntry, Service
from dynatick.actions.batch import Batcher
from dynatick.actions.payload import parsed
from dynatick.actions.payload_field import CONFIG, Text, arn, fits_message, invalid
from dynatick.actions.plain_value import MAX_BYTES, to_json
from dynatick.actions.task_metadata import task_metadata
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick.errors import PermanentError

_MAX_RESOURCES = 20


def _checked_source(source: str) -> str:
    if source.startswith("aws."):
        raise invalid("sources that begin with aws. are reserved for AWS")
    return source


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class EventBridgePayload:
    """The event to put on a bus."""

    event_bus_arn: Annotated[Text, arn("events", r"event-bus/[A-Za-z0-9/_.-]{1,256}"), Field(description="The bus.")]
    detail_type: Annotated[Text, Field(min_length=1, max_length=128, description="The kind of event.")] = "Task Due"
    source: Annotated[
        Text,
        Field(pattern=r"^[A-Za-z0-9_.-]{1,256}$", description="The event's source; not `aws.…`."),
        AfterValidator(_checked_source),
    ] = "dynatick"
    detail: Annotated[
        dict[Text, Any],
        AfterValidator(fits_message),
        Field(description="The event's detail; Dynatick adds the key `dynatick`."),
    ] = Field(default_factory=dict)
    resources: Annotated[
        list[Annotated[Text, Field(min_length=1, max_length=2048)]],
        Field(max_length=_MAX_RESOURCES, description="ARNs of the resources that the event concerns."),
    ] = Field(default_factory=list)


class EventBridge:
    """Puts events, up to ten in a call."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._batches = Batcher()

    def run(self, task: Task, context: ActionContext) -> object:
        """Puts one event. Returns ``{"eventId": …}``."""
        payload = parsed(EventBridgePayload, task.payload)
        self._service.check(payload.event_bus_arn, "payload.eventBusArn")
        try:
            detail = to_json({**payload.detail, "dynatick": task_metadata(task, context)})
        except ValueError as error:
            raise PermanentError(f"payload.detail: {error}") from None
        entry = {
            "EventBusName": payload.event_bus_arn,
            "Source": payload.source,
            "DetailType": payload.detail_type,
            "Detail": detail,
            "Resources": payload.resources,
        }
        size = sum(len(text.encode()) for text in (payload.source, payload.detail_type, detail, *payload.resources))
        if size > MAX_BYTES:
            raise PermanentError(f"payload.detail: the event is {size} bytes; expected at most {MAX_BYTES}")
        client = self._service.client(payload.event_bus_arn, task, context)

        def send(entries: Sequence[Any]) -> Sequence[object]:
            answers = client.put_events(Entries=list(entries))["Entries"]
            return [
                FailedEntry(str(one["ErrorCode"])) if "ErrorCode" in one else {"eventId": one["EventId"]}
                for one in answers
            ]

        return self._batches.put(payload.event_bus_arn, entry, size, send)
