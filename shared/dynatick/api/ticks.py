"""Ticks over HTTP: what the latest ones did."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Query

from dynatick.api import models
from dynatick.api.routes import Operation, answer
from dynatick.api.tasks import End, Start
from dynatick.client import TaskClient

MAX_MINUTES = 24 * 60

Minutes = Annotated[
    int,
    Query(alias="minutes", ge=1, le=MAX_MINUTES, description="The ticks of the last so many minutes, without a start."),
]


class Ticks:
    """The operation on ticks."""

    def __init__(self, client: TaskClient) -> None:
        self._client = client

    def operations(self) -> list[Operation]:
        return [
            Operation(
                name="listTicks",
                method="GET",
                path="/v1/ticks",
                call=self.list,
                summary="What the latest ticks did",
                description="With their figures; idle ticks are told in runs, and so are missed ones. A range spans at "
                "most the seven days for which they are kept.",
                tag="Tick",
                answers={200: ("The ticks", models.TickList)},
                problems=("invalid-input",),
                parameters=frozenset({"minutes", "start", "end", "last"}),
            )
        ]

    def list(self, minutes: Minutes = 60, start: Start = None, end: End = None) -> Response[str]:
        entries = self._client.ticks(timedelta(minutes=minutes), start=start, end=end)
        return answer({"ticks": [entry.to_row() for entry in entries]})
