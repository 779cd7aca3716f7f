"""`make bench`: what a task costs, as one object of figures and as the tables of the documents."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dynatick_stack.bench import cpu, plans, scheduler_price, units, wake_up_price
from dynatick_stack.counting.counts import Engine, counting
from dynatick_stack.markdown import Table, figures, write_parts
from dynatick_stack.template import ROOT

DOCS = ROOT / "docs"
DATA = DOCS / "benchmark.json"

Figures = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """How much is measured."""

    units_tasks: int = 10_000
    cpu_tasks: int = 5_000
    single_tasks: int = 1_000
    members: int = 20_000
    rounds: int = 7


FULL = Sizes()
QUICK = Sizes(units_tasks=2_000, cpu_tasks=3_000, single_tasks=300, members=5_000, rounds=5)


def costs(*, quick: bool, write: bool) -> int:
    """Prints the tables, then one line of JSON. ``write``: they go into the documents too."""
    found = {
        "measured_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        **measure(QUICK if quick else FULL),
    }
    for page in TABLES:
        parts = tables(page, found)
        print("\n\n".join(parts.values()), end="\n\n")
        if write:
            write_parts(DOCS / page, parts)
    print(json.dumps(found))
    if write:
        DATA.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def measure(sizes: Sizes) -> dict[str, Any]:
    """The figures under their names."""
    with counting() as engine:
        print("CPU, against single writes", file=sys.stderr)
        compared = cpu.compare(engine.url, tasks=sizes.cpu_tasks, single_tasks=sizes.single_tasks, rounds=sizes.rounds)
        inserted = {"insert_many_per_s": round(cpu.inserts_per_s(engine.url, sizes.cpu_tasks, rounds=3))}
        members = measure_members(engine, sizes)
        print("units and calls of a task", file=sys.stderr)
        return {**compared, **inserted, "members": members, **_units(engine, sizes.units_tasks)}


def measure_members(engine: Engine, sizes: Sizes) -> Figures:
    """What a member of a batch costs, and the CPU of tasks beside it."""
    print("members of batches, beside tasks", file=sys.stderr)
    life = units.members(engine, sizes.members)
    parts = {"insert": life.insert, "scheduler": life.scheduler, "processor": life.processor}
    return {
        "number": sizes.members,
        **cpu.compare_members(engine.url, members=sizes.members, tasks=sizes.cpu_tasks, rounds=sizes.rounds),
        **{
            part: {name: getattr(counts.total, name) / sizes.members for name in ("calls", "write_units", "read_units")}
            for part, counts in parts.items()
        },
    }


def tables(page: str, found: Figures) -> dict[str, str]:
    """The tables of a page of docs/, by their names."""
    return {name: figures(*make(found)) for name, make in TABLES[page].items()}


def _units(engine: Engine, tasks: int) -> Figures:
    """Exact; each life twice, for what a task more adds.

    Write units are those; what the ticks write on their own rows is not in them. Reads and calls are all that there
    were, the ticks' own included.
    """
    life, raw = units.timed(engine, tasks), units.untimed(engine, tasks)
    fewer, fewer_raw = units.timed(engine, tasks // 2), units.untimed(engine, tasks // 2)
    idle = units.idle(engine)
    parts = {"insert": life.insert, "scheduler": life.scheduler, "processor": life.processor}
    return {
        "wcu_per_task": round(life.marginal(fewer, "write_units"), 4),
        "wcu_per_untimed_task": round(raw.marginal(fewer_raw, "write_units"), 4),
        "rcu_per_task": round(life.per_task("read_units"), 4),
        "api_calls_per_task": round(life.per_task("calls"), 4),
        "statements_per_task": round(life.per_task("statements"), 4),
        "idle_tick_reads": idle.reads,
        "idle_tick_writes": idle.writes,
        "unit_parts": {
            part: {
                operation: {name: getattr(count, name) for name in ("calls", "write_units", "read_units")}
                for operation, count in counts.by_operation.items()
            }
            for part, counts in parts.items()
        },
        "unit_tasks": tasks,
    }


def _task_table(found: Figures) -> Table:
    return ("What", "Measured", "Budget"), [
        ("write units of a task, time given, insert to outcome", f"{found['wcu_per_task']:g}", "≤ 5"),
        ("write units of a raw row without a time", f"{found['wcu_per_untimed_task']:g}", "≤ 7"),
        ("read units of a task, later polls included", f"{found['rcu_per_task']:.3f}", "≤ 0.1"),
        ("API calls of a task", f"{found['api_calls_per_task']:.3f}", ""),
        ("statements of a task", f"{found['statements_per_task']:.3f}", ""),
        ("read calls of an idle tick", f"{found['idle_tick_reads']}", "≤ 8"),
        ("writes of an idle tick", f"{found['idle_tick_writes']}", "≤ 2"),
        ("CPU of a task, µs", f"{found['cpu_us_per_task']:,.0f}", ""),
        ("CPU of a task by single writes, µs", f"{found['cpu_us_single_writes']:,.0f}", ""),
        ("the one against the other", f"1/{1 / found['cpu_ratio_single_writes']:.1f}", "≤ 1/8"),
        ("tasks a second, one process", f"{found['tasks_per_s']:,}", ""),
        ("inserts a second, one client", f"{found['insert_many_per_s']:,}", ""),
    ]


def _member_table(found: Figures) -> Table:
    members = found["members"]

    def of_all(name: str) -> float:
        return float(sum(members[part][name] for part in ("insert", "scheduler", "processor")))

    return (f"A member of {members['number']:,}", "Measured", "Budget"), [
        ("write units, insert to outcome", f"{of_all('write_units'):.4f}", "≤ 0.15"),
        ("read units, later polls included", f"{of_all('read_units'):.4f}", ""),
        ("API calls", f"{of_all('calls'):.4f}", ""),
        ("calls of them to insert it", f"{members['insert']['calls']:.4f}", ""),
        ("CPU, µs", f"{members['cpu_us_per_member']:,.0f}", ""),
        ("CPU of a task in the same run, µs", f"{members['cpu_us_per_task']:,.0f}", ""),
        ("the one against the other", f"1/{1 / members['cpu_ratio']:.1f}", "≤ 1/4"),
        ("CPU of the client to insert it, µs", f"{members['cpu_us_per_insert']:,.0f}", ""),
    ]


def _units_table(found: Figures) -> Table:
    tasks = found["unit_tasks"]
    return (f"{tasks:,} tasks in one bucket", "calls a task", "write units", "read units"), [
        (f"{part}, {operation}", *(f"{count[name] / tasks:.4f}" for name in ("calls", "write_units", "read_units")))
        for part, operations in found["unit_parts"].items()
        for operation, count in operations.items()
    ]


TABLES: Mapping[str, Mapping[str, Callable[[Figures], Table]]] = {
    "performance.md": {
        "task": _task_table,
        "member": _member_table,
        "units": _units_table,
        # Computed, as are the next.
        "bursts": lambda _: plans.bursts(),
        "schedules": lambda _: plans.schedules(),
        "steady": lambda _: plans.steady_loads(),
    },
    "cost.md": {"inserted": scheduler_price.table, "second": lambda _: wake_up_price.table()},
}
