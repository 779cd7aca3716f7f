"""How long it takes to insert the tasks of a burst."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from tests.model.simulation import Simulation
from tests.model.standins import inside
from tests.simulate.dynamodb import INDEX
from tests.simulate.world import Counts, Scenario, World, id_of

from dynatick.client import InsertUnknown

DUE_AFTER = 120  # minutes: long after the last one is in


@dataclass(frozen=True, kw_only=True, slots=True)
class Inserting:
    """How the tasks came into the table. ``seconds``: from the first to the last."""

    scenario: Scenario
    clients: int
    seconds: float
    used: Counts
    missing: int  # tasks that are not in the table
    shards_together: int  # on the fullest index partition


def simulate_inserting(scenario: Scenario, clients: int) -> Inserting:
    """``clients`` at once, each with a machine of its own, insert as fast as they can. What the table refuses until
    their own tries are used up, they insert once more."""
    simulation = Simulation()
    with inside(simulation):
        world = World(scenario, simulation, due_after=DUE_AFTER)
        world.warm_up()
        began, before, ends = simulation.now, world.counts(), list[float]()

        def insert(numbers: Iterable[int]) -> None:
            client, waiting = world.client(), list(numbers)
            while waiting:
                results = zip(waiting, client.insert_lazily(map(world.new_task, waiting)), strict=True)
                waiting = [n for n, result in results if isinstance(result, InsertUnknown)]
            ends.append(simulation.now)

        for n in range(clients):
            world.spawn(f"client {n}", partial(insert, range(n, scenario.tasks, clients)))
        while len(ends) < clients:
            event = simulation.next_event()
            assert event is not None, "a client waits for ever"
            simulation.run_until(event)
        return Inserting(
            scenario=scenario,
            clients=clients,
            seconds=max(ends) - began,
            used=world.counts() - before,
            shards_together=world.dynamodb.table.of_indexes[INDEX].fullest(world.buckets()),
            missing=sum(id_of(n) not in world.dynamodb.table.items for n in range(scenario.tasks)),
        )
