"""The two functions as Lambda calls them, on moto: their environment, their events, their answers, their logs."""

from __future__ import annotations

import base64
import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest
from moto import mock_aws

from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.instants import EPOCH
from dynatick.engine.cursor import Cursor, cursor_id
from dynatick_stack.template import table_definition

FUNCTIONS = Path(__file__).parents[2] / "functions"
TABLE = "tasks"


@dataclass
class LambdaContext:
    """What Lambda hands to a handler."""

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
    streams: Any

    def stream(self) -> dict[str, Any]:
        """Every record of the table's stream so far, as Lambda gets them."""
        arn = boto3.client("dynamodb").describe_table(TableName=TABLE)["Table"]["LatestStreamArn"]
        shard = self.streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"][0]["ShardId"]
        begin = self.streams.get_shard_iterator(StreamArn=arn, ShardId=shard, ShardIteratorType="TRIM_HORIZON")
        records = self.streams.get_records(ShardIterator=begin["ShardIterator"])["Records"]
        # Over HTTP, as in a Lambda event, a record is JSON: binaries are base64 there.
        return json.loads(json.dumps({"Records": records}, default=_as_json))  # type: ignore[no-any-return]

    def settle(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.scheduler.handler(self.stream(), LambdaContext("scheduler"))
        return answer

    def tick(self, at: datetime) -> None:
        event = {"source": "aws.events", "detail-type": "Scheduled Event", "time": at.strftime("%Y-%m-%dT%H:%M:00Z")}
        self.processor.handler(event, LambdaContext())

    def row(self, task_id: str) -> dict[str, Any]:
        row: dict[str, Any] = self.table.get_item(Key={"taskId": task_id})["Item"]
        return row


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Deployed]:
    with mock_aws():
        boto3.client("dynamodb").create_table(TableName=TABLE, **table_definition())
        queue = boto3.resource("sqs").create_queue(QueueName="dead-letters")
        for name, value in {
            "DYNATICK_TABLE": TABLE,
            "DYNATICK_DEAD_LETTER_QUEUE_URL": queue.url,
            "DYNATICK_BATCHED": "0",
            "DYNATICK_HANDLERS_MODULE": "handlers",
            "DYNATICK_ASSIGNMENT_POLICY": "assignment:next_tick",
            "AWS_LAMBDA_FUNCTION_NAME": "processor",
            # Powertools keeps a logger, and the stream that it writes to, by the service's name.
            "POWERTOOLS_SERVICE_NAME": request.node.name,
            "POWERTOOLS_METRICS_NAMESPACE": "Dynatick",
        }.items():
            monkeypatch.setenv(name, value)
        yield Deployed(
            table=boto3.resource("dynamodb").Table(TABLE),
            queue=queue,
            scheduler=_load("scheduler", monkeypatch),
            processor=_load("processor", monkeypatch),
            streams=boto3.client("dynamodbstreams"),
        )


def test_a_bare_item_is_given_its_place_and_run(deployed: Deployed) -> None:
    now = datetime.now(UTC)
    deployed.table.put_item(Item={"taskId": "bare", "payload": {"b": b"\x00\xff", "n": 1}})
    assert deployed.settle() == {"batchItemFailures": []}
    row = deployed.row("bare")
    assert row["status"] == "scheduled"
    assert row["action"] == "log"
    bucket = Bucket.parse(row["taskDateTime"])
    assert bucket.minute > minute_of(now)
    deployed.table.update_item(  # as if its time had come: the processor refuses ticks that lie ahead
        Key={"taskId": "bare"},
        UpdateExpression="SET taskDateTime = :b",
        ExpressionAttributeValues={":b": str(Bucket(minute_of(now)))},
    )
    _cursor_before(deployed, minute_of(now) - 1)
    deployed.tick(now)
    assert deployed.row("bare")["outcome"] == "completed"


