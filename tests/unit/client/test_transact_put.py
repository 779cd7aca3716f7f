"""A task that is inserted in a transaction with the caller's own data: it is the row that an insert would write."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ParamValidationError
from moto import mock_aws
from tests.unit.client.support import client_of, examples, page
from tests.unit.engine.support import World

from dynatick import InvalidInput, NewTask, TaskClient, TaskExists, use_client
from dynatick.store.codec import decode
from dynatick.testing import VirtualInstallation
from dynatick_stack.template import table_definition

LATER = "2026-12-31T13:00:00Z"
TASK: dict[str, Any] = {
    "due_at": LATER,
    "action": "log",
    "payload": {"half": 0.5, "tags": {"a", "b"}, "raw": b"\x01"},
    "retry_policy": {"maximumRetryAttempts": 2},
    "timeout_seconds": 30,
    "subject": "customer:4711",
    "limit_key": "customer:4711",
    "attributes": {"mine": [1, None, True]},
}


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Tables on a DynamoDB that has transactions. Returns that of the tasks."""
    monkeypatch.setenv("DYNATICK_TABLE", "tasks")
    with mock_aws():
        resource = boto3.resource("dynamodb")
        made = resource.create_table(TableName="tasks", **table_definition())
        key = {"AttributeName": "id", "AttributeType": "S"}
        resource.create_table(
            TableName="orders",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[key],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        )
        yield made


@pytest.mark.parametrize("form", ["resource", "client"])
def test_it_is_the_row_that_an_insert_writes(world: World, client: TaskClient, table: Any, form: str) -> None:
    client.insert("a", **TASK)
    put = client.transact_put(NewTask(task_id="a", **TASK), form=form)["Put"]
    assert (put["TableName"], put["ConditionExpression"]) == ("memory", "attribute_not_exists(taskId)")
    entry = {"Put": {**put, "TableName": "tasks"}}
    sdk = boto3.client("dynamodb") if form == "client" else table.meta.client
    sdk.transact_write_items(TransactItems=[entry])
    written = boto3.client("dynamodb").get_item(TableName="tasks", Key={"taskId": {"S": "a"}})["Item"]
    assert decode(written) == world.row("a")
    with pytest.raises(ClientError) as error:
        sdk.transact_write_items(TransactItems=[entry])
    assert error.value.response["CancellationReasons"][0]["Code"] == "ConditionalCheckFailed"


def test_an_entry_of_the_other_form_writes_nothing(world: World, table: Any) -> None:
    client, low_level = client_of(world), boto3.client("dynamodb")
    resource, typed = (
        {"Put": {**client.transact_put(NewTask(task_id="a", **TASK), form=form)["Put"], "TableName": "tasks"}}
        for form in ("resource", "client")
    )
    with pytest.raises(ParamValidationError):
        low_level.transact_write_items(TransactItems=[resource])
    with pytest.raises(ClientError):
        table.meta.client.transact_write_items(TransactItems=[typed])
    assert low_level.scan(TableName="tasks")["Items"] == []


def test_nothing_is_written_and_bad_input_is_refused(world: World, client: TaskClient) -> None:
    client.transact_put({"taskId": "a", "dueAt": LATER})
    assert world.store.get("a") is None
    with pytest.raises(InvalidInput, match=r"form: 'low-level' is not accepted; expected resource or client"):
        client.transact_put(NewTask(task_id="a"), form="low-level")
    with pytest.raises(InvalidInput, match=r"dueAt: 'soon' is not accepted"):
        client.transact_put(NewTask(task_id="a", due_at="soon"))
    with pytest.raises(InvalidInput, match=r"action: 'nothing' is not accepted"):
        client.transact_put(NewTask(task_id="a", action="nothing"))


def test_one_that_is_written_late_runs_at_the_next_tick() -> None:
    with VirtualInstallation(None) as installation:
        entry = installation.client.transact_put(NewTask(task_id="a", delay_seconds=60, action="log"))
        installation.advance(minutes=5)
        installation.transact([entry])
        installation.advance(minutes=1)
        assert [one.task_id for one in installation.executed] == ["a"]


@pytest.mark.parametrize("form", ["resource", "client"])
def test_the_testing_kit_writes_all_or_none_of_a_transaction(form: str) -> None:
    with VirtualInstallation(None) as installation:
        client = installation.client
        a, b = (
            client.transact_put(NewTask(task_id=name, delay_seconds=60, action="log"), form=form) for name in ("a", "b")
        )
        mine = {"Update": {"TableName": "orders"}}
        assert installation.transact([a, mine]) == [mine]
        with pytest.raises(TaskExists):
            installation.transact([b, a])
        assert [one.task_id for one in installation.waiting] == ["a"]
        installation.advance(minutes=2)
        assert [one.task_id for one in installation.executed] == ["a"]


def test_the_examples_of_the_page(
    table: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    code = "\n".join(examples(page("transactions.md")))
    with use_client(TaskClient.connect(batched=False)):
        exec(code, module.__dict__)
    said = re.findall(r"^    # (.*)$", code, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == said
    ids = sorted(str(item["taskId"]) for item in table.scan()["Items"])
    assert ids == ["remind-4711", "remind-4712", "remind-4713"]
    assert sorted(item["id"] for item in boto3.resource("dynamodb").Table("orders").scan()["Items"]) == [
        "4711", "4712", "4713",
    ]  # fmt: skip
    with VirtualInstallation(module) as installation:
        module.test_an_order_has_a_reminder(installation)
