"""No tick for minutes or a day while tasks arrive: none is lost, and the backlog is drained in order of due time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.faults.conftest import Report
from tests.faults.world import World

from dynatick.domain.buckets import Bucket, minute_of

CLAIMS_UNDER_WAY = 2 * 25  # entries that may overtake each other: two claims of 25, made at the same time


@pytest.mark.parametrize("minutes", [5, 10, 20, 1440])
def test_fault_03_no_tick_while_tasks_arrive(world: World, minutes: int, report: Report) -> None:
    steps = min(minutes, 60)
    for step in range(steps):
        now = world.clock()
        # For the next tick, for later within the outage, and for the time after it.
        delays = [n * min(minutes, 20) for n in range(8)] if step % 2 else [30.0, 90.0, 3 * 60.0]
        world.insert_many(
            [{"taskId": f"{step:02d}-{n}", "dueAt": now + timedelta(seconds=delay)} for n, delay in enumerate(delays)]
        )
        world.put(taskId=f"{step:02d}-raw", delaySeconds=60)
        world.deliver(world.stream.new())
        world.clock.forward(minutes=minutes / steps)
    rows = world.rows()
    assert world.next_tick().what == "returned"

    due = {task_id: Bucket.parse(row["taskDateTime"]).minute for task_id, row in rows.items()}
    backlog = sorted(minute for minute in due.values() if minute <= minute_of(world.clock()))
    assert len(backlog) > 0.8 * len(rows)
    order = [due[execution.task_id] for execution in world.ledger.done()]
    assert len(order) == len(backlog)
    for place, minute in enumerate(order):
        # No task runs before more than two claims' worth of others that were due earlier.
        assert backlog[max(place - CLAIMS_UNDER_WAY - 16, 0)] <= minute, place
        assert minute <= backlog[min(place + CLAIMS_UNDER_WAY + 16, len(backlog) - 1)], place

    world.finish()
    figures = report(world)
    assert figures.executed == figures.inserted
