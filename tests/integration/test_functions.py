"""Scheduler and processor as Lambda calls them, on moto: their environment, their events, their answers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tests.integration.deployed import Deployed, LambdaContext

from dynatick.domain.buckets import Bucket, minute_of


def test_rows_are_placed_and_run_or_fail_alone_and_the_reconcile_finds_what_no_tick_polls(deployed: Deployed) -> None:
    """Failure mode 9; records that come twice change nothing (failure mode 16)."""
    now = datetime.now(UTC)
    rows: dict[str, dict[str, Any]] = {
        "bare": {"payload": {"b": b"\x00\xff", "n": 1}},
        "good": {"action": "send-reminder", "payload": {"to": "a@b.c", "text": "hello"}},
        "unfit": {"action": "send-reminder", "payload": {"to": 1}},
        "bad": {"taskDateTime": "tomorrow", "retryPolicy": {"maximumRetryAttempts": -1}},
    }
    for name, row in rows.items():
        deployed.table.put_item(Item={"taskId": name, **row})
    assert deployed.settle() == {"batchItemFailures": []}
    bad = deployed.row("bad")
    assert bad["error"].startswith("retryPolicy.maximumRetryAttempts: ")
    (message,) = deployed.queue.receive_messages()
    assert json.loads(message.body)["taskId"] == "bad"
    settled = [deployed.row(name) for name in rows]
    deployed.settle()
    assert [deployed.row(name) for name in rows] == settled
    for row in settled[:3]:
        assert (row["status"], row["action"]) == ("scheduled", rows[row["taskId"]].get("action", "log"))
        assert Bucket.parse(row["taskDateTime"]).minute > minute_of(now)
        deployed.table.put_item(Item={**row, "taskDateTime": str(Bucket(minute_of(now)))})  # as if its time had come
    deployed.drained_through(minute_of(now) - 1)
    deployed.tick(now)
    assert {name: deployed.row(name)["outcome"] for name in rows} == {
        "bare": "completed", "good": "completed", "unfit": "failed", "bad": "failed",
    }  # fmt: skip
    assert deployed.row("good")["result"] == {"characters": 5}
    assert "payload.text" in deployed.row("unfit")["error"]

    lost = {"status": "scheduled", "attempt": 0, "taskDateTime": "2021-12-31#03:00"}
    for name, row in {"lost": lost, "unseen": {}}.items():
        deployed.table.put_item(Item={"taskId": name, **row})
    deployed.processor.handler({"dynatick": {"reconcile": True}}, LambdaContext())
    for name in ("lost", "unseen"):
        row = deployed.row(name)
        assert row["status"] == "scheduled"
        assert Bucket.parse(row["taskDateTime"]).minute >= minute_of(datetime.now(UTC))
