"""A write to two systems fails half-way: one table is the truth, and everything else is derived from it again."""

from __future__ import annotations

from tests.faults.conftest import Report
from tests.faults.world import AFTER_LEASE, World
from tests.sandbox.seam import Fault

from dynatick.domain.task import SYSTEM_PREFIX

RECONCILE = {"dynatick": {"reconcile": True}}


def test_fault_11_dies_between_letter_and_record(world: World, report: Report) -> None:
    """The dead-letter message goes first: it may come twice, and no failure goes unheard."""
    world.insert_many([{"taskId": f"t{n:02d}", "delaySeconds": 30, "payload": {"permanent": True}} for n in range(10)])
    # After whichever message comes first: two batches may be on their way at once.
    assert world.next_tick(faults=[Fault(at="letters", do="kill after", times=None)]).what == "killed"
    assert world.open() == world.inserted
    world.clock.forward(seconds=AFTER_LEASE)
    world.finish()
    letters = [letter["taskId"] for letter in world.letters()]
    assert set(letters) == world.inserted
    assert len(letters) > len(world.inserted)
    assert report(world).otherwise == {"failed": 10}


def test_fault_11_what_we_keep_beside_the_tasks_is_deleted(world: World, report: Report) -> None:
    """Cursors, settings, tick records: deleted by hand, with tasks overdue, due and still to come."""
    world.insert_many([{"taskId": f"t{n:03d}", "delaySeconds": 30 * n} for n in range(40)])
    world.next_tick()
    world.clock.forward(minutes=7)
    table = world.dynamodb.scan(TableName=world.table)["Items"]
    own = [row["taskId"] for row in table if row["taskId"]["S"].startswith(SYSTEM_PREFIX)]
    assert len(own) >= 3
    for key in own:
        world.dynamodb.delete_item(TableName=world.table, Key={"taskId": key})
    assert world.next_tick().what == "returned"
    assert world.invoke(RECONCILE).what == "returned"
    world.finish()
    assert report(world).executed == 40
