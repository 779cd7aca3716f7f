"""What a load costs, in dollars of us-east-1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

from dynatick.domain.buckets import Bucket
from dynatick.domain.instants import EPOCH
from dynatick.domain.row import Due
from dynatick.engine.orders import MAX_TASKS, WakeUp, wake_ups_of
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
    QUEUE_POLL_SECONDS,
    QUEUE_POLLERS,
    READ_UNIT,
    READ_UNITS_OF_OCCURRENCE,
    READ_UNITS_OF_TASK,
    ROW_GROWTH,
    SCHEDULER_GB,
    SCHEDULER_LOG_BYTES,
    SCHEDULER_READS,
    SCHEDULER_RECORD_SECONDS,
    SCHEDULER_SECONDS,
    SENT_TOGETHER,
    SQS_REQUEST,
    START_SECONDS,
    STORAGE_GB_MONTH,
    STREAM_BATCH,
    STREAM_POLL_SECONDS,
    TICK_SECONDS,
    TICKS_A_MONTH,
    WAKE_UP_WAIT,
    WAKE_UP_WAIT_ON_THE_SECOND,
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
    polls = QUEUE_POLLERS * MONTH_SECONDS / QUEUE_POLL_SECONDS * SQS_REQUEST if to_the_second else 0.0
    # Planning polls one bucket more, of each shard: half a unit.
    plans = shards * READ_UNIT / 2 if to_the_second else 0.0
    return TICKS_A_MONTH * (first + (shards - 1) * further + groups * LAMBDA_REQUEST + plans) + polls


def warm_price(fleet: Fleet) -> float:
    """Once, for table and index."""
    return 2 * max(0, fleet.warm - NEW_TABLE_WRITE_UNITS) * WARM_WRITE_UNIT


def running_price(load: Load, fleet: Fleet) -> float:
    """Returns the price of Lambda for the tasks of one bucket."""
    work = load.tasks / process_rate(load, fleet.threads, fleet.memory_mb)  # seconds of processes
    running = max(work, fleet.processes * load.options.task_seconds) + fleet.processes * (START_SECONDS + POLL_SECONDS)
    return running * fleet.memory_mb / 1024 * GB_SECOND + fleet.processes * LAMBDA_REQUEST


def wake_ups_price(load: Load, fleet: Fleet) -> float:
    """Returns what the wake-ups of one bucket take with Precision second: messages, their invocations, and how long
    these wait. A steady load is spread over the minute; all else is due on the minute itself."""
    if not load.workers_help:  # one pass of each shard
        messages, waited = float(min(load.tasks, fleet.shards)), 0.0
    elif not load.inserts:
        messages, waited = max(min(load.tasks, fleet.shards), load.tasks / MAX_TASKS), 0.0
    else:
        messages, waited = _spread(load.tasks / fleet.shards, fleet.threads)
        messages, waited = messages * fleet.shards, waited * fleet.shards
    waited += messages * (WAKE_UP_WAIT if load.inserts else WAKE_UP_WAIT_ON_THE_SECOND)
    sends = max(messages / SENT_TOGETHER, min(messages, fleet.shards))
    requests = (sends + 2 * messages) * SQS_REQUEST + messages * LAMBDA_REQUEST
    return requests + waited * fleet.memory_mb / 1024 * GB_SECOND


def _spread(tasks: float, threads: int) -> tuple[float, float]:
    """Returns how many messages the engine makes of the tasks of a minute in one shard, and for how many seconds they
    wait after their first task. Reckoned by a part of them, at most a thousand."""
    gap, number = TICK_SECONDS / tasks, max(1, min(1_000, round(tasks)))
    golden = (math.sqrt(5) - 1) / 2  # each somewhere within its share of the time
    due = (EPOCH + timedelta(seconds=(n + n * golden % 1) * gap) for n in range(number))
    tasks_due = ((Bucket(1), Due(at, f"{n:016}")) for n, at in enumerate(due))
    found = [one.due for one in wake_ups_of(tasks_due, threads=threads) if isinstance(one, WakeUp)]
    waited = sum((group[-1].at - group[0].at).total_seconds() for group in found)
    return len(found) * tasks / number, waited * tasks / number


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
    wake_ups = wake_ups_price(load, fleet) if load.options.to_the_second else 0.0
    return Prices(
        load=loads * (of_tasks + running_price(load, fleet) + wake_ups),
        warm_once=warm_price(fleet),
        idle_month=idle_month(fleet.shards, to_the_second=load.options.to_the_second),
        storage_month=tasks_kept * (size + ENTRY_BYTES) / 1e9 * STORAGE_GB_MONTH,
    )
