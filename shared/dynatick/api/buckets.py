"""Buckets over HTTP: how many tasks of each status they hold."""

from __future__ import annotations

from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path

from dynatick.api import models
from dynatick.api.ids import from_path
from dynatick.api.ranges import Seconds, parts
from dynatick.api.routes import Operation, answer
from dynatick.api.tasks import End, Start
from dynatick.client import TaskClient
from dynatick.domain.buckets import Bucket
from dynatick.domain.instants import format_instant

Name = Annotated[
    str,
    Path(alias="bucket", description="The bucket's name, `#` as `%23`.", examples=["2026-12-31#12:00"]),
]


class Buckets:
    """The operations on buckets."""

    def __init__(self, client: TaskClient, seconds: Seconds) -> None:
        self._client = client
        self._seconds = seconds

    def operations(self) -> list[Operation]:
        return [
            Operation(
                name="listBuckets",
                method="GET",
                path="/v1/buckets",
                call=self.list,
                summary="Count the tasks in each bucket of a range",
                description="Reads every entry of these buckets, and stops after some seconds; `nextStart` says where "
                "to go on. Empty buckets are left out.",
                tag="Bucket",
                answers={200: ("The buckets that hold tasks", models.BucketList)},
                problems=("invalid-input",),
                parameters=frozenset({"start", "end"}),
            ),
            Operation(
                name="getBucket",
                method="GET",
                path="/v1/buckets/<bucket>",
                call=self.get,
                summary="Count the tasks in a bucket",
                tag="Bucket",
                answers={200: ("The bucket", models.BucketCounts)},
                problems=("invalid-input",),
                parameters=frozenset({"bucket"}),
            ),
        ]

    def list(self, start: Start = None, end: End = None) -> Response[str]:
        found: list[dict[str, object]] = []
        next_start = None
        for part in parts(self._client, start, end, self._seconds):
            if part.out_of_time:
                next_start = format_instant(part.start)
                break
            counts = self._client.bucket_counts(start=part.start, end=part.end)
            found.extend(dict(bucket.to_row()) for bucket in counts)
        return answer({"buckets": found, "nextStart": next_start})

    def get(self, bucket: Name) -> Response[str]:
        name = Bucket.parse(from_path(bucket, "bucket"), "bucket")
        for counts in self._client.bucket_counts(name):
            return answer(counts.to_row())
        return answer({"bucket": str(name), "counts": {}, "total": 0})
