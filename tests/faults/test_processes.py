"""Processes die, or are kept although a task still runs in them. Their leases run out, and others take the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import key_of
from tests.faults.conftest import NewWorld
from tests.sandbox.journal import Began, Died
from tests.sandbox.seam import Fault
from tests.sandbox.world import AFTER_LEASE, World

ONE_CLAIM = 20


def test_fault_06_dies_between_claiming_and_executing(world: World) -> None:
    """Another tick reclaims its tasks once the leases are over, and the attempt counts."""
    world.insert_soon(ONE_CLAIM)
    assert world.next_tick(faults=[Fault(at="claim", do="kill after")]).what == "killed"
    assert not world.journal.of(Began)
    assert {row["status"] for row in world.rows().values()} == {"running"}

    # Its leases are in force: the next tick acquires the shard, and neither runs these nor forgets them.
    assert world.next_tick().what == "returned"
    assert not world.journal.of(Began)
    assert all(cursor.lease is None for cursor in world.cursors())

    world.clock.forward(seconds=AFTER_LEASE)
    world.finish()
    for row in world.rows().values():
        assert (row["outcome"], row["attempt"]) == ("completed", 2)
        lost: Any = row["attempts"]
        assert [attempt["attempt"] for attempt in lost] == [1]
        assert "its process died" in lost[0]["error"]
    world.assert_survived(repeated=0)


def test_fault_07_dies_between_executing_and_recording(world: World) -> None:
    """The task is executed again, with the same idempotency key."""
    world.insert_soon(ONE_CLAIM)
    # Before whichever record comes first: two batches may be on their way at once.
    assert world.next_tick(faults=[Fault(at="record", do="kill before", times=None)]).what == "killed"
    unrecorded = world.executed()
    assert unrecorded
    assert not any("outcome" in row for row in world.rows().values())

    world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived(repeated=len(unrecorded))
    executions = world.journal.done()
    assert {one.task_id for one in executions if one.attempt == 2} == world.inserted
    assert {one.key for one in executions} == {key_of(row) for row in world.rows().values()}


def test_fault_07_dies_at_each_step_of_a_pass(world: World) -> None:
    """The steps include the time between the write that closes the buckets and the one that ends the pass."""
    steps = ("acquire shard", "poll", "claim", "release shard")
    points = [(at, do) for at in steps for do in ("kill before", "kill after") if (at, do) != ("claim", "kill after")]
    for number, (at, do) in enumerate(points):
        world.insert_soon(f"{number}-{n}" for n in range(10))
        assert world.next_tick(faults=[Fault(at=at, do=do)]).what == "killed", (at, do)
    world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived(repeated=0)  # none of these points lies between execution and record


def test_fault_08_poison_among_healthy_tasks(world: World) -> None:
    """Tasks that always fail, that kill their process, that name no action there is. The others run."""
    attempts = {"retryPolicy": {"maximumRetryAttempts": 2, "minBackoffSeconds": 0}}
    world.insert_soon(f"healthy-{n:03d}" for n in range(200))
    killers = world.insert_soon((f"killer-{n}" for n in range(3)), payload={"kill": True}, **attempts)
    failing = world.insert_soon((f"failing-{n}" for n in range(20)), payload={"failures": 99}, **attempts)
    unknown = [f"unknown-{n}" for n in range(10)]
    for task_id in unknown:
        world.put(taskId=task_id, delaySeconds=30, action="no-such-action", fails=True)

    for number in range(30):
        newcomers = world.insert_soon(f"later-{number:02d}-{n}" for n in range(5))
        world.next_tick()
        if number:  # in the first tick they may be claimed together with a killer
            assert world.executed().issuperset(newcomers), number
        world.clock.forward(seconds=AFTER_LEASE)
        if world.open().isdisjoint(killers):
            break
    # At most three attempts each; one may take the others' with it, in the first tick and in a recovery.
    assert 3 <= len(world.journal.of(Died)) <= 9
    world.assert_survived(failed=len([*killers, *failing, *unknown]))

    for row in map(world.row, killers):
        assert (row["outcome"], row["attempt"]) == ("failed", 3)
        assert "its process died" in str(row["error"])
    tried = [execution.task_id for execution in world.journal.of(Began)]
    assert all(tried.count(task_id) == 3 for task_id in failing)
    assert all(1 <= tried.count(task_id) <= 3 for task_id in killers)
    errors = {letter["taskId"]: letter["error"] for letter in world.dead_letters()}
    assert set(errors) == {*killers, *failing, *unknown}
    assert errors["failing-0"] == "failure 3, as planned"
    assert "there is no action" in errors["unknown-0"]


# -- fault 23: the pass raises while a task still runs. Lambda freezes the process, and thaws it for a later invocation;
# by then the task's lease is over, and another process works on it. The thread of the first must not continue.

OTHERS = 60  # with the slow one, more than two claims
SHORT = 3.0  # seconds, which the slow task outlasts

RAISES: dict[str, Sequence[Fault]] = {
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


@pytest.mark.parametrize("at", RAISES)
def test_fault_23_the_process_of_a_task_in_flight_is_not_kept(world: World, at: str) -> None:
    world.insert_for_next_tick(["a-slow"], payload={"seconds": SHORT + 1, "slowAttempts": 1})
    world.insert_for_next_tick([f"b{n:02d}" for n in range(OTHERS)], payload={"seconds": 0.2})
    planned = 1 if world.delivers_wake_ups else 0  # buckets, which are polled before the others
    faults = [replace(fault, skip=fault.skip + planned) if fault.at == "poll" else fault for fault in RAISES[at]]
    outcome = world.next_tick(timeout=SHORT, faults=faults)
    assert world.row("a-slow")["status"] == "running"

    # The lease is over and the tick comes to the same environment, if there still is one.
    world.clock.forward(seconds=AFTER_LEASE)
    world.wait_a_moment(1.5)  # until the thread, were it still there, would have come to the end of its work
    for _ in range(4):
        world.next_tick()
        world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived()
    ended = [execution.attempt for execution in world.journal.done() if execution.task_id == "a-slow"]
    assert ended == [2], "the thread of the first attempt went on in a later invocation"
    assert outcome.what == "exited"
    assert world.row("a-slow")["attempt"] == 2


# -- fault 27: expired leases don't wait for a backlog to be drained; killers among them fail no others. ---------------

BACKLOG = 2000  # 10,000: make faults ARGS="-k run_before_the_backlog --fault-scale 5 --timeout 3600"
EXPIRED, KILLERS = 25, 5  # in one claim: of two under way, it would be luck which has been sent when a process dies
PASSES = 2


def expire(world: World, **fields: object) -> None:
    """Tasks whose process died as soon as it had claimed them. ``fields``: of those that kill their process."""
    world.insert_for_next_tick(f"expired-{n:02d}" for n in range(EXPIRED - KILLERS))
    world.insert_for_next_tick((f"killer-{n}" for n in range(KILLERS)), payload={"kill": True}, **fields)
    world.next_tick(faults=[Fault(at="claim", do="kill after", times=None)])
    assert {(row["status"], row["attempt"]) for row in world.rows().values()} == {("running", 1)}
    assert not world.journal.done()
    world.clock.forward(seconds=AFTER_LEASE)


def tick_until_all_have_ended(world: World, **limits: float) -> None:
    for _ in range(30):
        world.next_tick(**limits)  # type: ignore[arg-type]
        if not world.open():
            break
        world.clock.forward(seconds=AFTER_LEASE)


def test_fault_27_killers_among_the_expired_fail_no_other(world: World) -> None:
    """They have attempts left, and may take others with them, but not at another task's last attempt."""
    expire(world)
    tick_until_all_have_ended(world)
    world.assert_survived(failed=KILLERS)


