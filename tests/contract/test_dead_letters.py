"""Dead letters in the emulator's queue, over its table: read to the end, redriven, and followed to their tasks."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest

from dynatick import TaskClient
from dynatick.client.connect import ClientSettings, open_queue, open_store
from dynatick_stack.template import table_definition

MADE, FAILED_AT = "2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z"
BUCKET = "2026-01-01#12:00"


@pytest.fixture
def table_and_queue(emulator_endpoint: str) -> tuple[str, str]:
    name = f"letters-{uuid.uuid4().hex[:8]}"
    boto3.client("dynamodb", endpoint_url=emulator_endpoint).create_table(TableName=name, **table_definition())
    sqs = boto3.client("sqs", endpoint_url=emulator_endpoint)
    return name, sqs.create_queue(QueueName=name)["QueueUrl"]


def fill(endpoint: str, table: str, queue_url: str, ids: Sequence[str]) -> None:
    sqs: Any = boto3.client("sqs", endpoint_url=endpoint)
    ended = {"status": "failed", "outcome": "failed", "taskDateTime": BUCKET, "finishedAt": FAILED_AT, "error": "no"}
    with boto3.resource("dynamodb", endpoint_url=endpoint).Table(table).batch_writer() as batch:
        for task_id in ids:
            batch.put_item(Item={"taskId": task_id, "createdAt": MADE, "run": 1, "attempt": 1, "action": "log"} | ended)

    def send(part: Sequence[str]) -> None:
        letters = [{"taskId": task_id, "createdAt": MADE, "run": 1, "failedAt": FAILED_AT} for task_id in part]
        entries = [{"Id": str(n), "MessageBody": json.dumps(letter)} for n, letter in enumerate(letters)]
        assert not sqs.send_message_batch(QueueUrl=queue_url, Entries=entries).get("Failed")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, (ids[start : start + 10] for start in range(0, len(ids), 10))))


@pytest.mark.parametrize("number", [230, pytest.param(10_000, marks=pytest.mark.night)])
def test_a_queue_is_read_to_its_end(emulator_endpoint: str, table_and_queue: tuple[str, str], number: int) -> None:
    table, queue_url = table_and_queue
    ids = [f"t{n}" for n in range(number)]
    fill(emulator_endpoint, table, queue_url, ids)
    settings = ClientSettings(
        table=table,
        dead_letter_queue_url=queue_url,
        region="us-east-1",
        endpoint_url=emulator_endpoint,
        credentials=("test", "test"),
    )
    client = TaskClient(open_store(settings), dead_letter_queue=open_queue(settings))
    client.redrive("t0")
    client.delete("t1")
    page = client.dead_letters.list(limit=10_000)
    assert {letter.task_id for letter in page.letters} == set(ids)
    assert Counter(map(str, (letter.state for letter in page.letters))) == {
        "failed": number - 2, "redriven": 1, "gone": 1,
    }  # fmt: skip
    assert page.messages == number
    handled = client.dead_letters.redrive()
    assert Counter(str(one.result) for one in handled) == {"redriven": number - 2, "dropped": 2}
    assert handled.complete
    assert client.dead_letters.list().letters == ()
    assert client.get("t2").run == client.get(f"t{number - 1}").run == client.get("t0").run == 2
    assert client.bucket_departures(BUCKET) == {"redrivenFailed": number - 1}
