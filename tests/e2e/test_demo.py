"""`make demo` as a person runs it: to its end, and interrupted at any moment."""

from __future__ import annotations

import itertools
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
    """The folder in which the demo makes its own."""
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
    # Of one task at once.
    assert re.search(r"\$ dynatick task get first\n.*\nstatus +completed\n", output)
    assert re.search(r"^It began [\d.]+ m?s after it was inserted$", output, re.MULTILINE)
    assert len(re.findall(r"^\d\d:\d\d:\d\d demo ", output, re.MULTILINE)) >= 4
    # The history by bucket, and the ticks, as the command line shows them.
    assert len(set(re.findall(r"\d{4}-\d\d-\d\d#\d\d:\d\d", output.partition("$ dynatick task list")[2]))) >= 2
    assert "$ dynatick tick list" in output
    assert "expectations are met" in output
    assert left(folder) == []


MOMENTS = ("start", "Deploying", "Running on", "Inserted", "scheduled")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EACH_ONCE = [(moment, SIGNALS[n % len(SIGNALS)]) for n, moment in enumerate(MOMENTS)]


@pytest.mark.parametrize(
    ("until", "number"),
    [
        pytest.param(*each, marks=[] if each in EACH_ONCE else [pytest.mark.night])
        for each in itertools.product(MOMENTS, SIGNALS)
    ],
)
def test_an_interruption_leaves_nothing(folder: Path, number: signal.Signals, until: str) -> None:
    demo = start(folder, DEMO)
    assert demo.stdout is not None
    if until == "start":
        # Its folder is what it makes first, before the emulator.
        assert processes.wait_until(lambda: bool(list(folder.glob("dynatick-demo-*"))), 30, every=0.001)
    else:
        said = []
        for line in iter(demo.stdout.readline, ""):
            said.append(line)
            if until in line:
                break
        assert said and until in said[-1], "".join(said)
    demo.send_signal(number)
    # People are impatient.
    demo.send_signal(number)
    _, errors = demo.communicate(timeout=300)
    assert demo.returncode == 130
    assert errors == "Interrupted; nothing is left running\n"
    assert left(folder) == []
