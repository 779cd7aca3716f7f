"""Inserting the tasks of a burst, and schedules, in the simulation of AWS's limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.model.simulation import Simulation
from tests.model.standins import inside
from tests.simulate import report
from tests.simulate.inserting import simulate_inserting
from tests.simulate.schedules import MINUTES, simulate_schedules
from tests.simulate.world import Scenario, World, id_of

from dynatick_stack.plan.capacity import Fleet
from dynatick_stack.plan.loads import plan_burst


def test_a_row_has_the_size_that_was_asked_for() -> None:
    simulation = Simulation()
    with inside(simulation):
        world = World(Scenario(tasks=3, shards=2, row_bytes=700), simulation)
        world.warm_up()
        world.fill(lambda client: client.insert_task(world.new_task(0)))
        sizes = [world.dynamodb.table.items[id_of(n)][1] for n in range(3)]
    assert all(700 <= size <= 704 for size in sizes)  # the shard is in the bucket's name


def test_a_shard_takes_no_more_inserts_than_its_index_partition() -> None:
    one, many = (simulate_inserting(Scenario(tasks=3000, shards=n, warm=40_000), clients=2) for n in (1, 64))

    assert one.missing == many.missing == 0
    assert one.used.index_throttles > many.used.index_throttles
    assert one.seconds > 1.5  # 3,000 at a thousand a second; the first second has two
    assert many.seconds < one.seconds / 2


@pytest.mark.parametrize(
    ("tasks", "fleet"),
    [
        (5000, Fleet(shards=1, workers=0, threads=16, memory_mb=1024, warm=4000)),
        pytest.param(
            20_000, Fleet(shards=16, workers=0, threads=16, memory_mb=1024, warm=4000), marks=pytest.mark.long
        ),
        pytest.param(
            40_000, Fleet(shards=64, workers=0, threads=16, memory_mb=1024, warm=10_000), marks=pytest.mark.night
        ),
    ],
)
def test_inserted_tasks_cost_two_units_each_and_the_plan_names_the_same_time(tasks: int, fleet: Fleet) -> None:
    """The shards lie on the partitions as they did here; the plan itself reckons with 9 of 10 placements."""
    planned = replace(plan_burst(tasks, 60), fleet=fleet)
    found = simulate_inserting(Scenario.of(planned), planned.inserting.clients)

    assert (found.missing, found.used.write_units) == (0, 2 * tasks)
    # A partition has kept a second's units before the first insert.
    assert found.seconds + 1 == pytest.approx(report.planned_inserting(planned, found), rel=0.1)


def test_schedules_run_every_minute_once() -> None:
    schedules = simulate_schedules(Scenario(tasks=200, shards=4, warm=4000))

    assert schedules.problems == []
    assert len(schedules.last_starts) == MINUTES
    assert max(schedules.last_starts) < 10
    # The occurrence and its entry; the schedule, which leaves one bucket for another; the outcome and its entry.
    assert schedules.used.write_units / (200 * MINUTES) == pytest.approx(7, rel=0.1)
