"""Tables of simulations and of plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from proof.windows import Report
from tests.simulate.batch import BatchRun
from tests.simulate.burst import Burst
from tests.simulate.chaos import Survived
from tests.simulate.days import DaysRun
from tests.simulate.inserting import Inserting
from tests.simulate.keys import KeyRun
from tests.simulate.schedules import MINUTES, Schedules
from tests.simulate.world import Counts, Scenario
from tests.simulate.zones import EXPRESSIONS, Zones

from dynatick.engine.rules import Precision
from dynatick_stack.markdown import figures, table
from dynatick_stack.plan import capacity
from dynatick_stack.plan.figures import GB_SECOND, LAMBDA_REQUEST, READ_UNIT, WRITE_UNIT
from dynatick_stack.plan.loads import Plan


def price(used: Counts, scenario: Scenario) -> float:
    """Returns the price in dollars, without that of the insert."""
    of_lambda = used.lambda_seconds * scenario.memory_mb / 1024 * GB_SECOND + used.invocations * LAMBDA_REQUEST
    return used.write_units * WRITE_UNIT + used.read_units * READ_UNIT + of_lambda


def fleets(scenarios: Sequence[Scenario]) -> str:
    """The table of the bursts' fleets."""
    columns = ("tasks", "shards", "workers", "threads", "memory, MB", "warm")
    return figures(
        columns,
        [
            (f"{one.tasks:,}", f"{one.shards}", f"{one.workers}", f"{one.threads}", f"{one.memory_mb:,}",
             f"{one.warm:,.0f}")
            for one in scenarios
        ],
    )  # fmt: skip


def starts(bursts: Sequence[Burst], plans: Sequence[Plan | None]) -> str:
    """The table of when tasks began. ``plans``: of the same bursts, where there is one."""
    columns = ("tasks", "p50, s", "p99, s", "last start, s", "planned, s", "executions at once", "cold starts", "lost")
    return figures(
        columns,
        [
            (f"{burst.scenario.tasks:,}", f"{burst.p50:.1f}", f"{burst.p99:.1f}", f"{burst.last_start:.1f}",
             "" if plan is None else f"{plan.timing.last_start:.1f}", f"{burst.max_running:,}",
             f"{burst.used.cold_starts:,}", f"{len(burst.problems):,}")
            for burst, plan in zip(bursts, plans, strict=True)
        ],
    )  # fmt: skip


def uses(bursts: Sequence[Burst]) -> str:
    """The table of the capacity that the bursts used."""
    columns = ("tasks", "throttled: table", "index", "Lambda", "invocations", "write units",
               "in the busiest second: table", "index", "read units", "price")  # fmt: skip
    return figures(
        columns,
        [
            (f"{burst.scenario.tasks:,}", f"{burst.used.table_throttles:,}", f"{burst.used.index_throttles:,}",
             f"{burst.used.lambda_throttles:,}", f"{burst.used.invocations:,}", f"{burst.used.write_units:,.0f}",
             f"{burst.table_peak:,.0f}", f"{burst.index_peak:,.0f}", f"{burst.used.read_units:,.0f}",
             f"${price(burst.used, burst.scenario):.2f}")
            for burst in bursts
        ],
    )  # fmt: skip


def extrapolated(plans: Sequence[tuple[str, Plan]]) -> str:
    """The table of plans of loads that nothing has simulated."""
    columns = ("load", "shards", "workers", "threads", "warm", "last start, s", "write units a second",
               "quotas to raise", "price")  # fmt: skip
    return figures(
        columns,
        [
            (name, f"{plan.fleet.shards}", f"{plan.fleet.workers}", f"{plan.fleet.threads}", f"{plan.fleet.warm:,}",
             f"{plan.timing.last_start:.0f}", f"{plan.table_peak:,}",
             "; ".join(f"{quota.name}: {quota.needed:,}" for quota in plan.quotas if quota.must_be_raised) or "none",
             f"${plan.prices.load:,.2f}")
            for name, plan in plans
        ],
    )  # fmt: skip


