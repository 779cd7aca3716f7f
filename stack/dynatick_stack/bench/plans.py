"""The plans of docs/performance.md: what `dynatick plan` says of some loads."""

from __future__ import annotations

from collections.abc import Sequence

from dynatick_stack.markdown import Table
from dynatick_stack.plan.capacity import PlanOptions
from dynatick_stack.plan.loads import Plan, plan_burst, plan_schedules, plan_steady

MINUTE = 60.0
BURSTS = (10_000, 100_000, 1_000_000, 10_000_000)
TASK_SECONDS = (0.2, 1.0)
SCHEDULES = (1_000, 10_000, 100_000)
LOADS = ((1_000_000, 1), (10_000_000, 1), (10_000_000, 10), (100_000_000, 1), (100_000_000, 10))

_FLEET = ("ShardCount", "MaxWorkers", "TaskThreads", "WarmThroughput")


def bursts() -> Table:
    """Tasks of one minute."""
    columns = ("In one minute", "task", *_FLEET, "last start", "limited by", "executions", "price", "warm, once")
    rows = []
    for tasks in BURSTS:
        for seconds in TASK_SECONDS:
            found = plan_burst(tasks, MINUTE, PlanOptions(task_seconds=seconds))
            rows.append(
                (f"{tasks:,}", f"{seconds:g} s", *_fleet(found), _last_start(found), str(found.timing.limited_by),
                 f"{found.executions.total:,}", f"${found.prices.load:,.2f}", f"${found.prices.warm_once:,.2f}")
            )  # fmt: skip
    return columns, rows


def steady_loads() -> Table:
    """Tasks of a day."""
    columns = ("A day", "peak", "in a minute", *_FLEET, "last start", "write units a second", "a month")
    rows = []
    for tasks, peak in LOADS:
        found = plan_steady(tasks, peak)
        rows.append(
            (f"{tasks:,}", f"{peak}x", f"{found.load.tasks:,}", *_fleet(found), _last_start(found),
             f"{found.table_peak:,}", f"${found.prices.load + found.prices.storage_month:,.0f}")
        )  # fmt: skip
    return columns, rows


def schedules() -> Table:
    """Schedules that run each minute."""
    columns = ("Each minute", *_FLEET, "last start", "write units a minute", "a month")
    rows = []
    for number in SCHEDULES:
        found = plan_schedules(number, MINUTE)
        units = found.load.table_units + found.load.index_units + 1
        rows.append(
            (f"{number:,}", *_fleet(found), _last_start(found), f"{number * units:,}", f"${found.prices.load:,.0f}")
        )
    return columns, rows


def _fleet(found: Plan) -> Sequence[str]:
    return [found.parameters[name] for name in _FLEET]


def _last_start(found: Plan) -> str:
    """Half of all buckets, and nine in ten."""
    return f"{found.expected.last_start:.0f} / {found.timing.last_start:.0f} s"
