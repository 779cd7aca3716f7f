"""A tick is missed, or comes late, or its invocation is tried again: its time is the event's, nothing is skipped."""

from __future__ import annotations

from datetime import timedelta

from tests.faults.conftest import Report
from tests.faults.world import World
from tests.sandbox.seam import Fault

from dynatick.domain.buckets import Bucket, instant_of, minute_of

EACH = 50


def test_fault_02_a_tick_is_missed_or_late(world: World, report: Report) -> None:
    first = minute_of(world.clock()) + 1
    for minute in range(first, first + 4):
        world.insert_many(
            [{"taskId": f"{minute - first}-{n:02d}", "taskDateTime": Bucket(minute)} for n in range(EACH)]
        )

    def executed() -> set[str]:
        return {execution.task_id[0] for execution in world.ledger.done()}

    # The tick of minute 0 is missed. The next one serves both.
    world.clock.to(instant_of(first + 1) + timedelta(milliseconds=200))
    assert world.tick().what == "returned"
    assert executed() == {"0", "1"}

    # The tick of minute 2 fails at once, for its first write is refused; it is tried again when the clock shows more
    # than minute 3 already, and still is the tick of minute 2. Minute 3 is on time then if wake-ups start its pass.
    late = instant_of(first + 2)
    world.clock.to(late + timedelta(milliseconds=200))
    assert world.tick(late, faults=[Fault(at="acquire shard", do="refuse")]).what == "error"
    world.clock.to(late + timedelta(seconds=95))
    assert world.tick(late).what == "returned"
    assert executed() == ({"0", "1", "2", "3"} if world.delivers_wake_ups else {"0", "1", "2"})

    # A clock that is behind: an event of a minute to come would run its tasks early, and is refused.
    ahead = world.clock() + timedelta(minutes=5)
    assert world.tick(ahead).what == "error"
    assert world.tick().what == "returned"
    assert executed() == {"0", "1", "2", "3"}

    world.finish()
    assert report(world).executed == 4 * EACH
