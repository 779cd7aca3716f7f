"""What simulations showed, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulate.burst import Burst
from tests.simulate.world import Counts, Scenario

WRITE_UNIT, READ_UNIT, GB_SECOND, REQUEST = 0.625e-6, 0.125e-6, 0.0000133334, 0.20e-6
"""Dollars of us-east-1: docs/cost.md."""

COLUMNS = (
    "tasks",
    "shards",
    "workers",
    "threads",
    "warm",
    "last start, s",
    "p50, s",
    "p99, s",
    "throttles: table",
    "index",
    "Lambda",
    "executions at once",
    "invocations",
    "cold",
    "write units",
    "read units",
    "price",
    "lost",
)


def price(used: Counts, scenario: Scenario) -> float:
    """In dollars, of what was used. The insert is not in it."""
    of_lambda = used.lambda_seconds * scenario.memory_mb / 1024 * GB_SECOND + used.invocations * REQUEST
    return used.write_units * WRITE_UNIT + used.read_units * READ_UNIT + of_lambda


def row(burst: Burst) -> Sequence[str]:
    scenario, used = burst.scenario, burst.used
    return (
        f"{scenario.tasks:,}",
        f"{scenario.shards}",
        f"{scenario.workers}",
        f"{scenario.threads}",
        f"{scenario.warm:,.0f}",
        f"{burst.last_start:.1f}",
        f"{burst.p50:.1f}",
        f"{burst.p99:.1f}",
        f"{used.table_throttles:,}",
        f"{used.index_throttles:,}",
        f"{used.lambda_throttles:,}",
        f"{burst.max_running:,}",
        f"{used.invocations:,}",
        f"{used.cold_starts:,}",
        f"{used.write_units:,.0f}",
        f"{used.read_units:,.0f}",
        f"${price(used, scenario):.2f}",
        f"{len(burst.problems):,}",
    )


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns are aligned to the right, in the source too."""
    widths = [max(len(cells[n]) for cells in (columns, *rows)) for n in range(len(columns))]
    lines = [" | ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)) for cells in rows]
    head = " | ".join(name.rjust(width) for name, width in zip(columns, widths, strict=True))
    rule = " | ".join("-" * (width - 1) + ":" for width in widths)
    return "\n".join(f"| {line} |" for line in (head, rule, *lines))
