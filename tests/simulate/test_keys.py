"""Tasks with limit keys in the simulation of AWS's limits: none is lost, no limit broken, and no time between."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.sandbox.limits import Stay
from tests.simulate import keys as keys_module
from tests.simulate.keys import simulate_keys
from tests.simulate.world import Scenario

MANY = Scenario(tasks=4000, shards=2, threads=64, memory_mb=1769, keys=[("tenant=4", 80, 4000)])
BEGIN = 1.0 + 0.5  # the tick; until the first tasks are claimed


def test_many_keys_are_limited_by_the_threads_of_their_shards() -> None:
    run = simulate_keys(MANY)
    (group,) = run.groups

    assert run.problems == []
    assert (group.tasks, group.keys, group.limit) == (4000, 80, "4")
    assert group.by_limit == pytest.approx((4000 / 80 / 4 - 0.5) * 0.2)  # 13 turns, of which the last is not full
    assert run.by_threads <= group.last_start - 1.0 < run.by_threads * 1.1 + BEGIN
    # A task costs no more writes than one without a key, and its entry is read few times, for 0.025 units each.
    assert run.used.write_units < 3 * 4000 + 200
    assert run.used.read_units < 0.2 * 4000


def test_a_flood_of_one_key_delays_no_other() -> None:
    flood = replace(MANY, tasks=550, shards=1, keys=[("flood=1", 1, 500), ("customer=1", 5, 50)])
    run = simulate_keys(flood)
    flooding, others = run.groups

    assert run.problems == []
    assert others.last_start < others.by_limit * 1.5 + BEGIN
    assert flooding.by_limit <= flooding.last_start < flooding.by_limit * 1.1 + BEGIN


def test_starts_keep_a_rate() -> None:
    run = simulate_keys(replace(MANY, tasks=600, keys=[("host=20/s", 3, 600)]))
    (group,) = run.groups

    assert run.problems == []
    assert group.by_limit == pytest.approx(199 / 20)
    assert group.by_limit <= group.last_start < group.by_limit * 1.2 + BEGIN


def test_what_breaks_a_limit_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judged as if each had taken as long as all of them."""
    monkeypatch.setattr(keys_module, "Stay", lambda **given: Stay(**{**given, "end": 1e6}))
    run = simulate_keys(replace(MANY, tasks=40, keys=[("tenant=4", 5, 40)]))
    assert len(run.problems) == 5 * 4
    assert "5 at once" in run.problems[0]
