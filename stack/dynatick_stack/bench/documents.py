"""The figures as tables, and the tables of docs/performance.md and docs/cost.md, which `make bench WRITE=1` writes.

A table stands between `<!-- bench: NAME -->` and `<!-- /bench -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dynatick_stack.bench import plans, wake_up_lateness, wake_up_price
from dynatick_stack.template import ROOT

DATA = ROOT / "docs" / "benchmark.json"
DOCUMENTS = (ROOT / "docs" / "performance.md", ROOT / "docs" / "cost.md")
_PART = re.compile(r"(<!-- bench: (\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)

Figures = Mapping[str, Any]
Rows = Sequence[Sequence[str]]


def rendered(text: str, figures: Figures) -> str:
    """A document with its tables as the figures make them. Raises KeyError for a table that there isn't."""
    return _PART.sub(lambda found: f"{found[1]}\n{table(found[2], figures)}\n\n{found[3]}", text)


def write(figures: Figures) -> None:
    """Writes the tables anew."""
    for document in DOCUMENTS:
        document.write_text(rendered(document.read_text(encoding="utf-8"), figures), encoding="utf-8")


def table(name: str, figures: Figures) -> str:
    """In Markdown; what is measured, in columns from the second on, is aligned to the right."""
    columns, rows = TABLES[name](figures)
    line = ["---" if n == 0 else "---:" for n in range(len(columns))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, line, *rows))


def _task(found: Figures) -> tuple[Sequence[str], Rows]:
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


def _units(found: Figures) -> tuple[Sequence[str], Rows]:
    tasks = found["unit_tasks"]
    names = ("calls", "write_units", "read_units")
    return (f"{tasks:,} tasks in one bucket", "calls a task", "write units", "read units"), [
        (f"{part}, {operation}", *(f"{count[name] / tasks:.4f}" for name in names))
        for part, operations in found["unit_parts"].items()
        for operation, count in operations.items()
    ]


def _pending(found: Figures) -> tuple[Sequence[str], Rows]:
    columns = (
        "Pending elsewhere",
        "insert a task: calls / write units / ms",
        "tick, by task: calls / write units / read units / ms",
        "page of history: calls / read units / ms",
    )
    insert, tick, page = (
        "{calls:.3f} / {write_units:g} / {ms:.2f}",
        "{calls:.3f} / {write_units:.3f} / {read_units:.3f} / {ms:.2f}",
        "{calls:.0f} / {read_units:g} / {ms:.1f}",
    )
    return columns, [
        (f"{one['pending']:,}", insert.format(**one["insert"]), tick.format(**one["tick"]),
         page.format(**one["history"]))
        for one in found["growth_pending"]
    ]  # fmt: skip


def _history(found: Figures) -> tuple[Sequence[str], Rows]:
    columns = ("Filter", "tasks", "first page of 100: calls / read units / ms", "all of them: calls / read units / ms")
    cell = "{calls:,.0f} / {read_units:,g} / {ms:,.0f}"
    return columns, [
        (f"`{one['status']}`" if one["status"] else "all", f"{one['matching']:,}", cell.format(**one["first"]),
         cell.format(**one["whole"]))
        for one in found["growth_history"]
    ]  # fmt: skip


TABLES: Mapping[str, Callable[[Figures], tuple[Sequence[str], Rows]]] = {
    "task": _task,
    "units": _units,
    "pending": _pending,
    "history": _history,
    "second": lambda found: wake_up_price.table(),  # computed, as are the next
    "lateness": lambda found: wake_up_lateness.table(),
    "bursts": lambda found: plans.bursts(),
    "steady": lambda found: plans.steady_loads(),
    "schedules": lambda found: plans.schedules(),
}
