"""What a load takes: shards, workers, threads, capacity and quotas, its time and its price.

Arithmetic alone, over figures (``figures``) that say where they come from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dynatick.domain.executions import Executions
from dynatick.errors import InvalidInput
from dynatick_stack.plan.capacity import (
    Fleet,
    Inserting,
    LimitedBy,
    Load,
    PlanOptions,
    Timing,
    first_claim,
    fullest_partition,
    inserting,
    process_rate,
    timing,
    units_of,
)
from dynatick_stack.plan.figures import (
    CPU_SECONDS_OF_OCCURRENCE,
    LATE_TICK,
    MAX_MEMORY_MB,
    MAX_SHARDS,
    MAX_THREADS,
    MAX_TIMEOUT_SECONDS,
    MAX_WORKERS,
    MIN_MEMORY_MB,
    NEW_TABLE_WRITE_UNITS,
    PREFERRED_THREADS,
    RETENTION_DAYS,
    ROW_GROWTH,
    TICK_SECONDS,
    USUAL_MEMORY_MB,
    USUAL_THREADS,
    USUAL_TIMEOUT_SECONDS,
    WAKE_UP_CONCURRENCY,
)
from dynatick_stack.plan.prices import (
    Prices,
    idle_month,
    prices_of,
    running_price,
    warm_price,
)


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
    def with_late_tick(self) -> Timing:
        """The same, if the tick comes ``LATE_TICK`` after its minute; of few shards, wake-ups begin the passes then."""
        options = replace(self.load.options, tick_delay=LATE_TICK)
        return timing(replace(self.load, options=options), self.fleet)

    @property
    def parameters(self) -> dict[str, str]:
        """The template's parameters."""
        options = self.load.options
        return {
            "ShardCount": str(self.fleet.shards),
            "MaxWorkers": str(self.fleet.workers),
            "TaskThreads": str(self.fleet.threads),
            "ProcessorMemoryMb": str(self.fleet.memory_mb),
            "WarmThroughput": str(self.fleet.warm if self.fleet.warm > NEW_TABLE_WRITE_UNITS else 0),
            "MaxWriteUnits": str(self.max_write_units),
            **({"Precision": "second"} if options.to_the_second else {}),
            **(
                {"ProcessorTimeoutSeconds": str(self.timeout_seconds)}
                if self.timeout_seconds != USUAL_TIMEOUT_SECONDS
                else {}
            ),
        }


# -- loads -------------------------------------------------------------------------------------------------------------


def plan_burst(tasks: int, within: float, options: PlanOptions | None = None) -> Plan:
    """A plan for tasks that are due in one bucket and inserted before it; the last one is to begin within
    ``within`` seconds. Raises InvalidInput."""
    options = _checked(options or PlanOptions())
    _check("burst", tasks, 1, 100_000_000, "a number of tasks from 1 to 100,000,000")
    _check("within", within, 5, 86_400, "5s to 1d")
    return _plan(_tasks_due(tasks, within, options), loads=1.0, tasks_kept=tasks)


def plan_steady(per_day: int, peak: float, options: PlanOptions | None = None, *, within: float = TICK_SECONDS) -> Plan:
    """A plan for tasks that are inserted and run all day, ``peak`` times the mean at times. Those of a minute begin
    within ``within`` seconds. Raises InvalidInput."""
    options = _checked(options or PlanOptions())
    _check("within", within, 5, TICK_SECONDS, "5s to 60s: the next minute has tasks of its own")
    _check("per-day", per_day, 1, 10_000_000_000, "a number of tasks from 1 to 10,000,000,000")
    _check("peak", peak, 1, 1_000, "how many times the mean the peak is, from 1x to 1000x")
    rate = per_day / 86_400 * peak
    bucket = max(1, math.ceil(rate * TICK_SECONDS))
    load = replace(_tasks_due(bucket, within, options), inserts=rate)
    month = per_day * 365 / 12
    return _plan(load, loads=month / bucket, tasks_kept=per_day * RETENTION_DAYS)


