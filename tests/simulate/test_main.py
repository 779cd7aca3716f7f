"""`python -m tests.simulate`: what it prints, and what it writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.simulate import __main__ as command
from tests.simulate import burst


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the document, which is written instead of it."""
    copy = tmp_path / "simulation.md"
    shutil.copy(command.DOCUMENT, copy)
    monkeypatch.setattr(command, "DOCUMENT", copy)
    return copy


def test_a_burst_is_shown_with_its_plan_and_written(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--tasks", "321", "--write"]) == 0

    printed, written = capsys.readouterr().out, page.read_text(encoding="utf-8")
    rows = [line for line in printed.splitlines() if line.startswith("|") and " 321 " in line]
    assert len(rows) == 3
    for line in rows:
        assert line in written
    assert "100,000,000 a day" in printed and "not simulated" in printed


def test_another_fleet_than_the_plans_is_shown_without_its_last_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--tasks", "200", "--shards", "3", "--threads", "5", "--task-ms", "50"]) == 0

    fleet, start, *_ = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 200")]
    assert [cell.strip() for cell in fleet.split("|")][2:5] == ["3", "0", "5"]
    assert [cell.strip() for cell in start.split("|")][5] == ""


def test_inserting_and_schedules_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--of", "inserting", "--tasks", "300"]) == 0
    assert command.main(["--of", "schedules", "--tasks", "50"]) == 0

    printed = " ".join(capsys.readouterr().out.split())
    assert "| 300 |" in printed and "| 600 |" in printed  # tasks, and their units
    assert "| 50 |" in printed


def test_a_batch_is_shown_with_the_tasks_beside_it(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--of", "batch", "--tasks", "321", "--tick-delay", "1", "--threads", "64", "--workers", "0", "--write"]
    assert command.main(given) == 0

    printed, written = capsys.readouterr().out, page.read_text(encoding="utf-8")
    rows = [line for line in printed.splitlines() if line.startswith("|") and " 321 " in line]
    assert [line.split("|")[1].strip() for line in rows] == ["1 s late", "1 s late, Precision: second", "321"]
    for line in rows:
        assert line in written


def test_limit_keys_are_shown_with_the_bounds_of_their_starts(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--of", "keys", "--tasks", "600", "--task-ms", "50", "--write"]) == 0

    printed, written = capsys.readouterr().out, page.read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in printed.splitlines() if line.startswith("| ")][1:]
    assert [row[1:4] for row in rows if row[1] != "---"][-3:] == [
        ["600", "6", "4"],
        ["60", "1", "1"],
        ["1,000", "100", "1"],
    ]
    assert next(line for line in printed.splitlines() if " 600 " in line) in written


def test_a_lost_task_is_named_and_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(burst, "TICKS", 0)  # no tick comes

    assert command.main(["--tasks", "7"]) == 1
    assert "scheduled, after 0 executions" in capsys.readouterr().out
