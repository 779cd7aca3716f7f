"""The functions as Lambda calls them: their environment, their events, and the table and queue that they use."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest
from tests.sandbox.stream import as_event
from tests.unit.api.support import event

from dynatick.actions import handler_secrets
from dynatick.domain.instants import EPOCH
from dynatick.engine.cursor import Cursor, cursor_id
from dynatick_stack.template import table_definition

FUNCTIONS = Path(__file__).parents[2] / "functions"
TABLE = "tasks"


@dataclass
class LambdaContext:
    function_name: str = "processor"
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:123456789012:function:processor"
    aws_request_id: str = "request"
    ends: datetime = field(default_factory=lambda: datetime.now(UTC) + timedelta(seconds=60))

    def get_remaining_time_in_millis(self) -> int:
        return int((self.ends - datetime.now(UTC)).total_seconds() * 1000)


@dataclass
class Deployed:
    table: Any
    queue: Any
    scheduler: ModuleType
    processor: ModuleType
    api: ModuleType
    importer: ModuleType
    streams: Any

    def stream(self) -> dict[str, Any]:
        """Returns all records of the table's stream so far, as Lambda sends them."""
        arn = boto3.client("dynamodb").describe_table(TableName=TABLE)["Table"]["LatestStreamArn"]
        shard = self.streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"][0]["ShardId"]
        begin = self.streams.get_shard_iterator(StreamArn=arn, ShardId=shard, ShardIteratorType="TRIM_HORIZON")
        return {"Records": as_event(self.streams.get_records(ShardIterator=begin["ShardIterator"])["Records"])}

    def settle(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.scheduler.handler(self.stream(), LambdaContext("scheduler"))
        return answer

    def tick(self, at: datetime) -> None:
        event = {"source": "aws.events", "detail-type": "Scheduled Event", "time": at.strftime("%Y-%m-%dT%H:%M:00Z")}
        self.processor.handler(event, LambdaContext())

    def drained_through(self, minute: int) -> None:
        """Puts the cursor as it is after the tick of that minute."""
        through = dict.fromkeys(("closed_through", "drained_through", "polled_through", "checkpoint"), minute)
        cursor = Cursor(shard=0, checkpoint_at=EPOCH, **through)
        self.table.put_item(Item={"taskId": cursor_id(0), **cursor.to_row()})

    def request(self, method: str, path: str, body: object = None, query: str = "", **headers: str) -> dict[str, Any]:
        """Sends an event of API Gateway, and returns the response."""
        answer: dict[str, Any] = self.api.handler(
            event(method, path, body, query=query, **headers), LambdaContext("api")
        )
        return answer

    def row(self, task_id: str) -> dict[str, Any]:
        row: dict[str, Any] = self.table.get_item(Key={"taskId": task_id})["Item"]
        return row


def deploy(monkeypatch: pytest.MonkeyPatch, service: str, *, batched: bool) -> Deployed:
    """Makes table and queue where the environment's AWS is, and loads the functions as Lambda would.

    ``service``: Powertools keeps a logger, and the stream that it writes to, by the service's name.
    """
    monkeypatch.setattr(handler_secrets._Current, "secrets", None)  # those before, when the test is over
    boto3.client("dynamodb").create_table(TableName=TABLE, **table_definition())
    queue = boto3.resource("sqs").create_queue(QueueName="dead-letters")
    for name, value in {
        "DYNATICK_TABLE": TABLE,
        "DYNATICK_DEAD_LETTER_QUEUE_URL": queue.url,
        "DYNATICK_BATCHED": str(int(batched)),
        "DYNATICK_HANDLERS_MODULE": "handlers",
        "DYNATICK_ASSIGNMENT_POLICY": "assignment:next_tick",
        "AWS_LAMBDA_FUNCTION_NAME": "processor",
        "POWERTOOLS_SERVICE_NAME": service,
        "POWERTOOLS_METRICS_NAMESPACE": "Dynatick",
    }.items():
        monkeypatch.setenv(name, value)
    scheduler, processor, api = (_load(name, monkeypatch) for name in ("scheduler", "processor", "api"))
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "importer")
    return Deployed(
        table=boto3.resource("dynamodb").Table(TABLE),
        queue=queue,
        scheduler=scheduler,
        processor=processor,
        api=api,
        importer=_load("importer", monkeypatch),
        streams=boto3.client("dynamodbstreams"),
    )


def _load(function: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A function's app module, with its folder on the path as Lambda has it."""
    folder = FUNCTIONS / function
    monkeypatch.syspath_prepend(str(folder))
    for name in ("handlers", "assignment"):
        sys.modules.pop(name, None)
    spec = importlib.util.spec_from_file_location(f"{function}_app", folder / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
