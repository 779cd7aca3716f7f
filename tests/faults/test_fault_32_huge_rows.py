"""Rows of 390 KB: a claim full of them, and a bucket of them among others. All end, once."""

from __future__ import annotations

import pytest
from tests.faults.conftest import NewWorld, Report

from dynatick.domain.buckets import Bucket, minute_of

HUGE = "x" * 390_000


@pytest.mark.parametrize(("huge", "others"), [(25, 0), (60, 200)], ids=["one claim", "a bucket among others"])
def test_fault_32_rows_as_large_as_they_may_be(new_world: NewWorld, huge: int, others: int, report: Report) -> None:
    """Also those that fail once, so that they are written again, and those that fail for good, with a dead letter."""
    world = new_world(DYNATICK_TASK_THREADS="4")
    due = str(Bucket(minute_of(world.clock()) + 1))
    plans: list[dict[str, object]] = [{}, {}, {"failures": 1}, {}, {"permanent": True}]
    again = {"retryPolicy": {"minBackoffSeconds": 0}}
    for number in range(huge):
        payload = plans[number % len(plans)] | {"filler": HUGE}
        world.put(taskId=f"t{number:03d}-huge", taskDateTime=due, payload=payload, **again)
    world.insert_many([{"taskId": f"t{n % huge:03d}-small-{n}", "taskDateTime": due} for n in range(others)])
    world.deliver(world.stream.new())
    assert world.next_tick().what == "returned"
    world.finish()
    failed = huge // len(plans)
    assert len(world.letters()) == failed
    figures = report(world)
    assert figures.otherwise == {"failed": failed}
    assert figures.executed == huge - failed + others
