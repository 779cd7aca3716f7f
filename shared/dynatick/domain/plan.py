"""What a load takes: shards, workers, threads, capacity and quotas, its time and its price.

Arithmetic alone. Times are in seconds, sizes in bytes, capacity in write units a second, prices in dollars of
us-east-1, November 2026. Each constant says where it comes from: *AWS*, from its documentation; *measured*, on the
engine (docs/performance.md); *assumed*, where nothing was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

from dynatick.domain.executions import Executions
from dynatick.errors import InvalidInput

# -- AWS ---------------------------------------------------------------------------------------------------------------

PARTITION_WRITE_UNITS = 1_000  # a second, of one partition of a table or index
NEW_TABLE_WRITE_UNITS = 4_000  # a second, of a new on-demand table, and of each of its indexes, without warm throughput
TABLE_WRITE_UNITS = 40_000  # a second: the default quota of a table, and of each of its indexes
CONCURRENT_EXECUTIONS = 1_000  # the default quota of an account and region; some new accounts have 10
STARTS, STARTS_SECONDS = 1_000, 10  # processes of one function that Lambda starts at once, and in as many seconds again
MB_PER_CPU = 1_769  # of a Lambda function's memory
WRITE_UNIT_BYTES = 1_024

WRITE_UNIT = 0.625e-6
READ_UNIT = 0.125e-6
STORAGE_GB_MONTH = 0.25
GB_SECOND = 0.0000133334  # Lambda, arm64
LAMBDA_REQUEST = 0.20e-6
WARM_WRITE_UNIT = 0.00065  # once, for each write unit a second above what the table or index is warm for

# -- the template's parameters -----------------------------------------------------------------------------------------

MAX_SHARDS = 256
MAX_WORKERS = 100
MAX_THREADS = 256
USUAL_THREADS = 16
USUAL_MEMORY_MB = 1_024
MIN_MEMORY_MB, MAX_MEMORY_MB = 256, 10_240
USUAL_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS = 120, 900
RETENTION_DAYS = 30
WAKE_UP_CONCURRENCY = 10
TICK_SECONDS = 60

# -- the engine --------------------------------------------------------------------------------------------------------

BATCH = 25  # tasks of a claim or record
CLAIMS_AT_ONCE = 2  # of one process
IN_FLIGHT_PER_THREAD, MIN_IN_FLIGHT = 4, 100  # tasks of a process that are claimed and not recorded
CLAIM_AHEAD = 2.0  # with workers: what runs in this time is claimed
MIN_MEASURED, MAX_MEASURED = 2.0, 5.0  # until a pass knows its rate
SOON = 10.0  # what a pass can run within this time, it keeps
OUTLINE_SECONDS = 0.5  # assumed: of reading ahead, before workers are started
CPU_SECONDS = 114e-6  # measured: of a task, at a whole CPU
CPU_SECONDS_OF_OCCURRENCE = 3 * CPU_SECONDS  # assumed: it takes three statements instead of two, and a read
READ_UNITS_OF_TASK = 0.084  # measured
READ_UNITS_OF_OCCURRENCE = 1.1  # measured: its schedule is read
ROW_GROWTH = 200  # bytes; measured: 191 from insert to outcome, without a result
ENTRY_BYTES = 350  # assumed: the entry of the index, with what DynamoDB adds to row and entry
INSERTS_PER_CLIENT = 8_000  # a second; measured: 10,797 on a CPU of its own, and 8 calls at a time on AWS
SCHEDULER_PRICE = 0.003e-6  # of an insert; docs/cost.md

IDLE_WRITES, IDLE_READS, IDLE_SECONDS = 2, 3.7, 0.005  # measured, the time assumed: of shard 0's tick, if it is idle
FURTHER_WRITES, FURTHER_WRITES_TO_THE_SECOND = 0.25, 1.0  # measured: of another idle shard, which is closed seldom
FURTHER_READS, FURTHER_SECONDS = 2.4, 0.0024  # the same: its polls, many at a time, and its part of their invocation
IDLE_GB = 1.0
TICKS_A_MONTH = 365 * 24 * 60 / 12

# -- assumed of AWS ----------------------------------------------------------------------------------------------------

TICK_DELAY = 1.0  # from the minute to the tick's invocation; AWS promises no more than the minute
CALL_SECONDS = 0.01  # of a batch of claims or records
COLD_START_SECONDS = 0.9  # of the processor, with its imports; those that poll idle shards each minute are warm
START_SECONDS = 0.05  # from an asynchronous invocation to its beginning
POLL_SECONDS = 0.1  # settings, cursor and first page, before the first claim
GROUP, POLLING_THREADS = 64, 8  # shards that one invocation polls, so many at a time, before their own passes start
FIND_SECONDS = 0.03  # of one poll, and the start of that shard's pass

CONFIDENCE = 0.9
"""For so many of all buckets, the placement of shards on index partitions is no worse than planned."""

HEADROOM = 0.04
"""The part of the time that a plan leaves, if it can."""

PREFERRED_THREADS = 64  # beyond which further workers come first


@dataclass(frozen=True, kw_only=True, slots=True)
class Quotas:
    """What the account allows."""

    concurrent_executions: int = CONCURRENT_EXECUTIONS
    table_write_units: int = TABLE_WRITE_UNITS  # a second; an index has as many of its own


@dataclass(frozen=True, kw_only=True, slots=True)
class Wishes:
    """What the caller has decided; None: the plan decides."""

    task_seconds: float = 0.2  # that a task takes, waiting for others
    row_bytes: int = 700  # of a task as it is inserted
    memory_mb: int | None = None
    threads: int | None = None
    to_the_second: bool = False  # Precision second
    quotas: Quotas = field(default_factory=Quotas)


class LimitedBy(StrEnum):
    """What decides when the last task begins."""

    PROCESSES = "processes"
    TABLE = "table"
    INDEX = "index partition"


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Tasks of one bucket, and what is written while they run."""

    tasks: int
    within: float  # the last one is to begin so long after they are due
    wishes: Wishes
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
        """Of the table, for an insert; the index takes one more."""
        return units_of(self.wishes.row_bytes)


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
        """Of the table, and of the index."""
        return max(self.warm, NEW_TABLE_WRITE_UNITS) // PARTITION_WRITE_UNITS


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """In dollars. ``load``: of the burst, or of a month of the steady load."""

    load: float
    warm_once: float
    idle_month: float  # of ticks that find nothing
    storage_month: float  # of the ended rows, for RetentionDays


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """A quota of AWS and what the plan takes of it."""

    name: str
    needed: int
    allowed: int

    @property
    def must_be_raised(self) -> bool:
        return self.needed > self.allowed


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How a load is to be run."""

    load: Load
    fleet: Fleet
    expected: Timing  # for half of all buckets
    timing: Timing  # for 9 of 10: the plan holds to this
    fullest_partition: int  # shards that share an index partition, for the same 9 of 10
    table_peak: int  # write units a second
    index_peak: int
    max_write_units: int
    timeout_seconds: int  # of the processor
    executions: Executions  # at the same time
    quotas: tuple[Quota, ...]
    inserting: Inserting
    prices: Prices

    @property
    def is_feasible(self) -> bool:
        """Whether the last task begins in time, once the quotas are raised."""
        return self.timing.last_start <= self.load.within

    @property
    def parameters(self) -> dict[str, str]:
        """Of the template."""
        wishes = self.load.wishes
        return {
            "ShardCount": str(self.fleet.shards),
            "MaxWorkers": str(self.fleet.workers),
            "TaskThreads": str(self.fleet.threads),
            "ProcessorMemoryMb": str(self.fleet.memory_mb),
            "WarmThroughput": str(self.fleet.warm if self.fleet.warm > NEW_TABLE_WRITE_UNITS else 0),
            "MaxWriteUnits": str(self.max_write_units),
            **({"Precision": "second"} if wishes.to_the_second else {}),
            **(
                {"ProcessorTimeoutSeconds": str(self.timeout_seconds)}
                if self.timeout_seconds != USUAL_TIMEOUT_SECONDS
                else {}
            ),
        }


# -- loads -------------------------------------------------------------------------------------------------------------


def plan_burst(tasks: int, within: float, wishes: Wishes | None = None) -> Plan:
    """A plan for tasks that are due in one bucket and inserted before it; the last one is to begin ``within`` so many
    seconds. Raises InvalidInput."""
    wishes = _checked(wishes or Wishes())
    _check("burst", tasks, 1, 100_000_000, "a number of tasks from 1 to 100,000,000")
    _check("within", within, 5, 86_400, "5s to 1d")
    return _plan(_tasks_due(tasks, within, wishes), loads=1.0, tasks_kept=tasks)


def plan_steady(per_day: int, peak: float, wishes: Wishes | None = None, *, within: float = TICK_SECONDS) -> Plan:
    """A plan for tasks that are inserted and run all day, ``peak`` times the mean at times. Those of a minute begin
    ``within`` so many seconds. Raises InvalidInput."""
    wishes = _checked(wishes or Wishes())
    _check("within", within, 5, TICK_SECONDS, "5s to 60s: the next minute has tasks of its own")
    _check("per-day", per_day, 1, 10_000_000_000, "a number of tasks from 1 to 10,000,000,000")
    _check("peak", peak, 1, 1_000, "how many times the mean the peak is, from 1x to 1000x")
    rate = per_day / 86_400 * peak
    bucket = max(1, math.ceil(rate * TICK_SECONDS))
    load = replace(_tasks_due(bucket, within, wishes), inserts=rate)
    month = per_day * 365 / 12
    return _plan(load, loads=month / bucket, tasks_kept=per_day * RETENTION_DAYS)


def plan_schedules(schedules: int, every: float, wishes: Wishes | None = None, *, within: float = TICK_SECONDS) -> Plan:
    """A plan for schedules that run ``every`` so many seconds, in turns: each minute has as many runs as any other,
    which begin ``within`` so many seconds. Raises InvalidInput."""
    wishes = _checked(wishes or Wishes())
    _check("within", within, 5, TICK_SECONDS, "5s to 60s: the next minute has runs of its own")
    _check("schedules", schedules, 1, 100_000_000, "a number of schedules from 1 to 100,000,000")
    _check("every", every, TICK_SECONDS, 366 * 86_400, "1m to 366d")
    bucket = max(1, math.ceil(schedules * TICK_SECONDS / every))
    unit = units_of(wishes.row_bytes + ROW_GROWTH)
    load = Load(
        tasks=bucket,
        within=within,
        wishes=wishes,
        table_units=3 * unit,  # the occurrence is made, its schedule is moved, the outcome is recorded
        index_units=3,  # the same three; the schedule's entry in its next bucket is a fourth
        cpu_seconds=CPU_SECONDS_OF_OCCURRENCE,
        workers_help=False,
    )
    runs_a_day = schedules * 86_400 / every
    return _plan(
        load,
        loads=runs_a_day * 365 / 12 / bucket,
        tasks_kept=runs_a_day * RETENTION_DAYS,
        inserted=schedules,
    )


def _tasks_due(tasks: int, within: float, wishes: Wishes) -> Load:
    unit = units_of(wishes.row_bytes + ROW_GROWTH)
    return Load(tasks=tasks, within=within, wishes=wishes, table_units=2 * unit, index_units=1)


def _checked(wishes: Wishes) -> Wishes:
    longest = MAX_TIMEOUT_SECONDS - 30
    _check("task-ms", wishes.task_seconds * 1000, 0, longest * 1000, f"0 to {longest * 1000:,}: a run of Lambda's")
    _check("bytes", wishes.row_bytes, 1, 380_000, "the size of a row, 1 to 380,000 bytes")
    if wishes.memory_mb is not None:
        _check("memory", wishes.memory_mb, MIN_MEMORY_MB, MAX_MEMORY_MB, f"{MIN_MEMORY_MB} to {MAX_MEMORY_MB:,} MB")
    if wishes.threads is not None:
        _check("threads", wishes.threads, 1, MAX_THREADS, f"1 to {MAX_THREADS}")
    _check("concurrent-executions", wishes.quotas.concurrent_executions, 1, 1_000_000, "the account's quota")
    _check(
        "table-write-units", wishes.quotas.table_write_units, NEW_TABLE_WRITE_UNITS, 10_000_000,
        f"the table's quota a second, at least {NEW_TABLE_WRITE_UNITS:,}",
    )  # fmt: skip
    return wishes


def _check(name: str, value: float, minimum: float, maximum: float, expected: str) -> None:
    if not minimum <= value <= maximum:
        raise InvalidInput(name, value, f"expected {expected}")


# -- units and placement -----------------------------------------------------------------------------------------------


def units_of(size: int) -> int:
    """Write units of a row of so many bytes."""
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
    waiting = threads / (load.wishes.task_seconds + load.cpu_seconds)
    return min(cpu, calls, waiting)


def in_flight(load: Load, fleet: Fleet) -> float:
    """Tasks that one process has claimed and not recorded, if there are enough."""
    whole = max(MIN_IN_FLIGHT, IN_FLIGHT_PER_THREAD * fleet.threads)
    if not fleet.workers:
        return whole
    soon = CLAIM_AHEAD * process_rate(load, fleet.threads, fleet.memory_mb)
    return min(whole, fleet.threads + max(2 * BATCH, soon))


# -- time --------------------------------------------------------------------------------------------------------------


def first_claim(shards: int) -> float:
    """When the last shard has begun to claim. The tick's own invocation serves shard 0; it starts others for groups of
    shards, and each of these a pass for each shard in which something is due."""
    begin = TICK_DELAY + START_SECONDS + POLL_SECONDS
    if shards == 1:
        return begin
    to_groups = START_SECONDS + FIND_SECONDS
    return begin + to_groups + min(shards, GROUP) / POLLING_THREADS * FIND_SECONDS + START_SECONDS + COLD_START_SECONDS


def timing(load: Load, fleet: Fleet, *, shards_together: int | None = None) -> Timing:
    """When the tasks begin. ``shards_together``: on the fullest index partition; None: for 9 of 10 buckets."""
    together = fullest_partition(fleet.shards, fleet.partitions) if shards_together is None else shards_together
    begin = first_claim(fleet.shards) + (fleet.processes - 1) // STARTS * STARTS_SECONDS
    rate = process_rate(load, fleet.threads, fleet.memory_mb)
    in_shard = fullest_shard(load.tasks, fleet.shards)
    alone = in_shard / rate
    handed_out = min(max(load.wishes.task_seconds, MIN_MEASURED), MAX_MEASURED) + OUTLINE_SECONDS
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


# -- the plan ----------------------------------------------------------------------------------------------------------


def _plan(load: Load, *, loads: float, tasks_kept: float, inserted: int | None = None) -> Plan:
    """``loads``: how often the load comes in what is priced."""
    fleet = _fleet(load, loads)
    quota = load.wishes.quotas
    worst = timing(load, fleet)
    rate = load.tasks / max(1.0, worst.last_start - worst.first_start)
    table_peak = math.ceil(rate * load.table_units + load.inserts * load.insert_units)
    index_peak = math.ceil(rate * load.index_units + load.inserts)
    max_write_units = max(fleet.warm, _thousands(1.25 * max(table_peak, index_peak)))
    if table_peak <= quota.table_write_units:
        max_write_units = min(max_write_units, quota.table_write_units)
    executions = _executions(load, fleet)
    return Plan(
        load=load,
        fleet=fleet,
        expected=timing(load, fleet, shards_together=fullest_partition(fleet.shards, fleet.partitions, 0.5)),
        timing=worst,
        fullest_partition=fullest_partition(fleet.shards, fleet.partitions),
        table_peak=table_peak,
        index_peak=index_peak,
        max_write_units=max_write_units,
        timeout_seconds=_timeout(load.wishes.task_seconds),
        executions=executions,
        quotas=(
            Quota(
                name="concurrent executions of the account",
                needed=executions.total,
                allowed=quota.concurrent_executions,
            ),
            Quota(
                name="write units a second of the table",
                needed=max(table_peak, fleet.warm),
                allowed=quota.table_write_units,
            ),
        ),
        inserting=inserting(load, fleet, load.tasks if inserted is None else inserted),
        prices=_prices(load, fleet, worst, loads=loads, tasks_kept=tasks_kept),
    )


def _executions(load: Load, fleet: Fleet) -> Executions:
    return Executions(
        ticks=fleet.shards,
        workers=fleet.shards * fleet.workers,
        wake_ups=WAKE_UP_CONCURRENCY if load.wishes.to_the_second else 0,
        stream=fleet.partitions,  # the stream has a shard for each
    )


def _fleet(load: Load, loads: float) -> Fleet:
    """The cheapest that does it in time, by what it adds to the first month; else the fastest."""

    def price(fleet: Fleet) -> float:
        return _warm_price(fleet) + idle_month(fleet.shards) + loads * _running_price(load, fleet)

    found = [(timing(load, fleet).last_start, fleet) for fleet in _fleets(load)]
    for end in (load.target, load.within):
        in_time = [fleet for last, fleet in found if last <= end]
        if in_time:
            return min(in_time, key=price)
    return min(found, key=lambda pair: pair[0])[1]


def _fleets(load: Load) -> Iterator[Fleet]:
    """Those that are worth a comparison."""
    quota = load.wishes.quotas.table_write_units
    shards = 1
    while shards <= MAX_SHARDS:
        time = max(1.0, load.target - first_claim(shards))
        peak = load.tasks * load.table_units / time + load.inserts * load.insert_units
        needed = max(NEW_TABLE_WRITE_UNITS, _thousands(peak))
        # More than the tasks need spreads the shards over more index partitions.
        for warm in sorted({needed, *range(NEW_TABLE_WRITE_UNITS, quota + 1, 1000)}):
            if warm >= needed:
                yield _with_processes(load, shards, warm)
        shards *= 2


def _with_processes(load: Load, shards: int, warm: int) -> Fleet:
    """Enough processes for the shards: first by threads, then by workers, within the account's concurrency if that is
    possible."""
    wishes = load.wishes
    fleet = Fleet(
        shards=shards,
        workers=0,
        threads=wishes.threads or USUAL_THREADS,
        memory_mb=wishes.memory_mb or USUAL_MEMORY_MB,
        warm=warm,
    )
    room = _executions(load, fleet).max_workers(wishes.quotas.concurrent_executions)
    affordable = min(MAX_WORKERS, room) if load.workers_help else 0
    for highest, workers in (
        *((PREFERRED_THREADS, workers) for workers in range(affordable + 1)),
        (MAX_THREADS, affordable),
        *((MAX_THREADS, workers) for workers in range(affordable + 1, MAX_WORKERS + 1) if load.workers_help),
    ):
        found = _with_threads(load, replace(fleet, workers=workers), highest)
        if found is not None:
            return found
    return replace(fleet, workers=affordable, threads=wishes.threads or MAX_THREADS)


def _with_threads(load: Load, fleet: Fleet, highest: int) -> Fleet | None:
    """With as few threads as do it in time; None if ``highest`` does not."""

    def is_in_time(threads: int, end: float = load.target) -> bool:
        found = timing(load, replace(fleet, threads=threads), shards_together=0)
        return found.limited_by is not LimitedBy.PROCESSES or found.last_start <= end

    if load.wishes.threads is not None:
        return fleet if is_in_time(fleet.threads) else None
    if not is_in_time(highest):
        return None
    low, high = 1, highest
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_in_time(middle) else (middle + 1, high)
    calm = _calm_threads(load, fleet)
    # What the table throttles is tried again, later: with a little less headroom all begins sooner.
    return replace(fleet, threads=calm if is_in_time(calm, load.within) else max(low, calm))


def _calm_threads(load: Load, fleet: Fleet) -> int:
    """As many as are usual, or fewer, so that all together don't ask the table for more than it takes."""
    of_table = fleet.warm / load.table_units / fleet.processes  # tasks a second
    if process_rate(load, USUAL_THREADS, fleet.memory_mb) <= of_table or not load.wishes.task_seconds:
        return USUAL_THREADS
    return max(1, min(USUAL_THREADS, int(of_table * load.wishes.task_seconds)))


