"""Batches of statements: a refused statement fails alone, a throttled one is sent again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.builders import scheduled_row

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate, Unknown, Written, as_read
from dynatick.engine.ports import StoreFailure
from dynatick.store import partiql
from dynatick.store.dynamodb import ANSWER_BYTES, TRIES, DynamoStore
from dynatick.store.large import LargeItem
from dynatick.store.wire import Wire


class Service:
    """Refuses a whole request because of one statement, as DynamoDB does for some faults."""

    def __init__(self, code: str = "ValidationException") -> None:
        self.code = code
        self.batches: list[int] = []

    def call(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        statements: Sequence[Mapping[str, Any]] = request["Statements"]
        self.batches.append(len(statements))
        if any({"S": "poison"} in statement["Parameters"] for statement in statements):
            raise ClientError({"Error": {"Code": self.code, "Message": "no"}}, operation)
        return {"Responses": [{} for _ in statements]}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    monkeypatch.setattr(Wire, "call", lambda wire, *args: made.call(*args))
    return made


def test_a_statement_that_the_table_refuses_fails_alone(service: Service) -> None:
    store = DynamoStore("tasks", region="us-east-1")
    ids = [f"t{n}" for n in range(10)] + ["poison"] + [f"u{n}" for n in range(10)]
    results = store.write_many([ConditionalUpdate(task_id=i, set={"n": 1}) for i in ids])
    assert [isinstance(result, Written) for result in results] == [i != "poison" for i in ids]
    assert results[10] == Unknown("ValidationException: An error occurred (ValidationException) when calling the "
                                  "BatchExecuteStatement operation: no")  # fmt: skip
    assert service.batches == [21] + [1] * 21
    answers = store.create_many([scheduled_row(i, Bucket(0)) for i in ids])
    assert [answer is True for answer in answers] == [i != "poison" for i in ids]
    assert isinstance(answers[10], StoreFailure)


def test_a_batch_is_not_split_after_other_faults(service: Service) -> None:
    """Parts of it may have taken effect, and the SDK has retried it already."""
    service.code = "ServiceUnavailable"
    store = DynamoStore("tasks", region="us-east-1", pause=lambda seconds: None)
    results = store.write_many([ConditionalUpdate(task_id=i, set={"n": 1}) for i in ("a", "poison")])
    assert all(isinstance(result, Unknown) for result in results)
    assert service.batches == [2]


@pytest.mark.parametrize("code", ["ValidationException", "ValidationError"])
def test_updates_with_several_removes_are_sent_singly_to_an_engine_that_accepts_one(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    def call(wire: Wire, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        several = [one["Statement"].count(" REMOVE ") > 1 for one in request["Statements"]]
        if any(several) and code == "ValidationException":
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, operation)
        return {"Responses": [{"Error": {"Code": code, "Message": "no"}} if refused else {} for refused in several]}

    monkeypatch.setattr(Wire, "call", call)
    store = DynamoStore("tasks", region="us-east-1")
    alone: list[str] = []

    def write(change: ConditionalUpdate) -> Written:
        alone.append(change.task_id)
        return Written()

    monkeypatch.setattr(store, "write", write)
    removed = {"none": (), "one": ("a",), "two": ("a", "b"), "three": ("a", "b", "c")}
    results = store.write_many(
        [ConditionalUpdate(task_id=i, set={"n": 1}, remove=names) for i, names in removed.items()]
    )
    assert results == [Written()] * 4
    assert alone == ["two", "three"]


@pytest.mark.parametrize(("letters", "fits"), [(8100, True), (8200, False)])
def test_a_statement_fits_up_to_the_maximum_length(letters: int, fits: bool) -> None:
    statement = partiql.insert("tasks", {"taskId": {"S": "a"}, "n" * letters: {"N": "1"}})
    assert partiql.fits(statement) == fits
    assert (len(statement["Statement"]) <= 8192) == fits


@pytest.mark.parametrize("name", ["#status", ":now", "#"])
@pytest.mark.parametrize("where", ["set", "remove", "when", "absent"])
def test_an_update_with_a_name_like_a_placeholder_is_sent_singly(name: str, where: str) -> None:
    """Users may have such attributes, and conditions refer to them."""
    row = {name: 1} if where == "when" else {}
    change = ConditionalUpdate(
        task_id="a",
        set={"status": "failed"} | ({name: 1} if where == "set" else {}),
        remove=(name,) if where == "remove" else (),
        conditions=as_read(row, "status", *([name] if where in ("when", "absent") else [])),
    )
    assert partiql.update("tasks", change) is None
    assert (
        partiql.update("tasks", ConditionalUpdate(task_id="a", set={"a#": 1}, conditions=as_read({}, "b:"))) is not None
    )


def test_after_large_rows_a_batch_has_fewer_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an answer shows how large the rows are."""
    batches: list[int] = []
    size = [ANSWER_BYTES // 5]

    def call(wire: Wire, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        batches.append(len(request["Statements"]))
        item = LargeItem({"taskId": {"S": "t"}}, {"payload": b" " * size[0]} if size[0] else {})
        return {"Responses": [{"Item": item} for _ in request["Statements"]]}

    monkeypatch.setattr(Wire, "call", call)
    store = DynamoStore("tasks", region="us-east-1")
    changes = [ConditionalUpdate(task_id=f"t{n}", set={"n": 1}, returning=True) for n in range(37)]
    assert all(isinstance(result, Written) for result in store.write_many(changes))
    assert batches == [25, 5, 5, 2]
    size[0] = ANSWER_BYTES * 2
    store.write_many(changes[:7])
    size[0] = 0
    store.write_many(changes)
    assert batches == [25, 5, 5, 2, 5, 1, 1, 1, 25, 11]


THROTTLED = {"Error": {"Code": "ProvisionedThroughputExceeded", "Message": "slow down"}}


@pytest.mark.parametrize(("times", "written"), [(1, True), (TRIES - 1, True), (TRIES, False)])
def test_a_throttled_statement_is_sent_again(times: int, written: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    waits: list[float] = []

    def call(wire: Wire, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        statements = request["Statements"]
        batches.append(len(statements))
        hot = len(batches) <= times
        return {"Responses": [THROTTLED if hot and {"S": "hot"} in one["Parameters"] else {} for one in statements]}

    monkeypatch.setattr(Wire, "call", call)
    store = DynamoStore("tasks", region="us-east-1", pause=waits.append)
    results = store.write_many([ConditionalUpdate(task_id=task_id, set={"n": 1}) for task_id in ("a", "hot", "b")])
    assert [type(results[0]), type(results[2])] == [Written, Written]
    assert type(results[1]) is (Written if written else Unknown)
    assert batches == [3] + [1] * min(times, TRIES - 1)
    assert len(waits) >= len(batches) - 1
