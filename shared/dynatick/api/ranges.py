"""Splits long ranges, so that an answer comes before the gateway's timeout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote, urlencode

from dynatick.api.problems import Problem, Wrong
from dynatick.client import TaskClient
from dynatick.client.buckets import scope
from dynatick.domain.buckets import instant_of

Seconds = Callable[[], float]
"""A monotonic clock, in seconds."""

BUDGET_SECONDS = 15.0
"""After this time no further part of an answer is begun. A gateway waits for 30 seconds (API Gateway quotas)."""

_RANGE = {"start": "2026-12-31T00:00:00Z", "end": "2027-01-01T00:00:00Z"}
_BUCKET = "2026-12-31#12:00"
_POLLS = 480  # of the index, in one part


@dataclass(slots=True)
class Timer:
    """The time since a request came."""

    seconds: Seconds
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.seconds()

    @property
    def is_up(self) -> bool:
        """Whether it is time to answer with the results so far."""
        return self.seconds() - self.began > BUDGET_SECONDS


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a range. ``out_of_time``: it must not be begun; the range continues here."""

    start: datetime
    end: datetime
    until: datetime  # the end of the whole range
    out_of_time: bool


def check_range(
    path: str, bucket: str | None, start: str | None, end: str | None, *more: tuple[str, str | None]
) -> None:
    """Refuses a list without a bucket and without a range, since the table is read by time. Raises Problem with a valid
    example of the request. ``more``: other parameters, which the example keeps."""
    missing = [name for name, value in (("start", start), ("end", end)) if value is None]
    if bucket is not None or not missing:
        return
    kept = [(name, value) for name, value in more if value is not None]
    example = f"{path}?{urlencode([*kept, *_RANGE.items()], safe=':')}"
    one = f", or one bucket, such as bucket={quote(_BUCKET, safe=':')}" if path == "/v1/tasks" else ""
    detail = f"expected a range of time with start and end{one}; for instance {example}"
    wrong = [Wrong(f"it is missing; for instance {name}={_RANGE[name]}", parameter=name) for name in missing]
    raise Problem(code="invalid-input", detail=detail, errors=wrong)


def parts(client: TaskClient, start: str | None, end: str | None, timer: Timer) -> Iterator[Part]:
    """The parts of a range in order, until the time is up. Raises InvalidInput."""
    settings = client.settings()
    shards = settings.shards_ever if settings else 1
    minutes = scope(None, start, end, shards).minutes
    step = max(1, _POLLS // shards)
    until = instant_of(minutes.stop)
    for first in range(minutes.start, minutes.stop, step):
        late = timer.is_up
        # The minutes that begin in a part: those from its first instant to before its last.
        yield Part(instant_of(first), instant_of(min(first + step, minutes.stop)), until, late)
        if late:
            return
