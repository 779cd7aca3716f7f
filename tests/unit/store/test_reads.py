"""Reads that the protocol needs: consistent, and of every requested row."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.session import Session

from dynatick.errors import StoreError
from dynatick.store.dynamodb import TRIES, DynamoStore

Answer = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


class _Raw(BytesIO):
    def stream(self, **_: object) -> list[bytes]:
        return [self.read()]


def store_with(answer: Answer) -> DynamoStore:
    """A store whose requests ``answer`` handles."""

    def send(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        operation = request.headers["X-Amz-Target"]
        name = (operation.decode() if isinstance(operation, bytes) else operation).rpartition(".")[2]
        body = json.dumps(answer(name, json.loads(request.body))).encode()
        headers: Any = {"Content-Type": "application/x-amz-json-1.0"}
        return AWSResponse(request.url, 200, headers, _Raw(body))

    session = Session()
    session.set_credentials("AKID", "secret")
    session.register("before-send.dynamodb", send)
    return DynamoStore("tasks", region="eu-west-1", session=session, pause=lambda seconds: None)


@pytest.mark.parametrize(
    ("read", "operation"),
    [(lambda store: store.get("t"), "GetItem"), (lambda store: store.get_many(["t"]), "BatchGetItem"),
     (lambda store: store.scan(), "Scan"),
     (lambda store: store.scan(segment=1, segments=4), "Scan")], ids=["a row", "rows", "the table", "a segment"],
)  # fmt: skip
def test_rows_are_read_consistently(read: Callable[[DynamoStore], object], operation: str) -> None:
    """The closed watermark is read after a row's image; an older one would leave the row in a bucket that is closed."""
    asked: list[tuple[str, object]] = []

    def answer(name: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        part = request["RequestItems"]["tasks"] if name == "BatchGetItem" else request
        asked.append((name, part.get("ConsistentRead")))
        return {"Responses": {"tasks": []}, "Items": [], "Count": 0, "ScannedCount": 0}

    read(store_with(answer))
    assert asked == [(operation, True)]


@pytest.mark.parametrize("times", [0, 1, TRIES - 1, TRIES])
def test_unprocessed_keys_are_requested_again(times: int) -> None:
    """An unread row must not count as missing."""
    asked: list[list[str]] = []

    def answer(name: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        keys = request["RequestItems"]["tasks"]["Keys"]
        asked.append([key["taskId"]["S"] for key in keys])
        left = [key for key in keys if key["taskId"]["S"] == "slow"] if len(asked) <= times else []
        unprocessed = {"UnprocessedKeys": {"tasks": {"Keys": left}}} if left else {}
        return {"Responses": {"tasks": [key for key in keys if key not in left]}, **unprocessed}

    store = store_with(answer)
    if times == TRIES:
        with pytest.raises(StoreError, match=f"cannot read rows: 1 keys were left unprocessed {TRIES} times"):
            store.get_many(["a", "slow", "b"])
    else:
        assert set(store.get_many(["a", "slow", "b"])) == {"a", "slow", "b"}
    assert asked == [["a", "slow", "b"], *[["slow"]] * min(times, TRIES - 1)]
