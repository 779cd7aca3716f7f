"""`make soak`, short, to its end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.e2e.programs import left, start
from tests.sandbox.history import History
from tests.sandbox.journal import Journal

pytestmark = pytest.mark.long

MAX_WAIT_SECONDS = 600


def number(output: str, name: str) -> int:
    found = re.search(rf"^ *{name} +([\d,]+)", output, re.MULTILINE)
    assert found is not None, f"no line {name!r} in:\n{output}"
    return int(found[1].replace(",", ""))


def test_a_short_soak(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    # What a trace has depends on how fast the machine is: a night judges many, and this one none.
    few = ("--processors", "2", "--inserters", "1", "--untraced")
    running = start(folder, "tests.soak", "--minutes", "0.3", "--seed", "2", *few, "--keep", str(tmp_path / "kept"))
    output, errors = running.communicate(timeout=MAX_WAIT_SECONDS)
    assert running.returncode == 0, f"{output}\n{errors}"
    assert errors == ""
    assert "SEED=2" in output
    assert number(output, "lost") == number(output, "waiting") == number(output, "problems") == 0
    inserted = number(output, "inserted")
    # How much fits into twenty seconds depends on how busy the machine is otherwise.
    assert inserted >= 10
    record_results = ("executed", "cancelled", "deleted", "replaced", "failed")
    assert sum(number(output, recorded_as) for recorded_as in record_results) == inserted
    # It was no calm: what the journal says of it, not the table.
    history = History().take(Journal(tmp_path / "kept" / "journal"))
    assert history.done >= 10
    assert sum(history.deaths.values()) + sum(history.faults.values()) >= 3
    assert left(folder) == []
