"""The pass raises while a task still runs. Lambda freezes the process, and thaws it for a later invocation.

By then the task's lease is over, and another process works on it: the thread of the first must not go on.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.faults.conftest import Report
from tests.faults.world import AFTER_LEASE, World
from tests.sandbox.seam import Fault

OTHERS = 60  # with the slow one, more than two claims
LIFE = 3.0  # seconds, which the slow task outlasts

AT = {
    "end write": [Fault(at="release shard", do="refuse", times=None)],
    "tick record": [Fault(at="own row", do="refuse", times=None)],
    # The slow task is on the first page of its bucket, and three buckets have first ones.
    "page": [
        Fault(at="poll", do="small pages", amount=30, times=None),
        Fault(at="poll", do="refuse", skip=3, times=None, after="a-slow"),
    ],
    "claim": [Fault(at="claim", do="refuse", times=None, after="a-slow")],
    "record": [Fault(at="record", do="refuse", times=None)],
    "invoker": [Fault(at="invoke", do="refuse", times=None)],
    "log": [Fault(at="log", do="fail before", times=None)],
    "metrics": [Fault(at="metrics", do="fail before", times=None)],
}


@pytest.mark.parametrize("at", AT)
def test_fault_23_the_process_of_a_task_in_flight_is_not_kept(world: World, at: str, report: Report) -> None:
    world.insert_for_next_tick(["a-slow"], payload={"seconds": LIFE + 1, "slowAttempts": 1})
    world.insert_for_next_tick([f"b{n:02d}" for n in range(OTHERS)], payload={"seconds": 0.2})
    planned = 1 if world.delivers_wake_ups else 0  # buckets, which are polled before the others
    faults = [replace(fault, skip=fault.skip + planned) if fault.at == "poll" else fault for fault in AT[at]]
    outcome = world.next_tick(life=LIFE, faults=faults)
    assert world.row("a-slow")["status"] == "running"

    # The lease is over and the tick comes to the same environment, if there still is one.
    world.clock.forward(seconds=AFTER_LEASE)
    world.wait_a_moment(1.5)  # until the thread, were it still there, would have come to the end of its work
    for _ in range(4):
        world.next_tick()
        world.clock.forward(seconds=AFTER_LEASE)
    world.finish()
    ended = [(execution.attempt, execution.pid) for execution in world.ledger.done() if execution.task_id == "a-slow"]
    assert [attempt for attempt, _ in ended] == [2], "the thread of the first attempt went on in a later invocation"
    assert outcome.what == "exited"
    assert world.row("a-slow")["attempt"] == 2
    figures = report(world)
    assert figures.executed == OTHERS + 1
