"""``POST /schedule-task``: one task in the simplest form."""

from __future__ import annotations

from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body

from dynatick.api.models import task as models
from dynatick.api.routes import Routes, route
from dynatick.api.tasks import MADE, Key, Trace, insert
from dynatick.domain import attributes as attr
from dynatick.errors import InvalidInput


class Simple(Routes):
    """The operation."""

    tag = "Task"

    @route(
        "POST /schedule-task",
        "scheduleTask",
        "Schedule a task, in the simple form",
        description="The same as POST /v1/tasks with `dueAt`; the answer carries the task's id.",
        answers=MADE,
        headers=("ETag", "Location"),
        problems=("task-exists", "item-too-large", "idempotency-key-reused"),
    )
    def schedule(
        self, body: Annotated[models.ScheduleTask, Body()], key: Key = None, trace: Trace = None
    ) -> Response[str]:
        row = {attr.DUE_AT: body.run_at, attr.ACTION: body.action, attr.PAYLOAD: body.payload}
        try:
            return insert(self._client, row, key, trace)
        except InvalidInput as error:
            raise _under_own_names(error) from error


def _under_own_names(error: InvalidInput) -> InvalidInput:
    field = "run_at" if error.field == attr.DUE_AT else error.field
    found = InvalidInput(field, error.value, error.expected)
    found.others = tuple(_under_own_names(one) for one in error.others)
    return found
