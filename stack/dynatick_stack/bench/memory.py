"""Memory while a bucket of a million tasks drains, beside that for a thousand.

    python -m dynatick_stack.bench.memory    (`make bench-memory`)

The tasks do nothing. Every invocation is in a process of its own, on the counting endpoint. Exit code 1: the largest
process of the large bucket had more than 1.2 times the memory of that of the small one, or a task was not executed
exactly once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dynatick_stack.bench.burst import Burst, as_text, drain_bucket
from dynatick_stack.bench.credentials import use_test_credentials
from dynatick_stack.counting.counts import counting

MAX_RATIO = 1.2


def peaks(small: int, large: int, *, max_workers: int) -> tuple[Burst, Burst]:
    """Buckets of so many tasks, drained by processes of their own, each on a new endpoint."""
    with counting() as engine:
        first = drain_bucket(engine, tasks=small, max_workers=max_workers)
    with counting() as engine:
        return first, drain_bucket(engine, tasks=large, max_workers=max_workers)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dynatick_stack.bench.memory")
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--max-workers", type=int, default=2)
    given = parser.parse_args(arguments)
    use_test_credentials()
    small, large = peaks(1_000, given.tasks, max_workers=given.max_workers)
    for burst in (small, large):
        print(f"{burst.tasks:,} tasks, {as_text(burst, given.max_workers)}")
    ratio = large.peak_rss_bytes / small.peak_rss_bytes
    print(f"memory: {ratio:.2f} times as much, at most {MAX_RATIO}")
    return 0 if ratio <= MAX_RATIO and small.is_exact and large.is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
