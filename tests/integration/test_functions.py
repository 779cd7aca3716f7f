"""Scheduler and processor as Lambda calls them, on moto: their environment, their events, their answers."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from tests.integration.deployed import Deployed, LambdaContext

from dynatick.domain.buckets import Bucket, minute_of


def test_rows_without_attributes_and_of_handlers_are_placed_and_run(deployed: Deployed) -> None:
    now = datetime.now(UTC)
    rows = {
        "bare": {"payload": {"b": b"\x00\xff", "n": 1}},
        "good": {"action": "send-reminder", "payload": {"to": "a@b.c", "text": "hello"}},
        "unfit": {"action": "send-reminder", "payload": {"to": 1}},
    }
    for name, row in rows.items():
        deployed.table.put_item(Item={"taskId": name, **row})
    assert deployed.settle() == {"batchItemFailures": []}
    for name in rows:
        row = deployed.row(name)
        assert (row["status"], row["action"]) == ("scheduled", rows[name].get("action", "log"))
        assert Bucket.parse(row["taskDateTime"]).minute > minute_of(now)
        deployed.table.update_item(  # as if its time had come: the processor refuses ticks that lie ahead
            Key={"taskId": name},
            UpdateExpression="SET taskDateTime = :b",
            ExpressionAttributeValues={":b": str(Bucket(minute_of(now)))},
        )
    deployed.drained_through(minute_of(now) - 1)
    deployed.tick(now)
    assert {name: deployed.row(name)["outcome"] for name in rows} == {
        "bare": "completed", "good": "completed", "unfit": "failed",
    }  # fmt: skip
    assert deployed.row("good")["result"] == {"characters": 5}
    assert "payload.text" in deployed.row("unfit")["error"]


def test_a_malformed_row_does_not_hold_up_the_batch(deployed: Deployed) -> None:
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


def test_an_event_without_a_time_is_refused(deployed: Deployed) -> None:
    with pytest.raises(ValueError, match=r"event\.time: None is not accepted; expected a scheduled event"):
        deployed.processor.handler({}, LambdaContext())


def test_the_reconcile_repairs_what_no_tick_polls(deployed: Deployed) -> None:
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
