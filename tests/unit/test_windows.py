"""The checker of windows: the cases of Jepsen's checker for Chronos, and those that it leaves out."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from proof.windows import Report, Run, Target, Ticks, judge, lines, match

ROOT = Path(__file__).parents[2]
EPSILON, INTERVAL = 10.0, 60.0
END = 1e6


def account(
    due: Sequence[float] = (0.0, 60.0, 120.0), began: Sequence[float] = (), *, read: float = END, **head: float
) -> list[dict[str, Any]]:
    """A job of Chronos: from 0 on, every minute, three times, each at most ten seconds late."""
    return [
        {"e": "windows", "skew": 0.0, "late": EPSILON, "read": read, **head},
        *({"e": "tick", "at": INTERVAL * n} for n in range(1000)),
        *({"e": "due", "of": "job", "at": at} for at in due),
        *(execution(at) for at in began),
    ]


def execution(at: float, key: str | None = None, *, done: bool = True, cut: str | None = None) -> dict[str, Any]:
    return {"e": "execution", "of": "job", "key": key or f"at {at}", "at": at, "done": done, "cut": cut}


def found(report: Report) -> dict[str, int]:
    counts = {name: len(getattr(report, name)) for name in ("missing", "late", "early", "extra", "twice")}
    return {name: number for name, number in counts.items() if number}


# -- the cases of Chronos's checker ------------------------------------------------------------------------------------


def test_all_targets_of_a_job_that_was_read_late_are_needed() -> None:
    assert judge(account(began=[3, 65, 127])).needed == 3


def test_of_a_job_that_was_read_early_only_what_had_to_begin_is_needed() -> None:
    report = judge(account(began=[3], read=60 + EPSILON - 1))
    assert (report.targets, report.needed) == (3, 1)
    assert report.problems == []


def test_runs_within_their_windows_satisfy_the_job() -> None:
    report = judge(account(began=[3, 65, 127]))
    assert found(report) == {}
    assert sorted(report.after_due) == [3, 5, 7]


def test_a_run_that_no_target_needs_is_one_too_many() -> None:
    """Chronos's checker lets it pass: there, a job may run more often."""
    report = judge(account(began=[3, 65, 127, 180]))
    assert report.extra == ["job: at 180 began at 180.000, and no further run was due"]
    assert found(report) == {"extra": 1}


def test_a_target_without_a_run_is_missing() -> None:
    report = judge(account(began=[3, 127]))
    assert report.missing == ["job: due at 60.000, and did not begin until 70.000"]
    assert found(report) == {"missing": 1}


def test_a_run_that_did_not_come_to_its_end_has_begun_in_time_and_may_come_again() -> None:
    report = judge([*account(began=[3, 65]), execution(121, "c", done=False), execution(200, "c")])
    assert found(report) == {}


# -- what it leaves out ------------------------------------------------------------------------------------------------


def test_of_overlapping_windows_each_target_takes_a_run_of_its_own() -> None:
    assert found(judge(account(began=[121, 122, 123], late=200.0))) == {}
    assert found(judge(account(began=[61, 62, 63], late=200.0))) == {"missing": 1, "extra": 1}


def test_one_run_does_not_do_for_two_targets() -> None:
    assert found(judge(account(began=[5, 122], late=200.0))) == {"missing": 1}


def test_a_run_before_its_time_is_told_by_how_much() -> None:
    report = judge(account(began=[3, 55, 127]))
    assert report.early == ["job: at 55 began at 55.000, 5.000 s before its time"]
    assert found(report) == {"missing": 1, "early": 1}


def test_a_run_after_its_window_is_late_and_not_missing() -> None:
    report = judge(account(began=[3, 65, 131.5]))
    assert report.late == ["job: due at 120.000, began 1.500 s after its window"]
    assert found(report) == {"late": 1}


def test_clocks_may_differ_by_the_skew() -> None:
    assert found(judge(account(began=[-3.5, 64, 133], skew=4.0))) == {}
    assert found(judge(account(began=[-4.5, 64, 133], skew=4.0))) == {"missing": 1, "early": 1}


@pytest.mark.parametrize(("cut", "problems"), [(None, {"twice": 1}), ("killed", {})])
def test_a_second_execution_needs_a_reason(cut: str | None, problems: dict[str, int]) -> None:
    report = judge([*account(began=[3, 65]), execution(121, "c", cut=cut), execution(181, "c")])
    assert found(report) == problems
    assert report.repeated.total() == (cut is not None)


def test_the_same_run_under_two_keys_is_one_too_many() -> None:
    assert found(judge(account(began=[3, 4, 65, 127]))) == {"extra": 1}


