"""CPU time a task, ours and that of single writes, taken in turns in one process. The endpoint's own is not in it.

*Single writes*: how it is commonly done. One boto3 client as boto3 makes it, a query of the bucket, then two
conditional UpdateItem a task, one after the other: with several threads they take more CPU, not less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

from dynatick.domain.buckets import Bucket
from dynatick_stack.bench.installation import INDEX, Installation, dynamodb

_INSTANT = {"S": "2026-12-31T12:00:00.000Z"}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run costs, in microseconds a task. ``insert_cpu_us``: what its insert did."""

    cpu_us: float
    wall_us: float
    insert_cpu_us: float


def compare(endpoint: str, *, tasks: int, single_tasks: int, rounds: int) -> dict[str, float]:
    """Measures in turns: medians over the rounds, each of ours and the other, one right after the other; the ratio is
    taken within its round."""

    def single(installation: Installation, bucket: Bucket) -> int:
        return single_writes(endpoint, installation.table, bucket)

    found = [(_run(endpoint, tasks, _tick), _run(endpoint, single_tasks, single)) for _ in range(rounds)]
    return {
        "cpu_us_per_task": round(median(one.cpu_us for one, _ in found), 1),
        "cpu_us_single_writes": round(median(other.cpu_us for _, other in found), 1),
        "cpu_ratio_single_writes": round(median(one.cpu_us / other.cpu_us for one, other in found), 4),
        "tasks_per_s": round(median(1e6 / one.wall_us for one, _ in found)),
    }


def compare_members(endpoint: str, *, members: int, tasks: int, rounds: int) -> dict[str, float]:
    """Measures the members of a batch and tasks in turns, as ``compare`` does."""
    found = [
        (_run(endpoint, members, _tick, Installation.insert_batch), _run(endpoint, tasks, _tick)) for _ in range(rounds)
    ]
    return {
        "cpu_us_per_member": round(median(member.cpu_us for member, _ in found), 1),
        "cpu_us_per_task": round(median(task.cpu_us for _, task in found), 1),
        "cpu_ratio": round(median(member.cpu_us / task.cpu_us for member, task in found), 4),
        "cpu_us_per_insert": round(median(member.insert_cpu_us for member, _ in found), 1),
    }


def inserts_per_s(endpoint: str, tasks: int, *, rounds: int) -> float:
    """Returns how many tasks the client inserts a second."""
    installation, seconds = Installation.fresh(endpoint), []
    for n in range(rounds):
        began = time.perf_counter()
        installation.insert(tasks, installation.bucket(), prefix=f"{n}-")
        seconds.append(time.perf_counter() - began)
    installation.delete()
    return tasks / median(seconds)


def _run(
    endpoint: str,
    tasks: int,
    work: Callable[[Installation, Bucket], int],
    insert: Callable[[Installation, int, Bucket], None] = Installation.insert,
) -> Cost:
    installation = Installation.fresh(endpoint)
    bucket = installation.bucket()
    began = time.process_time()
    insert(installation, tasks, bucket)
    cpu, wall = time.process_time(), time.perf_counter()
    inserted = cpu - began
    done = work(installation, bucket)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    installation.delete()
    assert done == tasks, f"{done} tasks of {tasks} were done"
    return Cost(*(seconds / tasks * 1e6 for seconds in (cpu, wall, inserted)))


def _tick(installation: Installation, _: Bucket) -> int:
    installation.forward()
    return sum(report.completed for report in installation.tick())


def single_writes(endpoint: str, table: str, bucket: Bucket) -> int:
    """Claims and completes every task of a bucket, each by two conditional UpdateItem. Returns how many."""
    client, name = dynamodb(endpoint), {"S": str(bucket)}
    pages = client.get_paginator("query").paginate(
        TableName=table,
        IndexName=INDEX,
        KeyConditionExpression="taskDateTime = :bucket",
        FilterExpression="attribute_not_exists(outcome)",
        ExpressionAttributeValues={":bucket": name},
    )
    ids = [item["taskId"]["S"] for page in pages for item in page["Items"]]
    for task_id in ids:
        token, running = {"S": f"token-{task_id}"}, {"S": "running"}
        write = partial(
            client.update_item,
            TableName=table,
            Key={"taskId": {"S": task_id}},
            ExpressionAttributeNames={"#status": "status", "#lease": "lease"},
        )
        scheduled, one = {"S": "scheduled"}, {"N": "1"}
        write(
            UpdateExpression="SET #status = :running, #lease = :token, leaseUntil = :now, startedAt = :now, "
            "attempt = attempt + :one",
            ConditionExpression="#status = :scheduled AND taskDateTime = :bucket",
            ExpressionAttributeValues=_values(
                running=running, scheduled=scheduled, token=token, now=_INSTANT, bucket=name, one=one
            ),
            ReturnValues="ALL_NEW",
        )
        completed, expires = {"S": "completed"}, {"N": "1801310400"}
        write(
            UpdateExpression="SET #status = :completed, outcome = :completed, finishedAt = :now, expiresAt = :expires",
            ConditionExpression="#lease = :token AND #status = :running",
            ExpressionAttributeValues=_values(
                completed=completed, running=running, token=token, now=_INSTANT, expires=expires
            ),
        )
    return len(ids)


def _values(**given: dict[str, str]) -> dict[str, dict[str, str]]:
    return {f":{name}": value for name, value in given.items()}