def _timeout(task_seconds: float) -> int:
    """Of the processor: tasks need some seconds less than it has."""
    return max(USUAL_TIMEOUT_SECONDS, min(MAX_TIMEOUT_SECONDS, math.ceil(task_seconds) + 30))


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


# -- prices ------------------------------------------------------------------------------------------------------------


def idle_month(shards: int, *, to_the_second: bool = False) -> float:
    """A month of ticks that find nothing, with TickMinutes 1. Shard 0 has a pass; the others are polled together."""
    writes = FURTHER_WRITES_TO_THE_SECOND if to_the_second else FURTHER_WRITES
    first = IDLE_WRITES * WRITE_UNIT + IDLE_READS * READ_UNIT + IDLE_SECONDS * IDLE_GB * GB_SECOND + LAMBDA_REQUEST
    further = writes * WRITE_UNIT + FURTHER_READS * READ_UNIT + FURTHER_SECONDS * IDLE_GB * GB_SECOND
    groups = math.ceil((shards - 1) / GROUP)
    return TICKS_A_MONTH * (first + (shards - 1) * further + groups * LAMBDA_REQUEST)


def _warm_price(fleet: Fleet) -> float:
    """Once, for table and index."""
    return 2 * max(0, fleet.warm - NEW_TABLE_WRITE_UNITS) * WARM_WRITE_UNIT


