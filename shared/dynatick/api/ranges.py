"""Long ranges in parts, so that an answer comes before the gateway gives up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from dynatick.client import TaskClient
from dynatick.client.looks import scope
from dynatick.domain.buckets import instant_of

Seconds = Callable[[], float]
"""Seconds that go on evenly."""

BUDGET_SECONDS = 15.0
"""After which nothing else is begun. A gateway waits for 30 seconds (API Gateway quotas)."""

_LOOKS = 480  # of the index, in one part


@dataclass(slots=True)
class Timer:
    """Since a request came."""

    seconds: Seconds
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.seconds()

    @property
    def is_up(self) -> bool:
        """Whether it is time to answer with what there is."""
        return self.seconds() - self.began > BUDGET_SECONDS


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a range. ``out_of_time``: it is not to be begun; the rest of the range begins here."""

    start: datetime
    end: datetime
    until: datetime  # the end of the whole range
    out_of_time: bool


def parts(client: TaskClient, start: str | None, end: str | None, timer: Timer) -> Iterator[Part]:
    """The parts of a range in order, until time is up. Raises InvalidInput for what is no range."""
    in_force = client.settings()
    shards = in_force.shards_ever if in_force else 1
    minutes = scope(None, start, end, shards).minutes
    step = max(1, _LOOKS // shards)
    until = instant_of(minutes.stop)
    for first in range(minutes.start, minutes.stop, step):
        late = timer.is_up
        # The minutes that begin in a part: those from its first instant to before its last.
        yield Part(instant_of(first), instant_of(min(first + step, minutes.stop)), until, late)
        if late:
            return