def inserting(found: Sequence[Inserting], plans: Sequence[Plan]) -> str:
    """How long it took to insert the tasks of bursts, and what their plans say of it."""
    columns = ("tasks", "shards", "warm", "clients", "seconds", "planned, s", "with this placement, s",
               "throttled: table", "index", "write units", "price")  # fmt: skip
    return figures(
        columns,
        [
            (f"{one.scenario.tasks:,}", f"{one.scenario.shards}", f"{one.scenario.warm:,.0f}", f"{one.clients}",
             f"{one.seconds:.1f}", f"{plan.inserting.seconds:.1f}", f"{planned_inserting(plan, one):.1f}",
             f"{one.used.table_throttles:,}", f"{one.used.index_throttles:,}", f"{one.used.write_units:,.0f}",
             f"${price(one.used, one.scenario):.2f}")
            for one, plan in zip(found, plans, strict=True)
        ],
    )  # fmt: skip


def batches(found: Sequence[BatchRun], alone: Sequence[float]) -> str:
    """How members began, and the tasks beside them. ``alone``: the last start of these tasks without the batch."""
    columns = ("tick", "members", "p50, s", "p99, s", "last start, s", "tasks beside, last start, s",
               "the same alone, s", "executions at once", "invocations", "throttled", "write units", "read units",
               "price", "lost")  # fmt: skip
    return figures(
        columns,
        [
            (tick_of(run.scenario), f"{run.scenario.members:,}", f"{run.p50:.1f}", f"{run.p99:.1f}",
             f"{run.last_start:.1f}", f"{run.tasks_last_start:.1f}", f"{last_start:.1f}", f"{run.max_running:,}",
             f"{run.used.invocations:,}",
             f"{run.used.table_throttles + run.used.index_throttles + run.used.lambda_throttles:,}",
             f"{run.used.write_units:,.0f}", f"{run.used.read_units:,.0f}", f"${price(run.used, run.scenario):.2f}",
             f"{len(run.problems):,}")
            for run, last_start in zip(found, alone, strict=True)
        ],
    )  # fmt: skip


def keys(found: Sequence[KeyRun]) -> str:
    """How tasks with limit keys began, class by class."""
    columns = ("tasks", "keys", "limit of each", "shards", "threads", "p50, s", "p99, s", "last start, s",
               "at least, by limit, s", "by threads, s", "throttled", "write units a task", "read units", "price",
               "wrong")  # fmt: skip
    return figures(
        columns,
        [
            (f"{group.tasks:,}", f"{group.keys:,}", group.limit, f"{run.scenario.shards}", f"{run.scenario.threads}",
             f"{group.p50:.1f}", f"{group.p99:.1f}", f"{group.last_start:,.1f}", f"{group.by_limit:,.1f}",
             f"{run.by_threads:.1f}" if group is run.groups[0] else "",
             *((f"{run.used.table_throttles + run.used.index_throttles:,}",
                f"{run.used.write_units / run.scenario.tasks:.2f}", f"{run.used.read_units:,.0f}",
                f"${price(run.used, run.scenario):.2f}", f"{len(run.problems):,}")
               if group is run.groups[0] else ("",) * 5))
            for run in found
            for group in run.groups
        ],
    )  # fmt: skip


def tick_of(scenario: Scenario) -> str:
    """When the ticks of a scenario come."""
    late = f"{scenario.assumptions.tick_delay:g} s late"
    return f"{late}, Precision: second" if scenario.precision is Precision.SECOND else late


def batch_inserting(run: BatchRun) -> str:
    """What inserting a batch took."""
    used = run.inserting
    return figures(
        ("members", "clients", "seconds", "requests", "throttled", "write units", "price"),
        [
            (f"{run.scenario.members:,}", "1", f"{run.insert_seconds:.1f}", f"{run.insert_requests:,}",
             f"{used.table_throttles + used.index_throttles:,}", f"{used.write_units:,.0f}",
             f"${used.write_units * WRITE_UNIT + used.read_units * READ_UNIT:.2f}")
        ],
    )  # fmt: skip


