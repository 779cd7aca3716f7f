"""The stream delivers records twice, late, out of order, or fails half-way: then again from the first that failed."""

from __future__ import annotations

import random

from tests.faults.conftest import Report
from tests.faults.world import World
from tests.sandbox.seam import Fault
from tests.sandbox.stream import sequence


def test_fault_16_records_come_twice(world: World, report: Report) -> None:
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
    assert report(world).executed == 60


def test_fault_16_records_of_rows_that_are_gone_or_others_by_now(world: World, report: Report) -> None:
    """The stream is late: a row was deleted, replaced, cancelled or had its time changed since, several times over."""
    dice = random.Random(16)
    for number in range(80):
        world.put(taskId=f"t{number:02d}", delaySeconds=30)
    for number in range(80):
        task_id = f"t{number:02d}"
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
    dice.shuffle(records)  # worse than any stream: even those of one row are out of order
    world.deliver(records)
    assert len(world.rows()) == 80 - 16
    world.next_tick()
    world.finish()
    figures = report(world)
    assert figures.otherwise == {"deleted by hand": 32, "replaced": 16, "cancelled": 16}
    assert figures.executed == 48


def test_fault_16_a_batch_fails_half_way(world: World, report: Report) -> None:
    """Some writes of a batch are refused for good: these records are reported, by number, and no others."""
    for number in range(80):
        malformed = {"payload": "no map", "fails": True} if number % 16 == 5 else {}
        world.put(taskId=f"t{number:02d}", delaySeconds=30, **malformed)
    records = world.stream.new()
    faults = [
        Fault(at="other", do="throttle parts", amount=0.2, times=None),  # the writes that normalise, in batches
        Fault(at="other", do="refuse", chance=0.9, times=None),  # and singly
        Fault(at="letters", do="refuse", times=2),
    ]
    outcome = world.invoke({"Records": records}, function="scheduler", faults=faults)
    assert outcome.what == "returned"
    assert len(outcome.hits) >= 2
    failed = {failure["itemIdentifier"] for failure in outcome.value["batchItemFailures"]}
    open_rows = {task_id: row for task_id, row in world.rows().items() if "status" not in row}
    # Those whose message the queue refused stay open, and wait for a tick.
    untouched = {task_id for task_id, row in open_rows.items() if "malformedReason" not in row}
    assert untouched
    by_number = {sequence(record): record["dynamodb"]["Keys"]["taskId"]["S"] for record in records}
    assert {by_number[number] for number in failed} == untouched
    # Lambda goes back to the first that failed, and sends what was settled after it as well: that changes nothing.
    first = min(n for n, record in enumerate(records) if sequence(record) in failed)
    again = records[first:]
    assert len(again) > len(failed)
    settled = {task_id: row for task_id, row in world.rows().items() if "status" in row}
    world.deliver(again)
    assert {task_id: row for task_id, row in world.rows().items() if task_id in settled} == settled
    world.finish()
    figures = report(world)
    assert figures.otherwise == {"failed": 5}
    assert figures.executed == 75
    assert {letter["taskId"] for letter in world.letters()} == {f"t{n:02d}" for n in range(5, 80, 16)}
