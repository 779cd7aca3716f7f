"""A tick reaches its shards through a tree of invocations, and each shard is served once, whatever can't be started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.support import World, bucket_at, cannot, rules, world

from dynatick.domain.buckets import Grid
from dynatick.engine.fan_out import GROUP, MAX_CHILDREN, group_of, groups, portions, split
from dynatick.engine.processor import NotStarted


def nodes(shards_ever: int) -> list[tuple[range, int]]:
    """What each node but the root is asked to serve, with its depth."""
    found: list[tuple[range, int]] = []
    coming = [(one, 1) for one in portions(groups(range(1, shards_ever)))]
    while coming:
        shards, depth = coming.pop()
        found.append((shards, depth))
        coming += [(one, depth + 1) for one in split(shards)[1]]
    return found


@given(st.integers(1, 5000), st.randoms(use_true_random=False), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_each_shard_is_served_once_whatever_fails_to_start(shards_ever: int, dice: Random, failing: float) -> None:
    """What a child that can't be started would have served, its parent serves, group by group."""
    served: Counter[int] = Counter()

    def start(ranges: list[range]) -> None:
        for shards in ranges:
            if dice.random() < failing:
                served.update(shard for group in groups(shards) for shard in group)
            else:
                own, others = split(shards)
                served.update(own)
                start(others)

    start(portions(groups(range(1, shards_ever))))
    assert served == Counter(range(1, shards_ever))


@given(st.integers(1, 5000))
def test_no_node_starts_more_than_a_few_or_serves_more_than_a_group(shards_ever: int) -> None:
    assert len(portions(groups(range(1, shards_ever)))) <= MAX_CHILDREN
    for shards, _ in nodes(shards_ever):
        own, others = split(shards)
        assert len(others) <= MAX_CHILDREN
        assert 0 < len(own) <= GROUP
        assert len({group_of(shard) for shard in own}) == 1, "one record for all of them"


@pytest.mark.parametrize(("shards", "invocations", "depth"), [(64, 1, 1), (256, 4, 1), (1_000, 16, 2)])
def test_the_last_shard_is_served_after_a_few_starts_one_after_another(
    shards: int, invocations: int, depth: int
) -> None:
    """A node starts its children at once. If one started all, the last of 1,000 would begin after half a minute."""
    found = nodes(shards)
    assert (len(found), max(deep for _, deep in found)) == (invocations, depth)


@pytest.mark.parametrize(
    ("number", "started"),
    [(2, [{"shard": 1, "continuation": 0}]), (64, [{"shards": [1, 63]}]),
     (256, [{"shards": [1, 63]}, {"shards": [64, 127]}, {"shards": [128, 191]}, {"shards": [192, 255]}])],
)  # fmt: skip
def test_a_tick_starts_a_pass_for_a_second_shard_and_an_invocation_a_group_for_more(
    number: int, started: list[dict[str, object]]
) -> None:
    w = world(rules=rules(grid=Grid(shard_count=number)))
    assert w.handle({"time": "2026-12-31T12:00:00Z"}).shards == number
    events = [{"dynatick": {"tick": "2026-12-31#12:00", **order}} for order in started]
    assert sorted(w.started, key=str) == sorted(events, key=str)


class Crowd(World):
    """An installation whose invocations are started unless ``refused`` says otherwise of their orders."""

    refused: Callable[[Mapping[str, object]], bool] = staticmethod(lambda order: False)

    def invoke(self, event: Mapping[str, object]) -> None:
        if self.refused(event["dynatick"]):  # type: ignore[arg-type]
            raise cannot("invoke")
        super().invoke(event)


def crowd(shards: int, *due: int) -> Crowd:
    """Of so many shards, with a task in each of ``due`` at the next tick, and nothing to do for three ticks before."""
    w = Crowd(rules=rules(grid=Grid(shard_count=shards), in_one_thread=True))
    w.tick()
    w.ticks(3)
    for shard in due:
        w.insert(f"t{shard}", at=bucket_at(4, shard))
    return w


@settings(max_examples=15, deadline=None)
@given(
    st.integers(2, 140), st.sets(st.integers(0, 139)), st.sampled_from(["nodes", "passes", "all", "some"]), st.data()
)
def test_each_task_runs_once_at_its_tick_whatever_fails_to_start(
    shards: int, due: set[int], fails: str, data: st.DataObject
) -> None:
    due = {shard for shard in due if shard < shards}
    w = crowd(shards, *due)

    def refused(order: Mapping[str, object]) -> bool:
        if fails == "some":
            return data.draw(st.booleans())
        return fails == "all" or ("shards" in order) == (fails == "nodes")

    w.refused = refused
    done = w.next_tick()
    assert sorted(w.actions.ran) == sorted((f"t{shard}", 1, 1) for shard in due)
    assert not any(one.left for one in done)


def test_shards_whose_invocation_cannot_be_started_are_named_and_served_by_the_parent() -> None:
    w = crowd(130, 3, 129)
    w.refused = lambda order: "shards" in order
    first, *_ = w.next_tick()
    problem = "cannot invoke: the table is not there"
    assert first.not_started == [NotStarted(problem, one) for one in (range(1, 64), range(64, 128), range(128, 130))]
    assert [group.shards for group in first.groups] == [one.shards for one in first.not_started]
    assert w.outcome("t3") == w.outcome("t129") == "completed", "in passes of their own, which could be started"


def test_a_busy_shard_whose_pass_cannot_be_started_is_drained_after_the_idle_ones_were_polled() -> None:
    w = crowd(10, 3, 7)
    w.refused = lambda order: "shard" in order
    _, group = w.next_tick()
    assert [one.shards for one in group.not_started] == [range(3, 4), range(7, 8)]
    assert [(report.shard, report.completed) for report in group.passed_too] == [(3, 1), (7, 1)]
    assert (group.groups[0].idle, group.groups[0].busy, group.left) == (7, [3, 7], [])


def test_what_a_parent_has_no_time_for_the_next_tick_serves() -> None:
    w = crowd(10, 3, 7)
    w.refused = lambda order: "shard" in order
    w.actions.behaviour["t3"] = lambda task, context: w.clock.forward(seconds=101) and None
    _, group = w.next_tick()
    assert (w.outcome("t3"), w.outcome("t7"), group.left) == ("completed", None, [7])
    w.next_tick(3)
    assert w.outcome("t7") == "completed"


def test_a_tick_without_time_leaves_the_shards_that_no_invocation_serves_to_the_next_one() -> None:
    w = crowd(10, 0, 7)
    w.refused = lambda order: True
    w.actions.behaviour["t0"] = lambda task, context: w.clock.forward(seconds=101) and None
    (root,) = w.next_tick()
    assert (root.left, root.groups, w.outcome("t7")) == (list(range(1, 10)), [], None)
    w.next_tick(3)
    assert w.outcome("t7") == "completed"
