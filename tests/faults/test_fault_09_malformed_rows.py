"""Malformed rows in a batch of the stream: each is marked with its reason or taken as what it means; others go on."""

from __future__ import annotations

from typing import Any

from tests.faults.conftest import Report
from tests.faults.world import World
from tests.sandbox.journal import INSERT

Value = dict[str, Any]


def nested(levels: int) -> Value:
    value: Value = {"S": "bottom"}
    for _ in range(levels):
        value = {"L": [value]}
    return value


# What no task can be made of: it ends as failed, with a reason and a letter.
BAD: dict[str, dict[str, Value]] = {
    "time-word": {"taskDateTime": {"S": "tomorrow"}},
    "time-naive": {"taskDateTime": {"S": "2026-12-31T12:30:00"}},
    "time-no-such-day": {"taskDateTime": {"S": "2026-02-31#12:00"}},
    "time-shard": {"taskDateTime": {"S": "2026-12-31#12:30#-1"}},
    "due-truth": {"dueAt": {"BOOL": True}},
    "due-binary": {"dueAt": {"B": b"\x00\xff"}},
    "delay-negative": {"delaySeconds": {"N": "-5"}},
    "action-number": {"action": {"N": "7"}},
    "payload-text": {"payload": {"S": "to: me"}},
    "policy-unknown": {"retryPolicy": {"M": {"retries": {"N": "3"}}}},
    "status-unknown": {"status": {"S": "urgent"}},
    "status-failed": {"status": {"S": "failed"}},  # its status says so itself
    "schedule-number": {"scheduleId": {"N": "1"}},
}
# What means something all the same, or is no business of ours: these run.
ODD: dict[str, dict[str, Value]] = {
    "odd-created": {"createdAt": {"S": "long ago"}},
    "odd-attempt": {"attempt": {"S": "first"}, "status": {"S": "scheduled"}},
    "odd-lease": {"lease": {"N": "5"}, "leaseUntil": {"BOOL": False}, "startedAt": {"L": []}},
    "odd-outcome": {"outcome": {"NULL": True}},
    "odd-attempts": {"attempts": {"S": "many"}, "result": {"B": b"\x00"}, "error": {"N": "1"}},
    "odd-payload": {"payload": {"M": {"deep": nested(25), "binary": {"BS": [b"\xff", b"\x00"]}}}},
    "odd-names": {"a.b": {"S": "dot"}, "O'Neil": {"S": "quote"}, '"': {"NS": ["1", "2"]}, "#": {"NULL": True}},
    "odd-ï\u2603\U0001f600": {"movedTo": {"N": "1"}},
}
GOOD = 40


def test_fault_09_malformed_rows_in_a_batch(world: World, report: Report) -> None:
    rows = [(task_id, values) for kind in (BAD, ODD) for task_id, values in kind.items()]
    good = [(f"good-{n:02d}", {"delaySeconds": {"N": "30"}}) for n in range(GOOD)]
    mixed = [*good[: GOOD // 2], *rows, *good[GOOD // 2 :]]
    for task_id, values in mixed:
        world.dynamodb.put_item(TableName=world.table, Item={"taskId": {"S": task_id}, **values})
    world.note(INSERT, *(task_id for task_id, _ in mixed), fails=BAD)
    records = world.stream.new()
    assert len(records) == len(mixed) <= 100
    (outcome,) = world.deliver(records)  # one batch, and it is not sent again
    assert outcome.value == {"batchItemFailures": []}

    world.finish()
    table = world.rows()
    for task_id in BAD:
        row = table[task_id]
        assert (row["outcome"], row["status"]) == ("failed", "failed"), row
        assert task_id == "status-failed" or len(str(row["error"])) > 10, row
        assert "attempts" not in row
    for task_id in ODD:
        assert table[task_id]["outcome"] == "completed", table[task_id]
    letters = {letter["taskId"]: letter["error"] for letter in world.letters()}
    assert set(letters) == set(BAD)
    assert all(len(error) > 10 for error in letters.values())
    assert "by hand" in letters["status-failed"]

    figures = report(world)
    assert figures.executed == len(ODD) + GOOD
    assert figures.otherwise == {"failed": len(BAD)}
