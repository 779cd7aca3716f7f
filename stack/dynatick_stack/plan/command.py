"""``dynatick plan``: what a load takes, and the parameters for it. Needs no table and no AWS."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.output import Column, Output, show_document, show_table
from dynatick.domain.durations import duration_of
from dynatick.engine.rules import Precision
from dynatick.errors import InvalidInput
from dynatick_stack.plan.capacity import PlanOptions, Quotas
from dynatick_stack.plan.figures import (
    API_EXECUTIONS,
    CONCURRENT_EXECUTIONS,
    CONFIDENCE,
    LATE_TICK,
    NEW_TABLE_WRITE_UNITS,
    RETENTION_DAYS,
    TABLE_WRITE_UNITS,
    TICK_DELAY,
    TICK_SECONDS,
)
from dynatick_stack.plan.loads import Plan, plan_burst, plan_schedules, plan_steady

_COLUMNS = (Column("PARAMETER", "name"), Column("VALUE", "value", right=True), Column("WHY", "why", folds=True))
_FACTOR = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)x?", re.ASCII)
_OF_LOADS = {"per-day": "peak", "schedules": "every"}

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def plan(
    burst: Annotated[int | None, typer.Option(help="This many tasks, all due in one bucket.")] = None,
    within: Annotated[
        str, typer.Option(metavar="DURATION", help="The last one of a bucket begins so soon after it is due.")
    ] = "60s",
    per_day: Annotated[int | None, typer.Option(help="Or this many tasks each day, inserted as they run.")] = None,
    peak: Annotated[
        str | None, typer.Option(metavar="FACTOR", help="The peak as a multiple of the mean, such as 10x. Default: 1x.")
    ] = None,
    schedules: Annotated[int | None, typer.Option(help="Or this many schedules.")] = None,
    every: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Each of them runs at this interval. Default: 1m.")
    ] = None,
    task_ms: Annotated[float, typer.Option(help="How long a task takes, waiting for others, in milliseconds.")] = 200,
    bytes_: Annotated[int, typer.Option("--bytes", help="The size of a task's row when it is inserted.")] = 700,
    memory: Annotated[int | None, typer.Option(help="ProcessorMemoryMb. Default: the plan decides.")] = None,
    threads: Annotated[int | None, typer.Option(help="TaskThreads. Default: the plan decides.")] = None,
    tick_delay: Annotated[
        str, typer.Option(metavar="DURATION", help="How long after its minute the tick comes; AWS promises the minute.")
    ] = f"{TICK_DELAY:g}s",
    precision: Annotated[Precision, typer.Option(help="As the parameter of that name.")] = Precision.TICK,
    concurrent_executions: Annotated[
        int, typer.Option(help="What Lambda allows the account at the same time.")
    ] = CONCURRENT_EXECUTIONS,
    table_write_units: Annotated[
        int, typer.Option(help="What DynamoDB allows a table a second; its indexes as many each.")
    ] = TABLE_WRITE_UNITS,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print data.")] = Output.TABLE,
) -> None:
    """Name the parameters, quotas, time and price of a load: a burst, a steady load, or schedules.

    It is arithmetic: nothing is read or written. With TickMinutes 1, in us-east-1.
    """
    given = {"burst": burst, "per-day": per_day, "schedules": schedules}
    named = [name for name, number in given.items() if number is not None]
    if len(named) != 1:
        raise CommandFailed(ExitCode.USAGE, "name one load: --burst, --per-day or --schedules")
    of_loads = {"peak": peak, "every": every}
    for load, name in _OF_LOADS.items():
        if load != named[0] and of_loads[name] is not None:
            raise CommandFailed(ExitCode.USAGE, f"--{name} goes with --{load}, not with --{named[0]}")
    options = PlanOptions(
        task_seconds=task_ms / 1000,
        row_bytes=bytes_,
        memory_mb=memory,
        threads=threads,
        to_the_second=precision is Precision.SECOND,
        tick_delay=_seconds(tick_delay, "tick-delay"),
        quotas=Quotas(concurrent_executions=concurrent_executions, table_write_units=table_write_units),
    )
    soon = _seconds(within, "within")
    if burst is not None:
        found = plan_burst(burst, soon, options)
    elif per_day is not None:
        found = plan_steady(per_day, _factor(peak or "1x"), options, within=soon)
    else:
        found = plan_schedules(schedules or 0, _seconds(every or "1m", "every"), options, within=soon)
    if output is not Output.TABLE:
        show_document(document(found), output)
        return
    print(first_sentence(found))
    print()
    reasons = dict(_reasons(found))
    show_table(
        [{"name": name, "value": value, "why": reasons[name]} for name, value in found.parameters.items()], _COLUMNS
    )
    print()
    for line in _further(found, is_burst=burst is not None):
        print(line)
    print()
    print("In dynatick.toml:")
    print("[parameters]")
    for name, value in found.parameters.items():
        print(f'{name} = "{value}"' if not value.isdecimal() else f"{name} = {value}")
    if (units := max(found.fleet.warm, found.max_write_units)) > TABLE_WRITE_UNITS:
        print()
        print("And below [stack], once DynamoDB allows a table that number:")
        print(f"table_write_units = {max(units, table_write_units)}")
    print()
    print("Or: sam deploy --parameter-overrides", *(f"{name}={value}" for name, value in found.parameters.items()))


def document(found: Plan) -> dict[str, object]:
    """A plan as ``--output json`` prints it. Times are in seconds, prices in dollars."""
    return {
        "feasible": found.is_feasible,
        "parameters": _numbers(found.parameters),
        "tasksInBucket": found.load.tasks,
        "withinSeconds": found.load.within,
        "firstStartSeconds": round(found.timing.first_start, 1),
        "lastStartSeconds": {
            "expected": round(found.expected.last_start, 1),
            "planned": round(found.timing.last_start, 1),
            "withLateTick": round(found.with_late_tick.last_start, 1),
        },
        "limitedBy": str(found.timing.limited_by),
        "writeUnitsPerSecond": {"table": found.table_peak, "index": found.index_peak},
        "concurrentExecutions": found.executions.total,
        "quotas": [
            {"name": one.name, "needed": one.needed, "allowed": one.allowed, "raise": one.must_be_raised}
            for one in found.quotas
        ],
        "inserting": {
            "writeUnits": found.inserting.write_units,
            "seconds": round(found.inserting.seconds, 1),
            "clients": found.inserting.clients,
        },
        "dollars": {
            "load": round(found.prices.load, 2),
            "warmThroughputOnce": round(found.prices.warm_once, 2),
            "idleMonth": round(found.prices.idle_month, 2),
            "storageMonth": round(found.prices.storage_month, 2),
        },
    }


def first_sentence(found: Plan) -> str:
    """What the plan achieves, or what keeps it from being achieved."""
    load, timing, expected = found.load, found.timing, found.expected
    begins = (
        f"the last one begins {expected.last_start:.0f} s after it is due, and in {CONFIDENCE:.0%} of all cases within "
        f"{timing.last_start:.0f} s"
    )
    tasks = (
        f"{load.tasks:,} tasks in one bucket, {load.options.task_seconds * 1000:g} ms and {load.options.row_bytes:,}"
    )
    if found.is_feasible:
        return f"{tasks} bytes each: {begins}. What limits it: {timing.limited_by}."
    return (
        f"{tasks} bytes each can't all begin within {load.within:g} s: {begins}. What limits it: {timing.limited_by}."
    )


def _reasons(found: Plan) -> Iterator[tuple[str, str]]:
    """Yields each parameter with the reason for its value."""
    fleet, load = found.fleet, found.load
    yield (
        "ShardCount",
        f"the fullest of {fleet.partitions} index partitions has {found.fullest_partition} of the bucket's shards, and "
        "takes 1,000 writes a second",
    )
    if not load.workers_help:
        workers = "the shard's own pass makes and runs the occurrences of schedules"
    elif fleet.workers:
        workers = f"for each shard, beside its own pass: {fleet.processes:,} processes in all"
    else:
        workers = f"the {fleet.shards:,} passes of the shards are processes enough"
    yield "MaxWorkers", workers
    yield (
        "TaskThreads",
        f"in each process; {fleet.processes * fleet.threads:,} tasks run at the same time in all",
    )
    yield "ProcessorMemoryMb", "enough CPU for Dynatick's own work; what your handlers compute comes on top"
    if fleet.warm > NEW_TABLE_WRITE_UNITS:
        warm = f"the table takes up to {found.table_peak:,} write units a second, the index {found.index_peak:,}"
    else:
        warm = f"none: a new table and its index are warm for {NEW_TABLE_WRITE_UNITS:,} write units a second"
    yield "WarmThroughput", warm
    yield "MaxWriteUnits", "a cap on what a mistake can cost; 0 for none"
    yield "Precision", "as you asked for"
    yield "ProcessorTimeoutSeconds", "a task must end some seconds before its process does"


def _further(found: Plan, *, is_burst: bool) -> Iterator[str]:
    """What a late tick does; quotas, prices, and what inserting takes."""
    delay = found.load.options.tick_delay
    if delay < LATE_TICK:
        late = found.with_late_tick.last_start
        verdict = "too late" if late > found.load.within else "in time"
        yield (
            f"Tick        planned for {delay:g} s after its minute; if it comes {LATE_TICK:g} s after, the last task "
            f"begins within {late:.0f} s: {verdict}"
        )
    for quota in found.quotas:
        verdict = "raise the quota" if quota.must_be_raised else "within the quota"
        yield f"Quota       {quota.name}: {quota.needed:,} of {quota.allowed:,}, {verdict}"
    yield f"            the HTTP API takes up to {API_EXECUTIONS:,} more executions, unless ApiEndpoint is DISABLED"
    prices, inserting = found.prices, found.inserting
    what = "the burst, inserting included" if is_burst else "a month of this load"
    yield f"Price       ${prices.load:,.2f} for {what}"
    if prices.warm_once:
        yield f"            ${prices.warm_once:,.2f} once, to warm table and index"
    yield f"            ${prices.idle_month:,.2f} a month for ticks that find nothing in {found.fleet.shards} shards"
    yield f"            ${prices.storage_month:,.2f} a month for the rows that have ended, kept {RETENTION_DAYS} days"
    clients = "one client" if inserting.clients == 1 else f"{inserting.clients} clients"
    yield (
        f"Inserting   {inserting.write_units:,} write units, {inserting.seconds:,.0f} s at the fastest, by {clients} "
        "(in the price)"
        if is_burst
        else f"Inserting   {inserting.write_units:,} write units for what is due in {TICK_SECONDS} s, by {clients}"
    )


def _numbers(parameters: Mapping[str, str]) -> dict[str, object]:
    return {name: int(value) if value.isdecimal() else value for name, value in parameters.items()}


def _seconds(text: str, field: str) -> float:
    return duration_of(text, field).total_seconds()


def _factor(text: str) -> float:
    match = _FACTOR.fullmatch(text.strip())
    if match is None:
        raise InvalidInput("peak", text, "expected how many times the mean the peak is, such as 10x")
    return float(match[1])
