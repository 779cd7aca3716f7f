"""docs/guarantees.md: the example works as it says, on moto; and its numbers are the code's."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest
from moto import mock_aws
from tests.builders import FakeClock, InProcess

from dynatick import TaskClient
from dynatick.actions import build_actions
from dynatick.domain.buckets import Grid
from dynatick.engine.rules import SKEW_MARGIN, Rules
from dynatick.store.memory import MemoryStore
from dynatick_stack import template

CHARGED = "charging 1990 cents to ada's\n"
TEXT = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text(encoding="utf-8")


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.delenv("POWERTOOLS_IDEMPOTENCY_DISABLED", raising=False)
    with mock_aws():
        yield boto3.resource("dynamodb").create_table(
            TableName="idempotency",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )


@pytest.fixture
def example(table: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The document's block, as the module of handlers."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    module = ModuleType("handlers_of_guarantees")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(block, module.__dict__)
    return module


@pytest.fixture
def world(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> InProcess:
    """Its clock is today's, for Powertools keeps the time by the machine's; and a second later it's the same minute."""
    world = InProcess(clock=FakeClock(datetime.now(UTC).replace(second=0)))
    monkeypatch.setattr(world, "actions", build_actions(handlers_module=example.__name__, clock=world.clock))
    world.tick()
    return world


@pytest.fixture
def client(world: InProcess, capsys: pytest.CaptureFixture[str]) -> TaskClient:
    """A client that has inserted the task, which has run."""
    client = TaskClient(world.store, clock=world.clock)
    client.insert("order-7", delay_seconds=1, action="charge", payload={"card": "ada's", "cents": 1990})
    world.next_tick()
    assert capsys.readouterr().out == CHARGED
    return client


def execute_again(world: InProcess) -> None:
    """The same run once more, as if its record had been lost."""
    row = {name: value for name, value in world.row("order-7").items() if name not in ("outcome", "attempts")}
    bucket = (world.clock() + timedelta(minutes=1)).strftime("%Y-%m-%d#%H:%M")
    policy = {"maximumRetryAttempts": 9, "minBackoffSeconds": 0, "maxBackoffSeconds": 0}
    assert isinstance(world.store, MemoryStore)
    world.store.put(row | {"status": "scheduled", "taskDateTime": bucket, "retryPolicy": policy})
    world.next_tick()


def test_the_work_is_done_once_although_the_task_is_executed_twice(
    world: InProcess, client: TaskClient, table: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    execute_again(world)
    view = client.get("order-7")
    assert (view.status, view.attempt, view.result) == ("completed", 2, {"charged": 1990})
    assert capsys.readouterr().out == ""
    client.run_now("order-7")
    world.next_tick()
    assert client.get("order-7").run == 2
    assert capsys.readouterr().out == CHARGED, "another run is another piece of work"
    assert len(table.scan()["Items"]) == 2


def test_another_attempts_unfinished_work_is_waited_for_until_its_deadline(
    world: InProcess, client: TaskClient, table: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (note,) = table.scan()["Items"]
    assert note["status"] == "COMPLETED"
    now = datetime.now(UTC)
    unfinished = {"id": note["id"], "status": "INPROGRESS", "expiration": int((now + timedelta(days=7)).timestamp())}

    def execute_again_with_deadline(deadline: datetime) -> None:
        table.put_item(Item=unfinished | {"in_progress_expiration": int(deadline.timestamp() * 1000)})
        execute_again(world)

    execute_again_with_deadline(now + timedelta(minutes=10))
    assert "IdempotencyAlreadyInProgressError" in str(client.get("order-7").row["attempts"])
    assert capsys.readouterr().out == ""
    execute_again_with_deadline(now - timedelta(seconds=1))
    assert client.get("order-7").status == "completed"
    assert capsys.readouterr().out == CHARGED


def test_its_numbers_names_and_libraries_are_the_codes() -> None:
    assert f"at most {SKEW_MARGIN.total_seconds():.0f} s" in TEXT
    lag = Rules(grid=Grid()).index_lag.seconds
    assert f"late, by up to {lag} s | two ticks and {2 * lag} s after" in TEXT
    for name in ("RetentionDays", "ProcessorTimeoutSeconds"):
        assert f"`{name}`" in TEXT and name in template.load()["Parameters"]
    assert "ProcessorRole" in template.load()["Resources"]
    layer = (template.ROOT / "requirements" / "layer.txt").read_text()
    for library in ("aws-lambda-powertools", "jmespath"):  # its idempotency utility imports the second
        assert re.search(rf"^{library}==", layer, re.MULTILINE)
