"""Days of an installation: three judges find nothing, and one of them would."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from proof.windows import Report, judge
from tests.simulate import __main__ as command
from tests.simulate import days as days_module
from tests.simulate import report
from tests.simulate.days import PAUSED, TABLE_DOWN, simulate_days
from tests.simulate.test_main import page

__all__ = ["page"]  # a fixture
HOURS = 1 / 24


def test_hours_with_an_outage_and_a_deployment() -> None:
    run = simulate_days(2 * HOURS, seed=19)
    assert run.problems == []
    assert (run.windows.missing, run.windows.late, run.windows.twice) == ([], [], [])
    assert run.windows.needed > 10 < run.inserted["occurrences"]
    assert run.executions >= run.windows.runs > 30
    assert run.ticks > 30
    assert run.events is not None and run.events > 1000


def test_a_seed_repeats_the_days_and_another_does_not() -> None:
    once, again, other = (simulate_days(HOURS / 3, seed=seed) for seed in (3, 3, 4))
    assert (once.inserted, once.events, once.windows) == (again.inserted, again.events, again.windows)
    assert once.windows != other.windows


def test_ticks_that_come_and_do_nothing_are_found_by_the_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    fire = days_module.Installation.fire

    def fire_some(self: days_module.Installation, minute: int, tick: days_module.Tick) -> None:
        if self.simulation.now < 600 or self.simulation.now > 1500:
            fire(self, minute, tick)

    monkeypatch.setattr(days_module.Installation, "fire", fire_some)
    run = simulate_days(HOURS, seed=3)
    assert run.windows.late
    assert any("after its window" in problem for problem in run.problems)


def test_members_of_a_pack_that_was_cut_off_run_a_tick_after_the_one_that_recovers_it() -> None:
    """Which is not one that is cut off itself."""
    days = days_module._Days(HOURS, seed=1)
    days.ticks = [300.3, 600.3, 900.3, 1200.3]
    days.cut_off, days.holders_cut_off = [(300.3, 430.3), (600.3, 730.3)], [(300.3, 430.3)]
    days.due = [days_module.Due(of="batch/0", at=64.0, since=300.0)]
    began = {"e": "execution", "of": "batch/0", "key": "batch/0#1", "at": 1200.5, "done": True}
    assert judge([*days._account(3600.0), began]).problems == []
    assert judge([*days._account(3600.0), {**began, "at": 1300.5}]).late
    days.cut_off.pop()
    assert judge([*days._account(3600.0), began]).late


def test_a_client_may_go_by_an_interval_until_a_tick_has_written_down_the_next_one() -> None:
    days = days_module._Days(HOURS, seed=1)
    days.intervals = [(0.0, 5), (610.0, 1)]
    days.ticks = [900.3, 960.3]  # none came in the minutes before
    known = days_module.CACHED + 900.3
    for answered, since in ((700.0, 900.0), (known - 1, 1200.0), (known + 1, 1080.0), (math.inf, math.inf)):
        days.due = [days_module.Due(of="a", at=100.0, answered=answered)]
        (due,) = (event for event in days._account(3600.0) if event["e"] == "due")
        assert (due["since"], due["may"]) == (since, answered == math.inf)


def test_days_are_shown_and_written(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--of", "days", "--days", str(HOURS / 2), "--seed", "3", "--write"]) == 0
    printed, written = capsys.readouterr().out, page.read_text(encoding="utf-8")
    (wrong,) = [line for line in printed.splitlines() if line.startswith("| wrong")]
    assert wrong == "| wrong | 0 |"
    for line in printed.splitlines():
        if line.startswith("| "):
            assert line in written


def test_outages_and_problems_are_in_the_table() -> None:
    run = days_module.DaysRun(
        days=1.0, inserted=days_module.Counter(tasks=7), executions=8, ticks=9, deployments=2, killed=1,
        outages={TABLE_DOWN: [30, 60], PAUSED: []}, windows=Report(), events=None, problems=["lost"], cpu_seconds=1.2,
    )  # fmt: skip
    table = report.days(run)
    assert "| outages | table down: 2, 1.5 h in all; paused: 0, 0.0 h in all |" in table
    assert "| wrong | 1 |" in table
    assert "not all" in table
    assert math.isclose(float(report.windows(Report(after_tick=[3.0])).splitlines()[-1].split("|")[4]), 3.0)
