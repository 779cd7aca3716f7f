"""More tasks in a bucket than a page of a query holds: every page is read."""

from __future__ import annotations

from tests.faults.conftest import Report
from tests.faults.world import World
from tests.sandbox.seam import Fault

from dynatick.domain.buckets import Bucket, minute_of

MANY = 2500  # with ids of 1,000 bytes more than two pages of 1 MB


def test_fault_04_pages_of_seven(world: World, report: Report) -> None:
    """Page ends fall everywhere in claims of 25, and rows that have ended leave pages empty at the next poll."""
    bucket = Bucket(minute_of(world.clock()) + 1)
    world.insert_many([{"taskId": f"t{n:03d}", "taskDateTime": bucket} for n in range(500)])
    outcome = world.next_tick(faults=[Fault(at="poll", do="small pages", amount=7, times=None)])
    assert outcome.hit > 2 * 500 / 7  # all pages, and all again
    assert len(world.ledger.done()) == 500
    world.finish()
    assert report(world).executed == 500


def test_fault_04_more_than_a_page_of_1_mb(world: World, report: Report) -> None:
    bucket = Bucket(minute_of(world.clock()) + 1)
    world.insert_many([{"taskId": f"{n:04d}" + "-" * 996, "taskDateTime": bucket} for n in range(MANY)])
    first = world.store.query_bucket(bucket)
    assert first.after is not None
    assert len(first.entries) < MANY / 2

    assert world.next_tick().what == "returned"
    assert len(world.ledger.done()) == MANY
    world.finish()
    assert report(world).executed == MANY
