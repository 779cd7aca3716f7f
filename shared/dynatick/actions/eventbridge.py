"""The action ``eventbridge``: puts an event on a bus, for whoever has a rule for it.

    {"eventBusArn": "arn:aws:events:…:event-bus/default", "detailType": "Trial ended", "detail": {"account": 7}}

The event's detail is the payload's, with a key ``dynatick`` that holds the task's id, due time, attempt, idempotency
key and schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from dynatick.actions.aws import Refused, Service
from dynatick.actions.batches import Batches
from dynatick.actions.payload_fields import CONFIG, Text, arn, fitting, wrong
from dynatick.actions.payloads import parsed
from dynatick.actions.plain_values import MAX_BYTES, to_json
from dynatick.actions.task_facts import facts
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick.errors import PermanentError

_MAX_RESOURCES = 20


def _checked_source(source: str) -> str:
    if source.startswith("aws."):
        raise wrong("sources that begin with aws. are AWS's own")
    return source


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class EventBridgePayload:
    """An event for a bus."""

    event_bus_arn: Annotated[Text, arn("events", r"event-bus/[A-Za-z0-9/_.-]{1,256}"), Field(description="The bus.")]
    detail_type: Annotated[Text, Field(min_length=1, max_length=128, description="What has happened.")] = "Task Due"
    source: Annotated[
        Text,
        Field(pattern=r"^[A-Za-z0-9_.-]{1,256}$", description="Who says so; not `aws.…`."),
        AfterValidator(_checked_source),
    ] = "dynatick"
    detail: Annotated[
        dict[Text, Any], AfterValidator(fitting), Field(description="The event's detail; we add `dynatick` to it.")
    ] = Field(default_factory=dict)
    resources: Annotated[
        list[Annotated[Text, Field(min_length=1, max_length=2048)]],
        Field(max_length=_MAX_RESOURCES, description="ARNs of what it is about."),
    ] = Field(default_factory=list)


class EventBridge:
    """Puts events, up to ten to a call."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._batches = Batches()

    def run(self, task: Task, context: ActionContext) -> object:
        """Puts one event. The result is ``{"eventId": …}``."""
        payload = parsed(EventBridgePayload, task.payload)
        self._service.check(payload.event_bus_arn, "payload.eventBusArn")
        try:
            detail = to_json({**payload.detail, "dynatick": facts(task, context)})
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
                Refused(str(one["ErrorCode"])) if "ErrorCode" in one else {"eventId": one["EventId"]} for one in answers
            ]

        return self._batches.put(payload.event_bus_arn, entry, size, send)
