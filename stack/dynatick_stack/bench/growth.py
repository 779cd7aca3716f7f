"""What things cost as the table, the shards and a bucket grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from dynatick.client import HistoryPage
from dynatick.domain.buckets import Bucket
from dynatick_stack.bench.drainer import Drained, drain_in_processes
from dynatick_stack.bench.fill import fill
from dynatick_stack.bench.installation import Installation
from dynatick_stack.bench.units import Meter
from dynatick_stack.counting.counts import Count
from dynatick_stack.counting.process import Engine

ELSEWHERE = 1000  # buckets that pending tasks lie in, from tomorrow on
LIMIT = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One thing that was done, so many times in a row."""

    calls: float
    read_units: float
    write_units: float
    ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Pending:
    """With so many tasks pending in other buckets: inserting and draining, by task, and a page of history."""

    pending: int
    insert: Measured
    tick: Measured
    history: Measured


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharded:
    """One bucket spread over so many shards, a process each."""

    shards: int
    tasks: int
    seconds: float  # from the beginning of the first to the end of the last
    cpu_seconds: float  # of all together
    engine_busy: float  # the endpoint's share of one CPU meanwhile


@dataclass(frozen=True, kw_only=True, slots=True)
class Paged:
    """History of one bucket with so many tasks that have ended."""

    entries: int
    status: str | None  # what it is filtered by
    matching: int
    first: Measured  # the first page of 100
    whole: Measured  # all pages
    pages: int


def pending(engine: Engine, sizes: Sequence[int], *, tasks: int, rounds: int) -> Iterator[Pending]:
    """The same work with ever more tasks elsewhere, in one table."""
    installation = Installation.fresh(engine.url)
    there = 0
    for size in sizes:
        far = Bucket(installation.bucket(ahead=24 * 60).minute)
        fill(engine.url, installation.table, size - there, far, prefix=f"far-{size}-", buckets=ELSEWHERE)
        there = size
        measured = [_work(engine, installation, tasks, f"{size}-{n}-") for n in range(rounds)]
        insert, tick, page = zip(*measured, strict=True)
        yield Pending(pending=size, insert=_middle(insert), tick=_middle(tick), history=_middle(page))
    installation.delete()


def _work(engine: Engine, installation: Installation, tasks: int, prefix: str) -> tuple[Measured, Measured, Measured]:
    bucket = installation.bucket()
    insert = _measure(engine, tasks, lambda: installation.insert(tasks, bucket, prefix=prefix))
    installation.forward()
    tick = _measure(engine, tasks, lambda: installation.tick())
    installation.client.history(bucket, limit=1)  # so that the settings are known
    page = _measure(engine, 1, lambda: installation.client.history(bucket, limit=LIMIT))
    return insert, tick, page


def sharded(engine: Engine, shard_counts: Sequence[int], *, tasks: int, rounds: int) -> Iterator[Sharded]:
    """One large bucket, drained by as many processes as it has shards."""
    for shards in shard_counts:
        found = [_drain(engine, shards, tasks) for _ in range(rounds)]
        yield sorted(found, key=lambda one: one.seconds)[len(found) // 2]


def _drain(engine: Engine, shards: int, tasks: int) -> Sharded:
    installation = Installation.fresh(engine.url, shard_count=shards)
    bucket = installation.bucket()
    fill(engine.url, installation.table, tasks, bucket, shards=shards)
    busy = engine.cpu_seconds()
    drained = drain_in_processes(engine.url, installation.table, bucket.instant, shards=shards)
    busy = engine.cpu_seconds() - busy
    installation.delete()
    assert sum(one.tasks for one in drained) == tasks
    seconds = max(one.began + one.seconds for one in drained) - min(one.began for one in drained)
    return Sharded(
        shards=shards,
        tasks=tasks,
        seconds=seconds,
        cpu_seconds=sum(one.cpu_seconds for one in drained),
        engine_busy=busy / seconds,
    )


def lateness(endpoint: str, tasks: int) -> Drained:
    """One bucket of one shard, drained in a process of its own."""
    installation = Installation.fresh(endpoint)
    bucket = installation.bucket()
    fill(endpoint, installation.table, tasks, bucket)
    (drained,) = drain_in_processes(endpoint, installation.table, bucket.instant)
    installation.delete()
    assert drained.tasks == tasks
    return drained


def inserts(endpoint: str, tasks: int, *, rounds: int) -> tuple[float, float]:
    """Inserts a second by the client, and its CPU microseconds by task: medians."""
    installation = Installation.fresh(endpoint)
    wall: list[float] = []
    cpu: list[float] = []
    for n in range(rounds):
        cpu_began, began = time.process_time(), time.perf_counter()
        installation.insert(tasks, installation.bucket(), prefix=f"{n}-")
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - cpu_began)
    installation.delete()
    return tasks / median(wall), median(cpu) / tasks * 1e6


def paged(engine: Engine, entries: int) -> Iterator[Paged]:
    """Pages of a bucket's history, with a filter that fits all, a tenth, a thousandth."""
    installation = Installation.fresh(engine.url)
    bucket = installation.bucket()
    fill(engine.url, installation.table, entries, bucket, ended=True)
    for status in (None, "failed", "cancelled"):

        def first(status: str | None = status) -> HistoryPage:
            return installation.client.history(bucket, status=status, limit=LIMIT)

        def whole(status: str | None = status) -> Iterator[HistoryPage]:
            page = first(status)
            yield page
            while page.next_page_token is not None:
                page = installation.client.history(
                    bucket, status=status, limit=LIMIT if status else 1000, page_token=page.next_page_token
                )
                yield page

        first()  # so that the connection is there
        one = _measure(engine, 1, first)
        meter, began = Meter(engine), time.perf_counter()
        pages = list(whole())
        everything = _measured(meter.read().total, 1, time.perf_counter() - began)
        matching = sum(len(page.entries) for page in pages)
        yield Paged(entries=entries, status=status, matching=matching, first=one, whole=everything, pages=len(pages))
    installation.delete()


def _measure(engine: Engine, number: int, run: Callable[[], object]) -> Measured:
    meter, began = Meter(engine), time.perf_counter()
    run()
    seconds = time.perf_counter() - began
    return _measured(meter.read().total, number, seconds)


def _measured(count: Count, number: int, seconds: float) -> Measured:
    return Measured(
        calls=count.calls / number,
        read_units=count.read_units / number,
        write_units=count.write_units / number,
        ms=seconds / number * 1000,
    )


def _middle(found: Sequence[Measured]) -> Measured:
    return Measured(
        calls=median(one.calls for one in found),
        read_units=median(one.read_units for one in found),
        write_units=median(one.write_units for one in found),
        ms=median(one.ms for one in found),
    )
