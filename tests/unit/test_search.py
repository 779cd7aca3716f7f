"""`make search` draws others in each round, and says how to repeat what it found."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.search.__main__ import main

TEST = """
import pytest
from hypothesis import given, strategies
from tests.search.seed import search_seed

drawn = set()

@given(strategies.integers())
def test_integers(number):
    drawn.add((search_seed(), number))

@pytest.mark.draws
def test_seed():
    assert len({frozenset(number for seed, number in drawn if seed == n) for n, _ in drawn}) == search_seed() - 2
    assert search_seed() < 5, "found"

def test_that_draws_nothing():
    raise AssertionError
"""


def test_it_ends_with_the_first_seed_that_breaks_a_property(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_drawn.py").write_text(TEST)
    assert main(["--minutes", "5", "--seed", "3", "--processes", "1", "--tests", str(tmp_path)]) == 1
    output = capsys.readouterr().out
    assert output.startswith("SEED=3\nround 3: nothing in 2 tests\nround 4: nothing in 2 tests\n")
    assert "AssertionError: found" in output
    assert "--hypothesis-seed 5 '" in output and "test_drawn.py::test_seed" in output


def test_it_ends_when_its_time_is_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_drawn.py").write_text(TEST)
    assert main(["--minutes", "0", "--seed", "3", "--processes", "1", "--tests", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "SEED=3\nround 3: nothing in 2 tests\nnothing\n"
