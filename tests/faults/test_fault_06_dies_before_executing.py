"""The process dies between claiming and executing: its lease runs out, another tick takes over, the attempt counts."""

from __future__ import annotations

from typing import Any

from tests.faults.conftest import Report
from tests.faults.world import AFTER_LEASE, World
from tests.sandbox.seam import Fault

from dynatick.domain.buckets import Bucket

TASKS = 20  # one claim


def test_fault_06_dies_between_claiming_and_executing(world: World, report: Report) -> None:
    world.insert_many([{"taskId": f"t{n:02d}", "delaySeconds": 30} for n in range(TASKS)])
    assert world.next_tick(faults=[Fault(at="claim", do="kill after")]).what == "killed"
    assert not world.ledger.begun()
    assert {row["status"] for row in world.rows().values()} == {"running"}

    # Its leases are in force: the next tick takes over the shard, and neither runs these nor forgets them.
    assert world.next_tick().what == "returned"
    assert not world.ledger.begun()
    assert all(cursor.lease is None for cursor in world.cursors())

    world.clock.forward(seconds=AFTER_LEASE)
    assert world.finish() >= 1
    for row in world.rows().values():
        assert row["outcome"] == "completed"
        assert row["attempt"] == 2
        lost: Any = row["attempts"]
        assert [attempt["attempt"] for attempt in lost] == [1]
        assert "its process died" in lost[0]["error"]
    figures = report(world)
    assert figures.executed == TASKS
    assert figures.repeated == 0


def test_fault_06_the_lease_outlasts_the_final_poll(world: World, report: Report) -> None:
    """An invocation may live for 15 minutes, a bucket is looked at for two: one that holds a leased task is kept."""
    world.insert_many([{"taskId": f"t{n:02d}", "delaySeconds": 30} for n in range(TASKS)])
    assert world.next_tick(life=900, faults=[Fault(at="claim", do="kill after")]).what == "killed"
    (held,) = {str(row["taskDateTime"]) for row in world.rows().values()}
    for _ in range(14):
        assert world.next_tick().what == "returned"
        (cursor,) = world.cursors()
        assert Bucket(cursor.drained_through).instant < Bucket.parse(held).instant
    assert not world.ledger.begun()
    world.finish()
    figures = report(world)
    assert figures.executed == TASKS
    assert figures.repeated == 0
