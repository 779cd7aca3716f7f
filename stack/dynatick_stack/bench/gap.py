"""What a time without ticks costs: every minute of it is polled, in as many passes as it takes.

    python -m dynatick_stack.bench.gap [--days 30]

Prints the ticks and the time until the drained watermark has passed the gap, the CPU time of it, and what it read.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence

from dynatick_stack.bench.installation import Installation
from dynatick_stack.bench.units import Meter
from dynatick_stack.counting.counts import counting


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dynatick_stack.bench.gap")
    parser.add_argument("--days", type=float, default=30)
    options = parser.parse_args(arguments)
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION="us-east-1")
    with counting() as engine:
        installation = Installation.fresh(engine.url)
        last = installation.bucket(ahead=int(options.days * 1440))
        meter = Meter(engine)
        installation.clock.to(last.instant)
        began, cpu, ticks, drained, buckets = time.monotonic(), time.process_time(), 0, -1, 0
        while drained < last.minute:
            for report in installation.next_tick():
                buckets += report.buckets
                drained = max(drained, -1 if report.drained_through is None else report.drained_through)
            ticks += 1
        seconds, cpu, read = time.monotonic() - began, time.process_time() - cpu, meter.read().total
        print(f"{options.days:g} days: {ticks} ticks, {seconds:.0f} s of passes, {cpu:.0f} s of CPU")
        print(f"{buckets:,} buckets polled, {read.calls:,} calls, {read.read_units:,.0f} read units")
        print(f"{cpu / buckets * 1e6:.0f} µs of CPU a poll")


if __name__ == "__main__":
    main()