def test_fault_27_expired_leases_run_before_the_backlog(new_world: NewWorld, scale: int) -> None:
    """They run in a tick's first pass, the one that continues it, and the recoveries that these start. Everything else
    that these start is late and does not run."""
    world = new_world(DYNATICK_TASK_THREADS="4")
    expire(world, retryPolicy={"maximumRetryAttempts": 1})
    backlog = world.insert_for_next_tick((f"b{n:05d}" for n in range(BACKLOG * scale)), payload={"seconds": 0.05})
    world.to_next_minute()
    world.deliver_stream()
    passes, events = 0, [world.event()]
    while events:
        event = events.pop(0)
        if "recover" in event.get("dynatick", {}):
            world.invoke(event)
        elif passes < PASSES:
            passes += 1
            world.invoke(event, timeout=12.0)  # wait: a time limit of Lambda, by the shared clock; the fault
        events += world.started()
    assert 0 < len(world.executed().intersection(backlog)) < len(backlog), "the backlog is to outlast two passes"
    waiting = {task_id for task_id in world.open() if task_id.startswith("expired-")}
    assert not waiting, f"{len(waiting)} of {EXPIRED - KILLERS} expired leases still wait after two passes"

    tick_until_all_have_ended(world, timeout=60)
    world.assert_survived(failed=KILLERS)
    assert world.dead_letter_ids() == {f"killer-{n}" for n in range(KILLERS)}
