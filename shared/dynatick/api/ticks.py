"""Ticks over HTTP: what the latest ones did."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Query

from dynatick.api import sizes
from dynatick.api.models import installation as models
from dynatick.api.routes import Operation, answer
from dynatick.api.tasks import End, Start
from dynatick.client import TaskClient
from dynatick.domain.buckets import Bucket, instant_of
from dynatick.domain.instants import format_instant

MAX_MINUTES = 24 * 60
MAX_RECORDS = 20_000
"""Records that a request reads: one for each minute and shard. A gateway waits for 30 seconds (API Gateway quotas)."""

Minutes = Annotated[
    int,
    Query(alias="minutes", ge=1, le=MAX_MINUTES, description="The ticks of these last minutes, without a start."),
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
                summary="List the latest ticks",
                description="With their counts. Consecutive idle ticks are one entry, and so are missed ones. A range "
                "spans at most the seven days for which ticks are kept. `nextStart` says where to continue, if it was "
                "too much for one answer; an entry of several ticks may be in both.",
                tag="Tick",
                answers={200: ("The ticks", models.TickList)},
                problems=("invalid-input",),
                parameters=frozenset({"minutes", "start", "end", "last"}),
            )
        ]

    def list(self, minutes: Minutes = 60, start: Start = None, end: End = None) -> Response[str]:
        first, stop = self._client.tick_range(timedelta(minutes=minutes), start=start, end=end)
        settings = self._client.settings()
        until = min(stop, first + timedelta(minutes=max(1, MAX_RECORDS // (settings.shards_ever if settings else 1))))
        rows = [entry.to_row() for entry in self._client.ticks(start=first, end=until)] if first < until else []
        fitting, next_start = sizes.fitting_rows(rows), format_instant(until) if until < stop else None
        if fitting < len(rows):
            begins = _begins(rows[fitting])
            rows = [row for row in rows[:fitting] if _begins(row) < begins]  # a minute with all of its shards
            next_start = format_instant(instant_of(begins))
        return answer({"ticks": rows, "nextStart": next_start})


def _begins(row: Mapping[str, object]) -> int:
    """The minute of a tick, or of the first of several."""
    return Bucket.parse(row.get("tick", row.get("since"))).minute
