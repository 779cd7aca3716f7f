"""Answers that wait until tasks have ended, within the gateway's timeout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, TypeVar

from aws_lambda_powertools.event_handler.openapi.params import Query

from dynatick.api.ranges import Seconds
from dynatick.client.tasks import watch

T = TypeVar("T")

MAX_WAIT_SECONDS = 10
"""Then there is time left for a cold start, and for a count of a bucket, before the gateway's 30 seconds are over."""

Wait = Annotated[
    int,
    Query(
        alias="waitSeconds",
        ge=0,
        le=MAX_WAIT_SECONDS,
        description="Seconds to wait until the task has ended, or all tasks of the bucket; at most as many as the "
        "installation allows. After them the answer shows what is there; ask again.",
    ),
]


@dataclass(frozen=True, slots=True)
class Waiting:
    """``seconds``: a monotonic clock; ``pause`` waits for a number of seconds, in which the process serves no other
    request. ``max_seconds``: the parameter ``ApiWaitSeconds``; a request that wants more waits that long."""

    seconds: Seconds
    pause: Callable[[float], None]
    max_seconds: int = MAX_WAIT_SECONDS

    def watch(self, wait: int, poll: Callable[[], T], has_ended: Callable[[T], bool]) -> T:
        """What ``poll`` shows when it has ended, or when the time is up."""
        timeout = timedelta(seconds=min(wait, self.max_seconds))
        return watch(poll, has_ended, timeout=timeout, seconds=self.seconds, pause=self.pause)
