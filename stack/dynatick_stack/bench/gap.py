"""What a time without ticks costs."""

from __future__ import annotations

import time

from dynatick_stack.bench.installation import Installation
from dynatick_stack.bench.units import Meter
from dynatick_stack.counting.counts import counting


def gap(days: int = 10) -> int:
    """Every minute of it is polled, in as many passes as it takes."""
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
