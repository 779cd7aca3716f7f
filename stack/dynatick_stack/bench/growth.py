"""What things cost as the table and a bucket grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from dynatick.client import HistoryPage
from dynatick.domain.buckets import Bucket
from dynatick_stack.bench.installation import Installation
from dynatick_stack.bench.units import Meter
from dynatick_stack.counting.counts import Engine, counting

ELSEWHERE = 1000  # buckets that pending tasks lie in, from tomorrow on
TASKS, ROUNDS = 1_000, 5
PAGE = 100

Measured = dict[str, float]
"""One thing that was done, so many times in a row: calls, units and milliseconds of each."""


def pending(engine: Engine, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Inserting and running tasks, by task, and a page of history, with ever more tasks elsewhere in one table."""
    installation, there = Installation.fresh(engine.url), 0
    for size in sizes:
        far = installation.bucket(ahead=24 * 60)
        installation.fill(size - there, far, prefix=f"far-{size}-", buckets=ELSEWHERE)
        there = size
        measured = [_work(engine, installation, f"{size}-{n}-") for n in range(ROUNDS)]
        insert, tick, page = zip(*measured, strict=True)
        yield {"pending": size, "insert": _middle(insert), "tick": _middle(tick), "history": _middle(page)}
    installation.delete()


def _work(engine: Engine, installation: Installation, prefix: str) -> tuple[Measured, Measured, Measured]:
    bucket: Bucket = installation.bucket()
    insert = _measure(engine, TASKS, lambda: installation.insert(TASKS, bucket, prefix=prefix))
    installation.forward()
    tick = _measure(engine, TASKS, installation.tick)
    installation.client.history(bucket, limit=1)  # so that the settings are known
    return insert, tick, _measure(engine, 1, lambda: installation.client.history(bucket, limit=PAGE))


def history(engine: Engine, entries: int) -> Iterator[dict[str, Any]]:
    """Pages of a bucket's history, with a filter that fits all, a tenth, a thousandth."""
    installation = Installation.fresh(engine.url)
    bucket = installation.bucket()
    installation.fill(entries, bucket, ended=True)
    for status in (None, "failed", "cancelled"):
        found: list[HistoryPage] = []

        def read_page(status: str | None = status, token: str | None = None, limit: int = PAGE) -> HistoryPage:
            return installation.client.history(bucket, status=status, limit=limit, page_token=token)

        def read_all(found: list[HistoryPage] = found, status: str | None = status) -> None:
            found.append(read_page(status))
            while (token := found[-1].next_page_token) is not None:
                found.append(read_page(status, token, PAGE if status else 1000))

        first, whole = _measure(engine, 1, read_page), _measure(engine, 1, read_all)
        matching = sum(len(page.entries) for page in found)
        yield {"status": status, "matching": matching, "first": first, "whole": whole}
    installation.delete()


def gap(days: int = 10) -> int:
    """What a time without ticks costs: every minute of it is polled, in as many passes as it takes."""
    with counting() as engine:
        installation = Installation.fresh(engine.url)
        last = installation.bucket(ahead=days * 1440)
        meter = Meter(engine)
        installation.clock.to(last.instant)
        began, cpu, ticks, drained, buckets = time.monotonic(), time.process_time(), 0, -1, 0
        while drained < last.minute:
            for report in installation.next_tick():
                buckets += report.buckets
                drained = max(drained, -1 if report.drained_through is None else report.drained_through)
            ticks += 1
        seconds, cpu, read = time.monotonic() - began, time.process_time() - cpu, meter.read().total
    print(f"{days} days: {ticks} ticks, {seconds:.0f} s of passes, {cpu:.0f} s of CPU")
    print(f"{buckets:,} buckets polled, {read.calls:,} calls, {read.read_units:,.0f} read units")
    print(f"{cpu / buckets * 1e6:.0f} µs of CPU a poll")
    return 0


def _measure(engine: Engine, number: int, run: Callable[[], object]) -> Measured:
    meter, began = Meter(engine), time.perf_counter()
    run()
    seconds, count = time.perf_counter() - began, meter.read().total
    return {
        "calls": count.calls / number,
        "read_units": count.read_units / number,
        "write_units": count.write_units / number,
        "ms": seconds / number * 1000,
    }


def _middle(found: Sequence[Measured]) -> Measured:
    return {name: median(one[name] for one in found) for name in found[0]}
