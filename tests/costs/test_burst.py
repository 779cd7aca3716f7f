"""make bench OF=burst and make bench OF=memory, with few tasks: that they measure, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dynatick_stack.bench.burst import MAX_MEMORY_RATIO, Burst, drain_bucket, peaks, problems_of
from dynatick_stack.counting.counts import Engine

FAST = Burst(
    tasks=100, completed=100, executions=100, seconds=10.0, write_units=300.0, read_units=9.0, invocations=9,
    most_at_once=9, peak_rss_bytes=60_000_000,
)  # fmt: skip
SLOW = replace(FAST, seconds=60.0, invocations=1, most_at_once=1)


def test_a_burst_that_is_as_it_should_be() -> None:
    assert list(problems_of(FAST, SLOW)) == []


@pytest.mark.parametrize(
    ("fast", "problem"),
    [
        (replace(FAST, seconds=10.1), "5.94 times as fast"),
        (replace(FAST, write_units=304.0), "+1.33%"),
        (replace(FAST, write_units=296.0), "-1.33%"),
        (replace(FAST, executions=101), "101 executions"),
        (replace(FAST, completed=99), "99 completed"),
    ],
)
def test_a_burst_that_is_not(fast: Burst, problem: str) -> None:
    (found,) = problems_of(fast, SLOW)
    assert problem in found


def test_a_bucket_drains_in_processes_of_their_own(engine: Engine) -> None:
    burst = drain_bucket(engine, tasks=200, task_seconds=0.01)
    assert burst.is_exact
    assert burst.seconds >= 200 * 0.01 / 16
    assert 600 <= burst.write_units <= 606  # a claim and a record each; cursor and tick record
    assert (burst.invocations, burst.most_at_once) == (1, 1)


@pytest.mark.long
def test_workers_share_a_bucket(engine: Engine) -> None:
    """How much faster they make it, and what they write, is for `make bench OF=burst` to say: on a busy machine a
    worker may begin when its order is over."""
    burst = drain_bucket(engine, tasks=1_000, task_seconds=0.2, threads=4, max_workers=4)
    assert burst.is_exact
    assert 1 < burst.most_at_once <= 5


@pytest.mark.long
def test_memory_does_not_grow_with_the_bucket() -> None:
    small, large = peaks(1_000, 50_000, max_workers=1)
    assert small.is_exact
    assert large.is_exact
    assert large.peak_rss_bytes <= MAX_MEMORY_RATIO * small.peak_rss_bytes
