"""``POST /v1/completions``: tasks that their handlers have handed over, by their completion tokens."""

from __future__ import annotations

from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body

from dynatick.api.models import task as models
from dynatick.api.routes import Operation
from dynatick.api.tasks import shown
from dynatick.client import TaskClient, TaskView
from dynatick.domain import attributes as attr
from dynatick.errors import InvalidInput


class Completions:
    """The operation."""

    def __init__(self, client: TaskClient) -> None:
        self._client = client

    def operations(self) -> list[Operation]:
        return [
            Operation(
                name="completeTask",
                method="POST",
                path="/v1/completions",
                call=self.settle,
                summary="Complete or fail a task that its handler has handed over, or send its heartbeat",
                description="The same again changes nothing. Refused once its attempt is over: a heartbeat so hears "
                "that the task was cancelled.",
                tag="Task",
                answers={200: ("The task as it is now", TaskView)},
                headers=("ETag",),
                problems=("completion-refused", "invalid-input", "item-too-large"),
            )
        ]

    def settle(self, body: Annotated[models.Completion, Body()]) -> Response[str]:
        if body.outcome != "failed" and (body.error is not None or body.retry):
            raise InvalidInput("outcome", body.outcome, "expected failed, since there is an error or a retry")
        if body.outcome != "completed" and body.result is not None:
            raise InvalidInput("outcome", body.outcome, "expected completed, since there is a result")
        if body.outcome == "heartbeat":
            return shown(self._client.heartbeat(body.token))
        if body.outcome == "completed":
            return shown(self._client.complete(body.token, body.result))
        if body.error is None:
            raise InvalidInput(attr.ERROR, None, "expected a text that says why")
        return shown(self._client.fail(body.token, body.error, retry=body.retry))
