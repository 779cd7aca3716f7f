"""Buckets that processes side by side drain: how much faster workers make it, and the memory that it takes.

On the counting endpoint, with every invocation in a process of its own: an emulator takes longer for a claim than
Dynatick does, and would be what is measured. The processes are started before the tick. It comes again each minute, as
on AWS.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dynatick.domain.buckets import Bucket
from dynatick.testing.functions import rule_event
from dynatick_stack.bench.installation import Installation
from dynatick_stack.bench.invocations import Setup, invocations_of
from dynatick_stack.counting.counts import Engine, counting

TICK_SECONDS = 60.0
MAX_TICKS = 60
AHEAD = 30  # minutes: by then the insert is over
TASK_SECONDS = 0.2  # of a task in a burst
WORKERS = 8
MIN_RATIO = 6.0
MAX_UNITS_CHANGE = 0.01
MAX_MEMORY_RATIO = 1.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Burst:
    """What it took."""

    tasks: int
    completed: int
    executions: int
    seconds: float  # from the tick's event until the last task ended
    write_units: float
    read_units: float
    invocations: int
    most_at_once: int
    peak_rss_bytes: int

    @property
    def is_exact(self) -> bool:
        """Whether each task was executed exactly once, and completed."""
        return self.completed == self.executions == self.tasks

    def __str__(self) -> str:
        return (
            f"{self.seconds:.1f} s, {self.executions:,} executions, {self.completed:,} completed, "
            f"{self.write_units:,.0f} write units, {self.read_units:,.0f} read units, {self.invocations} invocations, "
            f"{self.most_at_once} at once, at most {self.peak_rss_bytes / 1e6:.0f} MB"
        )


def drain_bucket(
    engine: Engine, *, tasks: int, task_seconds: float = 0.0, threads: int = 16, max_workers: int = 0
) -> Burst:
    """Fills a bucket of a new table, and runs it."""
    installation = Installation.fresh(engine.url)
    bucket = installation.bucket(ahead=AHEAD)
    installation.fill(tasks, bucket)
    late = (installation.clock() - bucket.instant).total_seconds()
    if late > 0:
        raise RuntimeError(f"the insert took {late:.0f} s longer than expected, so that the tasks were due meanwhile")
    installation.clock.to(bucket.instant + timedelta(milliseconds=100))
    setup = Setup(
        endpoint=engine.url,
        table=installation.table,
        ahead_seconds=(installation.clock() - datetime.now(UTC)).total_seconds(),
        threads=threads,
        max_workers=max_workers,
        task_seconds=task_seconds,
    )
    with invocations_of(setup, warm=1 + max_workers) as invocations:
        began, before = installation.clock(), engine.counts()
        for _ in range(MAX_TICKS):
            if invocations.run(rule_event(installation.clock()), TICK_SECONDS) and invocations.executions >= tasks:
                break
        spent = (engine.counts() - before).total
        completed, last = _completed(installation, bucket)
        burst = Burst(
            tasks=tasks,
            completed=completed,
            executions=invocations.executions,
            seconds=(last - began).total_seconds(),
            write_units=spent.write_units,
            read_units=spent.read_units,
            invocations=len(invocations.ended),
            most_at_once=invocations.most_at_once,
            peak_rss_bytes=invocations.peak_rss_bytes,
        )
    installation.delete()
    return burst


def _completed(installation: Installation, bucket: Bucket) -> tuple[int, datetime]:
    """How many tasks of a bucket completed, and when the last one did."""
    number, last = 0, bucket.instant
    for entry in installation.client.iter_history(bucket, status="completed"):
        assert entry.finished_at is not None
        number, last = number + 1, max(last, entry.finished_at)
    return number, last


def burst(tasks: int = 20_000) -> int:
    """How much faster workers drain a bucket (`make bench OF=burst`). Exit code 1: less than six times as fast, or
    they changed the write units by more than 1 %, or a task was not executed exactly once."""
    print(f"{tasks:,} tasks of {TASK_SECONDS * 1000:g} ms in one bucket, TaskThreads 16", flush=True)
    found = []
    with counting() as engine:
        for max_workers in (WORKERS, 0):
            drained = drain_bucket(engine, tasks=tasks, task_seconds=TASK_SECONDS, max_workers=max_workers)
            print(f"MaxWorkers {max_workers}: {drained}", flush=True)
            found.append(drained)
    problems = list(problems_of(*found))
    print(f"ratio {ratio(*found):.2f}, write units {units_change(*found):+.2%}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def memory(tasks: int = 1_000_000) -> int:
    """The memory while a bucket drains, beside that for a thousand tasks; they do nothing (`make bench OF=memory`).
    Exit code 1: it grows by more than a fifth, or a task was not executed exactly once."""
    small, large = peaks(1_000, tasks, max_workers=2)
    for drained in (small, large):
        print(f"{drained.tasks:,} tasks: {drained}")
    found = large.peak_rss_bytes / small.peak_rss_bytes
    print(f"memory: {found:.2f} times as much, at most {MAX_MEMORY_RATIO}")
    return 0 if found <= MAX_MEMORY_RATIO and small.is_exact and large.is_exact else 1


def peaks(small: int, large: int, *, max_workers: int) -> tuple[Burst, Burst]:
    """Buckets of a given number of tasks, each on a new endpoint."""
    with counting() as engine:
        first = drain_bucket(engine, tasks=small, max_workers=max_workers)
    with counting() as engine:
        return first, drain_bucket(engine, tasks=large, max_workers=max_workers)


def ratio(with_workers: Burst, without: Burst) -> float:
    """How many times as fast workers make it."""
    return without.seconds / with_workers.seconds


def units_change(with_workers: Burst, without: Burst) -> float:
    """Returns the change of the write units by workers, as a share of those without."""
    return with_workers.write_units / without.write_units - 1


def problems_of(with_workers: Burst, without: Burst) -> Iterator[str]:
    """What is not as it should be."""
    if (found := ratio(with_workers, without)) < MIN_RATIO:
        yield f"workers make it {found:.2f} times as fast, expected at least {MIN_RATIO:g} times"
    if abs(change := units_change(with_workers, without)) > MAX_UNITS_CHANGE:
        yield f"workers change the write units by {change:+.2%}, expected at most {MAX_UNITS_CHANGE:.0%}"
    for name, burst in (("with workers", with_workers), ("without workers", without)):
        if not burst.is_exact:
            yield (
                f"{name}: {burst.executions:,} executions and {burst.completed:,} completed of {burst.tasks:,} tasks, "
                "expected each exactly once"
            )
