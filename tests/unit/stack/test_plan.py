"""Plans of loads: what they keep to, and the figures that they are made of."""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.domain.support import refusal

from dynatick.client import insertion
from dynatick.engine import cursor, invocation, polling, sharing
from dynatick.engine import shards as shards_of_ticks
from dynatick.engine.rules import Rules
from dynatick_stack import template
from dynatick_stack.bench.wake_up_price import spread, woken
from dynatick_stack.plan import capacity, figures, prices
from dynatick_stack.plan.capacity import Fleet, PlanOptions, Quotas, fullest_partition, timing
from dynatick_stack.plan.loads import Plan, plan_burst, plan_schedules, plan_steady

PARAMETERS = template.load()["Parameters"]
MEASURED = json.loads((Path(__file__).parents[3] / "docs" / "benchmark.json").read_text(encoding="utf-8"))

task_counts = st.integers(1, 3_000_000)
task_seconds = st.sampled_from([0.0, 0.01, 0.2, 1.0, 20.0])


@settings(max_examples=25, deadline=None)
@given(tasks=task_counts, seconds=task_seconds, within=st.sampled_from([15.0, 60.0, 600.0]))
def test_a_feasible_plan_keeps_to_every_limit(tasks: int, seconds: float, within: float) -> None:
    found = plan_burst(tasks, within, PlanOptions(task_seconds=seconds))
    fleet = found.fleet
    assert found.timing.first_start <= found.timing.last_start
    assert found.expected.last_start <= found.timing.last_start
    assert 1 <= fleet.shards <= figures.MAX_SHARDS and 1 <= fleet.threads <= figures.MAX_THREADS
    assert 0 <= fleet.workers <= figures.MAX_WORKERS
    if found.is_feasible:
        duration = found.timing.last_start - found.timing.first_start
        assert tasks * found.load.table_units / max(duration, 1) <= max(found.table_peak, fleet.warm)
        # Processes can run as many tasks as begin in that time, and as many again as they have threads.
        possible = fleet.processes * capacity.process_rate(found.load, fleet.threads, fleet.memory_mb) * duration
        assert possible + fleet.processes * fleet.threads >= 0.99 * tasks


@settings(max_examples=25, deadline=None)
@given(tasks=task_counts, more=st.integers(0, 1_000_000), seconds=task_seconds)
def test_more_tasks_never_cost_less(tasks: int, more: int, seconds: float) -> None:
    options = PlanOptions(task_seconds=seconds)
    few, many = plan_burst(tasks, 60, options), plan_burst(tasks + more, 60, options)
    assert few.inserting.write_units <= many.inserting.write_units
    assert few.prices.load <= many.prices.load + 0.01  # a further process costs a fraction of a cent
    assert few.prices.storage_month <= many.prices.storage_month


@settings(max_examples=25, deadline=None)
@given(tasks=task_counts, more=st.integers(1, 1_000_000), seconds=task_seconds, shards=st.sampled_from([1, 4, 256]),
       workers=st.integers(0, 20))  # fmt: skip
def test_the_same_fleet_takes_longer_for_more_and_no_worker_makes_it_later(
    tasks: int, more: int, seconds: float, shards: int, workers: int
) -> None:
    load = plan_burst(tasks, 60, PlanOptions(task_seconds=seconds)).load
    fleet = Fleet(shards=shards, workers=0, threads=16, memory_mb=1024, warm=10_000)
    # Workers help a shard only if it has enough for them, and it then ends sooner than one with less.
    assert timing(load, fleet).last_start <= timing(replace(load, tasks=tasks + more), fleet).last_start
    few, many = replace(fleet, shards=4, workers=workers), replace(fleet, shards=4, workers=workers + 1)
    assert timing(load, many).last_start <= timing(load, few).last_start + 1e-9


def raised(plan: Plan) -> list[str]:
    return [quota.name for quota in plan.quotas if quota.must_be_raised]


