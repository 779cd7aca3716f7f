"""Transactions with entries of others: how DynamoDB's answers are understood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from moto import mock_aws
from tests.builders import scheduled_row

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Lost, Unknown, Written
from dynatick.engine.ports import Cancelled
from dynatick.store.dynamodb import TRANSACTION_TRIES as TRIES
from dynatick.store.dynamodb import DynamoStore
from dynatick_stack.template import table_definition

BUCKET = Bucket.parse("2026-12-31#12:00")
DONE = ConditionalUpdate(task_id="a", set={"status": "completed"}, conditions=(Is("status", "scheduled"),))


@pytest.fixture
def store() -> Iterator[DynamoStore]:
    """A table of tasks beside one of orders."""
    with mock_aws():
        resource = boto3.resource("dynamodb")
        resource.create_table(TableName="tasks", **table_definition())
        resource.create_table(
            TableName="orders",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        )
        made = DynamoStore("tasks", pause=lambda seconds: None)
        made.create(scheduled_row("a", BUCKET))
        yield made


def orders() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = boto3.resource("dynamodb").Table("orders").scan()["Items"]
    return sorted(found, key=lambda item: str(item["id"]))


def put(order_id: str, **more: object) -> dict[str, Any]:
    entry = {"TableName": "orders", "Item": {"id": order_id, **more}, "ConditionExpression": "attribute_not_exists(id)"}
    return {"Put": entry}


def status(store: DynamoStore) -> object:
    row = store.get("a")
    assert row is not None
    return row["status"]


def test_every_kind_of_entry_takes_effect_with_the_row(store: DynamoStore) -> None:
    assert store.transact(items=[put("1", n=1.5, of=["x", {"y": None}]), put("2"), put("3")]) == Written()
    update = {"TableName": "orders", "Key": {"id": "1"}, "UpdateExpression": "SET #n = :n",
              "ExpressionAttributeNames": {"#n": "n"}, "ExpressionAttributeValues": {":n": 2}}  # fmt: skip
    check = {"TableName": "orders", "Key": {"id": "3"}, "ConditionExpression": "attribute_exists(id)"}
    delete = {"TableName": "orders", "Key": {"id": "2"}}
    follow_up = {"Put": {"TableName": "tasks", "Item": scheduled_row("b", BUCKET)}}
    items = [{"Update": update}, {"ConditionCheck": check}, {"Delete": delete}, follow_up]
    assert store.transact(DONE, items=items, token="x") == Written()
    assert (status(store), store.get("b")) == ("completed", scheduled_row("b", BUCKET))
    assert orders() == [{"id": "1", "n": 2, "of": ["x", {"y": None}]}, {"id": "3"}]


def test_a_condition_of_theirs_says_which_entry_it_is(store: DynamoStore) -> None:
    store.transact(items=[put("2")])
    result = store.transact(DONE, items=[put("1"), put("2")])
    assert isinstance(result, Cancelled) and not result.permanent
    assert result.error.startswith("items[1], Put in orders: ConditionalCheckFailed")
    assert (status(store), orders()) == ("scheduled", [{"id": "2"}])


def test_a_condition_of_the_task_comes_first(store: DynamoStore) -> None:
    store.transact(items=[put("2")])
    store.write(DONE)
    assert store.transact(DONE, items=[put("1"), put("2")]) == Lost()
    assert store.transact(row=scheduled_row("a", BUCKET), items=[put("1")]) == Lost()
    assert orders() == [{"id": "2"}]


@pytest.mark.parametrize(
    "item",
    [
        {"Put": {"TableName": "orders", "Item": {"id": "1", "x": "y" * 410_000}}},
        {"Update": {"TableName": "orders", "Key": {"id": "1"}, "UpdateExpression": "no expression"}},
        {"Put": {"TableName": "nowhere", "Item": {"id": "1"}}},
    ],
)
def test_what_can_never_be_written_is_permanent(store: DynamoStore, item: dict[str, Any]) -> None:
    result = store.transact(DONE, items=[item])
    assert isinstance(result, Cancelled) and result.permanent, result
    assert (status(store), orders()) == ("scheduled", [])


def answer(*codes: str, code: str = "TransactionCanceledException") -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": "m"}}
    if codes:
        response["CancellationReasons"] = [{"Code": one, "Message": f"of {one}"} for one in codes]
    return ClientError(response, "TransactWriteItems")


@pytest.mark.parametrize(
    ("error", "tries", "expected"),
    [
        (
            answer("None", "TransactionConflict"),
            TRIES,
            Cancelled("items[0], Put in orders: TransactionConflict"),
        ),
        (answer("TransactionConflict", "None"), TRIES, Cancelled("")),
        (answer("None", "ThrottlingError"), TRIES, Cancelled("items[0], Put in orders: ThrottlingError")),
        (answer("ConditionalCheckFailed", "TransactionConflict"), 1, Lost()),
        (answer(code="TransactionInProgressException"), TRIES, Unknown("")),
        (answer(code="ThrottlingException"), 1, Cancelled("")),
        (answer(code="AccessDeniedException"), 1, Cancelled("")),
        (answer("ValidationError", "None"), 1, Unknown("", too_large=True)),
        (answer(code="InternalServerError"), 1, Unknown("")),
        (ReadTimeoutError(endpoint_url="x"), 1, Unknown("")),
    ],
)
def test_what_an_answer_means(
    store: DynamoStore, monkeypatch: pytest.MonkeyPatch, error: Exception, tries: int, expected: object
) -> None:
    sent: list[str] = []

    def refuse(**request: Any) -> None:
        sent.append(request["ClientRequestToken"])
        raise error

    monkeypatch.setattr(store._client, "transact_write_items", refuse, raising=False)
    result = store.transact(DONE, items=[put("1")], token="t")
    assert type(result) is type(expected)
    if isinstance(result, Cancelled) and isinstance(expected, Cancelled):
        assert expected.error in result.error and not result.permanent
    if isinstance(result, Unknown) and isinstance(expected, Unknown):
        assert result.too_large is expected.too_large
    assert sent == ["t"] * tries
