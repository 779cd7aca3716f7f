"""What a load costs, in dollars of us-east-1."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dynatick_stack.plan.capacity import Fleet, Load, process_rate
from dynatick_stack.plan.figures import (
    ENTRY_BYTES,
    FURTHER_READS,
    FURTHER_SECONDS,
    FURTHER_WRITES,
    FURTHER_WRITES_TO_THE_SECOND,
    GB_SECOND,
    GROUP,
    IDLE_GB,
    IDLE_READS,
    IDLE_SECONDS,
    IDLE_WRITES,
    LAMBDA_REQUEST,
    LOG_GB,
    MB_PER_CPU,
    MONTH_SECONDS,
    NEW_TABLE_WRITE_UNITS,
    POLL_SECONDS,
    READ_UNIT,
    READ_UNITS_OF_OCCURRENCE,
    READ_UNITS_OF_TASK,
    ROW_GROWTH,
    SCHEDULER_GB,
    SCHEDULER_LOG_BYTES,
    SCHEDULER_READS,
    SCHEDULER_RECORD_SECONDS,
    SCHEDULER_SECONDS,
    START_SECONDS,
    STORAGE_GB_MONTH,
    STREAM_BATCH,
    STREAM_POLL_SECONDS,
    TICKS_A_MONTH,
    WARM_WRITE_UNIT,
    WRITE_UNIT,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """Prices in dollars. ``load``: of the burst, or of a month of the steady load."""

    load: float
    warm_once: float
    idle_month: float  # of ticks that find nothing
    storage_month: float  # of the ended rows, for RetentionDays


def idle_month(shards: int, *, to_the_second: bool = False) -> float:
    """A month of ticks that find nothing, with TickMinutes 1. Shard 0 has a pass; the others are polled together."""
    writes = FURTHER_WRITES_TO_THE_SECOND if to_the_second else FURTHER_WRITES
    first = IDLE_WRITES * WRITE_UNIT + IDLE_READS * READ_UNIT + IDLE_SECONDS * IDLE_GB * GB_SECOND + LAMBDA_REQUEST
    further = writes * WRITE_UNIT + FURTHER_READS * READ_UNIT + FURTHER_SECONDS * IDLE_GB * GB_SECOND
    groups = math.ceil((shards - 1) / GROUP)
    return TICKS_A_MONTH * (first + (shards - 1) * further + groups * LAMBDA_REQUEST)


def warm_price(fleet: Fleet) -> float:
    """Once, for table and index."""
    return 2 * max(0, fleet.warm - NEW_TABLE_WRITE_UNITS) * WARM_WRITE_UNIT


def running_price(load: Load, fleet: Fleet) -> float:
    """Returns the price of Lambda for the tasks of one bucket."""
    work = load.tasks / process_rate(load, fleet.threads, fleet.memory_mb)  # seconds of processes
    running = max(work, fleet.processes * load.options.task_seconds) + fleet.processes * (START_SECONDS + POLL_SECONDS)
    return running * fleet.memory_mb / 1024 * GB_SECOND + fleet.processes * LAMBDA_REQUEST


def records_together(inserts: float, stream_shards: int, batch_seconds: float = 0) -> float:
    """Returns how many records an invocation of the scheduler gets on average.

    ``inserts``: a second, each by itself; ``batch_seconds``: StreamBatchSeconds.
    """
    return min(STREAM_BATCH, max(1.0, inserts / stream_shards * max(batch_seconds, STREAM_POLL_SECONDS)))


def scheduler_price(records: float) -> float:
    """Returns what a record of the stream costs: its own CPU, and its share of the scheduler's invocation (request,
    duration, read, log). ``records``: of an invocation."""
    invocation = (
        LAMBDA_REQUEST
        + SCHEDULER_SECONDS * SCHEDULER_GB * GB_SECOND
        + SCHEDULER_READS * READ_UNIT
        + SCHEDULER_LOG_BYTES / 1e9 * LOG_GB
    )
    return invocation / records + SCHEDULER_RECORD_SECONDS * MB_PER_CPU / 1024 * GB_SECOND


def prices_of(load: Load, fleet: Fleet, *, loads: float, tasks_kept: float) -> Prices:
    """``loads``: how often the load comes in what is priced: in a month, if it is a steady one. ``tasks_kept``: rows at
    any time, for RetentionDays."""
    size = load.options.row_bytes + ROW_GROWTH
    if load.workers_help:
        units, reads = load.insert_units + 1 + load.table_units + load.index_units, READ_UNITS_OF_TASK
    else:
        units, reads = load.table_units + load.index_units + 1, READ_UNITS_OF_OCCURRENCE
    # A burst is inserted many at a time, and so are occurrences; a steady load is taken to come one by one.
    mean = loads * load.tasks / MONTH_SECONDS
    records = records_together(mean, fleet.partitions) if load.inserts else STREAM_BATCH
    of_tasks = load.tasks * (units * WRITE_UNIT + reads * READ_UNIT + scheduler_price(records))
    return Prices(
        load=loads * (of_tasks + running_price(load, fleet)),
        warm_once=warm_price(fleet),
        idle_month=idle_month(fleet.shards, to_the_second=load.options.to_the_second),
        storage_month=tasks_kept * (size + ENTRY_BYTES) / 1e9 * STORAGE_GB_MONTH,
    )
