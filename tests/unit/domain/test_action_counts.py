"""What is counted by action: it adds up in any order, stays small, and survives what a person writes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from decimal import Decimal
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynatick.domain.action_counts import (
    BOUNDS,
    MAX_ACTIONS,
    OTHERS,
    ActionCounts,
    CountsByAction,
    Distribution,
    TimeCounts,
)

TIMES = st.lists(st.integers(0, 3 * 10**9), max_size=50)


def times(values: list[int]) -> TimeCounts:
    counts = TimeCounts()
    for value in values:
        counts.add(value)
    return counts


@given(TIMES, TIMES)
def test_sums_of_parts_are_those_of_the_whole(one: list[int], other: list[int]) -> None:
    both = times(one)
    both.update(times(other))
    assert both == times(one + other)
    assert TimeCounts.from_value(both.to_value()) == both


@given(st.lists(st.integers(0, BOUNDS[-1]), min_size=1, max_size=50), st.integers(1, 100))
def test_a_percentile_is_at_most_half_too_high(values: list[int], percent: int) -> None:
    exact = sorted(values)[-(-percent * len(values) // 100) - 1]
    found = times(values).percentile(percent)
    assert found is not None
    assert exact <= found <= max(exact, 1.5 * exact)


def test_nothing_has_no_percentile() -> None:
    assert TimeCounts().percentile(50) is None


def test_a_time_beyond_the_last_range_is_in_it() -> None:
    assert times([10**12]).percentile(99) == BOUNDS[-1]


def test_the_counts_of_an_action_as_they_are_in_a_row() -> None:
    counts = ActionCounts(completed=3, retried=1, late=times([0, 5]), took=times([40, 40, 50, 90]))
    value = counts.to_value()
    assert value == {"completed": 3, "retried": 1, "late": {"0": 1, "5": 1}, "took": {"11": 2, "12": 1, "13": 1}}
    assert (counts.attempts, counts.failures) == (4, 1)
    assert ActionCounts.from_value(value) == counts


def test_the_busiest_actions_are_kept_and_the_others_added_up() -> None:
    counts = CountsByAction()
    for n in range(MAX_ACTIONS + 5):
        of = counts.of(f"action-{n}")
        of.completed = n + 1
        of.took = times([1] * (n + 1))
    value = counts.to_value()
    assert len(value) == MAX_ACTIONS + 1
    assert f"action-{MAX_ACTIONS + 4}" in value
    assert value[OTHERS] == {"completed": 15, "took": {"1": 15}}
    again = CountsByAction.sum([CountsByAction.from_value(value), counts])
    assert sum(one.completed for one in again.by_action.values()) == 2 * sum(range(1, MAX_ACTIONS + 6))
    assert len(again.to_value()) == MAX_ACTIONS + 1


def test_what_a_person_has_written_counts_as_not_there() -> None:
    odd = {"a": {"completed": "many", "failed": True, "took": {"x": 1, "99": 2, "3": Decimal(4), "4": -1}}, "b": 7}
    found = CountsByAction.from_value(odd)
    assert found.by_action == {"a": ActionCounts(took=times([3] * 4)), "b": ActionCounts()}
    assert not CountsByAction.from_value("nothing")


def test_only_failures() -> None:
    counts = CountsByAction({"a": ActionCounts(completed=3, failed=1, took=times([1])), "b": ActionCounts(completed=1)})
    assert counts.only_failures().by_action == {"a": ActionCounts(failed=1)}
    assert counts.failures == 1


# -- percentiles in bounded memory -------------------------------------------------------------------------------------


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