def test_a_million_in_a_minute_at_default_quotas() -> None:
    found = plan_burst(1_000_000, 60)
    assert (found.is_feasible, raised(found)) == (True, [])
    of_few_executions = plan_burst(100_000, 60, PlanOptions(quotas=Quotas(concurrent_executions=10)))
    assert raised(of_few_executions) == ["concurrent executions of the account"]
    assert found.parameters["ShardCount"] == "256"
    assert int(found.parameters["WarmThroughput"]) <= figures.TABLE_WRITE_UNITS
    assert found.prices.load == pytest.approx(1_000_000 * 5 * figures.WRITE_UNIT, rel=0.1), "writes are nearly all"


def test_a_small_load_wants_what_a_new_stack_has() -> None:
    found = plan_burst(1_000, 60)
    defaults = {name: str(PARAMETERS[name]["Default"]) for name in ("ShardCount", "TaskThreads", "ProcessorMemoryMb")}
    assert found.parameters == defaults | {
        "MaxWorkers": "0", "WarmThroughput": "0", "MaxWriteUnits": found.parameters["MaxWriteUnits"]
    }  # fmt: skip
    assert found.prices.warm_once == 0


def test_a_plan_follows_the_wishes() -> None:
    fleet = plan_burst(100_000, 60, PlanOptions(threads=48, memory_mb=300)).fleet
    assert (fleet.threads, fleet.memory_mb) == (48, 300)
    # Tasks that wait longer get workers, and those longer than a process a longer one.
    quick, slow = (plan_burst(100_000, 60, PlanOptions(task_seconds=seconds)) for seconds in (0.2, 5.0))
    assert quick.fleet.workers == 0 < slow.fleet.workers
    assert slow.fleet.processes * slow.fleet.threads >= 100_000 * 5 / 60
    assert plan_burst(10, 3600, PlanOptions(task_seconds=300)).parameters["ProcessorTimeoutSeconds"] == "330"
    tick, second = plan_burst(1_000, 60), plan_burst(1_000, 60, PlanOptions(to_the_second=True))
    assert second.parameters["Precision"] == "second"
    assert second.executions.total == tick.executions.total + figures.WAKE_UP_CONCURRENCY


