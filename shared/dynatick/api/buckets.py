"""Buckets over HTTP: the number of tasks of each status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path

from dynatick.api.ids import from_path
from dynatick.api.limits import Timer, Wait, check_range, parts
from dynatick.api.routes import Routes, answer, route
from dynatick.api.tasks import End, Start, Token
from dynatick.client.history import MAX_LIMIT
from dynatick.client.views import BucketCounts, Tally
from dynatick.domain.buckets import Bucket, instant_of
from dynatick.domain.view import Json, View

MAX_BUCKETS = 20_000
"""Buckets in one answer, since the size of a function's answer is limited."""

Name = Annotated[
    str,
    Path(
        alias="bucket",
        description="The bucket's name, best as `~` and the name in base64url.",
        examples=["2026-12-31#12:00"],
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketPage(View):
    """How many tasks of each status a bucket holds, and how late those that have ended began."""

    counts: Annotated[BucketCounts, Json(inline=True)]
    next_page_token: Annotated[
        str | None, Json(null=True), "The pageToken that continues the count. None: all are counted."
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketList(View):
    """The buckets of a range that hold tasks, in order of time."""

    buckets: Sequence[BucketCounts]
    next_start: Annotated[
        datetime | None, Json(null=True), "Where the range continues, if it was too long for one answer."
    ]


class Buckets(Routes):
    """The operations on buckets."""

    tag = "Bucket"

    @route(
        "GET /v1/buckets",
        "listBuckets",
        "Count the tasks in each bucket of a range",
        description="Reads every entry of these buckets, and stops after some seconds or 20,000 buckets; "
        "`nextStart` says where to continue. Without empty buckets. Count a bucket with some hundred "
        "thousand tasks by itself.",
        answers={200: ("The buckets that hold tasks", BucketList)},
        problems=("invalid-input",),
    )
    def list(self, start: Start = None, end: End = None) -> Response[str]:
        check_range("/v1/buckets", None, start, end)
        found: list[BucketCounts] = []
        next_start = None
        timer = Timer(self._seconds)
        selection = self._client.select(start=start, end=end)
        for part, out_of_time in parts(selection, timer):
            if out_of_time:
                next_start = part.start
                break
            for counts in self._client.bucket_counts(part):
                found.append(counts)
                if timer.is_up or len(found) == MAX_BUCKETS:
                    next_start = instant_of(Bucket.parse(counts.bucket).minute + 1)
                    break
            if next_start is not None:
                next_start = next_start if next_start < selection.end else None
                break
        return answer(BucketList(buckets=found, next_start=next_start))

    @route(
        "GET /v1/buckets/<bucket>",
        "getBucket",
        "Count the tasks in a bucket, and wait for their end if you like",
        description="Stops after some seconds; `nextPageToken` continues the count, and the counts of all "
        "answers add up. The lateness is that of the tasks that one answer counts. The first answer also has "
        "what has left the bucket.",
        answers={200: ("The bucket", BucketPage)},
        problems=("invalid-input",),
    )
    def get(self, bucket: Name, token: Token = None, wait: Wait = 0) -> Response[str]:
        name = Bucket.parse(from_path(bucket, "bucket"), "bucket")
        counts, following = self._waiting.watch(wait, lambda: self._count(name, token), _have_ended)
        left = {} if token is not None else self._client.bucket_departures(name)
        return answer(BucketPage(counts=replace(counts, left=left), next_page_token=following))

    def _count(self, bucket: Bucket, token: str | None) -> tuple[BucketCounts, str | None]:
        """The counts from a page on, and the page that they end before, if the time is up."""
        counter = Tally()
        timer = Timer(self._seconds)
        while True:
            page = self._client.history(bucket, limit=MAX_LIMIT, page_token=token)
            for entry in page.entries:
                counter.add(entry)
            token = page.next_page_token
            if token is None or timer.is_up:
                return counter.of(str(bucket)), token


def _have_ended(counted: tuple[BucketCounts, str | None]) -> bool:
    """Whether there is nothing to wait for: all have ended, or there are too many to count them again and again."""
    counts, following = counted
    return following is not None or counts.all_ended
