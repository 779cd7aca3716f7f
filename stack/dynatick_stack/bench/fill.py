"""Fills a table with many tasks, far quicker than clients do: copies of a row that the client wrote.

python -m dynatick_stack.bench.fill ENDPOINT TABLE NUMBER BUCKET [--prefix P] [--buckets N] [--shards N] [--ended]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from dynatick.domain.buckets import Bucket, Grid
from dynatick_stack.bench.baselines import BATCH, RawConnection
from dynatick_stack.bench.installation import Clock, Installation

RARE = 1000  # of so many tasks that have ended, one was cancelled
FAILED = 10  # and of so many, one failed


def fill(
    endpoint: str,
    table: str,
    number: int,
    bucket: Bucket,
    *,
    prefix: str = "task-",
    buckets: int = 1,
    shards: int = 1,
    ended: bool = False,
) -> None:
    """Puts tasks into a bucket, or into as many following ones in turn, in a process of its own.

    ``ended``: as they are when they have ended, each tenth failed, each thousandth cancelled.
    """
    command = [sys.executable, "-m", "dynatick_stack.bench.fill", endpoint, table, str(number), str(bucket)]
    command += ["--prefix", prefix, "--buckets", str(buckets), "--shards", str(shards)]
    subprocess.run([*command, *(["--ended"] if ended else [])], check=True)


def _rows(example: Mapping[str, Any], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    first, grid = Bucket.parse(options.bucket), Grid(shard_count=options.shards)
    for n in range(options.number):
        task_id = f"{options.prefix}{n:07}"
        bucket = Bucket(first.minute + n % options.buckets, grid.shard_of(task_id))
        row = {**example, "taskId": {"S": task_id}, "taskDateTime": {"S": str(bucket)}}
        if options.ended:
            outcome = "cancelled" if n % RARE == RARE - 1 else "failed" if n % FAILED == FAILED - 1 else "completed"
            row |= {
                "status": {"S": outcome},
                "outcome": {"S": outcome},
                "finishedAt": {"S": "2026-12-31T12:00:05Z"},
                "expiresAt": {"N": "1801310400"},
            }
            if outcome == "failed":
                row["error"] = {"S": "HTTP 410 from example.com: that user is gone"}
        yield row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint")
    parser.add_argument("table")
    parser.add_argument("number", type=int)
    parser.add_argument("bucket")
    parser.add_argument("--prefix", default="task-")
    parser.add_argument("--buckets", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--ended", action="store_true")
    options = parser.parse_args()
    connection = RawConnection(options.endpoint)
    example = _example(options, connection)
    batch: list[dict[str, Any]] = []
    for row in _rows(example, options):
        names = ", ".join(f"'{name}':?" for name in row)
        text = f'INSERT INTO "{options.table}" VALUE {{{names}}}'
        batch.append({"Statement": text, "Parameters": list(row.values())})
        if len(batch) == BATCH:
            _send(connection, batch)
            batch = []
    if batch:
        _send(connection, batch)


def _example(options: argparse.Namespace, connection: RawConnection) -> dict[str, Any]:
    """A row as the client writes it. It is taken out of the table again."""
    bucket = Bucket.parse(options.bucket)
    clock = Clock(bucket.instant - timedelta(minutes=1))
    installation = Installation(options.endpoint, options.table, clock=clock)
    installation.insert(1, bucket, prefix="example-")
    key = {"TableName": options.table, "Key": {"taskId": {"S": "example-0"}}}
    row: dict[str, Any] = connection.call("GetItem", {**key, "ConsistentRead": True})["Item"]
    connection.call("DeleteItem", key)
    return row


def _send(connection: RawConnection, batch: list[dict[str, Any]]) -> None:
    answers = connection.call("BatchExecuteStatement", {"Statements": batch})["Responses"]
    failed = [answer for answer in answers if "Error" in answer]
    if failed:
        raise RuntimeError(f"a row was not taken: {failed[0]}")


if __name__ == "__main__":
    main()
