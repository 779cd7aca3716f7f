"""Expired leases don't wait for a backlog to be drained; killers among them fail no others."""

from __future__ import annotations

from tests.faults.conftest import NewWorld, Report
from tests.faults.world import AFTER_LEASE, World
from tests.sandbox.seam import Fault

from dynatick.domain.buckets import instant_of, minute_of

BACKLOG = 2000  # 10,000: make faults ARGS="-k run_before_the_backlog --fault-scale 5 --timeout 3600"
EXPIRED, KILLERS = 50, 5
PASSES = 2


def expire(world: World, killers: dict[str, object]) -> None:
    """Tasks whose process died as soon as it had claimed them."""
    world.insert_for_next_tick(f"expired-{n:02d}" for n in range(EXPIRED - KILLERS))
    world.insert_for_next_tick((f"killer-{n}" for n in range(KILLERS)), payload={"kill": True}, **killers)
    for _ in range(3):  # a claim or two at a time
        world.next_tick(faults=[Fault(at="claim", do="kill after", times=None)])
        if all(row["status"] == "running" for row in world.rows().values()):
            break
    assert {(row["status"], row["attempt"]) for row in world.rows().values()} == {("running", 1)}
    assert not world.ledger.done()
    world.clock.forward(seconds=AFTER_LEASE)


def two_passes(world: World, life: float) -> None:
    """A tick's first pass and the one that goes on, each so long, and the recoveries that they start; whatever else is
    started is left alone, as if it were late."""
    passes, events = 0, [world.event()]
    while events:
        event = events.pop(0)
        if "recover" in event.get("dynatick", {}):
            world.invoke(event)
        elif passes < PASSES:
            passes += 1
            world.invoke(event, life=life)
        events += world.started()


def test_fault_27_killers_among_the_expired_fail_no_other(world: World, report: Report) -> None:
    """They have attempts left, and may take others with them; but not at anybody's last attempt."""
    expire(world, {})
    for _ in range(30):
        world.next_tick()
        if not world.open():
            break
        world.clock.forward(seconds=AFTER_LEASE)
    world.finish()
    figures = report(world)
    assert figures.otherwise == {"failed": KILLERS}
    assert figures.executed == EXPIRED - KILLERS


def test_fault_27_expired_leases_run_before_the_backlog(new_world: NewWorld, scale: int, report: Report) -> None:
    world = new_world(DYNATICK_TASK_THREADS="4")
    expire(world, {"retryPolicy": {"maximumRetryAttempts": 1}})
    backlog = world.insert_for_next_tick((f"b{n:05d}" for n in range(BACKLOG * scale)), payload={"seconds": 0.05})
    world.clock.to(instant_of(minute_of(world.clock()) + 1))
    world.deliver(world.stream.new())
    two_passes(world, life=12.0)
    done = [execution.task_id for execution in world.ledger.done()]
    assert 0 < sum(task_id[0] == "b" for task_id in done) < len(backlog), "the backlog is to outlast two passes"
    waiting = {task_id for task_id in world.open() if task_id.startswith("expired-")}
    assert not waiting, f"{len(waiting)} of {EXPIRED - KILLERS} expired leases still wait after two passes"

    for _ in range(30):
        world.next_tick(life=60)
        if not world.open():
            break
        world.clock.forward(seconds=AFTER_LEASE)
    world.finish()
    assert {letter["taskId"] for letter in world.letters()} == {f"killer-{n}" for n in range(KILLERS)}
    figures = report(world)
    assert figures.otherwise == {"failed": KILLERS}
    assert figures.executed == len(backlog) + EXPIRED - KILLERS
