"""Cancel and reschedule race with execution: exactly one of the two wins, and the loser is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event

import pytest
from tests.faults.conftest import NewWorld, Report
from tests.faults.world import World
from tests.sandbox.process import TIMEOUT_SECONDS
from tests.sandbox.seam import Fault

from dynatick import TransitionRefused
from dynatick.domain.buckets import Bucket, minute_of

TASKS = 240
# Two claims are under way at the most: when the third begins, one has been answered.
SLOW = [Fault(at="claim", do="freeze before", skip=2), Fault(at="claim", do="wait", amount=0.03, times=None)]


def race(world: World, ids: Sequence[str], wish: Callable[[str], object]) -> set[str]:
    """A tick executes these tasks while two threads wish for each, from both ends. Whose wish was granted.

    Both get some, however slow one of them is: the wishes begin when the tick has claimed some, and it goes on when
    the first of them was granted.
    """
    one_granted = Event()

    def try_it(part: Sequence[str]) -> set[str]:
        granted: set[str] = set()
        for task_id in part:
            try:
                wish(task_id)
                granted.add(task_id)
                one_granted.set()
            except TransitionRefused as refused:
                assert refused.status in ("running", "completed"), refused
        return granted

    sandbox = world.frozen_tick(*SLOW)
    half = len(ids) // 2
    with ThreadPoolExecutor(2) as pool:
        both = pool.map(try_it, (ids[:half], ids[: half - 1 : -1]))
        one_granted.wait(TIMEOUT_SECONDS)
        sandbox.thaw()
        first, second = both
    assert world.end(sandbox).what == "returned"
    return first | second


@pytest.mark.parametrize("wish", ["cancelled", "rescheduled"])
def test_fault_10_a_wish_races_with_execution(new_world: NewWorld, wish: str, report: Report) -> None:
    world = new_world(DYNATICK_TASK_THREADS="4")
    ids = [f"t{n:03d}" for n in range(TASKS)]
    world.insert_many([{"taskId": i, "delaySeconds": 30, "payload": {"seconds": 0.005}} for i in ids])
    later = Bucket(minute_of(world.clock()) + 4)
    granted = race(world, ids, world.cancel if wish == "cancelled" else partial(world.reschedule, task_date_time=later))
    assert 0 < len(granted) < TASKS, "nobody raced with anybody"
    world.finish()
    assert len(world.ledger.done()) == len({execution.task_id for execution in world.ledger.done()})
    executed = {execution.task_id: execution.instant for execution in world.ledger.done()}
    figures = report(world)
    if wish == "cancelled":
        assert executed.keys() == set(ids) - granted
        assert figures.otherwise == {"cancelled": len(granted)}
    else:
        assert executed.keys() == set(ids)
        assert {task_id for task_id, at in executed.items() if at >= later.instant} == granted