@pytest.mark.parametrize("rate", [1, 10, 100, 1_000])
def test_a_plan_to_the_second_has_the_price_of_wake_ups(rate: int) -> None:
    tick, second = (plan_steady(rate * 86_400, 1.0, PlanOptions(to_the_second=one)) for one in (False, True))
    load, fleet = second.load, second.fleet
    found = woken(spread(rate, max(1, 20 // rate)), shards=fleet.shards, threads=fleet.threads)
    a_million = prices.wake_ups_price(load, fleet) / load.tasks * 1e6
    assert a_million == pytest.approx(found.a_million(fleet.memory_mb), rel=0.2)
    if fleet == tick.fleet:
        more = second.prices.load - tick.prices.load
        assert more / (rate * 86_400 * 365 / 12) * 1e6 == pytest.approx(a_million, rel=0.01)


def test_what_is_due_on_the_minute_shares_its_wake_ups() -> None:
    to_the_second = PlanOptions(to_the_second=True)
    for found, messages in ((plan_schedules(1, 60, to_the_second), 1), (plan_burst(100_000, 60, to_the_second), 1_000)):
        price = prices.wake_ups_price(found.load, found.fleet)
        waited = 0.1 * found.fleet.memory_mb / 1024 * figures.GB_SECOND
        assert price / messages == pytest.approx(1.04e-6 + waited, rel=0.2), "a message of docs/cost.md, with its wait"


def test_idle_shards_cost_less_than_the_first() -> None:
    page = (template.ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    for shards in (1, 64, 256):
        (line,) = re.findall(rf"^\| (?:1 \| )?{shards} \|.* \$.*$", page, re.MULTILINE)
        of_page = [float(cell) for cell in re.findall(r"\$([0-9.]+)", line)][3]  # after writes, reads, Lambda
        assert prices.idle_month(shards) == pytest.approx(of_page, rel=0.01, abs=0.005)
    assert prices.idle_month(1, to_the_second=True) == pytest.approx(0.37, abs=0.01)
    assert "nothing is due: $0.37 with `TickMinutes: 1` and one shard, instead of $0.11" in page
    assert prices.idle_month(64) < 64 * prices.idle_month(1) / 3
    assert prices.idle_month(256) < prices.idle_month(256, to_the_second=True) < 256 * prices.idle_month(1)


def test_the_scheduler_costs_by_the_rows_that_an_invocation_gets() -> None:
    """docs/cost.md: about a dollar a million if each comes by itself."""
    assert 1e6 * prices.scheduler_price(1) == pytest.approx(0.94, abs=0.01)
    assert 1e6 * prices.scheduler_price(100) == pytest.approx(0.01, abs=0.001)
    # Lambda polls each shard of the stream four times a second, and gives an invocation 100 records at most.
    assert [prices.records_together(rate, 4) for rate in (0, 1, 16, 160, 10_000)] == [1, 1, 1, 10, 100]
    assert [prices.records_together(2, 4, seconds) for seconds in (0, 1, 10, 60)] == [1, 1, 5, 30]
    batch = template.load()["Resources"]["SchedulerFunction"]["Properties"]["Events"]["TaskWritten"]["Properties"]
    assert batch["BatchSize"] == figures.STREAM_BATCH
    # A burst is inserted many at a time; of a steady load each task comes by itself, unless there are many a second.
    few, many = (plan_steady(per_day, 1) for per_day in (1_000_000, 100_000_000))
    assert few.prices.load / 1_000_000 - many.prices.load / 100_000_000 > 25 * 1e-6
    # The peak decides the parameters, the mean the price of an invocation.
    calm, peaky = (plan_steady(1_000_000, peak).prices.load for peak in (1, 10))
    assert calm == pytest.approx(peaky, rel=0.03)


def test_a_steady_load_is_priced_by_the_month() -> None:
    found = plan_steady(100_000_000, 10)
    assert found.is_feasible
    assert found.load.tasks == math.ceil(100_000_000 / 86_400 * 10 * 60)
    # docs/cost.md: $331 a day on demand, storage for 30 days among it; and what is more if tasks come one by one
    month = found.prices.load + found.prices.storage_month
    records = prices.records_together(100_000_000 / 86_400, found.fleet.partitions)
    one_by_one = 100_000_000 * (prices.scheduler_price(records) - prices.scheduler_price(100))
    assert month == pytest.approx((331 + one_by_one) * 365 / 12, rel=0.1)


def test_a_hundred_thousand_schedules_each_minute() -> None:
    found = plan_schedules(100_000, 60)
    assert found.load.tasks == 100_000
    assert found.fleet.workers == 0, "a shard's own pass makes the occurrences"
    writes = 7 * 100_000 * figures.TICKS_A_MONTH * figures.WRITE_UNIT  # tests/costs/test_plan.py counts the seven
    assert found.prices.load == pytest.approx(writes, rel=0.15)
    assert plan_schedules(100_000, 3600).load.tasks == math.ceil(100_000 / 60)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("task-ms", PlanOptions(task_seconds=-1)),
        ("task-ms", PlanOptions(task_seconds=871)),
        ("bytes", PlanOptions(row_bytes=0)),
        ("bytes", PlanOptions(row_bytes=400_001)),
        ("memory", PlanOptions(memory_mb=128)),
        ("threads", PlanOptions(threads=257)),
        ("concurrent-executions", PlanOptions(quotas=Quotas(concurrent_executions=0))),
        ("table-write-units", PlanOptions(quotas=Quotas(table_write_units=3_999))),
    ],
)
def test_no_plan_is_made_for_a_wish_or_a_load_out_of_bounds(name: str, options: PlanOptions) -> None:
    assert refusal(plan_burst, 10, 60, options)[0] == name
    assert (refusal(plan_burst, 0, 60)[0], refusal(plan_burst, 10, 1)[0]) == ("burst", "within")
    assert (refusal(plan_steady, 0, 1)[0], refusal(plan_steady, 10, 0.5)[0]) == ("per-day", "peak")
    assert (refusal(plan_schedules, 0, 60)[0], refusal(plan_schedules, 10, 59)[0]) == ("schedules", "every")


@pytest.mark.parametrize(("shards", "partitions"), [(4, 4), (16, 4), (64, 10), (256, 40)])
def test_the_fullest_partition_is_as_full_as_dice_make_it(shards: int, partitions: int) -> None:
    dice = random.Random(7)
    drawn = sorted(max(Counter(dice.randrange(partitions) for _ in range(shards)).values()) for _ in range(4_000))
    for confidence in (0.5, 0.9):
        of_dice = drawn[int(len(drawn) * confidence)]
        assert of_dice <= fullest_partition(shards, partitions, confidence) <= of_dice + 1


@settings(max_examples=50, deadline=None)
@given(shards=st.integers(1, 256), partitions=st.integers(1, 400))
@example(shards=256, partitions=1)
def test_the_fullest_partition_has_at_least_its_part(shards: int, partitions: int) -> None:
    assert math.ceil(shards / partitions) <= fullest_partition(shards, partitions) <= shards
    assert fullest_partition(shards, partitions, 0.5) <= fullest_partition(shards, partitions, 0.9)


def test_the_fullest_shard_has_some_more_than_the_mean() -> None:
    assert capacity.fullest_shard(1_000, 1) == 1_000
    assert 3_906 < capacity.fullest_shard(1_000_000, 256) < 1.06 * 3_907
    assert capacity.fullest_shard(3, 256) <= 3


def test_a_shard_more_never_starts_sooner() -> None:
    starts = [capacity.first_claim(shards, PlanOptions()) for shards in (1, 2, 16, 64, 256)]
    assert starts == sorted(starts)
    assert starts[-1] == starts[-2], "each group of 64 is started by an invocation of its own"


def test_the_engines_figures_are_the_engines() -> None:
    assert figures.BATCH == invocation.BATCH == insertion.BATCH
    assert figures.CLAIMS_AT_ONCE == polling.MAX_CLAIMS
    assert invocation.CLAIM_AHEAD.total_seconds() == figures.CLAIM_AHEAD
    assert (cursor.GROUP, shards_of_ticks.THREADS) == (figures.GROUP, figures.POLLING_THREADS)
    assert sharing.SOON.total_seconds() == figures.SOON
    assert figures.MIN_IN_FLIGHT == 4 * invocation.BATCH
    assert Rules().threads == figures.USUAL_THREADS


def test_the_templates_figures_are_the_templates() -> None:
    bounds = {
        ("ShardCount", "MaxValue"): figures.MAX_SHARDS,
        ("TaskThreads", "Default"): figures.USUAL_THREADS,
        ("TaskThreads", "MaxValue"): figures.MAX_THREADS,
        ("ProcessorMemoryMb", "Default"): figures.USUAL_MEMORY_MB,
        ("ProcessorMemoryMb", "MinValue"): figures.MIN_MEMORY_MB,
        ("ProcessorMemoryMb", "MaxValue"): figures.MAX_MEMORY_MB,
        ("MaxWorkers", "MaxValue"): figures.MAX_WORKERS,
        ("ProcessorTimeoutSeconds", "Default"): figures.USUAL_TIMEOUT_SECONDS,
        ("ProcessorTimeoutSeconds", "MaxValue"): figures.MAX_TIMEOUT_SECONDS,
        ("RetentionDays", "Default"): figures.RETENTION_DAYS,
        ("WakeUpConcurrency", "Default"): figures.WAKE_UP_CONCURRENCY,
    }
    assert {(name, key): PARAMETERS[name][key] for name, key in bounds} == bounds


def test_the_measured_figures_are_those_of_the_benchmark() -> None:
    assert pytest.approx(MEASURED["cpu_us_per_task"] * 1e-6, rel=0.05) == figures.CPU_SECONDS
    assert pytest.approx(MEASURED["rcu_per_task"], rel=0.05) == figures.READ_UNITS_OF_TASK
    assert MEASURED["insert_many_per_s"] > figures.INSERTS_PER_CLIENT
    assert MEASURED["idle_tick_writes"] == figures.IDLE_WRITES
    found = plan_burst(1, 60).load
    assert found.insert_units + 1 + found.table_units + found.index_units == MEASURED["wcu_per_task"]


def test_units_are_begun_kilobytes() -> None:
    assert [capacity.units_of(size) for size in (0, 1, 1024, 1025, 2048, 2049)] == [1, 1, 1, 2, 2, 3]
    # The row grows while it runs: one of a KB takes two units from its claim on.
    assert plan_burst(1, 60, PlanOptions(row_bytes=1000)).load.table_units == 4
