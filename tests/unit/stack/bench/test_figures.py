"""Medians, percentiles, and the JSON object with all that is promised in it."""

from __future__ import annotations

import json

import pytest

from dynatick_stack.bench import report
from dynatick_stack.bench.cpu import Cost, Ratios, Round
from dynatick_stack.bench.drainer import Drained
from dynatick_stack.bench.figures import Figures, percentile
from dynatick_stack.bench.units import Idle, Life
from dynatick_stack.counting.counts import Count, Counts

PROMISED = {
    "wcu_per_task", "wcu_per_untimed_task", "rcu_per_task", "api_calls_per_task", "cpu_us_per_task",
    "cpu_ratio_single_writes", "cpu_ratio_raw_http", "tasks_per_s", "insert_many_per_s", "idle_tick_reads",
    "peak_rss_ratio", "import_ms", "lateness_ms",
}  # fmt: skip


def round_of(ours: float, single: tuple[float, float, float], raw: float) -> Round:
    return Round(
        ours=Cost(ours, ours * 2),
        single={threads: Cost(us, us) for threads, us in zip((1, 4, 16), single, strict=True)},
        raw=Cost(raw, raw),
    )


def life(tasks: int) -> Life:
    """Of tasks that cost 5 units and 0.08 read units each, and 13 units and 20 reads for their bucket."""
    writes = Count(writes=tasks // 25 + 13, statements=3 * tasks + 13, write_units=5 * tasks + 13)
    reads = Count(reads=20, statements=20, read_units=0.08 * tasks + 10)
    return Life(
        tasks=tasks,
        insert=Counts({}),
        scheduler=Counts({}),
        processor=Counts({"BatchExecuteStatement": writes, "Query": reads}),
        scheduler_batches=tasks // 100,
        scheduler_cpu_seconds=tasks * 50e-6,
        ticks=6,
        bytes_per_row=500,
        bytes_per_entry=100,
    )


def drained(tasks: int, rss: int) -> Drained:
    return Drained(
        tasks=tasks, seconds=1.0, cpu_seconds=0.5, peak_rss_bytes=rss, began=0.0,
        first_ms=10.4, p50_ms=500.0, p99_ms=990.0, last_ms=999.6,
    )  # fmt: skip


@pytest.fixture
def figures() -> Figures:
    made = Figures()
    made.take_ratios(
        Ratios(
            [
                round_of(100, (1000, 1100, 900), 25),
                round_of(300, (1000, 1200, 1500), 50),  # a noisy one
                round_of(120, (1200, 1300, 1250), 24),
            ]
        )
    )
    made.take_inserts((5432.1, 171.96))
    made.take_lateness(drained(10_000, 1))
    made.take_memory(drained(1_000, 50 * 2**20), drained(100_000, 60 * 2**20))
    made.take("import_ms", {"processor": 300.0, "scheduler": 250.0, "boto3": 120.0, "boto3_client": 180.0})
    idle = Idle(ticks=10, reads=8, writes=2, total=Count(reads=60, writes=20, read_units=36, write_units=20))
    made.take_units((life(2000), life(1000)), (life(400), life(200)), idle)
    return made


def test_a_ratio_is_taken_within_its_round_against_the_best_of_the_threads(figures: Figures) -> None:
    assert figures["cpu_us_per_task"] == 120.0
    assert figures["cpu_ratio_single_writes"] == round(100 / 900, 4)  # the middle one of 0.1, 0.111 and 0.3
    assert figures["cpu_ratio_raw_http"] == 5.0  # of 4, 5 and 6
    assert figures["tasks_per_s"] == round(1e6 / 240)


def test_write_units_are_what_a_task_adds_and_the_buckets_own_stand_beside(figures: Figures) -> None:
    assert figures["wcu_per_task"] == 5.0
    assert figures["wcu_per_bucket"] == 13.0


def test_reads_and_calls_are_all_there_were(figures: Figures) -> None:
    assert figures["rcu_per_task"] == round((0.08 * 2000 + 10) / 2000, 4)
    assert figures["api_calls_per_task"] == (80 + 13 + 20) / 2000
    assert figures["idle_tick_rcu"] == 3.6


def test_everything_promised_is_in_the_json(figures: Figures) -> None:
    told = json.loads(json.dumps(figures.to_json()))
    assert set(told) >= PROMISED
    assert told["lateness_ms"] == {"first": 10, "p50": 500, "p99": 990, "last": 1000}
    assert told["peak_rss_ratio"] == 1.2


def test_the_tables_show_every_figure(figures: Figures) -> None:
    (table,) = report.tables(figures)
    assert set(table.columns[0].cells) >= PROMISED


@pytest.mark.parametrize(
    ("values", "percent", "found"),
    [([1.0], 50, 1.0), ([1.0, 2.0], 50, 1.0), ([1.0, 2.0, 3.0], 50, 2.0), (list(range(1, 101)), 99, 99),
     (list(range(1, 101)), 100, 100), ([5.0, 9.0], 0, 5.0)],
)  # fmt: skip
def test_a_percentile(values: list[float], percent: float, found: float) -> None:
    assert percentile(values, percent) == found
