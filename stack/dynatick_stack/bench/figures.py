"""All measurements, one after the other, as one object of figures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from dynatick_stack.bench import cpu, growth, units
from dynatick_stack.counting.counts import Engine, counting

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """How much is measured."""

    units_tasks: int = 10_000
    cpu_tasks: int = 5_000
    single_tasks: int = 1_000
    rounds: int = 7
    pending: tuple[int, ...] = (1_000, 10_000, 100_000)
    history_entries: int = 100_000


FULL = Sizes()
QUICK = Sizes(
    units_tasks=2_000, cpu_tasks=3_000, single_tasks=300, rounds=5, pending=(1_000, 5_000), history_entries=5_000
)


def measure(sizes: Sizes) -> dict[str, Any]:
    """The figures under their names."""
    with counting() as engine:
        return {
            **_timed("CPU, against single writes", lambda: _cpu(engine, sizes)),
            **_timed("units and calls of a task", lambda: _units(engine, sizes.units_tasks)),
            "growth_pending": _timed("tasks pending elsewhere", lambda: list(growth.pending(engine, sizes.pending))),
            "growth_history": _timed("history", lambda: list(growth.history(engine, sizes.history_entries))),
        }


def _timed(what: str, measured: Callable[[], T]) -> T:
    began = time.perf_counter()
    found = measured()
    print(f"{what}: {time.perf_counter() - began:.1f} s", file=sys.stderr)
    return found


def _cpu(engine: Engine, sizes: Sizes) -> dict[str, Any]:
    ratios = cpu.compare(engine.url, tasks=sizes.cpu_tasks, single_tasks=sizes.single_tasks, rounds=sizes.rounds)
    return {
        "cpu_us_per_task": round(ratios.cpu_us_per_task, 1),
        "cpu_us_single_writes": round(ratios.single_us, 1),
        "cpu_ratio_single_writes": round(ratios.to_single_writes, 4),
        "tasks_per_s": round(ratios.tasks_per_s),
        "insert_many_per_s": round(cpu.inserts_per_s(engine.url, sizes.cpu_tasks, rounds=3)),
    }


def _units(engine: Engine, tasks: int) -> dict[str, Any]:
    """Exact; each life twice, for what a task more adds.

    Write units are those; what the ticks write on their own rows is not in them. Reads and calls are all that there
    were, the ticks' own included.
    """
    (life, fewer), (raw, fewer_raw) = (
        (live(engine, tasks), live(engine, tasks // 2)) for live in (units.timed, units.untimed)
    )
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
                operation: {"calls": count.calls, "write_units": count.write_units, "read_units": count.read_units}
                for operation, count in counts.by_operation.items()
            }
            for part, counts in parts.items()
        },
        "unit_tasks": tasks,
    }
