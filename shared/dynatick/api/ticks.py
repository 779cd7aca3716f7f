"""Ticks over HTTP: what the latest ones did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Query

from dynatick.api import limits
from dynatick.api.routes import Routes, answer, route
from dynatick.api.tasks import End, Start
from dynatick.client.operations import TickEntry, TickView
from dynatick.domain.buckets import Bucket, instant_of
from dynatick.domain.view import Json, View

MAX_MINUTES = 24 * 60
MAX_RECORDS = 20_000
"""Records that a request reads: one for each minute and shard. A gateway waits for 30 seconds (API Gateway quotas)."""

Minutes = Annotated[
    int,
    Query(alias="minutes", ge=1, le=MAX_MINUTES, description="The ticks of these last minutes, without a start."),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class TickList(View):
    """Ticks in order of time, then shard: each with its counts (`pass`), or consecutive ones that found nothing
    (`idle`), did not come (`missed`), or ran nothing because all was paused (`paused`)."""

    ticks: Sequence[TickEntry]
    next_start: Annotated[
        datetime | None, Json(null=True), "Where the range continues, if it was too much for one answer."
    ]


class Ticks(Routes):
    """The operation on ticks."""

    tag = "Tick"

    @route(
        "GET /v1/ticks",
        "listTicks",
        "List the latest ticks",
        description="With their counts. Consecutive idle ticks are one entry, and so are missed ones. A range "
        "spans at most the seven days for which ticks are kept. `nextStart` says where to continue, if it was "
        "too much for one answer; an entry of several ticks may be in both.",
        answers={200: ("The ticks", TickList)},
        problems=("invalid-input",),
    )
    def list(self, minutes: Minutes = 60, start: Start = None, end: End = None) -> Response[str]:
        first, stop = self._client.operations.tick_range(timedelta(minutes=minutes), start=start, end=end)
        settings = self._client.settings()
        until = min(stop, first + timedelta(minutes=max(1, MAX_RECORDS // (settings.shards_ever if settings else 1))))
        entries = list(self._client.operations.ticks(start=first, end=until)) if first < until else []
        fitting, next_start = limits.fitting(entries), until if until < stop else None
        if fitting < len(entries):
            begins = _begins(entries[fitting])
            entries = [one for one in entries[:fitting] if _begins(one) < begins]  # a minute with all of its shards
            next_start = instant_of(begins)
        return answer(TickList(ticks=entries, next_start=next_start))


def _begins(entry: TickEntry) -> int:
    """The minute of a tick, or of the first of several."""
    return Bucket.parse(entry.tick if isinstance(entry, TickView) else entry.since).minute
