"""Splits long ranges, so that an answer comes before the gateway's timeout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from urllib.parse import quote, urlencode

from dynatick.api.problems import Problem, Wrong
from dynatick.domain.selection import Selection
from dynatick.errors import MISSING

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
    wrong = [Wrong(f"{MISSING}; for instance {name}={_RANGE[name]}", parameter=name) for name in missing]
    raise Problem(code="invalid-input", detail=detail, errors=wrong)


def parts(selection: Selection, timer: Timer) -> Iterator[tuple[Selection, bool]]:
    """The parts of a range in order; a bucket or a subject is one. With each: whether the time is up, so that it must
    not be begun, and the range continues there. It is the last one then."""
    if not selection.is_divisible:
        yield selection, False
        return
    minutes, step = selection.minutes, max(1, _POLLS // len(selection.shards))
    for first in range(minutes.start, minutes.stop, step):
        late = selection.bucket is None and timer.is_up
        yield replace(selection, minutes=range(first, min(first + step, minutes.stop))), late
        if late:
            return
