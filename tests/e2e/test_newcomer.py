"""The tutorial works from an empty folder with nothing but the wheel. How quickly, `make newcomer` says."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import month
from tests.newcomer import walk

from dynatick_stack import processes

pytestmark = pytest.mark.long


def test_a_newcomer_comes_to_the_end_of_the_tutorial(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    said: list[str] = []
    measured = walk(tmp_path.resolve(), said.append, to_the_end=True)
    record_property("figure", str(measured))
    assert measured.is_short, "\n".join(said)
    text = "\n".join(said)
    assert "To bob@example.com: Tea is ready" in text
    assert "1 passed" in text
    assert processes.running(tmp_path.resolve() / "reminders" / ".dynatick" / "local") == {}


@pytest.mark.xdist_group("first month")  # for another process, since both last long
def test_a_team_comes_through_its_first_month(tmp_path: Path) -> None:
    said: list[str] = []
    try:
        month.walk(tmp_path.resolve(), said.append)
    except (subprocess.CalledProcessError, AssertionError) as error:
        raise AssertionError("\n".join(said)) from error
    assert processes.running(tmp_path.resolve() / "reminders" / ".dynatick" / "local") == {}
