"""The figures under their names, as JSON and as a table beside the budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from dynatick_stack.bench.cpu import Ratios
from dynatick_stack.bench.units import Idle, Life

BUDGETS: Mapping[str, str] = {
    "wcu_per_task": "≤ 5",
    "wcu_per_untimed_task": "≤ 7",
    "rcu_per_task": "≤ 0.1",
    "cpu_ratio_single_writes": "≤ 1/8 = 0.125",
    "idle_tick_reads": "≤ 8",
    "idle_tick_writes": "≤ 2",
    "peak_rss_ratio": "≈ 1",
    "import_ms": "botocore + 150",
    "lateness_ms": "first < 1,000, last < 10,000",
}


class Figures:
    """What was measured, by name."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def take_units(self, timed: tuple[Life, Life], untimed: tuple[Life, Life], idle: Idle) -> None:
        """A task's cost in the engine's units, exact; each life twice, the second with fewer tasks.

        Write units are those that a task more adds; what the ticks write on their own rows is told beside them. Reads
        and calls are all that there were, the ticks' own included.
        """
        (life, fewer), (raw_life, fewer_raw) = timed, untimed
        self._values |= {
            "wcu_per_task": round(life.marginal(fewer, "write_units"), 4),
            "wcu_per_untimed_task": round(raw_life.marginal(fewer_raw, "write_units"), 4),
            "wcu_per_bucket": round(life.fixed(fewer, "write_units"), 4),
            "rcu_per_task": round(life.per_task("read_units"), 4),
            "rcu_per_untimed_task": round(raw_life.per_task("read_units"), 4),
            "api_calls_per_task": round(life.per_task("calls"), 4),
            "statements_per_task": round(life.per_task("statements"), 4),
            "idle_tick_reads": idle.reads,
            "idle_tick_writes": idle.writes,
            "idle_tick_rcu": round(idle.total.read_units / idle.ticks, 2),
            "idle_tick_wcu": round(idle.total.write_units / idle.ticks, 2),
        }

    def take_ratios(self, ratios: Ratios) -> None:
        """CPU time, ours beside the baselines'."""
        self._values |= {
            "cpu_us_per_task": round(ratios.cpu_us_per_task, 1),
            "cpu_ratio_single_writes": round(ratios.to_single_writes, 4),
            "cpu_ratio_raw_http": round(ratios.to_raw, 2),
            "cpu_us_single_writes": {str(threads): round(ratios.single_us(threads), 1) for threads in ratios.threads},
            "cpu_us_raw_http": round(ratios.raw_us, 1),
            "tasks_per_s": round(ratios.tasks_per_s),
        }

    def to_json(self) -> dict[str, Any]:
        return dict(self._values)


def table(figures: Figures) -> Table:
    """For people."""
    made = Table(box=SIMPLE_HEAD, show_edge=False)
    made.add_column("figure")
    made.add_column("measured", justify="right")
    made.add_column("budget")
    for name, value in figures.to_json().items():
        made.add_row(name, _shown(name, value), BUDGETS.get(name, ""))
    return made


def _shown(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{part} {_shown('', one)}" for part, one in value.items())
    if name == "cpu_ratio_single_writes":
        return f"{value} = 1/{1 / value:.1f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"
