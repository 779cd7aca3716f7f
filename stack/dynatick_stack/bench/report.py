"""The figures as tables for people, beside the budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from dynatick_stack.bench.figures import Figures

BUDGETS: Mapping[str, str] = {
    "wcu_per_task": "≤ 5",
    "wcu_per_untimed_task": "≤ 7",
    "rcu_per_task": "≤ 0.1",
    "cpu_ratio_single_writes": "≤ 1/8",
    "idle_tick_reads": "≤ 8",
    "idle_tick_writes": "≤ 2",
    "peak_rss_ratio": "flat",
    "import_ms": "≤ boto3 + 150",
    "lateness_ms": "first < 1,000, last < 10,000",
}
_LEFT_OUT = ("unit_parts", "unit_tasks", "measured_at", "python", "machine", "endpoint")


def tables(figures: Figures) -> Iterator[Table]:
    """All of them."""
    made = _table("", "figure", "measured", "budget")
    made.columns[1].justify, made.columns[2].justify = "right", "left"
    for name, value in figures.to_json().items():
        if name not in _LEFT_OUT and not name.startswith("growth_"):
            made.add_row(name, shown(name, value), BUDGETS.get(name, ""))
    yield made
    if "growth_pending" in figures:
        made = _table("By task, with so many tasks pending elsewhere", "pending", *_ROWS)
        for one in figures["growth_pending"]:
            made.add_row(f"{one['pending']:,}", *pending_cells(one))
        yield made
    if "growth_shards" in figures:
        made = _table("A bucket over shards, a process each", "shards", "tasks/s", "CPU µs a task", "endpoint busy")
        for one in figures["growth_shards"]:
            made.add_row(str(one["shards"]), *shard_cells(one))
        yield made
    if "growth_history" in figures:
        made = _table("History of one bucket", "status", "tasks", *_PAGES)
        for one in figures["growth_history"]:
            made.add_row(one["status"] or "all", f"{one['matching']:,}", *history_cells(one))
        yield made


_ROWS = ("insert: calls", "WCU", "ms", "tick: calls", "WCU", "RCU", "ms", "page: calls", "RCU", "ms ")
_PAGES = ("first page: calls", "RCU", "ms", "all pages", "calls", "RCU", "ms ")


def pending_cells(one: Mapping[str, Any]) -> list[str]:
    insert, tick, page = one["insert"], one["tick"], one["history"]
    return [
        *(f"{insert[name]:.3g}" for name in ("calls", "write_units", "ms")),
        *(f"{tick[name]:.3g}" for name in ("calls", "write_units", "read_units", "ms")),
        *(f"{page[name]:.3g}" for name in ("calls", "read_units", "ms")),
    ]


def shard_cells(one: Mapping[str, Any]) -> list[str]:
    return [
        f"{one['tasks'] / one['seconds']:,.0f}",
        f"{one['cpu_seconds'] / one['tasks'] * 1e6:,.0f}",
        f"{one['engine_busy']:.0%}",
    ]


def history_cells(one: Mapping[str, Any]) -> list[str]:
    first, whole = one["first"], one["whole"]
    return [
        *(f"{first[name]:,.0f}" for name in ("calls", "read_units", "ms")),
        f"{one['pages']:,}",
        *(f"{whole[name]:,.0f}" for name in ("calls", "read_units", "ms")),
    ]


def shown(name: str, value: Any) -> str:
    """A figure, as people read it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{part} {shown('', one)}" for part, one in value.items())
    if name == "cpu_ratio_single_writes":
        return f"{value:.3f} = 1/{1 / value:.1f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"


def _table(title: str, *columns: str) -> Table:
    made = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, show_edge=False)
    for n, column in enumerate(columns):
        made.add_column(column, justify="right" if n else "left")
    return made
