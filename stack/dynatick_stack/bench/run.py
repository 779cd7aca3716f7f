"""All measurements, one after the other; the table and the JSON object that they make."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console

from dynatick_stack.bench import cpu, units
from dynatick_stack.bench.report import Figures, table
from dynatick_stack.counting.process import counting


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """How much is measured."""

    units_tasks: int
    cpu_tasks: int
    single_tasks: int
    rounds: int


QUICK = Sizes(units_tasks=2_000, cpu_tasks=2_000, single_tasks=500, rounds=3)
FULL = Sizes(units_tasks=10_000, cpu_tasks=5_000, single_tasks=1_000, rounds=7)


def run(sizes: Sizes, endpoint: str | None) -> int:
    """Measures and prints. Exit code 0: figures are told, not judged."""
    figures = Figures()
    with counting(endpoint) as engine:
        where = endpoint or engine.url
        with _told("CPU against single writes and raw HTTP"):
            figures.take_ratios(
                cpu.compare(engine, where, tasks=sizes.cpu_tasks, single_tasks=sizes.single_tasks, rounds=sizes.rounds)
            )
        with _told("units and calls of a task"):
            tasks = (sizes.units_tasks, sizes.units_tasks // 2)
            timed, fewer = (units.timed(engine, number) for number in tasks)
            untimed, fewer_untimed = (units.untimed(engine, number) for number in tasks)
            figures.take_units((timed, fewer), (untimed, fewer_untimed), units.idle(engine))
    Console(width=None if sys.stdout.isatty() else 120).print(table(figures))
    print(json.dumps(figures.to_json()))
    return 0


@contextmanager
def _told(what: str) -> Iterator[None]:
    began = time.perf_counter()
    print(f"{what} … ", end="", file=sys.stderr, flush=True)
    yield
    print(f"{time.perf_counter() - began:.1f} s", file=sys.stderr)
