"""How a pass divides a large bucket between itself and workers."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynatick.domain.packs import Span
from dynatick.engine.invocation import measured_rate
from dynatick.engine.sharing import GRAIN, MAX_WORK, SOON, START, Outline, allowed_time, divide, longest_range

SECOND = timedelta(seconds=1)


def outline(number: int) -> Outline:
    made = Outline()
    for n in range(number):
        made.add(f"t{n:06d}")
    return made


@pytest.mark.parametrize(
    ("ended", "running", "seconds", "rate"),
    [
        (152, 16, 2, 80.0),
        (152, 16, 1.9, None),  # too early
        (15, 16, 2, None),  # fewer than there are threads
        (15, 0, 5, 3.0),
        (0, 16, 5, 1.6),
        (0, 0, 5, 0.2),
    ],
)
def test_the_rate_is_what_ended_in_a_second_once_enough_has(
    ended: int, running: int, seconds: float, rate: float | None
) -> None:
    assert measured_rate(ended, running, timedelta(seconds=seconds), threads=16) == rate


def test_an_order_is_over_before_its_pass_stops_claiming() -> None:
    for left in range(10, 900, 10):
        work = longest_range(left * SECOND)
        assert allowed_time(int(work.total_seconds() * 80), 80) <= left * SECOND
    assert longest_range(900 * SECOND) == MAX_WORK
    assert longest_range(START) == timedelta()


@pytest.mark.parametrize(
    ("number", "rate", "workers", "longest", "sizes", "through"),
    [
        (800, 80, 8, MAX_WORK, [], None),  # what a process can run soon it keeps
        (20_000, 400, 8, MAX_WORK, [2225] * 7 + [20_000 - 8 * 2225], "t019999"),  # every process gets the same
        (20_000, 10, 8, 20 * SECOND, [200] * 8, "t001799"),  # a range is no longer than its worker has time for
        (1000, 90, 100, MAX_WORK, [200] * 4, "t000999"),  # and is worth the start of a process
    ],
)
def test_how_a_bucket_is_divided(
    number: int, rate: float, workers: int, longest: timedelta, sizes: list[int], through: str | None
) -> None:
    parts = divide(outline(number), rate=rate, workers=workers, longest=longest)
    assert [part.tasks for part in parts] == sizes
    assert not parts or (parts[0].after, parts[-1].through) == (f"t{sizes[0] - 1:06d}", through)


@given(
    number=st.integers(0, 3000),
    rate=st.floats(0.1, 2000),
    workers=st.integers(1, 100),
    longest=st.integers(2, 60),
)
def test_parts_are_neighbours_in_order_and_no_more_than_there_are_workers(
    number: int, rate: float, workers: int, longest: int
) -> None:
    made = outline(number)
    parts = divide(made, rate=rate, workers=workers, longest=longest * SECOND)
    assert len(parts) <= workers
    assert not parts or number > rate * SOON.total_seconds()
    for part, following in pairwise(parts):
        assert part.through == following.after
    for part in parts:
        ids = [f"t{n:06d}" for n in range(number) if part.after < f"t{n:06d}" <= part.through]
        assert len(ids) == part.tasks > 0
        assert 0 < len([task_id for task_id in ids if task_id > part.probe]) <= GRAIN


def test_a_pack_counts_as_its_members_and_is_not_divided() -> None:
    made = Outline()
    packs = [Span(first, 500).pack_id("news") for first in range(0, 10_000, 500)]
    for task_id in packs:
        made.add(task_id)
    assert made.count == 10_000
    parts = divide(made, rate=100, workers=3, longest=60 * SECOND)
    assert [(part.after, part.through) for part in parts] == [
        (packs[4], packs[9]), (packs[9], packs[14]), (packs[14], packs[19])
    ]  # fmt: skip
    assert [part.tasks for part in parts] == [2500] * 3
    few = Outline()
    for task_id in packs[:2]:
        few.add(task_id)
    for part in divide(few, rate=10, workers=8, longest=20 * SECOND):
        assert part.after < part.through