def _running_price(load: Load, fleet: Fleet) -> float:
    """Of Lambda, for the tasks of one bucket."""
    work = load.tasks / process_rate(load, fleet.threads, fleet.memory_mb)  # seconds of processes
    running = max(work, fleet.processes * load.wishes.task_seconds) + fleet.processes * (START_SECONDS + POLL_SECONDS)
    return running * fleet.memory_mb / 1024 * GB_SECOND + fleet.processes * LAMBDA_REQUEST


def _prices(load: Load, fleet: Fleet, found: Timing, *, loads: float, tasks_kept: float) -> Prices:
    size = load.wishes.row_bytes + ROW_GROWTH
    if load.workers_help:
        units, reads = load.insert_units + 1 + load.table_units + load.index_units, READ_UNITS_OF_TASK
    else:
        units, reads = load.table_units + load.index_units + 1, READ_UNITS_OF_OCCURRENCE
    of_tasks = load.tasks * (units * WRITE_UNIT + reads * READ_UNIT + SCHEDULER_PRICE)
    return Prices(
        load=loads * (of_tasks + _running_price(load, fleet)),
        warm_once=_warm_price(fleet),
        idle_month=idle_month(fleet.shards, to_the_second=load.wishes.to_the_second),
        storage_month=tasks_kept * (size + ENTRY_BYTES) / 1e9 * STORAGE_GB_MONTH,
    )


def _thousands(value: float) -> int:
    """Rounded up."""
    return math.ceil(value / 1000) * 1000
