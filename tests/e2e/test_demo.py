"""`make demo` as a person runs it: to its end, with what goes wrong, and interrupted at any moment."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from tests.e2e.programs import left, start

from dynatick_stack import processes

pytestmark = pytest.mark.long

DEMO = "dynatick_stack.demo"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the demo makes its own folder."""
    made = tmp_path / "tmp"
    made.mkdir()
    return made


def test_it_ends_well_and_leaves_nothing(folder: Path) -> None:
    demo = start(folder, DEMO)
    output, errors = demo.communicate(timeout=900)
    assert demo.returncode == 0, f"{output}\n{errors}"
    assert errors == ""
    # Live: what the functions logged, and how the counts changed.
    assert "scheduler batch_ended" in output
    assert "processor pass_ended" in output
    assert len(re.findall(r"^\d\d:\d\d:\d\d demo ", output, re.MULTILINE)) >= 4
    # The history of at least three buckets, then the ticks, then the sums.
    buckets = re.findall(r"^(\d{4}-\d\d-\d\d#\d\d:\d\d): \d+ (?:completed|failed)", output, re.MULTILINE)
    assert len(buckets) >= 3
    assert buckets == sorted(buckets)
    assert re.search(r"^Ticks *$", output, re.MULTILINE)
    sums = re.search(
        r"inserted (\d+) = completed (\d+) \+ failed (\d+) \((\d+) of these as expected\), waiting 0", output
    )
    assert sums is not None
    inserted, completed, failed, expected = map(int, sums.groups())
    assert inserted == completed + failed
    assert failed == expected
    assert "expectations are met" in output
    assert left(folder) == []


def test_what_was_not_as_expected_is_listed(folder: Path, tmp_path: Path) -> None:
    batch = tmp_path / "batch.jsonl"
    tasks = [
        {"name": "ends well", "item": {"taskId": {"S": "good"}}, "ends": "completed", "by": 2},
        {"name": "has to fail", "item": {"taskId": {"S": "bad"}}, "ends": "failed", "by": 2},
        {"name": "two calls", "item": {"taskId": {"S": "calls"}}, "ends": "completed", "by": 2, "calls": 2},
        {"name": "a door that takes it", "door": "insert", "item": {"taskId": "taken"}, "ends": "refused"},
    ]
    batch.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    demo = start(folder, DEMO, "--batch", str(batch))
    output, errors = demo.communicate(timeout=900)
    assert demo.returncode == 1, f"{output}\n{errors}"
    assert errors.splitlines() == [
        "5 expectations are not met:",
        "  bad (has to fail): it is completed, expected failed",
        "  bad (has to fail): 0 dead letters came, expected 1",
        "  calls (two calls): 0 webhooks came (attempts none), expected 2",
        "  taken (a door that takes it): the door took it, and had to refuse it",
        "  taken (a door that takes it): it was refused, and is in the table",
    ]
    assert left(folder) == []


def test_a_batch_that_cannot_be_read_starts_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "batch.jsonl").write_text('{"name": "a"}\n')
    demo = start(folder, DEMO, "--batch", str(tmp_path / "batch.jsonl"))
    output, errors = demo.communicate(timeout=300)
    assert (demo.returncode, output) == (1, "")
    assert errors.strip() == "Error: batch.jsonl, line 1: ends is missing"
    assert left(folder) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("until", ["start", "Deploying", "Running on", "Inserted", "scheduled"])
def test_an_interruption_leaves_nothing(folder: Path, number: signal.Signals, until: str) -> None:
    demo = start(folder, DEMO)
    assert demo.stdout is not None
    if until == "start":
        # Its folder is what it makes first, before the emulator.
        assert processes.wait_until(lambda: bool(list(folder.glob("dynatick-demo-*"))), 30, every=0.001)
    else:
        assert any(until in line for line in iter(demo.stdout.readline, ""))
    demo.send_signal(number)
    # People are impatient.
    demo.send_signal(number)
    _, errors = demo.communicate(timeout=300)
    assert demo.returncode == 130
    assert errors == "Interrupted; nothing is left running\n"
    assert left(folder) == []
