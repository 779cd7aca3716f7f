"""What simulations showed, and what plans say, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.simulate.burst import Burst
from tests.simulate.inserting import Inserting
from tests.simulate.schedules import MINUTES, Schedules
from tests.simulate.world import Counts, Scenario

from dynatick.domain import capacity
from dynatick.domain.plan import Plan
from dynatick.domain.plan_figures import GB_SECOND, LAMBDA_REQUEST, READ_UNIT, WRITE_UNIT


@dataclass(frozen=True, slots=True)
class Table:
    """``columns`` and rows, all of them text."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        """In Markdown, aligned to the right in the source too."""
        widths = [max(len(cells[n]) for cells in (self.columns, *self.rows)) for n in range(len(self.columns))]
        lines = [[cell.rjust(width) for cell, width in zip(cells, widths, strict=True)] for cells in self.rows]
        head = [name.rjust(width) for name, width in zip(self.columns, widths, strict=True)]
        rule = ["-" * (width - 1) + ":" for width in widths]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))


def price(used: Counts, scenario: Scenario) -> float:
    """In dollars, of what was used. The insert is not in it."""
    of_lambda = used.lambda_seconds * scenario.memory_mb / 1024 * GB_SECOND + used.invocations * LAMBDA_REQUEST
    return used.write_units * WRITE_UNIT + used.read_units * READ_UNIT + of_lambda


def fleets(scenarios: Sequence[Scenario]) -> Table:
    """What each burst ran on."""
    columns = ("tasks", "shards", "workers", "threads", "memory, MB", "warm")
    return Table(columns, [(f"{one.tasks:,}", *_fleet(one)) for one in scenarios])


def _fleet(scenario: Scenario) -> Sequence[str]:
    return (
        f"{scenario.shards}",
        f"{scenario.workers}",
        f"{scenario.threads}",
        f"{scenario.memory_mb:,}",
        f"{scenario.warm:,.0f}",
    )


def starts(bursts: Sequence[Burst], plans: Sequence[Plan | None]) -> Table:
    """When the tasks began. ``plans``: of the same bursts, where there is one."""
    columns = ("tasks", "p50, s", "p99, s", "last start, s", "planned, s", "executions at once", "cold starts", "lost")
    return Table(
        columns,
        [
            (
                f"{burst.scenario.tasks:,}",
                f"{burst.p50:.1f}",
                f"{burst.p99:.1f}",
                f"{burst.last_start:.1f}",
                "" if plan is None else f"{plan.timing.last_start:.1f}",
                f"{burst.max_running:,}",
                f"{burst.used.cold_starts:,}",
                f"{len(burst.problems):,}",
            )
            for burst, plan in zip(bursts, plans, strict=True)
        ],
    )


def uses(bursts: Sequence[Burst]) -> Table:
    """What the bursts took."""
    columns = (
        "tasks",
        "throttled: table",
        "index",
        "Lambda",
        "invocations",
        "write units",
        "in the busiest second: table",
        "index",
        "read units",
        "price",
    )
    return Table(
        columns,
        [
            (
                f"{burst.scenario.tasks:,}",
                f"{burst.used.table_throttles:,}",
                f"{burst.used.index_throttles:,}",
                f"{burst.used.lambda_throttles:,}",
                f"{burst.used.invocations:,}",
                f"{burst.used.write_units:,.0f}",
                f"{burst.table_peak:,.0f}",
                f"{burst.index_peak:,.0f}",
                f"{burst.used.read_units:,.0f}",
                f"${price(burst.used, burst.scenario):.2f}",
            )
            for burst in bursts
        ],
    )


def extrapolated(plans: Sequence[tuple[str, Plan]]) -> Table:
    """What plans say of loads that nothing has simulated."""
    columns = (
        "load",
        "shards",
        "workers",
        "threads",
        "warm",
        "last start, s",
        "write units a second",
        "quotas to raise",
        "price",
    )
    return Table(
        columns,
        [
            (
                name,
                f"{plan.fleet.shards}",
                f"{plan.fleet.workers}",
                f"{plan.fleet.threads}",
                f"{plan.fleet.warm:,}",
                f"{plan.timing.last_start:.0f}",
                f"{plan.table_peak:,}",
                "; ".join(f"{quota.name}: {quota.needed:,}" for quota in plan.quotas if quota.must_be_raised) or "none",
                f"${plan.prices.load:,.2f}",
            )
            for name, plan in plans
        ],
    )


def inserting(found: Sequence[Inserting], plans: Sequence[Plan]) -> Table:
    """How long it took to insert the tasks of bursts, and what their plans say of it."""
    columns = (
        "tasks",
        "shards",
        "warm",
        "clients",
        "seconds",
        "planned, s",
        "with this placement, s",
        "throttled: table",
        "index",
        "write units",
        "price",
    )
    return Table(
        columns,
        [
            (
                f"{one.scenario.tasks:,}",
                f"{one.scenario.shards}",
                f"{one.scenario.warm:,.0f}",
                f"{one.clients}",
                f"{one.seconds:.1f}",
                f"{plan.inserting.seconds:.1f}",
                f"{planned_inserting(plan, one):.1f}",
                f"{one.used.table_throttles:,}",
                f"{one.used.index_throttles:,}",
                f"{one.used.write_units:,.0f}",
                f"${price(one.used, one.scenario):.2f}",
            )
            for one, plan in zip(found, plans, strict=True)
        ],
    )


def planned_inserting(plan: Plan, found: Inserting) -> float:
    """What the plan's arithmetic says, in seconds, of shards that lie on the index partitions as these did."""
    scenario = found.scenario
    fleet = replace(plan.fleet, shards=scenario.shards, warm=round(scenario.warm))
    return capacity.inserting(plan.load, fleet, scenario.tasks, shards_together=found.shards_together).seconds


def schedules(found: Schedules) -> Table:
    """How the minutes of schedules went."""
    columns = (
        "schedules",
        "shards",
        "threads",
        "warm",
        "last start of a minute, s",
        "throttled: table",
        "index",
        "write units a run",
        "read units a run",
        "price of a million runs",
    )
    scenario, used, runs = found.scenario, found.used, found.scenario.tasks * MINUTES
    return Table(
        columns,
        [
            (
                f"{scenario.tasks:,}",
                f"{scenario.shards}",
                f"{scenario.threads}",
                f"{scenario.warm:,.0f}",
                f"{max(found.last_starts):.1f}",
                f"{used.table_throttles:,}",
                f"{used.index_throttles:,}",
                f"{used.write_units / runs:.2f}",
                f"{used.read_units / runs:.2f}",
                f"${price(used, scenario) / runs * 1e6:.2f}",
            )
        ],
    )
