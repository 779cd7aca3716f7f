"""The scenarios of a benchmark of job queues: nothing is lost, and what is repeated had no record."""

from __future__ import annotations

import pytest
from tests.simulate import chaos as chaos_module
from tests.simulate import report
from tests.simulate.chaos import SCENARIOS, Chaos, Scenario, simulate_chaos

# Seconds at most from the first blow: the hard end of a process, two ticks, and the work.
WITHIN = {"repeated kills": 900, "connections killed": 10, "pool exhaustion": 120}


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "retry storm"])
def test_a_scenario_loses_no_task(name: str) -> None:
    found = simulate_chaos(name)
    assert found.problems == []
    assert (found.lost, found.completed) == (0, found.tasks)
    assert 0 < found.seconds <= WITHIN.get(name, 240)


def test_a_storm_of_retries_is_over_in_two_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    few = Scenario("retry_storm", SCENARIOS["retry storm"].do, lambda: Chaos(60, script=("error", "ok")), False)
    monkeypatch.setitem(chaos_module.SCENARIOS, "retry storm", few)  # type: ignore[arg-type]
    found = simulate_chaos("retry storm")
    assert (found.problems, found.begun, found.repeated) == ([], 120, 0)
    assert found.seconds <= 125


def test_what_was_at_work_when_a_process_died_is_attempted_again() -> None:
    found = simulate_chaos("crash recovery")
    assert (found.begun, found.repeated) == (20, 0)


def test_a_task_that_never_completes_is_lost_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos_module, "WAITED", 1)
    found = simulate_chaos("crash recovery")
    assert found.lost == 10
    assert found.problems == ["crash recovery: 10 tasks were lost"]
    assert report.chaos([found]).splitlines()[-1].endswith("| 1 |")
