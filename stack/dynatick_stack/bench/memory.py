"""The memory that large rows take: a bucket that holds some is drained, and shown in pages by the API.

    python -m dynatick_stack.bench.memory [--tasks 10000] [--large 25]

Prints the most memory that each process has had, for each kind of row. Rows of 390 KB as DynamoDB counts them are up to
nine times that as JSON, and up to thirty times that again as Python's objects.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from dynatick.domain.buckets import Bucket
from dynatick.domain.instants import format_instant
from dynatick_stack.bench.baselines import RawConnection
from dynatick_stack.bench.drainer import Drained, drain_in_processes, peak_rss
from dynatick_stack.bench.fill import fill
from dynatick_stack.bench.installation import ACTION, READING, Clock, Installation
from dynatick_stack.counting.process import counting

MB = 1_000_000
PARTS: Mapping[str, tuple[dict[str, Any], int]] = {
    "numbers": ({"N": "1"}, 130_000),
    "maps": ({"M": {}}, 97_000),
    "texts": ({"S": ""}, 380_000),  # the most JSON that an item can be
}
"""What the payload's list holds, and how often, for a row of 390 KB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """Pages that a process of the API has answered with. ``listed``: entries on them."""

    pages: int
    listed: int
    peak_rss_bytes: int


def put_large(endpoint: str, table: str, bucket: Bucket, number: int, kind: str, *, prefix: str) -> None:
    """Puts due tasks, as the scheduler leaves them, with large payloads; every third one's action reads all of it."""
    part, times = PARTS[kind]
    connection = RawConnection(endpoint)
    for n in range(number):
        item = {
            "taskId": {"S": f"{prefix}{n:04}"},
            "taskDateTime": {"S": str(bucket)},
            "dueAt": {"S": format_instant(bucket.instant)},
            "createdAt": {"S": format_instant(bucket.instant - timedelta(minutes=1))},
            "action": {"S": ACTION if n % 3 else READING},
            "status": {"S": "scheduled"},
            "attempt": {"N": "0"},
            "run": {"N": "1"},
            "payload": {"M": {"values": {"L": [part] * times}}},
        }
        connection.call("PutItem", {"TableName": table, "Item": item})


def put_large_schedules(endpoint: str, table: str, number: int, kind: str) -> None:
    """Puts schedules that wait for a run far away, each with a large payload."""
    part, times = PARTS[kind]
    connection = RawConnection(endpoint)
    for n in range(number):
        item = {
            "taskId": {"S": f"every-{n:04}"},
            "scheduleExpression": {"S": "cron(0 12 1 1 ? *)"},
            "scheduleState": {"S": "ENABLED"},
            "scheduleId": {"S": f"every-{n:04}"},
            "status": {"S": "recurring"},
            "action": {"S": READING},
            "payload": {"M": {"values": {"L": [part] * times}}},
        }
        connection.call("PutItem", {"TableName": table, "Item": item})


def drained(endpoint: str, *, tasks: int, large: int, kind: str) -> Drained:
    """A bucket with large rows side by side in the middle, drained by a process of its own."""
    installation = Installation.fresh(endpoint)
    bucket = installation.bucket()
    fill(endpoint, installation.table, tasks, bucket)
    put_large(endpoint, installation.table, bucket, large, kind, prefix=f"task-{tasks // 2:07}-")
    (found,) = drain_in_processes(endpoint, installation.table, bucket.instant)
    installation.delete()
    return found


def shown(endpoint: str, *, large: int, kind: str) -> Shown:
    """Pages of waiting tasks with such rows, and of schedules, asked of the API in a process of its own."""
    installation = Installation.fresh(endpoint)
    bucket = installation.bucket(ahead=60)
    put_large(endpoint, installation.table, bucket, large, kind, prefix="task-")
    put_large_schedules(endpoint, installation.table, large, kind)
    command = [sys.executable, "-m", "dynatick_stack.bench.memory", "--pages", endpoint, installation.table]
    answered = subprocess.run([*command, str(bucket)], stdout=subprocess.PIPE, check=True, text=True)
    installation.delete()
    return Shown(**json.loads(answered.stdout))


def _pages(endpoint: str, table: str, bucket: str) -> Shown:
    """In the process that is measured."""
    from dynatick.api import Api

    installation = Installation(endpoint, table, clock=Clock(Bucket.parse(bucket).instant - timedelta(minutes=30)))
    api = Api(installation.client)
    pages = listed = 0
    for path, query, name in (
        ("/v1/tasks", {"bucket": bucket, "limit": "100"}, "tasks"),
        ("/v1/schedules", {"limit": "100"}, "schedules"),
    ):
        token: str | None = None
        while True:
            body = _asked(api, path, query if token is None else {**query, "pageToken": token})
            pages, listed, token = pages + 1, listed + len(body[name]), body["nextPageToken"]
            if token is None:
                break
    return Shown(pages=pages, listed=listed, peak_rss_bytes=peak_rss())


def _asked(api: Any, path: str, query: Mapping[str, str]) -> Mapping[str, Any]:
    from urllib.parse import urlencode

    event = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": urlencode(query),
        "queryStringParameters": dict(query),
        "headers": {},
        "requestContext": {
            "http": {"method": "GET", "path": path, "sourceIp": "127.0.0.1", "userAgent": "bench"},
            "requestId": "bench",
            "stage": "$default",
        },
        "isBase64Encoded": False,
    }
    response = api.handle(event, _Context()).response
    if response["statusCode"] != 200:
        raise RuntimeError(response["body"])
    body: Mapping[str, Any] = json.loads(response["body"])
    return body


class _Context:
    aws_request_id = "bench"
    function_name = "api"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:us-east-1:000000000000:function:api"

    def get_remaining_time_in_millis(self) -> int:
        return 30_000


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dynatick_stack.bench.memory")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=25)
    parser.add_argument("--kinds", nargs="+", choices=tuple(PARTS), default=tuple(PARTS))
    parser.add_argument("--pages", nargs=3, metavar=("ENDPOINT", "TABLE", "BUCKET"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.pages:
        print(json.dumps(asdict(_pages(*options.pages))))
        return
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION="us-east-1")
    with counting() as engine:
        for kind in options.kinds:
            one = drained(engine.url, tasks=options.tasks, large=options.large, kind=kind)
            megabytes = one.peak_rss_bytes // MB
            print(f"{kind}: drained {one.tasks:,} tasks in {one.seconds:.1f} s, with {megabytes} MB", flush=True)
            page = shown(engine.url, large=options.large, kind=kind)
            print(f"{kind}: {page.listed} on {page.pages} pages, with {page.peak_rss_bytes // MB} MB", flush=True)


if __name__ == "__main__":
    main()
