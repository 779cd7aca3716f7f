"""The memory of processes that handle large rows: one drains a bucket of them, one shows pages of them by the API.

    python -m tests.costs.memory drain ENDPOINT TABLE BUCKET
    python -m tests.costs.memory pages ENDPOINT TABLE BUCKET

Prints how many tasks or entries there were, and the most memory that the process has had.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from urllib.parse import urlencode

from tests.unit.api.support import event, read

from dynatick.actions.plain_value import to_json
from dynatick.domain.buckets import Bucket
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick_stack.bench.installation import ACTION, Clock, Installation, dynamodb
from dynatick_stack.bench.peak import peak_rss_bytes
from dynatick_stack.template import ROOT

READING = "reading"
LARGE = {"M": {"values": {"L": [{"N": "1"}] * 130_000}}}
"""Of a row of 390 KB: up to nine times that as JSON, and up to thirty times that again as Python's objects."""


class Reading:
    """An action that reads all of its payload, as those do that send it on."""

    def run(self, task: Task, context: ActionContext) -> object:
        return len(to_json(task.payload))


def drained(endpoint: str, *, tasks: int, large: int) -> tuple[int, int]:
    """A bucket with large rows side by side in the middle: tasks that a process completes, and its bytes."""
    installation = Installation.fresh(endpoint)
    bucket = installation.bucket()
    installation.fill(tasks, bucket)
    table = {"TableName": installation.table}
    small = dynamodb(endpoint).get_item(**table, Key={"taskId": {"S": f"t{0:07}"}})["Item"]
    for n in range(large):
        own = {"taskId": {"S": f"t{tasks // 2:07}-{n:04}"}, "action": {"S": ACTION if n % 3 else READING}}
        dynamodb(endpoint).put_item(**table, Item={**small, **own, "payload": LARGE})
    return _measured("drain", installation, bucket)


def shown(endpoint: str, *, large: int) -> tuple[int, int]:
    """Pages of waiting tasks with large rows, and of schedules: entries that a process shows, and its bytes."""
    installation = Installation.fresh(endpoint)
    bucket = installation.bucket(ahead=60)
    for n in range(large):
        waiting = {"taskDateTime": {"S": str(bucket)}, "status": {"S": "scheduled"}}
        recurring = {
            "scheduleExpression": {"S": "cron(0 12 1 1 ? *)"},
            "scheduleState": {"S": "ENABLED"},
            "scheduleId": {"S": f"every-{n:04}"},
            "status": {"S": "recurring"},
        }
        for task_id, own in ((f"task-{n:04}", waiting), (f"every-{n:04}", recurring)):
            item = {"taskId": {"S": task_id}, "action": {"S": ACTION}, "payload": LARGE, **own}
            dynamodb(endpoint).put_item(TableName=installation.table, Item=item)
    return _measured("pages", installation, bucket)


def _measured(what: str, installation: Installation, bucket: Bucket) -> tuple[int, int]:
    command = [sys.executable, "-m", "tests.costs.memory", what, installation.endpoint, installation.table, str(bucket)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, cwd=ROOT)
    number, maximum = json.loads(ran.stdout)
    installation.delete()
    return number, maximum


def _drain(endpoint: str, table: str, bucket: Bucket) -> int:
    installation = Installation(endpoint, table, clock=Clock(bucket.instant))
    installation.actions.add(READING, Reading())
    return sum(report.completed for report in installation.tick(seconds=900))  # on a busy machine all takes its time


def _pages(endpoint: str, table: str, bucket: Bucket) -> int:
    from dynatick.api import Api

    installation = Installation(endpoint, table, clock=Clock(bucket.instant - timedelta(minutes=30)))
    api, listed = Api(installation.client), 0
    for path, name, query in (("/v1/tasks", "tasks", {"bucket": str(bucket)}), ("/v1/schedules", "schedules", {})):
        token: str | None = ""
        while token is not None:
            asked = {**query, "limit": "100"} | ({"pageToken": token} if token else {})
            answer = api.handle(event("GET", path, query=urlencode(asked)), None)
            assert answer.status == 200, answer.response["body"]
            body = read(answer)
            listed, token = listed + len(body[name]), body["nextPageToken"]
    return listed


if __name__ == "__main__":
    work = {"drain": _drain, "pages": _pages}[sys.argv[1]]
    number = work(sys.argv[2], sys.argv[3], Bucket.parse(sys.argv[4]))
    sys.stdout.write(json.dumps([number, peak_rss_bytes()]))
