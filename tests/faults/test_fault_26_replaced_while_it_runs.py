"""A task is replaced, deleted, or deleted and inserted again while it is in flight, in one pass and across passes.

The others are untouched, nobody dies, and the new task is executed once, with an idempotency key of its own.
"""

from __future__ import annotations

import pytest
from tests.faults.conftest import NewWorld, Report
from tests.faults.world import AFTER_LEASE, LIFE, World
from tests.sandbox.seam import Fault

from dynatick.domain.buckets import Bucket, instant_of, minute_of

REPLACED = [f"replaced-{n}" for n in range(4)]
DELETED = [f"deleted-{n}" for n in range(4)]
AGAIN = [f"again-{n}" for n in range(4)]
OTHERS = [f"other-{n:02d}" for n in range(13)]
ALL = [*REPLACED, *DELETED, *AGAIN, *OTHERS]  # one claim
NEW = [*REPLACED, *AGAIN]


def change(world: World, **row: object) -> None:
    """What others do by plain writes meanwhile."""
    for task_id in REPLACED:
        world.put(taskId=task_id, **row)
    for task_id in DELETED:
        world.delete(task_id)
    for task_id in AGAIN:
        world.delete(task_id)
        world.put(taskId=task_id, **row)


def check(world: World) -> None:
    keys: dict[str, list[str]] = {}
    for execution in world.ledger.done():
        keys.setdefault(execution.task_id, []).append(execution.key)
    for task_id in NEW:
        first, second = keys[task_id]
        assert first != second, f"two tasks {task_id} have the idempotency key {first}"
        assert world.row(task_id)["outcome"] == "completed"
    assert {task_id: len(keys[task_id]) for task_id in (*DELETED, *OTHERS)} == dict.fromkeys([*DELETED, *OTHERS], 1)
    assert set(world.rows()) == world.inserted - set(DELETED)


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
def test_fault_26_while_the_first_pass_still_holds_it(world: World, dies: bool, report: Report) -> None:
    """The next tick meets the new task before the old one is recorded."""
    world.insert_for_next_tick(ALL)
    old = world.frozen_tick(Fault(at="record", do="freeze before"))
    begun = {execution.task_id for execution in world.ledger.done()}  # how many, is the threads' affair
    assert begun & set(AGAIN)
    change(world)
    world.deliver(world.stream.new())
    world.next_tick()
    if dies:
        world.kill(old)
    else:
        world.thaw(old)
    world.clock.forward(seconds=AFTER_LEASE)
    world.finish()
    if dies:  # what it had executed and not recorded is executed again, and that is another fault's test
        assert {row["outcome"] for row in world.rows().values()} == {"completed"}
    else:
        check(world)
    old = (begun if dies else set(ALL)) - set(OTHERS)
    assert report(world).executed == len(OTHERS) + len(old) + len(NEW)


@pytest.mark.parametrize("streamed", [False, True], ids=["the stream is late", "the stream is quick"])
def test_fault_26_the_same_pass_meets_the_new_task(new_world: NewWorld, streamed: bool, report: Report) -> None:
    """In a bucket that it polls later, before it has heard of its claim of the old one."""
    world = new_world(DYNATICK_TASK_THREADS="32")
    first = minute_of(world.clock()) + 1
    slow = {"payload": {"seconds": 1.0}}
    world.insert_many([{"taskId": i, "taskDateTime": Bucket(first), **slow} for i in ALL])
    world.insert_many([{"taskId": "last", "taskDateTime": Bucket(first + 9)}])
    world.deliver(world.stream.new())
    world.clock.to(instant_of(first + 9))
    sandbox = world.sandbox()
    # The first claim is made while later polls wait, and then nothing goes on until the rows are changed.
    faults = [Fault(at="poll", do="wait", amount=1.5, skip=6, times=6), Fault(at="claim", do="freeze after")]
    sandbox.begin(world.event(), life=LIFE, faults=faults)
    assert world.end(sandbox).what == "frozen"
    assert {row["status"] for task_id, row in world.rows().items() if task_id in ALL} == {"running"}
    change(world, taskDateTime=str(Bucket(first + 9)), action="note")
    if streamed:
        world.deliver(world.stream.new())
    sandbox.thaw()
    outcome = world.end(sandbox)
    assert outcome.what == "returned", outcome
    world.run_started()
    world.clock.forward(seconds=AFTER_LEASE)
    world.finish()
    check(world)
    assert report(world).executed == len(ALL) + len(NEW) + 1
