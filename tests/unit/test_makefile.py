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


def make_test_long(folder: Path, ends: Mapping[str, int], *arguments: str) -> tuple[int, list[str]]:
    """The exit code, and the parts that ran."""
    done, ran = make("test-long", folder, ends, *arguments)
    return done.returncode, ran


def test_make_test_says_that_it_leaves_the_pages_out(tmp_path: Path) -> None:
    done, ran = make("test", tmp_path, {})
    assert (done.returncode, ran) == (0, ["tests/unit"])  # the first of them that the stand-in knows
    assert "tests/ui" not in done.stdout
    assert done.stdout.splitlines()[-1].endswith("make test-ui drives them in a browser.")


@pytest.mark.parametrize("failing", PARTS)
def test_every_part_runs_although_one_fails_and_the_exit_code_says_so(tmp_path: Path, failing: str) -> None:
    code, ran = make_test_long(tmp_path, {failing: 1})
    assert code != 0
    assert ran == list(PARTS)


def test_the_exit_code_is_zero_if_all_parts_pass(tmp_path: Path) -> None:
    assert make_test_long(tmp_path, {}) == (0, list(PARTS))


@pytest.mark.parametrize("empty", [PARTS, PARTS[:1], PARTS[1:]])
def test_a_part_of_which_arguments_select_no_test_has_not_failed(tmp_path: Path, empty: tuple[str, ...]) -> None:
    code, ran = make_test_long(tmp_path, dict.fromkeys(empty, NO_TESTS), "ARGS=-k something")
    assert (code, ran) == (0, list(PARTS))


def test_a_part_without_tests_has_failed_if_no_arguments_select_any(tmp_path: Path) -> None:
    code, _ = make_test_long(tmp_path, {"tests/e2e": NO_TESTS})
    assert code != 0


def test_a_part_that_fails_is_a_failure_whatever_arguments_select(tmp_path: Path) -> None:
    code, ran = make_test_long(tmp_path, {"tests/unit": 1, "tests/faults": NO_TESTS}, "ARGS=-k something")
    assert code != 0
    assert ran == list(PARTS)
