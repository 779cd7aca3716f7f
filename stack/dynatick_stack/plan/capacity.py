"""When the tasks of a bucket begin, by the shards, workers, threads and write units that are there for them.

Arithmetic alone, in seconds, bytes and write units a second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from dynatick.domain.executions import PARTITION_WRITE_UNITS
from dynatick_stack.plan.figures import (
    BATCH,
    CALL_SECONDS,
    CLAIM_AHEAD,
    CLAIMS_AT_ONCE,
    COLD_START_SECONDS,
    CONCURRENT_EXECUTIONS,
    CONFIDENCE,
    CPU_SECONDS,
    FIND_SECONDS,
    GROUP,
    HEADROOM,
    IN_FLIGHT_PER_THREAD,
    INSERTS_PER_CLIENT,
    MAX_MEASURED,
    MB_PER_CPU,
    MIN_IN_FLIGHT,
    MIN_MEASURED,
    NEW_TABLE_WRITE_UNITS,
    OUTLINE_SECONDS,
    POLL_SECONDS,
    POLLING_THREADS,
    SOON,
    START_SECONDS,
    STARTS,
    STARTS_SECONDS,
    TABLE_WRITE_UNITS,
    TICK_DELAY,
    WAKE_UPS_A_SECOND,
    WRITE_UNIT_BYTES,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Quotas:
    """What the account allows."""

    concurrent_executions: int = CONCURRENT_EXECUTIONS
    table_write_units: int = TABLE_WRITE_UNITS  # a second; an index has as many of its own


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    """What the caller decides about a plan; None: the plan decides."""

    task_seconds: float = 0.2  # that a task takes, waiting for others
    row_bytes: int = 700  # of a task as it is inserted
    memory_mb: int | None = None
    threads: int | None = None
    to_the_second: bool = False  # Precision second
    tick_delay: float = TICK_DELAY  # seconds from the minute to the tick's invocation
    quotas: Quotas = field(default_factory=Quotas)


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Tasks of one bucket, and what is written while they run."""

    tasks: int
    within: float  # the last one is to begin so long after they are due
    options: PlanOptions
    table_units: int  # of a task, from its claim to its record; of an occurrence, from its making
    index_units: int  # the same, in its bucket's partition
    inserts: float = 0.0  # a second, into other buckets, at the same time
    cpu_seconds: float = CPU_SECONDS
    workers_help: bool = True  # the occurrences of schedules are made and run by the shard's holder alone

    @property
    def target(self) -> float:
        """When the last task is to begin, with some headroom."""
        return self.within * (1 - HEADROOM)

    @property
    def insert_units(self) -> int:
        """Write units of the table for an insert; the index takes one more."""
        return units_of(self.options.row_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """The parameters that decide how fast a bucket runs."""

    shards: int
    workers: int  # for each shard
    threads: int
    memory_mb: int
    warm: int  # write units a second of the table, and of the index

    @property
    def processes(self) -> int:
        return self.shards * (1 + self.workers)

    @property
    def partitions(self) -> int:
        """The number of partitions of the table, and of the index."""
        return max(self.warm, NEW_TABLE_WRITE_UNITS) // PARTITION_WRITE_UNITS


class LimitedBy(StrEnum):
    """What decides when the last task begins."""

    PROCESSES = "processes"
    TABLE = "table"
    INDEX = "index partition"


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """When things happen, in seconds after the tasks are due."""

    first_start: float
    last_start: float
    limited_by: LimitedBy


@dataclass(frozen=True, kw_only=True, slots=True)
class Inserting:
    """What it takes to put the tasks into the table beforehand, for 9 of 10 buckets."""

    write_units: int  # of table and index together
    seconds: float  # at the warm throughput, as fast as the fullest index partition allows
    clients: int  # that insert so fast


# -- units and placement -----------------------------------------------------------------------------------------------


def units_of(size: int) -> int:
    """Write units of a row with this number of bytes."""
    return max(1, -(-size // WRITE_UNIT_BYTES))


@lru_cache(maxsize=4096)
def fullest_partition(shards: int, partitions: int, confidence: float = CONFIDENCE) -> int:
    """How many shards of a bucket share an index partition at most, with this probability.

    A shard's name falls on a partition by its hash, anew for each bucket. That no partition has more than k is taken as
    independent for all of them, which is a little too careful.
    """
    if partitions == 1:
        return shards
    chance, below = 1 / partitions, 0.0
    for k in range(shards + 1):
        below += math.comb(shards, k) * chance**k * (1 - chance) ** (shards - k)
        if k >= math.ceil(shards / partitions) and min(below, 1.0) ** partitions >= confidence:
            return k
    return shards


def fullest_shard(tasks: int, shards: int) -> float:
    """Tasks of the shard that has most: ids fall on shards by their hash."""
    mean = tasks / shards
    return mean if shards == 1 else min(tasks, mean + 3 * math.sqrt(mean))


def process_rate(load: Load, threads: int, memory_mb: int) -> float:
    """Tasks a second of one process."""
    cpu = min(1.0, memory_mb / MB_PER_CPU) / load.cpu_seconds
    calls = CLAIMS_AT_ONCE * BATCH / CALL_SECONDS
    waiting = threads / (load.options.task_seconds + load.cpu_seconds)
    return min(cpu, calls, waiting)


def in_flight(load: Load, fleet: Fleet) -> float:
    """Tasks that one process has claimed and not recorded, if there are enough."""
    whole = max(MIN_IN_FLIGHT, IN_FLIGHT_PER_THREAD * fleet.threads)
    if not fleet.workers:
        return whole
    soon = CLAIM_AHEAD * process_rate(load, fleet.threads, fleet.memory_mb)
    return min(whole, fleet.threads + max(2 * BATCH, soon))


# -- time --------------------------------------------------------------------------------------------------------------


def first_claim(shards: int, options: PlanOptions) -> float:
    """When the last shard has begun to claim.

    The tick's own invocation serves shard 0; it starts others for groups of shards, and each of these a pass for each
    shard in which something is due. With Precision second, wake-ups have begun the passes before, if the tick is late.
    """
    begin = START_SECONDS + POLL_SECONDS
    by_tick = options.tick_delay + begin
    if shards > 1:
        to_groups = START_SECONDS + FIND_SECONDS
        to_shards = min(shards, GROUP) / POLLING_THREADS * FIND_SECONDS + START_SECONDS + COLD_START_SECONDS
        by_tick += to_groups + to_shards
    if not options.to_the_second:
        return by_tick
    return min(by_tick, begin + COLD_START_SECONDS + shards / WAKE_UPS_A_SECOND)


def timing(load: Load, fleet: Fleet, *, shards_together: int | None = None) -> Timing:
    """When the tasks begin. ``shards_together``: on the fullest index partition; None: for 9 of 10 buckets."""
    together = fullest_partition(fleet.shards, fleet.partitions) if shards_together is None else shards_together
    begin = first_claim(fleet.shards, load.options) + (fleet.processes - 1) // STARTS * STARTS_SECONDS
    rate = process_rate(load, fleet.threads, fleet.memory_mb)
    in_shard = fullest_shard(load.tasks, fleet.shards)
    alone = in_shard / rate
    handed_out = min(max(load.options.task_seconds, MIN_MEASURED), MAX_MEASURED) + OUTLINE_SECONDS
    if fleet.workers and alone - handed_out > SOON:  # they get equal parts of the rest, and begin them later
        with_workers = handed_out + (alone - handed_out) / (1 + fleet.workers)
        alone = min(alone, with_workers + START_SECONDS + COLD_START_SECONDS + POLL_SECONDS)
    free = max(1.0, max(fleet.warm, NEW_TABLE_WRITE_UNITS) - load.inserts * load.insert_units)
    of_table = load.tasks * load.table_units / free
    # What is begun and not recorded has not been written to the index yet.
    unrecorded = together * (1 + fleet.workers) * in_flight(load, fleet)
    share = min(1.0, together / fleet.shards)
    in_partition = max(0.0, load.tasks * share - unrecorded) * load.index_units
    partition = max(1.0, PARTITION_WRITE_UNITS - load.inserts / fleet.partitions)
    ends = {
        LimitedBy.PROCESSES: begin + alone,
        LimitedBy.TABLE: begin + of_table,
        LimitedBy.INDEX: begin + in_partition / partition,
    }
    slowest = max(ends, key=lambda name: ends[name])
    return Timing(first_start=begin, last_start=ends[slowest], limited_by=slowest)


def inserting(load: Load, fleet: Fleet, tasks: int, *, shards_together: int | None = None) -> Inserting:
    """Into one bucket, as its tasks are. ``shards_together``: as for ``timing``."""
    together = fullest_partition(fleet.shards, fleet.partitions) if shards_together is None else shards_together
    share = together / fleet.shards
    warm = max(fleet.warm, NEW_TABLE_WRITE_UNITS)
    in_bucket = min(tasks, load.tasks)
    seconds = max(tasks * load.insert_units / warm, in_bucket * share / PARTITION_WRITE_UNITS)
    rate = tasks / max(seconds, 1.0)
    return Inserting(
        write_units=tasks * (load.insert_units + 1),
        seconds=seconds,
        clients=max(1, math.ceil(rate / INSERTS_PER_CLIENT)),
    )
