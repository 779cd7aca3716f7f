"""What a million tasks cost, by how they are inserted: the scheduler is invoked for what the stream has at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynatick_stack.markdown import Table
from dynatick_stack.plan.figures import GB_SECOND, MB_PER_CPU, READ_UNIT, STORAGE_GB_MONTH, STREAM_BATCH, WRITE_UNIT
from dynatick_stack.plan.prices import records_together, scheduler_price

MILLION = 1_000_000
STREAM_SHARDS = 4  # of a new table
STORED_BYTES = 680  # of a small task with its entry in the index, once it has ended
RECORDS, RECORDS_OF_RAW = 1, 2  # of the stream; a raw row comes again once the scheduler has written its bucket
ONE_BY_ONE = ((1, 0), (1, 10), (1, 60), (10, 0), (10, 10), (100, 0), (100, 10))  # inserts a second, StreamBatchSeconds


def table(found: Mapping[str, Any]) -> Table:
    """The table of docs/cost.md. ``found``: the measured figures."""
    columns = (
        "Inserted", "StreamBatchSeconds", "rows in an invocation", "scheduler, with a time", "all, with a time",
        "scheduler, raw", "all, raw",
    )  # fmt: skip
    rows = [("many at a time", "0", *_prices(found, STREAM_BATCH))]
    for rate, seconds in ONE_BY_ONE:
        together = records_together(rate, STREAM_SHARDS, seconds)
        rows.append((f"one by one, {rate} a second", str(seconds), *_prices(found, together)))
    return columns, rows


def _prices(found: Mapping[str, Any], records: float) -> tuple[str, ...]:
    others = (
        found["rcu_per_task"] * READ_UNIT
        + found["cpu_us_per_task"] / 1e6 * MB_PER_CPU / 1024 * GB_SECOND
        + STORED_BYTES / 1e9 * STORAGE_GB_MONTH
    )
    units = (found["wcu_per_task"], found["wcu_per_untimed_task"])
    prices = [f"{records:.3g}"]
    for of_stream, write_units in zip((RECORDS, RECORDS_OF_RAW), units, strict=True):
        scheduler = MILLION * of_stream * scheduler_price(records)
        prices += [f"${scheduler:.2f}", f"${MILLION * (others + write_units * WRITE_UNIT) + scheduler:.2f}"]
    return tuple(prices)