def test_a_bad_row_does_not_hold_up_the_batch(deployed: Deployed) -> None:
    """Failure mode 9."""
    deployed.table.put_item(Item={"taskId": "one", "delaySeconds": 30})
    deployed.table.put_item(
        Item={"taskId": "bad", "taskDateTime": "tomorrow", "retryPolicy": {"maximumRetryAttempts": -1}}
    )
    deployed.table.put_item(Item={"taskId": "two"})
    assert deployed.settle() == {"batchItemFailures": []}
    assert deployed.row("bad")["outcome"] == "failed"
    assert deployed.row("bad")["error"].startswith("retryPolicy.maximumRetryAttempts: ")
    assert {deployed.row(name)["status"] for name in ("one", "two")} == {"scheduled"}
    (message,) = deployed.queue.receive_messages()
    assert json.loads(message.body)["taskId"] == "bad"
    rows = [deployed.row(name) for name in ("one", "bad", "two")]
    deployed.settle()  # the same records once more change nothing (failure mode 16)
    assert [deployed.row(name) for name in ("one", "bad", "two")] == rows


def test_only_the_records_that_met_a_fault_come_again(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed.table.put_item(Item={"taskId": "fine"})
    deployed.table.put_item(Item={"taskId": "bad", "action": 7})
    deployed.queue.delete()  # so that the rejection cannot be told to anybody
    records = deployed.stream()["Records"]
    answer = deployed.scheduler.handler({"Records": records}, LambdaContext("scheduler"))
    assert answer == {"batchItemFailures": [{"itemIdentifier": records[1]["dynamodb"]["SequenceNumber"]}]}
    assert deployed.row("fine")["status"] == "scheduled"
    assert "outcome" not in deployed.row("bad")


def test_a_handler_runs_with_its_typed_payload(deployed: Deployed) -> None:
    now = datetime.now(UTC)
    _cursor_before(deployed, minute_of(now) - 1)
    bucket = str(Bucket(minute_of(now)))
    for name, payload in {"good": {"to": "a@b.c", "text": "hello"}, "unfit": {"to": 1}}.items():
        deployed.table.put_item(
            Item={
                "taskId": name, "taskDateTime": bucket, "action": "send-reminder", "payload": payload,
                "status": "scheduled", "attempt": 0, "run": 1,
            }
        )  # fmt: skip
    deployed.tick(now)
    assert deployed.row("good")["result"] == {"characters": 5}
    assert deployed.row("unfit")["outcome"] == "failed"
    assert "payload.text" in deployed.row("unfit")["error"]


def test_each_event_has_its_action_word_and_its_metrics(
    deployed: Deployed, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    deployed.table.put_item(Item={"taskId": "secret", "payload": {"password": "hunter2"}})
    deployed.settle()
    deployed.tick(datetime.now(UTC))
    assert {"batch_settled", "pass_ended"} <= {getattr(record, "action", None) for record in caplog.records}
    written = capsys.readouterr().out
    metrics = {key for line in written.splitlines() if '"_aws"' in line for key in json.loads(line)}
    assert {"Records", "TickAge"} <= metrics
    assert "hunter2" not in written + str([vars(record) for record in caplog.records])


def test_an_event_without_a_time_is_refused_with_what_would_be_right(deployed: Deployed) -> None:
    with pytest.raises(ValueError, match=r"event\.time: None is not accepted; expected a scheduled event"):
        deployed.processor.handler({}, LambdaContext())


def test_reconcile_mends_what_no_tick_would_see(deployed: Deployed) -> None:
    deployed.tick(datetime.now(UTC))
    deployed.table.put_item(
        Item={"taskId": "lost", "status": "scheduled", "attempt": 0, "taskDateTime": "2021-12-31#03:00"}
    )
    deployed.table.put_item(Item={"taskId": "unseen"})
    deployed.processor.handler({"dynatick": {"reconcile": True}}, LambdaContext())
    for name in ("lost", "unseen"):
        row = deployed.row(name)
        assert row["status"] == "scheduled"
        assert Bucket.parse(row["taskDateTime"]).minute >= minute_of(datetime.now(UTC))


def _cursor_before(deployed: Deployed, minute: int) -> None:
    """The cursor as an earlier tick left it."""
    cursor = Cursor(
        shard=0, closed_through=minute, drained_through=minute, looked_through=minute, mark=minute, mark_at=EPOCH
    )
    deployed.table.put_item(Item={"taskId": cursor_id(0), **cursor.to_row()})


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


def _as_json(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(f"not JSON: {value!r}")
