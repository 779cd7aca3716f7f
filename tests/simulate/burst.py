"""A burst: tasks that are due in the same minute, and the ticks that run them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.model.simulation import Simulation
from tests.model.standins import inside
from tests.simulate.dynamodb import INDEX
from tests.simulate.world import WARMING_TICKS, Counts, Scenario, World, id_of

from dynatick.domain.buckets import Bucket
from dynatick.engine.rules import Precision

PLANNED_AHEAD = 2  # ticks before the due one, with wake-ups: they plan them
TICKS = 7  # from the due one on, until the final poll of the bucket, when the index has had time to settle


@dataclass(frozen=True, kw_only=True, slots=True)
class Burst:
    """How a burst ended. Times in seconds after the tasks' due time; an infinite one: a task did not start."""

    scenario: Scenario
    used: Counts  # from the due time on
    last_start: float
    p50: float
    p99: float
    max_running: int  # executions of the function at once
    table_peak: float  # write units of the busiest second
    index_peak: float
    problems: Sequence[str]  # tasks that did not end, or ran more than once; shards that are not drained


def simulate_burst(scenario: Scenario) -> Burst:
    """Runs a burst in a simulation of its own."""
    simulation = Simulation()
    with inside(simulation):
        ahead = PLANNED_AHEAD if scenario.precision is Precision.SECOND else 0
        world = World(scenario, simulation, due_after=WARMING_TICKS + 1 + ahead)
        world.warm_up()
        world.fill(lambda client: client.insert_task(world.new_task(0)))
        for n in range(-ahead, TICKS):
            world.tick(world.due + n)
        simulation.run_until(world.due_at)
        before = world.counts()
        simulation.run_until(world.due_at + 60 * TICKS)
        return _judge(world, world.counts() - before)


def _judge(world: World, used: Counts) -> Burst:
    table, late = world.dynamodb.table, sorted(world.action.late)
    return Burst(
        scenario=world.scenario,
        used=used,
        last_start=late[-1],
        p50=late[len(late) // 2],
        p99=late[len(late) * 99 // 100],
        max_running=world.function.max_running,
        table_peak=max(table.capacity.by_second.values()),
        index_peak=max(table.of_indexes[INDEX].by_second.values()),
        problems=list(_problems(world)),
    )


def _problems(world: World) -> Iterator[str]:
    items = world.dynamodb.table.items
    for n, executions in enumerate(world.action.executions):
        item, _ = items[id_of(n)]
        status = item.get("status", {}).get("S")
        if (status, executions) != ("completed", 1):
            yield f"{id_of(n)}: {status}, after {executions} executions"
    for shard in range(world.scenario.shards):
        drained = items[f"_dynatick#cursor#{shard}"][0]["drainedThrough"]["S"]
        if drained < str(Bucket(world.due)):
            yield f"shard {shard} is drained through {drained} only"
