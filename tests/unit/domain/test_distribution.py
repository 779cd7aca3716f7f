"""Percentiles in bounded memory."""

from __future__ import annotations

import random
from collections.abc import Iterable
from math import ceil

import pytest

from dynatick.domain.action_counts import Distribution


def distribution_of(numbers: Iterable[int]) -> Distribution:
    found = Distribution()
    for number in numbers:
        found.add(number)
    return found


def nearest_rank(numbers: Iterable[int], percent: int) -> int:
    in_order = sorted(numbers)
    return in_order[ceil(percent / 100 * len(in_order)) - 1]


def test_small_numbers_the_maximum_and_no_numbers_at_all_are_exact() -> None:
    empty, found = Distribution(), distribution_of([3, 0, 90_001, 127, 3])
    assert (empty.count, empty.mean, empty.max, empty.percentile(50), empty.percentile(99)) == (0, 0, 0, 0, 0)
    assert (empty.sample(100), found.sample(100)) == ([], [0, 3, 3, 127, 90_001])
    assert (found.count, found.mean, found.max) == (5, 18_026, 90_001)
    assert [found.percentile(percent) for percent in (1, 50, 99)] == [0, 3, 90_001]
    empty.update(distribution_of([3, 0]))
    empty.update(distribution_of([90_001, 127, 3]))
    assert empty == found, "parts make up the whole"


@pytest.mark.parametrize("number", [1, 2, 99, 100, 101, 12_345])
def test_percentiles_are_at_most_two_percent_too_small_and_those_of_the_sample(number: int) -> None:
    dice = random.Random(number)
    numbers = [int(dice.lognormvariate(6, 2)) for _ in range(number)]
    found = distribution_of(numbers)
    sample = found.sample(100)
    assert len(sample) == min(100, number)
    assert sample == sorted(sample)
    for percent in (1, 10, 50, 90, 99, 100):
        exact = nearest_rank(numbers, percent)
        assert exact * 0.98 <= found.percentile(percent) <= exact
        assert percent == 10 or nearest_rank(sample, percent) == found.percentile(percent)


def test_memory_does_not_grow_with_the_number_of_numbers() -> None:
    hours = 24 * 3_600_000
    dice = random.Random(1)
    found = distribution_of(dice.randrange(hours) for _ in range(100_000))
    assert len(found._counts) < 128 + 64 * hours.bit_length()
