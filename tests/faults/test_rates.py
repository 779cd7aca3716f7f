"""A rate limit of an action, which processes of several shards share while ticks overlap and one of them dies. The
verdict judges the rate (tests/sandbox/limits.py)."""

from __future__ import annotations

import pytest
from tests.faults.conftest import NewWorld
from tests.sandbox.handlers import ACTION
from tests.sandbox.journal import Began
from tests.sandbox.process import Sandbox
from tests.sandbox.seam import Fault
from tests.sandbox.world import AFTER_LEASE, TIMEOUT, World

from dynatick.domain.buckets import minute_of
from dynatick.engine.orders import PassOrder

SHARDS, RATE = 3, 20  # a second


def limited_world(new_world: NewWorld, **settings: str) -> World:
    world = new_world(
        DYNATICK_SHARD_COUNT=str(SHARDS),
        DYNATICK_ACTION_RATE_LIMITS=f"{ACTION}={RATE}/s",
        DYNATICK_KEY_LIMITS="tenant=30",
        **settings,
    )
    world.tick()
    world.to_next_minute()
    world.insert_soon(f"t{n:03d}" for n in range(60))
    world.insert_soon((f"k{n}" for n in range(15)), limitKey="tenant:a")
    world.insert_batch("news", [{}] * 15)
    world.deliver_stream()
    return world


def begin_all(world: World, *faults: Fault) -> list[Sandbox]:
    """Begins passes of the next tick, two for each shard, of which one gets it. The first shard's meets the faults."""
    processes = world.ready_sandboxes(2 * SHARDS)
    world.to_next_minute()
    for n, process in enumerate(processes):
        order = PassOrder(tick=minute_of(world.clock()), shard=n % SHARDS)
        process.begin(order.to_event(), timeout=TIMEOUT, faults=() if n % SHARDS else faults)
    return processes


def test_fault_15_ticks_of_all_shards_overlap_and_share_the_rate_of_an_action(new_world: NewWorld) -> None:
    world = limited_world(new_world)
    assert [world.end(process).what for process in begin_all(world)] == ["returned"] * 2 * SHARDS
    began = world.journal.of(Began)
    assert len({one.pid for one in began}) == SHARDS
    assert began[-1].at - began[0].at < 2 * len(began) / RATE, "they use the rate"
    world.assert_survived(repeated=0)


@pytest.mark.parametrize("do", ["kill after", "lose response", "freeze after"])
def test_fault_15_a_process_dies_or_gets_no_answer_when_it_reserves_starts(new_world: NewWorld, do: str) -> None:
    world = limited_world(new_world)
    processes = begin_all(world, Fault(at="reserve starts", do=do, skip=1))
    outcomes = [world.end(process) for process in processes]
    usual = {"kill after": "killed", "freeze after": "frozen"}.get(do, "returned")
    assert [one.what for one in outcomes if one.what != "returned"] == [usual] * (usual != "returned")
    assert usual != "returned" or sum(one.hit for one in outcomes) == 1
    for process, outcome in zip(processes, outcomes, strict=True):
        if outcome.what == "frozen":
            world.thaw(process)
    world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived()
