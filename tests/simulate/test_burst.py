"""A burst in the simulation of AWS's limits: nothing is lost, and the limits show."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulate.assumptions import Assumptions
from tests.simulate.burst import simulate_burst
from tests.simulate.world import Scenario

from dynatick.engine.rules import Precision
from dynatick_stack.plan.capacity import Fleet, PlanOptions, first_claim, timing
from dynatick_stack.plan.loads import plan_burst

SMALL = Scenario(tasks=1000, shards=4, threads=16, warm=4000)


def test_a_tick_that_comes_later_moves_a_burst_by_as_much() -> None:
    """As `dynatick plan` says, on the same fleet."""
    late = simulate_burst(replace(SMALL, assumptions=Assumptions(tick_delay=8.0)))
    assert late.problems == []
    in_time = simulate_burst(SMALL)
    assert late.last_start - in_time.last_start == pytest.approx(7.0, abs=0.5)
    planned = plan_burst(1000, 60)
    assert planned.with_late_tick.last_start - planned.timing.last_start == pytest.approx(7.0)


def test_with_wake_ups_the_tick_may_be_late() -> None:
    """They begin the passes of all shards at the minute, and the plan reckons with it."""
    late = Assumptions(tick_delay=8.0)
    scenario = replace(SMALL, shards=16, precision=Precision.SECOND)
    woken = simulate_burst(replace(scenario, assumptions=late))
    assert woken.problems == []
    assert woken.last_start == pytest.approx(simulate_burst(scenario).last_start, abs=0.5)
    options = PlanOptions(to_the_second=True)
    planned = replace(plan_burst(1000, 60, options), fleet=replace(plan_burst(1000, 60).fleet, shards=16, threads=16))
    assert planned.with_late_tick.last_start == pytest.approx(woken.last_start, abs=1.0)


@pytest.mark.parametrize("shards", [4, *(pytest.param(n, marks=pytest.mark.long) for n in (64, 256))])
def test_wake_ups_begin_the_passes_at_the_rate_that_is_planned(shards: int) -> None:
    """Each pass needs a process, for all are at work: Lambda starts the last ones cold."""
    late = Assumptions(tick_delay=50.0)
    busy = Scenario(tasks=12 * shards, shards=shards, task_ms=20_000, precision=Precision.SECOND, assumptions=late)
    woken = simulate_burst(busy)
    assert woken.problems == []
    planned = first_claim(shards, PlanOptions(to_the_second=True, tick_delay=50.0))
    assert woken.last_start <= planned <= woken.last_start + 2.0


def test_every_task_of_a_burst_runs_once_and_the_figures_are_those_of_the_engine() -> None:
    outcome = simulate_burst(SMALL)

    assert outcome.problems == []
    # A shard has 250 tasks, and 16 threads that take 0.2 s a task: 3.1 s, and what it takes to begin.
    assert 3.1 + SMALL.assumptions.tick_delay < outcome.last_start < 6.5
    assert outcome.p50 < outcome.p99 <= outcome.last_start
    # A claim and the record of an outcome, which the index shows; then what ticks write on their own rows.
    assert 3000 <= outcome.used.write_units < 3000 + 200
    assert outcome.used.table_throttles == outcome.used.index_throttles == outcome.used.lambda_throttles == 0
    assert outcome.max_running == SMALL.shards


def test_an_index_partition_bounds_a_shard_and_what_it_refuses_is_not_lost() -> None:
    """A thousand outcomes a second: of 4,000 tasks the last thousands begin only as the first are recorded."""
    scenario = Scenario(tasks=4000, shards=1, threads=256, task_ms=20, warm=40_000)
    outcome = simulate_burst(scenario)

    assert outcome.problems == []
    assert outcome.used.index_throttles > 0
    assert outcome.index_peak <= 2001  # what is left of the second before, and this one's
    assert outcome.last_start > 1.5


def test_a_quota_of_executions_delays_shards_and_loses_nothing() -> None:
    scenario = replace(SMALL, tasks=400, shards=12, assumptions=Assumptions(concurrency=4))
    outcome = simulate_burst(scenario)

    assert outcome.problems == []
    assert outcome.used.lambda_throttles > 0
    assert outcome.max_running == 4


@pytest.mark.parametrize(
    ("tasks", "seconds", "fleet"),
    [
        (2400, 0.2, Fleet(shards=1, workers=0, threads=16, memory_mb=1024, warm=4000)),
        (5000, 0.5, Fleet(shards=1, workers=3, threads=32, memory_mb=1024, warm=4000)),
        pytest.param(
            16_000, 0.2, Fleet(shards=4, workers=0, threads=16, memory_mb=1024, warm=4000), marks=pytest.mark.long
        ),
        pytest.param(
            8000, 0.2, Fleet(shards=1, workers=7, threads=16, memory_mb=1024, warm=4000), marks=pytest.mark.night
        ),
        pytest.param(
            6000, 3.0, Fleet(shards=1, workers=7, threads=64, memory_mb=1024, warm=4000), marks=pytest.mark.night
        ),
        pytest.param(
            60_000, 0.2, Fleet(shards=4, workers=7, threads=16, memory_mb=1024, warm=8000), marks=pytest.mark.night
        ),
    ],
)
def test_the_plan_names_the_same_last_start(tasks: int, seconds: float, fleet: Fleet) -> None:
    planned = replace(plan_burst(tasks, 60, PlanOptions(task_seconds=seconds)), fleet=fleet)
    scenario = Scenario.of(planned)
    burst = simulate_burst(scenario)

    assert burst.problems == []
    assert burst.last_start == pytest.approx(timing(planned.load, fleet).last_start, rel=0.1)


@pytest.mark.night
def test_a_hundred_thousand_tasks_start_within_a_minute_as_planned() -> None:
    planned = plan_burst(100_000, 60)
    scenario = Scenario.of(planned)
    burst = simulate_burst(scenario)

    assert burst.problems == []
    assert burst.last_start <= 60
    assert burst.last_start == pytest.approx(planned.timing.last_start, rel=0.1)
