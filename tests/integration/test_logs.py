"""Failure mode 22, logs: with any ids, actions and errors, each event is one line of JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.integration.deployed import Deployed, LambdaContext

from dynatick.domain.buckets import Bucket, minute_of

FORGED = '{"level":"CRITICAL","action":"forged"}'
IDS = {
    "new lines": f"a\r\n{FORGED}\n",
    "a separator": f"a\u2028{FORGED}\u0085",
    "a terminal's orders": "a\x1b[2J\x1b]0;title\x07",
    "json": FORGED,
    "quotes": 'a", "level": "CRITICAL',
    "null": "a\x00b",
}


Lines = list[Mapping[str, Any]]


@pytest.fixture
def log(deployed: Deployed) -> Callable[[], Lines]:
    """Returns the output of the functions line by line, as CloudWatch splits it."""
    stream = io.StringIO()
    for function in (deployed.scheduler, deployed.processor):
        for handler in function.logger.handlers:
            if type(handler) is logging.StreamHandler:
                handler.setStream(stream)

    def lines() -> Lines:
        out = stream.getvalue()
        assert out.isascii() and all(line.isprintable() for line in out.splitlines())
        lines = [json.loads(line) for line in out.split("\n") if line]
        assert all(isinstance(line, dict) for line in lines)
        return lines

    return lines


@pytest.mark.parametrize("name", IDS)
def test_ids_and_actions_stay_within_their_line(deployed: Deployed, log: Callable[[], Lines], name: str) -> None:
    task_id, now = IDS[name], datetime.now(UTC)
    deployed.drained_through(minute_of(now) - 1)
    row = {"taskDateTime": str(Bucket(minute_of(now))), "status": "scheduled", "attempt": 0, "run": 1}
    deployed.table.put_item(Item={"taskId": task_id, "action": "log", **row})
    deployed.table.put_item(Item={"taskId": "of no action", "action": task_id, **row})
    deployed.table.put_item(Item={"taskId": f"{task_id}?", "action": {"un": "fit"}})
    deployed.settle()
    deployed.tick(now)
    lines = log()
    assert [line["task_id"] for line in lines if line.get("action") == "task_logged"] == [task_id]
    assert {"batch_ended", "pass_ended"} <= {line.get("action") for line in lines}
    assert not [line for line in lines if line.get("action") == "forged" or line.get("level") == "CRITICAL"]
    assert deployed.row("of no action")["outcome"] == "failed"
    assert deployed.row("of no action")["error"].isprintable()


def test_the_findings_of_the_reconcile_stay_within_their_line(deployed: Deployed, log: Callable[[], Lines]) -> None:
    for task_id in IDS.values():
        deployed.table.put_item(Item={"taskId": task_id})
    deployed.processor.handler({"dynatick": {"reconcile": True}}, LambdaContext())
    (line,) = [line for line in log() if line.get("action") == "reconcile_ended"]
    assert sorted(line["examples"]) == sorted(f"{task_id}: it was never normalised" for task_id in IDS.values())


def test_events_and_faults_are_logged_with_metrics_and_without_payloads(
    deployed: Deployed, log: Callable[[], Lines], capsys: pytest.CaptureFixture[str]
) -> None:
    secret, malformed = {"password": "hunter2"}, IDS["new lines"]
    deployed.table.put_item(Item={"taskId": malformed, "action": 7, "payload": secret})
    deployed.table.put_item(Item={"taskId": "fine", "payload": secret})
    deployed.queue.delete()  # so that the rejection cannot be sent
    assert deployed.settle() == {"batchItemFailures": []}
    assert deployed.row("fine")["status"] == "scheduled"
    assert "outcome" not in deployed.row(malformed)
    assert "action" in str(deployed.row(malformed)["malformedReason"]), "a tick tries again"
    deployed.tick(datetime.now(UTC))
    assert {"batch_ended", "dead_letters_unsent", "pass_ended"} <= {line.get("action") for line in log()}
    written = capsys.readouterr().out
    metrics = {key for line in written.splitlines() if '"_aws"' in line for key in json.loads(line)}
    assert {"Records", "TickAge"} <= metrics
    assert "hunter2" not in written + json.dumps(log())
