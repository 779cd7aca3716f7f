"""Time runs out before the bucket is drained: claimed work is finished or given back, the rest goes on at once."""

from __future__ import annotations

from tests.faults.conftest import NewWorld, Report
from tests.sandbox.seam import Fault

from dynatick.domain.task import Row
from dynatick.engine.report import tick_record_id

TASKS = 200
NO_MORE = 101.0  # seconds after which an invocation's life has none left to begin a task, and some to record it


def test_fault_20_the_rest_goes_on_in_a_new_invocation(new_world: NewWorld, report: Report) -> None:
    world = new_world(DYNATICK_TASK_THREADS="4")
    world.insert_many([{"taskId": f"t{n:03d}", "delaySeconds": 30, "payload": {"seconds": 0.1}} for n in range(TASKS)])
    # Two claims are under way at the most: when the third begins, one has been answered.
    sandbox = world.frozen_tick(Fault(at="claim", do="freeze before", skip=2))
    world.clock.forward(seconds=NO_MORE)
    world.thaw(sandbox)
    assert world.run_started()

    # One tick, and what it started: nothing waits for another tick, nothing was done twice, no attempt was lost.
    assert len(world.ledger.done()) == TASKS
    rows = world.rows()
    assert {row["outcome"] for row in rows.values()} == {"completed"}
    assert {row["attempt"] for row in rows.values()} == {1}
    (cursor,) = world.cursors()
    records: list[Row] = []
    while (record := world.store.get(tick_record_id(cursor.closed_through, 0, len(records)))) is not None:
        records.append(record)
    assert len(records) >= 2
    assert records[0]["continued"] is True
    assert int(str(records[0]["released"])) > 0
    assert sum(int(str(record["completed"])) for record in records) == TASKS
    world.finish()
    assert report(world).executed == TASKS