def plan_schedules(
    schedules: int, every: float, options: PlanOptions | None = None, *, within: float = TICK_SECONDS
) -> Plan:
    """A plan for schedules that run every ``every`` seconds, spread evenly over the minutes; the runs of a minute begin
    within ``within`` seconds. Raises InvalidInput."""
    options = _checked(options or PlanOptions())
    _check("within", within, 5, TICK_SECONDS, "5s to 60s: the next minute has runs of its own")
    _check("schedules", schedules, 1, 100_000_000, "a number of schedules from 1 to 100,000,000")
    _check("every", every, TICK_SECONDS, 366 * 86_400, "1m to 366d")
    bucket = max(1, math.ceil(schedules * TICK_SECONDS / every))
    unit = units_of(options.row_bytes + ROW_GROWTH)
    load = Load(
        tasks=bucket,
        within=within,
        options=options,
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


def _tasks_due(tasks: int, within: float, options: PlanOptions) -> Load:
    unit = units_of(options.row_bytes + ROW_GROWTH)
    return Load(tasks=tasks, within=within, options=options, table_units=2 * unit, index_units=1)


def _checked(options: PlanOptions) -> PlanOptions:
    longest = MAX_TIMEOUT_SECONDS - 30
    _check("task-ms", options.task_seconds * 1000, 0, longest * 1000, f"0 to {longest * 1000:,}: a run of Lambda's")
    _check("tick-delay", options.tick_delay, 0, TICK_SECONDS, "0s to 60s: AWS promises that a tick comes in its minute")
    _check("bytes", options.row_bytes, 1, 380_000, "the size of a row, 1 to 380,000 bytes")
    if options.memory_mb is not None:
        _check("memory", options.memory_mb, MIN_MEMORY_MB, MAX_MEMORY_MB, f"{MIN_MEMORY_MB} to {MAX_MEMORY_MB:,} MB")
    if options.threads is not None:
        _check("threads", options.threads, 1, MAX_THREADS, f"1 to {MAX_THREADS}")
    _check("concurrent-executions", options.quotas.concurrent_executions, 1, 1_000_000, "the account's quota")
    _check(
        "table-write-units", options.quotas.table_write_units, NEW_TABLE_WRITE_UNITS, 10_000_000,
        f"the table's quota a second, at least {NEW_TABLE_WRITE_UNITS:,}",
    )  # fmt: skip
    return options


def _check(name: str, value: float, minimum: float, maximum: float, expected: str) -> None:
    if not minimum <= value <= maximum:
        raise InvalidInput(name, value, f"expected {expected}")


# -- the plan ----------------------------------------------------------------------------------------------------------


def _plan(load: Load, *, loads: float, tasks_kept: float, inserted: int | None = None) -> Plan:
    """``loads``: how often the load comes in what is priced."""
    fleet = _fleet(load, loads)
    quota = load.options.quotas
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
        timeout_seconds=_timeout(load.options.task_seconds),
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
        prices=prices_of(load, fleet, loads=loads, tasks_kept=tasks_kept),
    )


def _executions(load: Load, fleet: Fleet) -> Executions:
    return Executions(
        ticks=fleet.shards,
        workers=fleet.shards * fleet.workers,
        wake_ups=WAKE_UP_CONCURRENCY if load.options.to_the_second else 0,
        stream=fleet.partitions,  # the stream has a shard for each
    )


def _fleet(load: Load, loads: float) -> Fleet:
    """The cheapest that does it in time, by what it adds to the first month; else the fastest."""

    def price(fleet: Fleet) -> float:
        return warm_price(fleet) + idle_month(fleet.shards) + loads * running_price(load, fleet)

    found = [(timing(load, fleet).last_start, fleet) for fleet in _fleets(load)]
    for end in (load.target, load.within):
        in_time = [fleet for last, fleet in found if last <= end]
        if in_time:
            return min(in_time, key=price)
    return min(found, key=lambda pair: pair[0])[1]


def _fleets(load: Load) -> Iterator[Fleet]:
    """Those that are worth a comparison."""
    quota = load.options.quotas.table_write_units
    shards = 1
    while shards <= MAX_SHARDS:
        time = max(1.0, load.target - first_claim(shards, load.options))
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
    options = load.options
    fleet = Fleet(
        shards=shards,
        workers=0,
        threads=options.threads or USUAL_THREADS,
        memory_mb=options.memory_mb or USUAL_MEMORY_MB,
        warm=warm,
    )
    room = _executions(load, fleet).max_workers(options.quotas.concurrent_executions)
    affordable = min(MAX_WORKERS, room) if load.workers_help else 0
    for highest, workers in (
        *((PREFERRED_THREADS, workers) for workers in range(affordable + 1)),
        (MAX_THREADS, affordable),
        *((MAX_THREADS, workers) for workers in range(affordable + 1, MAX_WORKERS + 1) if load.workers_help),
    ):
        found = _with_threads(load, replace(fleet, workers=workers), highest)
        if found is not None:
            return found
    return replace(fleet, workers=affordable, threads=options.threads or MAX_THREADS)


def _with_threads(load: Load, fleet: Fleet, highest: int) -> Fleet | None:
    """Returns the fleet with the fewest threads that do it in time; None if ``highest`` does not."""

    def is_in_time(threads: int, end: float = load.target) -> bool:
        found = timing(load, replace(fleet, threads=threads), shards_together=0)
        return found.limited_by is not LimitedBy.PROCESSES or found.last_start <= end

    if load.options.threads is not None:
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
    """Returns the usual number of threads, or fewer, so that together they don't ask the table for more than it
    takes."""
    of_table = fleet.warm / load.table_units / fleet.processes  # tasks a second
    if process_rate(load, USUAL_THREADS, fleet.memory_mb) <= of_table or not load.options.task_seconds:
        return USUAL_THREADS
    return max(1, min(USUAL_THREADS, int(of_table * load.options.task_seconds)))


def _timeout(task_seconds: float) -> int:
    """Returns the processor's timeout in seconds: a task has somewhat less."""
    return max(USUAL_TIMEOUT_SECONDS, min(MAX_TIMEOUT_SECONDS, math.ceil(task_seconds) + 30))


def _thousands(value: float) -> int:
    """Rounded up."""
    return math.ceil(value / 1000) * 1000
