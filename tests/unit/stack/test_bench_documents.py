"""The tables of docs/performance.md and docs/cost.md are what the measured figures say, and `make bench` knows what is
named there."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from dynatick_stack.bench.__main__ import BENCHMARKS, main
from dynatick_stack.bench.costs import DATA, DOCS, TABLES, tables
from dynatick_stack.markdown import part_names, with_parts
from dynatick_stack.template import ROOT


@pytest.mark.parametrize("page", TABLES)
def test_the_documents_are_as_the_measurement_writes_them(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    figures = json.loads(DATA.read_text(encoding="utf-8"))
    assert with_parts(text, tables(page, figures)) == text, "run make bench WRITE=1"
    assert part_names(text) == list(TABLES[page])


def test_every_benchmark_is_named() -> None:
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    assert ["costs", *re.findall(r"^make bench OF=(\w+) +# ", page, re.MULTILINE)] == list(BENCHMARKS)
    help_text = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = re.findall(r"^  make bench +Measure OF: (.+); WRITE=1", help_text, re.MULTILINE)
    assert tuple(re.split(", | or ", line)) == BENCHMARKS


@pytest.mark.parametrize("given", [*([f"OF={name}"] for name in BENCHMARKS), [], ["WRITE=1"]], ids=" ".join)
def test_make_bench_calls_the_program_for_it(given: list[str]) -> None:
    # As if everything were set up, and not within another make: nothing is run.
    ready = ["-o", ".venv/.ready", "-o", ".venv/.ui-test"]
    command = ["make", "--dry-run", "--no-print-directory", *ready, "bench", *given]
    env = {"PATH": os.environ["PATH"]}
    dry_run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    (called,) = dry_run.stdout.splitlines()
    name = given[0].removeprefix("OF=") if given and "OF=" in given[0] else "costs"
    written = ["--write"] if "WRITE=1" in given else []
    assert called.split() == [".venv/bin/python", "-m", "dynatick_stack.bench", name, *written]


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (["speed"], "'speed'"),
        (["quick", "--write"], "only costs are written into docs/, not quick"),
        (["gap", "--tasks", "5"], "gap has no --tasks"),
    ],
)
def test_what_a_benchmark_does_not_know_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], refusal: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert refusal in capsys.readouterr().err


def test_a_refusal_names_the_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["speed"])
    error = capsys.readouterr().err
    assert [name for name in BENCHMARKS if name in error.split("choose from")[1]] == list(BENCHMARKS)
