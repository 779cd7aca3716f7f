"""What the stream and the index leave undone: records that come twice, rows that no tick would see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.builders import key_of
from tests.e2e.support import STREAM_SECONDS, DeployedStack, Row, bucket, eventually, now

from dynatick.domain.buckets import Bucket, minute_of

pytestmark = pytest.mark.long


def records(world: DeployedStack, prefix: str) -> Iterator[dict[str, Any]]:
    """The records that the table's stream holds of these tasks, as the scheduler gets them."""
    table = world.dynamodb.describe_table(TableName=world.stack.table)["Table"]
    streams = world.stack.client("dynamodbstreams")
    for shard in streams.describe_stream(StreamArn=table["LatestStreamArn"])["StreamDescription"]["Shards"]:
        position = streams.get_shard_iterator(
            StreamArn=table["LatestStreamArn"], ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while position:
            answer = streams.get_records(ShardIterator=position)
            for record in answer["Records"]:
                if record["dynamodb"]["Keys"]["taskId"]["S"].startswith(prefix):
                    yield record
            position = answer.get("NextShardIterator") if answer["Records"] else None


def deliver(world: DeployedStack, batch: list[dict[str, Any]]) -> None:
    """Hands records to the scheduler once more."""

    def as_json(value: object) -> object:
        assert isinstance(value, datetime)
        return value.timestamp()

    answer = world.stack.client("lambda").invoke(
        FunctionName=world.stack.outputs["SchedulerFunctionName"],
        Payload=json.dumps({"Records": batch}, default=as_json).encode(),
    )
    assert "FunctionError" not in answer
    assert json.loads(answer["Payload"].read()) == {"batchItemFailures": []}


def tasks(world: DeployedStack, prefix: str) -> dict[str, Row]:
    return {row["taskId"]: row for row in world.rows() if row["taskId"].startswith(prefix)}


def test_records_that_come_again_change_nothing(world: DeployedStack) -> None:
    """At least once is what a stream promises."""
    world.put_webhook("again-done")
    world.put_webhook("again-deleted")
    world.put("again-waiting", dueAt="2030-01-01T12:00:01Z")
    world.put("again-edited", dueAt="2030-01-01T12:00:01Z")
    world.put("again-failed", taskDateTime="tomorrow")
    for task_id in ("again-done", "again-deleted", "again-waiting", "again-edited", "again-failed"):
        world.settled(task_id)
    world.delete("again-deleted")
    world.edit("again-edited", dueAt="2031-01-01T12:00:01Z")
    eventually(lambda: world.the("again-edited")["taskDateTime"] == "2031-01-01#12:01", within=STREAM_SECONDS)

    before = tasks(world, "again-")
    first = list(records(world, "again-"))
    assert {one["eventName"] for one in first} == {"INSERT", "MODIFY", "REMOVE"}
    for _ in range(2):
        deliver(world, first)
        assert tasks(world, "again-") == before

    world.run_to_end(["again-done"])
    before = tasks(world, "again-")
    # In order, in the opposite order, and each alone: what comes late tells of a past that is over.
    for batch in (first, first[::-1], *([one] for one in first)):
        deliver(world, batch)
        assert tasks(world, "again-") == before
    assert world.row("again-deleted") is None
    assert len(world.letters_of("again-failed")) == 1
    assert world.runs("again-done") == [("/", key_of(world.the("again-done")))]
    assert world.runs("again-deleted") == []


def test_reconcile_finds_what_no_tick_would_see(world: DeployedStack) -> None:
    payload = {"url": f"{world.receiver.url}/"}
    # What a stream that was down leaves behind: rows that nobody has looked at, in buckets that are over, or in none.
    past = str(Bucket(minute_of(now() - timedelta(hours=3))))
    created = {"action": "webhook", "payload": payload}
    scheduled = created | {"status": "scheduled", "attempt": 0, "run": 1, "dueAt": "2026-01-01T00:00:00Z"}
    world.put_unseen("lost-bare", **created)
    world.put_unseen("lost-past", taskDateTime=past, **created)
    world.put_unseen("lost-scheduled", taskDateTime=past, **scheduled)
    world.put_unseen("lost-shard", taskDateTime=f"{bucket(-180)}#77", **scheduled)
    world.put_unseen("lost-nonsense", taskDateTime="soon", **created)
    ids = ["lost-bare", "lost-past", "lost-scheduled", "lost-shard", "lost-nonsense"]
    before = tasks(world, "lost-")

    # No tick sees them.
    began = minute_of(now())
    world.run_until(lambda: minute_of(now()) > began)
    world.stack.tick()
    assert tasks(world, "lost-") == before

    world.stack.invoke_processor({"dynatick": {"reconcile": True}})
    assert world.status("lost-nonsense") == "failed"
    assert "taskDateTime: 'soon'" in world.the("lost-nonsense")["error"]
    ended = world.run_to_end(ids)
    assert {ended[task_id]["status"] for task_id in ids[:-1]} == {"completed"}
    for task_id in ids[:-1]:
        assert world.runs(task_id) == [("/", key_of(ended[task_id]))]
    # The log says so.
    reports = [
        line.record
        for line in world.stack.logs(function="processor")
        if line.record is not None and line.record.get("action") == "reconcile_ended"
    ]
    assert [report["repaired"] for report in reports] == [len(ids)]

    # And a second one finds nothing more.
    world.stack.invoke_processor({"dynatick": {"reconcile": True}})
    reports = [
        line.record
        for line in world.stack.logs(function="processor")
        if line.record is not None and line.record.get("action") == "reconcile_ended"
    ]
    assert reports[-1]["found"] == 0
