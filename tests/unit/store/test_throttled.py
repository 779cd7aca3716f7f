"""Throttled statements are sent again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dynatick.domain.conditional_update import ConditionalUpdate, Unknown, Written
from dynatick.store.dynamodb import TRIES, DynamoStore
from dynatick.store.wire import Wire

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
