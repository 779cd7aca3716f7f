"""Failure mode 22, logs: with any ids, actions and errors, each event is one line of JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass
class Written:
    """The output of the functions."""

    stream: io.StringIO = field(default_factory=io.StringIO)

    @property
    def lines(self) -> list[Mapping[str, Any]]:
        """Line by line, as CloudWatch splits it."""
        out = self.stream.getvalue()
        assert out.isascii() and all(line.isprintable() for line in out.splitlines())
        lines = [json.loads(line) for line in out.split("\n") if line]
        assert all(isinstance(line, dict) for line in lines)
        return lines


@pytest.fixture
def log(deployed: Deployed) -> Written:
    written = Written()
    for function in (deployed.scheduler, deployed.processor):
        for handler in function.logger.handlers:
            if type(handler) is logging.StreamHandler:
                handler.setStream(written.stream)
    return written


@pytest.mark.parametrize("name", IDS)
def test_ids_and_actions_stay_within_their_line(deployed: Deployed, log: Written, name: str) -> None:
    task_id, now = IDS[name], datetime.now(UTC)
    deployed.drained_through(minute_of(now) - 1)
    row = {"taskDateTime": str(Bucket(minute_of(now))), "status": "scheduled", "attempt": 0, "run": 1}
    deployed.table.put_item(Item={"taskId": task_id, "action": "log", **row})
    deployed.table.put_item(Item={"taskId": "of no action", "action": task_id, **row})
    deployed.table.put_item(Item={"taskId": f"{task_id}?", "action": {"un": "fit"}})
    deployed.settle()
    deployed.tick(now)
    lines = log.lines
    assert [line["task_id"] for line in lines if line.get("action") == "task_logged"] == [task_id]
    assert {"batch_ended", "pass_ended"} <= {line.get("action") for line in lines}
    assert not [line for line in lines if line.get("action") == "forged" or line.get("level") == "CRITICAL"]
    assert deployed.row("of no action")["outcome"] == "failed"
    assert deployed.row("of no action")["error"].isprintable()


def test_the_findings_of_the_reconcile_stay_within_their_line(deployed: Deployed, log: Written) -> None:
    for task_id in IDS.values():
        deployed.table.put_item(Item={"taskId": task_id})
    deployed.processor.handler({"dynatick": {"reconcile": True}}, LambdaContext())
    (line,) = [line for line in log.lines if line.get("action") == "reconcile_ended"]
    assert sorted(line["examples"]) == sorted(f"{task_id}: it was never normalised" for task_id in IDS.values())


def test_faults_are_logged_without_their_cause(deployed: Deployed, log: Written) -> None:
    deployed.table.put_item(Item={"taskId": IDS["new lines"], "action": 7, "payload": {"password": "hunter2"}})
    deployed.queue.delete()  # so that the rejection cannot be sent
    deployed.settle()
    lines = log.lines
    assert {"batch_ended", "dead_letters_unsent"} <= {line.get("action") for line in lines}
    assert "hunter2" not in json.dumps(lines)
