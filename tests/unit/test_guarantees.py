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
from dynatick.domain.conditional_update import ConditionalUpdate, Result, Unknown
from dynatick.engine.rules import SKEW_MARGIN
from dynatick.store.memory import MemoryStore
from dynatick_stack import template

TEXT = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text(encoding="utf-8")


class Lossy(MemoryStore):
    """Loses records while it is asked to, as if the processes had died before writing them."""

    lost = False

    def write(self, change: ConditionalUpdate) -> Result:
        if self.lost and change.set.get("status") == "completed":
            return Unknown("the process is dead")
        return super().write(change)


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
    world = InProcess(store=Lossy(), clock=FakeClock(datetime.now(UTC).replace(second=0)))
    monkeypatch.setattr(world, "actions", build_actions(handlers_module=example.__name__, clock=world.clock))
    world.tick()
    return world


def insert(world: InProcess) -> TaskClient:
    client = TaskClient(world.store, clock=world.clock)
    payload = {"card": "ada's", "cents": 1990}
    client.insert("order-7", delay_seconds=1, action="charge", payload=payload)
    return client


def test_the_work_is_done_once_although_the_task_is_executed_twice(
    world: InProcess, table: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    client = insert(world)
    assert isinstance(world.store, Lossy)
    world.store.lost = True
    world.next_tick()
    assert client.get("order-7").status == "running", "nobody recorded what it did"
    world.store.lost = False
    world.clock.forward(minutes=5)
    world.next_tick()
    view = client.get("order-7")
    assert (view.status, view.attempt, view.result) == ("completed", 2, {"charged": 1990})
    assert capsys.readouterr().out == "charging 1990 cents to ada's\n"
    client.run_now("order-7")
    world.next_tick()
    assert client.get("order-7").run == 2
    assert capsys.readouterr().out == "charging 1990 cents to ada's\n", "another run is another piece of work"
    assert len(table.scan()["Items"]) == 2


def test_work_that_another_has_in_hand_is_waited_for_and_that_of_the_dead_is_done(
    world: InProcess, table: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    client = insert(world)
    world.next_tick()
    assert capsys.readouterr().out
    (note,) = table.scan()["Items"]
    assert note["status"] == "COMPLETED"
    alive = datetime.now(UTC) + timedelta(minutes=10)
    expires = int((datetime.now(UTC) + timedelta(days=7)).timestamp())
    unfinished = {"status": "INPROGRESS", "expiration": expires}
    table.put_item(Item={"id": note["id"], **unfinished, "in_progress_expiration": int(alive.timestamp() * 1000)})
    _again(world)
    assert "IdempotencyAlreadyInProgressError" in str(client.get("order-7").row["attempts"])
    assert capsys.readouterr().out == ""
    dead = datetime.now(UTC) - timedelta(seconds=1)
    table.put_item(Item={"id": note["id"], **unfinished, "in_progress_expiration": int(dead.timestamp() * 1000)})
    _again(world)
    assert client.get("order-7").status == "completed"
    assert capsys.readouterr().out == "charging 1990 cents to ada's\n"


def _again(world: InProcess) -> None:
    """The same run once more, as after a lost record."""
    row = {name: value for name, value in world.row("order-7").items() if name not in ("outcome", "attempts")}
    bucket = (world.clock() + timedelta(minutes=1)).strftime("%Y-%m-%d#%H:%M")
    policy = {"maximumRetryAttempts": 9, "minBackoffSeconds": 0, "maxBackoffSeconds": 0}
    assert isinstance(world.store, Lossy)
    world.store.put(row | {"status": "scheduled", "attempt": 0, "taskDateTime": bucket, "retryPolicy": policy})
    world.next_tick()


def test_its_numbers_and_names_are_the_codes() -> None:
    assert f"at most {SKEW_MARGIN.total_seconds():.0f} s" in TEXT
    for name in ("RetentionDays", "ProcessorTimeoutSeconds", "IndexLagSeconds"):
        assert f"`{name}`" in TEXT and name in template.load()["Parameters"]
    assert "ProcessorRole" in template.load()["Resources"]


def test_the_layer_has_what_the_example_imports() -> None:
    layer = (template.ROOT / "requirements" / "layer.txt").read_text()
    assert re.search(r"^aws-lambda-powertools==", layer, re.MULTILINE)
    assert re.search(r"^jmespath==", layer, re.MULTILINE), "which its idempotency utility imports"
