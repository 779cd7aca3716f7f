"""The arithmetic of costs, with sums worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from dynatick_stack.bench import cost

FIGURES: dict[str, Any] = {
    "wcu_per_task": 5.0,
    "wcu_per_untimed_task": 6.0,
    "rcu_per_task": 0.08,
    "rcu_per_untimed_task": 0.16,
    "cpu_us_per_task": 200.0,
    "scheduler_cpu_us_per_task": 50.0,
    "scheduler_cpu_us_per_untimed_task": 100.0,
    "scheduler_batches_per_task": 0.01,
    "scheduler_batches_per_untimed_task": 0.02,
    "bytes_per_row": 500,
    "bytes_per_entry": 100,
    "idle_tick_reads": 8,
    "idle_tick_writes": 2,
    "idle_tick_rcu": 4.0,
    "idle_tick_wcu": 2.0,
}


def test_a_million_tasks_on_demand() -> None:
    one = cost.task(FIGURES)
    assert one.writes * 1e6 == pytest.approx(3.125)  # 5 million units at $0.625
    assert one.reads * 1e6 == pytest.approx(0.01)
    # 200 s of CPU are 345.5 GB-seconds, at $0.0000133334.
    assert one.processor * 1e6 == pytest.approx(200 * 1769 / 1024 * 0.0000133334)
    assert one.scheduler * 1e6 == pytest.approx(50 * 1769 / 1024 * 0.0000133334 + 10_000 * 0.20 / 1e6)
    assert one.storage * 1e6 == pytest.approx(0.8 * 0.25)  # 800 bytes with the overhead of two entries
    assert one.total == pytest.approx(one.writes + one.reads + one.processor + one.scheduler + one.storage)


def test_a_raw_row_costs_what_normalising_it_costs() -> None:
    assert cost.task(FIGURES, untimed=True).writes * 1e6 == pytest.approx(3.75)
    assert cost.task(FIGURES, untimed=True).reads * 1e6 == pytest.approx(0.02)


def test_half_the_retention_is_half_the_storage() -> None:
    assert cost.task(FIGURES, retention_days=15).storage * 2 == pytest.approx(cost.task(FIGURES).storage)


def test_provisioned_capacity_that_is_used_steadily() -> None:
    # A unit a second for an hour writes 2,520 units at 70 %.
    assert cost.provisioned(FIGURES).writes == pytest.approx(5 * 0.00065 / 2520)
    assert cost.provisioned(FIGURES).processor == cost.task(FIGURES).processor


@pytest.mark.parametrize("memory", [128, 512, 1024, 1769])
def test_work_bound_by_cpu_costs_the_same_at_each_size_of_memory(memory: int) -> None:
    seconds = 0.0002 * 1769 / memory
    assert cost.gb_seconds(200) == pytest.approx(seconds * memory / 1024)


def test_a_month_of_idle_ticks() -> None:
    one = cost.idle_month(FIGURES)
    assert one.writes == pytest.approx(43_800 * 2 * 0.625e-6)
    assert one.reads == pytest.approx(43_800 * 4 * 0.125e-6)
    assert one.lambda_requests == pytest.approx(43_800 * 0.2e-6)
    assert one.lambda_time == pytest.approx(43_800 * 10 * 0.005 * 0.0000133334)
    assert cost.idle_month(FIGURES, tick_minutes=5).total == pytest.approx(one.total / 5)
    assert cost.idle_month(FIGURES, shards=4).total == pytest.approx(one.total * 4)


def test_eventbridge_is_free_below_its_free_tier_but_its_target_is_not() -> None:
    target = 0.2e-6 + 128 / 1024 * 0.005 * 0.0000133334
    assert cost.eventbridge_month(14_000_000, with_outcomes=False) == pytest.approx(14e6 * target)
    assert cost.eventbridge_month(15_000_000, with_outcomes=False) == pytest.approx(15e6 * target + 1.0)
    assert cost.eventbridge_month(1_000_000, with_outcomes=True) == pytest.approx(1e6 * target + 1.25)


def test_a_month_is_its_ticks_and_its_tasks() -> None:
    assert cost.month(FIGURES, 0) == cost.idle_month(FIGURES).total
    one = cost.month(FIGURES, 1_000_000) - cost.month(FIGURES, 0)
    assert one == pytest.approx(cost.task(FIGURES).total * 1e6)
    assert cost.month(FIGURES, 1_000_000, by_provisioned=True) < cost.month(FIGURES, 1_000_000)


def test_what_a_hundred_million_tasks_a_day_need() -> None:
    one = cost.load(FIGURES, 10**8)
    assert one.tasks_per_s == pytest.approx(1157.4, abs=0.1)
    assert one.write_units_per_s == pytest.approx(5787, abs=1)
    assert one.shards == 3  # twice the mean are 2,315 outcomes a second
    assert one.cpus == pytest.approx(0.463, abs=0.001)
    assert one.stored_tb == pytest.approx(2.4)
    assert cost.load(FIGURES, 1).shards == 1
