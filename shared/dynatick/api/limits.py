"""Keeps answers within the limits of the gateway, which waits so long, and of a function, which returns so much."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Annotated, TypeVar
from urllib.parse import quote, urlencode

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Query

from dynatick.actions.plain_value import to_json
from dynatick.api.problems import Problem, Wrong
from dynatick.api.routes import answer
from dynatick.client.tasks import watch
from dynatick.domain.selection import Selection
from dynatick.domain.view import View
from dynatick.errors import MISSING

T = TypeVar("T")
V = TypeVar("V", bound=View)

Seconds = Callable[[], float]
"""A monotonic clock, in seconds."""

BUDGET_SECONDS = 15.0
"""After this time no further part of an answer is begun. A gateway waits for 30 seconds (API Gateway quotas)."""

MAX_WAIT_SECONDS = 10
"""Then there is time left for a cold start, and for a count of a bucket, before the gateway's 30 seconds are over."""

MAX_CHARACTERS = 3_000_000
"""The limit for an answer's body. A function answers with 6 MB at the most (Lambda quotas), in which the body stands as
text of JSON: each quotation mark and backslash takes two."""

_RANGE = {"start": "2026-12-31T00:00:00Z", "end": "2027-01-01T00:00:00Z"}
_BUCKET = "2026-12-31#12:00"
_POLLS = 480  # of the index, in one part

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


def page(page_of: Callable[..., View], limit: int) -> Response[str]:
    """A page of at most ``limit`` entries; of fewer, if they are large. ``page_of``: gets the ``limit``."""
    while True:
        made = answer(page_of(limit=limit))
        if limit == 1 or len(made.body or "") <= MAX_CHARACTERS:
            return made
        limit //= 2


def fitting(views: Sequence[View]) -> int:
    """How many views, from the first, fit into one answer."""
    remaining = MAX_CHARACTERS
    for n, view in enumerate(views):
        remaining -= len(to_json(view.to_row()))
        if remaining < 0:
            return n
    return len(views)


def listed(results: Sequence[V], limit: int, *, is_done: Callable[[V], bool]) -> Sequence[V]:
    """Up to ``limit`` results, in order, as far as they fit into an answer: of those that are not ``is_done`` as many
    as the others leave room for."""
    room = iter(range(limit - sum(map(is_done, results))))
    found = [one for one in results if is_done(one) or next(room, None) is not None][:limit]
    return found[: fitting(found)]
