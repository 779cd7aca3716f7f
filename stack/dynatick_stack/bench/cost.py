"""What it costs in dollars: arithmetic from measured figures and the public price list.

Prices of us-east-1, as published in November 2026; free tiers are left out, but for EventBridge Scheduler's, which is
large. Look them up again before you rely on a sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MILLION = 1_000_000
HOURS = 730  # of a month
MINUTES = HOURS * 60
FULL_CPU_MB = 1769  # Lambda gives CPU in proportion to memory; this much is one CPU
ROW_OVERHEAD = 100  # bytes that DynamoDB adds to each row, and to each index entry, for storage


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """Dollars."""

    date: str = "November 2026"
    region: str = "us-east-1"
    write_unit: float = 0.625 / MILLION  # on demand
    read_unit: float = 0.125 / MILLION
    write_capacity_hour: float = 0.00065  # provisioned: one write unit a second
    read_capacity_hour: float = 0.00013
    storage_gb_month: float = 0.25
    lambda_gb_second: float = 0.0000133334  # arm64
    lambda_request: float = 0.20 / MILLION
    scheduler_invocation: float = 1.00 / MILLION
    scheduler_free: int = 14 * MILLION  # a month


PRICES = Prices()


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumptions:
    """What was not measured."""

    call_seconds: float = 0.005  # of one call to DynamoDB from Lambda
    utilisation: float = 0.7  # of provisioned capacity
    single_mb: int = 128  # of a function that EventBridge Scheduler invokes once a task
    single_seconds: float = 0.005  # that it is billed for
    record_writes: int = 2  # of a table that keeps outcomes, with an index by time


ASSUMED = Assumptions()


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Dollars of one task, from insert to recorded outcome."""

    writes: float
    reads: float
    processor: float
    scheduler: float
    storage: float  # for the days of retention

    @property
    def total(self) -> float:
        return self.writes + self.reads + self.processor + self.scheduler + self.storage


@dataclass(frozen=True, kw_only=True, slots=True)
class Month:
    """Dollars of a month's ticks, whether there is anything to do or not."""

    writes: float
    reads: float
    lambda_time: float
    lambda_requests: float

    @property
    def total(self) -> float:
        return self.writes + self.reads + self.lambda_time + self.lambda_requests


def task(
    figures: Mapping[str, Any], *, untimed: bool = False, retention_days: int = 30, prices: Prices = PRICES
) -> Task:
    """On demand."""
    kind = "untimed_task" if untimed else "task"
    return Task(
        writes=figures[f"wcu_per_{kind}"] * prices.write_unit,
        reads=figures[f"rcu_per_{kind}"] * prices.read_unit,
        processor=gb_seconds(figures["cpu_us_per_task"]) * prices.lambda_gb_second,
        scheduler=gb_seconds(figures[f"scheduler_cpu_us_per_{kind}"]) * prices.lambda_gb_second
        + figures[f"scheduler_batches_per_{kind}"] * prices.lambda_request,
        storage=stored_bytes(figures) / 1e9 * prices.storage_gb_month * retention_days / 30,
    )


def provisioned(figures: Mapping[str, Any], *, prices: Prices = PRICES, assumed: Assumptions = ASSUMED) -> Task:
    """With provisioned capacity that is used steadily."""
    on_demand = task(figures, prices=prices)
    seconds = 3600 * assumed.utilisation
    return Task(
        writes=figures["wcu_per_task"] * prices.write_capacity_hour / seconds,
        reads=figures["rcu_per_task"] * prices.read_capacity_hour / seconds,
        processor=on_demand.processor,
        scheduler=on_demand.scheduler,
        storage=on_demand.storage,
    )


def gb_seconds(cpu_us: float) -> float:
    """What Lambda bills for work that is bound by CPU. It is the same at each size below one full CPU: half the memory
    takes twice as long."""
    return cpu_us / 1e6 * FULL_CPU_MB / 1024


def stored_bytes(figures: Mapping[str, Any]) -> int:
    """Of one task that has ended, row and index entry."""
    return int(figures["bytes_per_row"]) + int(figures["bytes_per_entry"]) + 2 * ROW_OVERHEAD


def idle_month(
    figures: Mapping[str, Any],
    *,
    tick_minutes: int = 1,
    shards: int = 1,
    memory_mb: int = 1024,
    prices: Prices = PRICES,
    assumed: Assumptions = ASSUMED,
) -> Month:
    """Ticks that find nothing, as measured at a tick a minute; rarer ones read as much."""
    ticks = MINUTES / tick_minutes * shards
    calls = figures["idle_tick_reads"] + figures["idle_tick_writes"]
    return Month(
        writes=ticks * figures["idle_tick_wcu"] * prices.write_unit,
        reads=ticks * figures["idle_tick_rcu"] * prices.read_unit,
        lambda_time=ticks * calls * assumed.call_seconds * memory_mb / 1024 * prices.lambda_gb_second,
        lambda_requests=ticks * prices.lambda_request,
    )


def month(figures: Mapping[str, Any], tasks: int, *, by_provisioned: bool = False) -> float:
    """A month of Dynatick, a tick a minute, one shard."""
    one = provisioned(figures) if by_provisioned else task(figures)
    return idle_month(figures).total + tasks * one.total


def eventbridge_month(
    tasks: int, *, with_outcomes: bool, prices: Prices = PRICES, assumed: Assumptions = ASSUMED
) -> float:
    """A month of EventBridge Scheduler with a schedule a task, which invokes a Lambda function each time.

    ``with_outcomes``: the function also writes what became of the task to a table, with an index by time.
    """
    invoked = max(0, tasks - prices.scheduler_free) * prices.scheduler_invocation
    duration = assumed.single_mb / 1024 * assumed.single_seconds * prices.lambda_gb_second
    outcomes = assumed.record_writes * prices.write_unit if with_outcomes else 0
    return invoked + tasks * (prices.lambda_request + duration + outcomes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """So many tasks a day, spread evenly."""

    tasks_per_day: int
    tasks_per_s: float
    write_units_per_s: float
    index_writes_per_s: float
    shards: int  # for the index partitions, at twice the mean
    cpus: float  # for the processor, on machines as fast as the one that was measured
    stored_tb: float
    on_demand_per_day: float
    provisioned_per_day: float


SHARD_WRITES = 1000  # a second, of one index partition
PEAK = 2  # over the mean


def load(figures: Mapping[str, Any], tasks_per_day: int, *, retention_days: int = 30) -> Load:
    """What so many tasks need."""
    rate = tasks_per_day / 86_400
    peak = rate * PEAK
    return Load(
        tasks_per_day=tasks_per_day,
        tasks_per_s=rate,
        write_units_per_s=rate * figures["wcu_per_task"],
        index_writes_per_s=rate * 2,
        shards=max(1, -(-int(peak) // SHARD_WRITES)),
        cpus=peak * figures["cpu_us_per_task"] / 1e6,
        stored_tb=tasks_per_day * retention_days * stored_bytes(figures) / 1e12,
        on_demand_per_day=tasks_per_day * task(figures, retention_days=retention_days).total,
        provisioned_per_day=tasks_per_day * provisioned(figures).total,
    )
