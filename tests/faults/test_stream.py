"""The stream delivers records twice, late, out of order, or fails half-way, and brings rows that are malformed."""

from __future__ import annotations

import random
from typing import Any

from tests.sandbox.journal import INSERT
from tests.sandbox.seam import Fault
from tests.sandbox.stream import not_done, sequence
from tests.sandbox.world import World

Value = dict[str, Any]


def nested(levels: int) -> Value:
    value: Value = {"S": "bottom"}
    for _ in range(levels):
        value = {"L": [value]}
    return value


# What no task can be made of: it ends as failed, with a reason and a dead letter.
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


def test_fault_09_malformed_rows_in_a_batch(world: World) -> None:
    """Each malformed row is marked with its reason, or read as what it means; the others go on."""
    good = [(f"good-{n:02d}", {"delaySeconds": {"N": "30"}}) for n in range(40)]
    mixed = [*good[:20], *BAD.items(), *ODD.items(), *good[20:]]
    for task_id, values in mixed:
        world.dynamodb.put_item(TableName=world.table, Item={"taskId": {"S": task_id}, **values})
    world.note(INSERT, *(task_id for task_id, _ in mixed), fails=BAD)
    records = world.stream.new()
    assert len(records) == len(mixed) <= 100
    (outcome,) = world.deliver(records)  # one batch, and it is not sent again
    assert outcome.value == {"batchItemFailures": []}

    world.assert_survived(failed=len(BAD))
    rows = world.rows()
    for task_id, row in ((task_id, rows[task_id]) for task_id in BAD):
        assert (row["outcome"], row["status"]) == ("failed", "failed"), row
        assert task_id == "status-failed" or len(str(row["error"])) > 10, row
        assert "attempts" not in row
    assert {rows[task_id]["outcome"] for task_id in ODD} == {"completed"}
    errors = {letter["taskId"]: letter["error"] for letter in world.dead_letters()}
    assert set(errors) == set(BAD)
    assert all(len(error) > 10 for error in errors.values())
    assert "by hand" in errors["status-failed"]


def test_fault_16_records_come_twice(world: World) -> None:
    for number in range(60):
        world.put(taskId=f"t{number:02d}", **({"delaySeconds": 30} if number % 2 else {}))
    records = world.stream.new()
    world.deliver([record for record in records for _ in range(2)])  # in one batch
    once = world.rows()
    world.deliver(records)  # and in another
    world.deliver(records[::-1])
    assert world.rows() == once
    world.next_tick()
    world.deliver(records)  # long after: they run, or have run
    world.finish()
    world.deliver(records)
    assert not world.open()
    world.assert_survived()


def test_fault_16_records_of_rows_that_are_gone_or_others_by_now(world: World) -> None:
    """The stream is late: a row was deleted, replaced, cancelled or had its time changed since, several times over."""
    ids = [f"t{number:02d}" for number in range(80)]
    for task_id in ids:
        world.put(taskId=task_id, delaySeconds=30)
    for number, task_id in enumerate(ids):
        match number % 5:
            case 0:
                world.delete(task_id)
            case 1:
                world.put(taskId=task_id, delaySeconds=90)
            case 2:
                world.cancel(task_id)
            case 3:
                world.reschedule(task_id, delay_seconds=90)
            case 4:
                world.delete(task_id)
                world.put(taskId=task_id, delaySeconds=40)
    records = world.stream.new()
    random.Random(16).shuffle(records)  # worse than any stream: even those of one row are out of order
    world.deliver(records)
    assert len(world.rows()) == 80 - 16
    world.next_tick()
    world.assert_survived(executed=48, deleted=32, replaced=16, cancelled=16)


def test_fault_16_a_batch_fails_half_way(world: World) -> None:
    """Some writes of a batch are refused for good: the scheduler reports these records and no others."""
    malformed = {f"t{n:02d}" for n in range(5, 80, 16)}
    for task_id in (f"t{n:02d}" for n in range(80)):
        more = {"payload": "no map", "fails": True} if task_id in malformed else {}
        world.put(taskId=task_id, delaySeconds=30, **more)
    records = world.stream.new()
    faults = [
        Fault(at="other", do="throttle parts", amount=0.2, times=None),  # the writes that normalise, in batches
        Fault(at="other", do="refuse", chance=0.9, times=None),  # and singly
        Fault(at="dead letters", do="refuse", times=2),
    ]
    outcome = world.invoke({"Records": records}, function="scheduler", faults=faults)
    assert outcome.what == "returned"
    assert len(outcome.hits) >= 2
    rows = world.rows()
    # Those whose message the queue refused stay open, and wait for a tick.
    untouched = {task_id for task_id, row in rows.items() if not row.keys() & {"status", "malformedReason"}}
    assert untouched
    by_number = {sequence(record): record["dynamodb"]["Keys"]["taskId"]["S"] for record in records}
    failed = {by_number[failure["itemIdentifier"]] for failure in outcome.value["batchItemFailures"]}
    assert failed == untouched
    # Lambda goes back to the first that failed, and sends what was placed after it as well: that changes nothing.
    again = not_done(records, outcome.value)
    assert len(again) > len(failed)
    placed = {task_id: row for task_id, row in rows.items() if "status" in row}
    world.deliver(again)
    assert {task_id: row for task_id, row in world.rows().items() if task_id in placed} == placed
    world.assert_survived(failed=5)
    assert world.dead_letter_ids() == malformed
