"""What Dynatick's processor is compared with, pinned so that nobody can flatter us.

*Single writes*: how it is commonly done. One boto3 client as boto3 makes it, a query of the bucket, then two
conditional UpdateItem a task; by 1, 4 and 16 threads, of which the best counts.
*Raw*: the floor. One connection, the very statements that Dynatick sends, JSON and signature by hand, nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from dynatick.domain.buckets import Bucket
from dynatick_stack.bench.installation import REGION, dynamodb

INDEX = "taskDateTime-index"
BATCH = 25
THREADS = (1, 4, 16)
_INSTANT = {"S": "2026-12-31T12:00:00.000Z"}


def single_writes(endpoint: str, table: str, bucket: Bucket, *, threads: int) -> int:
    """Claims and completes every task of a bucket, each by two conditional UpdateItem. Returns how many."""
    client = dynamodb(endpoint)
    name = {"S": str(bucket)}
    ids = [
        item["taskId"]["S"]
        for page in client.get_paginator("query").paginate(
            TableName=table,
            IndexName=INDEX,
            KeyConditionExpression="taskDateTime = :bucket",
            FilterExpression="attribute_not_exists(outcome)",
            ExpressionAttributeValues={":bucket": name},
        )
        for item in page["Items"]
    ]

    def run(task_id: str) -> None:
        token = {"S": f"token-{task_id}"}
        client.update_item(
            TableName=table,
            Key={"taskId": {"S": task_id}},
            UpdateExpression="SET #status = :running, #lease = :token, leaseUntil = :until, startedAt = :now, "
            "attempt = attempt + :one",
            ConditionExpression="#status = :scheduled AND taskDateTime = :bucket",
            ExpressionAttributeNames={"#status": "status", "#lease": "lease"},
            ExpressionAttributeValues={
                ":running": {"S": "running"},
                ":scheduled": {"S": "scheduled"},
                ":token": token,
                ":until": _INSTANT,
                ":now": _INSTANT,
                ":bucket": name,
                ":one": {"N": "1"},
            },
            ReturnValues="ALL_NEW",
        )
        client.update_item(
            TableName=table,
            Key={"taskId": {"S": task_id}},
            UpdateExpression="SET #status = :completed, outcome = :completed, finishedAt = :now, expiresAt = :expires",
            ConditionExpression="#lease = :token AND #status = :running",
            ExpressionAttributeNames={"#status": "status", "#lease": "lease"},
            ExpressionAttributeValues={
                ":completed": {"S": "completed"},
                ":running": {"S": "running"},
                ":token": token,
                ":now": _INSTANT,
                ":expires": {"N": "1801310400"},
            },
        )

    if threads == 1:
        for task_id in ids:
            run(task_id)
    else:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(run, ids):
                pass
    return len(ids)


@dataclass(frozen=True, slots=True)
class Form:
    """A statement as Dynatick sends it, seen on the wire, to be filled in for other tasks."""

    example: Mapping[str, Any]
    table: str  # and what else of it is the example's own
    task_id: str
    bucket: str
    token: str  # what the tokens of claims begin with

    def on(self, table: str, bucket: Bucket) -> Callable[[str, str], dict[str, Any]]:
        """The statement for tasks of another table's bucket, by id and token."""
        fixed = {**self.example, "Statement": self.example["Statement"].replace(self.table, table)}
        values = [{"S": str(bucket)} if value == {"S": self.bucket} else value for value in self.example["Parameters"]]
        ids = [n for n, value in enumerate(values) if value == {"S": self.task_id}]
        tokens = [n for n, value in enumerate(values) if value.get("S", "").startswith(self.token)]

        def fill(task_id: str, token: str) -> dict[str, Any]:
            parameters = values.copy()
            for n in ids:
                parameters[n] = {"S": task_id}
            for n in tokens:
                parameters[n] = {"S": token}
            return {**fixed, "Parameters": parameters}

        return fill


class RawConnection:
    """DynamoDB over one connection: JSON by the standard library, Signature Version 4 by hand."""

    def __init__(self, endpoint: str) -> None:
        url = urlsplit(endpoint)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(str(url.hostname), url.port)
        self._host = url.netloc
        self._access, self._secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
        self._key: tuple[str, bytes] = ("", b"")

    def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a request. Raises RuntimeError for any answer but a good one."""
        body = json.dumps(request).encode()
        self._connection.request("POST", "/", body, self._headers(f"DynamoDB_20120810.{operation}", body))
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{operation}: {content.decode()}")
        understood: dict[str, Any] = json.loads(content)
        return understood

    def _headers(self, target: str, body: bytes) -> dict[str, str]:
        at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{at[:8]}/{REGION}/dynamodb/aws4_request"
        if self._key[0] != at[:8]:  # the signing key is good for a day
            key = f"AWS4{self._secret}".encode()
            for part in scope.split("/"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._key = (at[:8], key)
        names = "content-type;host;x-amz-date;x-amz-target"
        canonical = (
            f"POST\n/\n\ncontent-type:application/x-amz-json-1.0\nhost:{self._host}\nx-amz-date:{at}\n"
            f"x-amz-target:{target}\n\n{names}\n{hashlib.sha256(body).hexdigest()}"
        )
        to_sign = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._key[1], to_sign.encode(), "sha256").hex()
        return {
            "Content-Type": "application/x-amz-json-1.0",
            "Host": self._host,
            "X-Amz-Date": at,
            "X-Amz-Target": target,
            "Authorization": f"AWS4-HMAC-SHA256 Credential={self._access}/{scope}, SignedHeaders={names}, "
            f"Signature={signature}",
        }


def raw(endpoint: str, table: str, bucket: Bucket, *, claim: Form, record: Form) -> int:
    """Claims and completes every task of a bucket by the statements given. Returns how many."""
    connection = RawConnection(endpoint)
    claiming, recording = claim.on(table, bucket), record.on(table, bucket)
    ids: list[str] = []
    start: dict[str, Any] = {}
    while True:
        page = connection.call(
            "Query",
            {
                "TableName": table,
                "IndexName": INDEX,
                "KeyConditionExpression": "taskDateTime = :bucket",
                "FilterExpression": "attribute_not_exists(outcome)",
                "ExpressionAttributeValues": {":bucket": {"S": str(bucket)}},
                **start,
            },
        )
        ids += [item["taskId"]["S"] for item in page["Items"]]
        if "LastEvaluatedKey" not in page:
            break
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    for first in range(0, len(ids), BATCH):
        batch = ids[first : first + BATCH]
        _execute(connection, [claiming(task_id, f"token-{task_id}") for task_id in batch])
        _execute(connection, [recording(task_id, f"token-{task_id}") for task_id in batch])
    return len(ids)


def _execute(connection: RawConnection, statements: Sequence[Mapping[str, Any]]) -> None:
    answers = connection.call("BatchExecuteStatement", {"Statements": statements})["Responses"]
    failed = [answer for answer in answers if "Error" in answer]
    if failed:
        raise RuntimeError(f"a statement failed: {failed[0]}")
