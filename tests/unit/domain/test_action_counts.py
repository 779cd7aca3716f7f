"""What is counted by action: it adds up in any order, stays small, and survives what a person writes."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from dynatick.domain.action_counts import BOUNDS, MAX_ACTIONS, OTHERS, ActionCounts, CountsByAction, TimeCounts

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
