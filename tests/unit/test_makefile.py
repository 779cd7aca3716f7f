"""``make test`` and ``make test-long``, with a stand-in for the interpreter that notes what it was started for and
ends as configured."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from dynatick_stack.template import ROOT

PARTS = ("tests/unit", "tests/faults", "tests/e2e")
NO_TESTS = 5  # as pytest ends if none was selected


def make(
    target: str, folder: Path, ends: Mapping[str, int], *arguments: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """How make ended, and the parts that ran. ``ends``: the exit code of a part's pytest, unless it is 0."""
    program = folder / "bin" / "python"
    program.parent.mkdir()
    cases = "\n".join(f'  *" {part} "*) echo {part} >> {folder}/ran; exit {ends.get(part, 0)};;' for part in PARTS)
    program.write_text(f'#!/bin/sh\ncase " $* " in\n{cases}\nesac\nexit 99\n')
    program.chmod(0o755)
    (folder / ".ready").touch()
    done = subprocess.run(
        ["make", target, f"VENV={folder}", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},  # nothing of a make that may run these tests: it hands on its ARGS
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done, (folder / "ran").read_text().split()


def test_make_test_says_that_it_leaves_the_pages_out(tmp_path: Path) -> None:
    done, ran = make("test", tmp_path, {})
    assert (done.returncode, ran) == (0, ["tests/unit"])  # the first of them that the stand-in knows
    assert "tests/ui" not in done.stdout
    assert done.stdout.splitlines()[-1].endswith("make test-ui drives them in a browser.")


SELECTS = ("ARGS=-k something",)


@pytest.mark.parametrize(
    ("ends", "arguments", "passes"),
    [
        ({}, (), True),
        *(({failing: 1}, (), False) for failing in PARTS),
        ({"tests/e2e": NO_TESTS}, (), False),  # and no arguments that select any
        *((dict.fromkeys(empty, NO_TESTS), SELECTS, True) for empty in (PARTS, PARTS[:1], PARTS[1:])),
        ({"tests/unit": 1, "tests/faults": NO_TESTS}, SELECTS, False),
    ],
)
def test_make_test_long_runs_every_part_and_its_exit_code_says_whether_one_failed(
    tmp_path: Path, ends: Mapping[str, int], arguments: tuple[str, ...], passes: bool
) -> None:
    done, ran = make("test-long", tmp_path, ends, *arguments)
    assert ((done.returncode == 0), ran) == (passes, list(PARTS))
