"""All measurements, one after the other; the tables and the JSON object that they make."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from dynatick_stack.bench import cpu, growth, report, units
from dynatick_stack.bench.drainer import Drained
from dynatick_stack.bench.figures import Figures
from dynatick_stack.bench.imports import import_ms
from dynatick_stack.counting.process import Engine, counting

INSERTS = 10_000
SMALL_BUCKET = 1_000
LATE_BUCKET = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """How much is measured."""

    units_tasks: int
    cpu_tasks: int
    single_tasks: int
    rounds: int
    large_bucket: int = 100_000
    pending: tuple[int, ...] = ()
    shards: tuple[int, ...] = ()
    shard_tasks: int = 0
    history_entries: int = 0


QUICK = Sizes(units_tasks=2_000, cpu_tasks=3_000, single_tasks=300, rounds=5)
FULL = Sizes(
    units_tasks=10_000,
    cpu_tasks=5_000,
    single_tasks=1_000,
    rounds=7,
    pending=(1_000, 10_000, 100_000),
    shards=(1, 4, 16),
    shard_tasks=20_000,
    history_entries=100_000,
)


def run(sizes: Sizes, endpoint: str | None, *, write: Path | None = None) -> int:
    """Measures and prints. Exit code 0: figures are told, not judged. ``write``: keep the JSON there too."""
    figures = Figures(
        {
            "measured_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
            "endpoint": endpoint or "counting, in memory",
        }
    )
    with counting(endpoint) as engine:
        _measure(figures, sizes, engine, endpoint or engine.url)
    console = Console(width=None if sys.stdout.isatty() else 120)
    for table in report.tables(figures):
        console.print(table)
    line = json.dumps(figures.to_json())
    if write is not None:
        write.write_text(json.dumps(figures.to_json(), indent=1) + "\n", encoding="utf-8")
    print(line)
    return 0


def _measure(figures: Figures, sizes: Sizes, engine: Engine, where: str) -> None:
    with _told("CPU, against single writes and raw HTTP"):
        figures.take_ratios(
            cpu.compare(engine, where, tasks=sizes.cpu_tasks, single_tasks=sizes.single_tasks, rounds=sizes.rounds)
        )
    with _told(f"inserting {INSERTS:,} tasks"):
        figures.take_inserts(growth.inserts(where, INSERTS, rounds=3))
    with _told(f"lateness in a bucket of {LATE_BUCKET:,}"):
        figures.take_lateness(growth.lateness(where, LATE_BUCKET))
    with _told("importing the functions"):
        figures.take("import_ms", import_ms(rounds=3))
    with ThreadPoolExecutor(1) as aside, _told(f"memory for a bucket of {sizes.large_bucket:,}"):
        memory = aside.submit(_memory, sizes, None if where == engine.url else where)
        # Meanwhile what is counted, not timed.
        with _told("units and calls of a task"):
            tasks = (sizes.units_tasks, sizes.units_tasks // 2)
            timed, fewer = (units.timed(engine, number) for number in tasks)
            untimed, fewer_untimed = (units.untimed(engine, number) for number in tasks)
            figures.take_units((timed, fewer), (untimed, fewer_untimed), units.idle(engine))
        figures.take_memory(*memory.result())
    if sizes.pending:
        with _told("growth: tasks pending elsewhere"):
            found = growth.pending(engine, sizes.pending, tasks=SMALL_BUCKET, rounds=5)
            figures.take("growth_pending", [asdict(one) for one in found])
    if sizes.shards:
        with _told("growth: shards, a process each"):
            shards = growth.sharded(engine, sizes.shards, tasks=sizes.shard_tasks, rounds=3)
            figures.take("growth_shards", [asdict(one) for one in shards])
    if sizes.history_entries:
        with _told(f"history of a bucket of {sizes.history_entries:,}"):
            figures.take("growth_history", [asdict(one) for one in growth.paged(engine, sizes.history_entries)])


def _memory(sizes: Sizes, endpoint: str | None) -> tuple[Drained, Drained]:
    """A small bucket and a large one, in processes of their own."""
    if endpoint is None:
        with counting() as engine:
            return _memory(sizes, engine.url)
    return growth.lateness(endpoint, SMALL_BUCKET), growth.lateness(endpoint, sizes.large_bucket)


@contextmanager
def _told(what: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - began:.1f} s", file=sys.stderr)
