"""Cancel, reschedule and redrive race with execution: exactly one of the two wins, and the loser is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from tests.builders import key_of
from tests.faults.conftest import NewWorld, Report
from tests.faults.world import LIFE, World
from tests.sandbox.process import TIMEOUT_SECONDS
from tests.sandbox.seam import Fault

from dynatick import TransitionRefused
from dynatick.domain.buckets import Bucket, instant_of, minute_of

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

    world.clock.to(instant_of(minute_of(world.clock()) + 1))
    sandbox = world.sandbox()
    sandbox.wait_until_ready()
    sandbox.begin(world.event(), life=LIFE, faults=SLOW)
    half = len(ids) // 2
    assert world.end(sandbox).what == "frozen"
    with ThreadPoolExecutor(2) as pool:
        both = pool.map(try_it, (ids[:half], ids[: half - 1 : -1]))
        one_granted.wait(TIMEOUT_SECONDS)
        sandbox.thaw()
        first, second = both
    assert world.end(sandbox).what == "returned"
    return first | second


def test_fault_10_cancel_races_with_execution(new_world: NewWorld, report: Report) -> None:
    world = new_world(DYNATICK_TASK_THREADS="4")
    ids = [f"t{n:03d}" for n in range(TASKS)]
    world.insert_many([{"taskId": i, "delaySeconds": 30, "payload": {"seconds": 0.005}} for i in ids])
    cancelled = race(world, ids, world.cancel)
    world.finish()
    executed = Counter(execution.task_id for execution in world.ledger.done())
    assert executed == {task_id: 1 for task_id in ids if task_id not in cancelled}
    assert 0 < len(cancelled) < TASKS, "nobody raced with anybody"
    figures = report(world)
    assert figures.otherwise == {"cancelled": len(cancelled)}
    assert figures.executed == TASKS - len(cancelled)


def test_fault_10_reschedule_races_with_execution(new_world: NewWorld, report: Report) -> None:
    world = new_world(DYNATICK_TASK_THREADS="4")
    ids = [f"t{n:03d}" for n in range(TASKS)]
    world.insert_many([{"taskId": i, "delaySeconds": 30, "payload": {"seconds": 0.005}} for i in ids])
    later = Bucket(minute_of(world.clock()) + 4)
    moved = race(world, ids, lambda task_id: world.reschedule(task_id, task_date_time=later))
    world.finish()
    executed = {execution.task_id: execution.instant for execution in world.ledger.done()}
    assert len(world.ledger.done()) == len(executed) == TASKS
    assert {task_id for task_id, at in executed.items() if at >= later.instant} == moved
    assert 0 < len(moved) < TASKS, "nobody raced with anybody"
    report(world)


def test_fault_10_two_redrives_make_one_run(world: World, report: Report) -> None:
    """Both at the same time as a tick. A redriven task keeps its id, and gets one more run, not two."""
    ids = [f"t{n:02d}" for n in range(40)]
    world.insert_many([{"taskId": i, "delaySeconds": 30} for i in ids])
    for task_id in ids:
        world.cancel(task_id)

    def redrive(task_id: str) -> int:
        try:
            world.client.redrive(task_id)
        except TransitionRefused:
            return 0
        return 1

    sandbox = world.sandbox()
    sandbox.wait_until_ready()
    sandbox.begin(world.event(), life=LIFE)
    with ThreadPoolExecutor(4) as pool:
        granted = Counter(dict.fromkeys(ids, 0))
        for task_id, times in zip([*ids, *ids], pool.map(redrive, [*ids, *ids]), strict=True):
            granted[task_id] += times
    assert world.end(sandbox).what == "returned"
    assert min(granted.values()) >= 1
    world.finish()
    runs = [(execution.task_id, execution.run, execution.key) for execution in world.ledger.done()]
    assert sorted(runs) == [(task_id, 2, key_of(world.row(task_id), 2)) for task_id in ids]
    report(world)