def test_what_may_be_withdrawn_may_run_and_need_not() -> None:
    withdrawn = {"e": "due", "of": "job", "at": 180.0, "may": True}
    assert found(judge([*account(began=[3, 65, 127]), withdrawn])) == {}
    assert found(judge([*account(began=[3, 65, 127, 185]), withdrawn])) == {}


def test_a_needed_target_is_not_left_without_a_run_for_one_that_is_not_needed() -> None:
    """The run could be either's; the withdrawn one's window ends first."""
    events = [*account(due=[0.0], began=[70], late=100.0), {"e": "due", "of": "job", "at": -10.0, "may": True}]
    assert found(judge(events)) == {}


def test_a_run_of_nothing_that_was_due_is_one_too_many() -> None:
    assert found(judge([*account(began=[3, 65, 127]), execution(5) | {"of": "other", "key": "other"}])) == {"extra": 1}


# -- ticks and outages -------------------------------------------------------------------------------------------------


def test_what_is_due_between_two_ticks_has_the_time_of_the_next() -> None:
    assert found(judge(account(due=[61.0], began=[129]))) == {}
    assert found(judge(account(due=[61.0], began=[131]))) == {"late": 1}


def test_what_comes_into_the_table_when_it_is_overdue_has_the_tick_after() -> None:
    late = {"e": "due", "of": "job", "at": 5.0, "since": 300.0}
    assert found(judge([*account(due=[], began=[309]), late])) == {}


@pytest.mark.parametrize(
    ("outages", "tick"),
    [
        ([], 60),
        ([(10, 50)], 60),
        ([(50, 60)], 60),  # over when the tick comes
        ([(60, 61)], 120),
        ([(69, 75)], 120),  # it touches what the tick has to begin its tasks
        ([(70, 75)], 60),
        ([(65, 66), (120, 170)], 180),
        ([(50, 130), (100, 200)], 240),
        ([(50, 1e9)], float("inf")),
    ],
)
def test_a_tick_counts_if_no_outage_touches_its_time(outages: list[tuple[float, float]], tick: float) -> None:
    assert Ticks([INTERVAL * n for n in range(10)], outages, EPSILON).of(10.0) == tick


def test_an_outage_puts_the_end_of_the_window_off() -> None:
    outage = {"e": "outage", "at": 55.0, "until": 115.0}
    assert found(judge([*account(began=[3, 129, 128]), outage])) == {}
    assert found(judge([*account(began=[3, 131, 128]), outage])) == {"late": 1}


# -- all of it ---------------------------------------------------------------------------------------------------------


def test_no_other_matching_has_more_pairs() -> None:
    """Compared with all there are, over windows of any length."""
    places = range(5)
    windows = [(begin, end) for begin in places for end in places if begin <= end]
    for n, chosen in enumerate(permutations(windows, 3)):
        targets = [Target("a", begin, begin, end) for begin, end in chosen]
        runs = [Run("a", str(k), (n + k * (n % 3)) % 5) for k in range(3)]
        possible = max(
            sum(target.earliest <= run.at <= target.latest for target, run in zip(targets, order, strict=True))
            for order in permutations(runs)
        )
        assert len(match(targets, runs)) == possible, (targets, runs)


def test_it_knows_nothing_of_the_product() -> None:
    tree = ast.parse((ROOT / "proof" / "windows.py").read_text(encoding="utf-8"))
    names = {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_an_account_is_refused_that_it_does_not_understand() -> None:
    with pytest.raises(ValueError, match="unknown kind: 'began'"):
        judge([*account(), {"e": "began"}])
    with pytest.raises(ValueError, match="0 events of the kind windows"):
        judge(account()[1:])


def test_files_are_judged_by_a_program(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for file, began in ((good, [3, 65, 127]), (bad, [3, 65])):
        file.write_text("\n".join(json.dumps(event) for event in account(began=began)))
    command = [sys.executable, str(ROOT / "proof" / "windows.py")]
    ran = [subprocess.run([*command, str(file)], capture_output=True, text=True, check=False) for file in (good, bad)]
    assert [one.returncode for one in ran] == [0, 1]
    assert "0 missing, 0 late, 0 early, 0 extra, 0 twice" in ran[0].stdout
    assert "job: due at 120.000, and did not begin until 130.000" in ran[1].stdout


def test_the_lines_say_how_late_runs_began() -> None:
    assert list(lines(judge(account(began=[3, 65, 127])))) == [
        "3 runs were due, of which 3 had to begin; 3 began",
        "after their time: p50 5.0 s, p99 7.0 s, most 7.0 s",
        "after the tick that had to begin them: p50 5.0 s, p99 7.0 s, most 7.0 s",
        "executed more than once: 0",
        "0 missing, 0 late, 0 early, 0 extra, 0 twice",
    ]
