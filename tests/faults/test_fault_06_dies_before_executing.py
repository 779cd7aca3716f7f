"""The process dies between claiming and executing: its lease runs out, another tick takes over, the attempt counts."""

from __future__ import annotations

from typing import Any

from tests.faults.conftest import Report
from tests.faults.world import AFTER_LEASE, World
from tests.sandbox.seam import Fault

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
