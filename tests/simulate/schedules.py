"""Schedules that all run every minute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.model.simulation import Simulation
from tests.model.standins import inside
from tests.simulate.world import ACTION, Counts, Scenario, World, id_of

from dynatick.domain.buckets import instant_of
from dynatick.domain.task import is_own_row

MINUTES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedules:
    """How some minutes of schedules went."""

    scenario: Scenario
    used: Counts  # of those minutes
    last_starts: Sequence[float]  # of each minute, in seconds after it
    problems: Sequence[str]  # occurrences that did not end, or ran more than once


def simulate_schedules(scenario: Scenario) -> Schedules:
    """``scenario.tasks`` schedules of ``rate(1 minute)``, for three minutes, in a simulation of their own."""
    simulation = Simulation()
    with inside(simulation):
        world = World(scenario, simulation)
        world.warm_up()
        world.fill(lambda client: client.schedules.insert(id_of(0), "rate(1 minute)", action=ACTION), "scheduleId")
        for n in range(MINUTES):
            world.tick(world.due + n)
        simulation.run_until(world.due_at)
        before = world.counts()
        simulation.run_until(world.due_at + 60 * (MINUTES + 2))
        return Schedules(
            scenario=scenario,
            used=world.counts() - before,
            last_starts=[world.action.latest.get(instant_of(world.due + n), float("inf")) for n in range(MINUTES)],
            problems=list(_problems(world)),
        )


def _problems(world: World) -> Iterator[str]:
    items = world.dynamodb.table.items
    for n, executions in enumerate(world.action.executions):
        if executions != MINUTES:
            yield f"{id_of(n)}: {executions} executions in {MINUTES} minutes"
    ended = 0
    for key in items:
        if "#1#" in key and not is_own_row(key):
            ended += items[key][0]["status"]["S"] == "completed"
    if ended != MINUTES * world.scenario.tasks:
        yield f"{ended} occurrences ended of {MINUTES * world.scenario.tasks}"
