"""A burst: one bucket with more tasks than one process can run soon, with workers and without.

    python -m dynatick_stack.bench.burst    (`make bench-burst`)

On the counting endpoint, with every invocation in a process of its own: an emulator takes longer for a claim than
Dynatick does, and would be what is measured. The processes are started before the tick. It comes again each minute, as
on AWS.
Exit code 1: workers made it less than six times as fast, or changed the write units by more than 1 %, or a task was not
executed exactly once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dynatick.domain.buckets import Bucket
from dynatick_stack.bench.credentials import use_test_credentials
from dynatick_stack.bench.installation import Installation
from dynatick_stack.bench.invocations import Invocations
from dynatick_stack.bench.process import Setup
from dynatick_stack.counting.counts import Engine, counting

LIFE_SECONDS = 300.0  # of an invocation: a pass that is cut short releases tasks, and that costs write units too
TICK_SECONDS = 60.0
MAX_TICKS = 60
AHEAD = 30  # minutes: by then the insert is over
MIN_RATIO = 6.0
MAX_UNITS_CHANGE = 0.01


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
        life_seconds=LIFE_SECONDS,
    )
    with Invocations(setup, warm=1 + max_workers) as invocations:
        began, before = installation.clock(), engine.counts()
        for _ in range(MAX_TICKS):
            invocations.start(installation.event())
            if invocations.wait(TICK_SECONDS) and invocations.executions >= tasks:
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dynatick_stack.bench.burst")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--task-ms", type=int, default=200, help="that each task waits (200)")
    parser.add_argument("--task-threads", type=int, default=16, help="of each process (16)")
    parser.add_argument("--max-workers", type=int, default=8)
    given = parser.parse_args(arguments)
    use_test_credentials()
    print(f"{given.tasks:,} tasks of {given.task_ms} ms in one bucket, TaskThreads {given.task_threads}", flush=True)
    found = []
    with counting() as engine:
        for max_workers in (given.max_workers, 0):
            burst = drain_bucket(
                engine,
                tasks=given.tasks,
                task_seconds=given.task_ms / 1000,
                threads=given.task_threads,
                max_workers=max_workers,
            )
            print(as_text(burst, max_workers), flush=True)
            found.append(burst)
    problems = list(problems_of(*found))
    print(f"ratio {ratio(*found):.2f}, write units {units_change(*found):+.2%}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def as_text(burst: Burst, max_workers: int) -> str:
    return (
        f"MaxWorkers {max_workers}: {burst.seconds:.1f} s, {burst.executions:,} executions, "
        f"{burst.completed:,} completed, {burst.write_units:,.0f} write units, {burst.read_units:,.0f} read units, "
        f"{burst.invocations} invocations, {burst.most_at_once} at once, at most {burst.peak_rss_bytes / 1e6:.0f} MB"
    )


def ratio(with_workers: Burst, without: Burst) -> float:
    """How many times as fast workers make it."""
    return without.seconds / with_workers.seconds


def units_change(with_workers: Burst, without: Burst) -> float:
    """By what part of the write units workers change them."""
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


if __name__ == "__main__":
    sys.exit(main())