def planned_inserting(plan: Plan, found: Inserting) -> float:
    """Returns the plan's seconds, for shards that lie on the index partitions as these did."""
    scenario = found.scenario
    fleet = replace(plan.fleet, shards=scenario.shards, warm=round(scenario.warm))
    return capacity.inserting(plan.load, fleet, scenario.tasks, shards_together=found.shards_together).seconds


def schedules(found: Schedules) -> str:
    """How the minutes of schedules went."""
    columns = ("schedules", "shards", "threads", "warm", "last start of a minute, s", "throttled: table", "index",
               "write units a run", "read units a run", "price of a million runs")  # fmt: skip
    scenario, used, runs = found.scenario, found.used, found.scenario.tasks * MINUTES
    return figures(
        columns,
        [
            (f"{scenario.tasks:,}", f"{scenario.shards}", f"{scenario.threads}", f"{scenario.warm:,.0f}",
             f"{max(found.last_starts):.1f}", f"{used.table_throttles:,}", f"{used.index_throttles:,}",
             f"{used.write_units / runs:.2f}", f"{used.read_units / runs:.2f}",
             f"${price(used, scenario) / runs * 1e6:.2f}")
        ],
    )  # fmt: skip


def zones(found: Zones) -> str:
    """How a hundred years of schedules went."""
    columns = ("zones", "clocks that differ", "clock changes", "expressions", "runs compared", "times skipped",
               "times shown twice", "wrong", "CPU, min")  # fmt: skip
    compared = found.compared
    return figures(
        columns,
        [
            (f"{found.zones:,}", f"{found.clocks:,}", f"{found.changes:,}", f"{len(EXPRESSIONS)}",
             f"{compared.runs:,}", f"{compared.skipped:,}", f"{compared.repeated:,}", f"{len(compared.problems):,}",
             f"{found.cpu_seconds / 60:.0f}")
        ],
    )  # fmt: skip


def days(found: DaysRun) -> str:
    """What happened in some days."""
    outages = (f"{kind}: {len(minutes)}, {sum(minutes) / 60:.1f} h in all" for kind, minutes in found.outages.items())
    rows = [
        ("days", f"{found.days:g}"),
        ("inserted", ", ".join(f"{number:,} {what}" for what, number in sorted(found.inserted.items()))),
        ("ticks", f"{found.ticks:,}"),
        ("deployments", f"{found.deployments:,}"),
        ("outages", "; ".join(outages)),
        ("processes that were killed", f"{found.killed:,}"),
        ("executions", f"{found.executions:,}"),
        ("events that the replay accepted", "not all" if found.events is None else f"{found.events:,}"),
        ("wrong", f"{len(found.problems):,}"),
        ("CPU, s", f"{found.cpu_seconds:.0f}"),
    ]
    return table(("What", "How many"), rows)


def windows(report: Report) -> str:
    """When runs began, of those that had to begin at a tick."""
    names = ("missing", "late", "early", "extra", "twice")
    again = report.repeated.total()
    after = sorted(report.after_tick) or [0.0]
    columns = ("due", "had to begin", "began", "after their tick: p50, s", "p99, s", "most, s", *names,
               "again, with a reason")  # fmt: skip
    return figures(
        columns,
        [
            (f"{report.targets:,}", f"{report.needed:,}", f"{report.runs:,}", f"{after[len(after) // 2]:.1f}",
             f"{after[len(after) * 99 // 100]:.1f}", f"{after[-1]:.1f}",
             *(f"{len(getattr(report, name)):,}" for name in names), f"{again:,}")
        ],
    )  # fmt: skip


def chaos(found: Sequence[Survived]) -> str:
    """What came of the scenarios."""
    columns = ("scenario", "its name there", "what happens", "tasks", "lost", "ended twice", "attempts",
               "all completed, s after the first blow", "wrong")  # fmt: skip
    return table(
        columns,
        [
            (one.scenario, f"`{one.theirs}`", one.blows, f"{one.tasks}", f"{one.lost}", f"{one.repeated}",
             f"{one.begun}", f"{one.seconds:.0f}", f"{len(one.problems)}")
            for one in found
        ],
    )  # fmt: skip
