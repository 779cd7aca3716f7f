"""The dead-letter queue refuses for days, so that tasks which have failed can't be recorded as failed.

Ticks go on, cost what they cost before, and run the others; once the queue takes messages, what has failed ends so.
"""

from __future__ import annotations

from tests.faults.conftest import NewWorld, Report
from tests.faults.test_fault_21_lagging_index import seen_late
from tests.faults.worker import LAG
from tests.faults.world import AFTER_LEASE, World
from tests.sandbox.seam import Fault

REFUSES = Fault(at="letters", do="refuse", times=None)
FAILS = {"payload": {"permanent": True}, "retryPolicy": {"maximumRetryAttempts": 0}}
FAILURES = 500  # 10,000: make faults ARGS="-k fault_25 --fault-scale 20 --timeout 7200"


def polls_of_ticks(world: World, ticks: int) -> list[int]:
    found: list[int] = []
    for _ in range(ticks):
        world.polls()
        assert world.next_tick().what == "returned"
        found.append(world.polls())
    return found


def test_fault_25_a_tick_costs_what_it_did_before(new_world: NewWorld, scale: int, report: Report) -> None:
    world = new_world(**{LAG: "0 0"})  # an index that lags by nothing, and is quickly asked
    with seen_late(world):
        hold_and_let_go(world, scale)
    figures = report(world)
    assert figures.executed == 2
    assert figures.otherwise == {"failed": 1}


def hold_and_let_go(world: World, scale: int) -> None:
    before = max(polls_of_ticks(world, 12)[6:])
    world.insert_for_next_tick(["held"], **FAILS)
    world.always = [REFUSES]
    polls_of_ticks(world, 10)
    for number in range(2):
        world.next_tick(180 * scale)  # days of ticks would take long; the buckets are as many
        world.insert_for_next_tick([f"other-{number}"])
        polls_of_ticks(world, 6)
    after = polls_of_ticks(world, 6)
    assert world.row("held")["status"] == "running"
    # Now and then its own bucket, once it is moved, is one more.
    assert sum(after) <= 6 * before + 6, f"polls of a tick: {before} before, then {after}"

    world.always = []
    for _ in range(70):  # it is tried again within the hour
        if "held" not in world.open():
            break
        world.next_tick()
    assert world.row("held")["outcome"] == "failed"
    assert [letter["taskId"] for letter in world.letters()] == ["held"]
    assert [execution.task_id for execution in world.ledger.begun() if execution.task_id == "held"] == ["held"]
    world.finish()


def test_fault_25_many_failures_and_a_queue_that_refuses(new_world: NewWorld, scale: int, report: Report) -> None:
    world = new_world(DYNATICK_TASK_THREADS="16")
    failures = [f"failure-{n:05d}" for n in range(FAILURES * scale)]
    world.insert_for_next_tick(failures, **FAILS)
    world.always = [REFUSES]
    world.next_tick()
    for number in range(4):
        newcomers = world.insert_for_next_tick(f"later-{number}-{n}" for n in range(20))
        world.next_tick()
        assert newcomers <= {execution.task_id for execution in world.ledger.done()}, number
        world.clock.forward(seconds=AFTER_LEASE)
    assert not {row.get("outcome") for task_id, row in world.rows().items() if task_id in failures} - {None}
    assert not world.letters()

    world.always = []
    for _ in range(80):
        if not world.open():
            break
        world.next_tick()
    world.finish()
    tried = [execution.task_id for execution in world.ledger.begun() if execution.task_id in failures]
    assert sorted(tried) == failures, "one attempt each is all that they have"
    figures = report(world)
    assert figures.executed == 4 * 20
    assert figures.otherwise == {"failed": len(failures)}
    assert {letter["taskId"] for letter in world.letters()} == set(failures)
