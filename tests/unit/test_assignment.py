"""The assignment policies that ship, that of the how-to, and those that cannot be loaded."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest
from tests.builders import NOON

from dynatick import Grid, Unassigned
from dynatick.errors import ConfigurationError
from dynatick.wiring import load_policy

ROOT = Path(__file__).parents[2]
SHIPPED = (ROOT / "functions" / "scheduler" / "assignment.py").read_text(encoding="utf-8")
TASK = Unassigned(task_id="a", action="log", payload={}, attributes={"taskId": "a"})


def module(source: str) -> ModuleType:
    made = ModuleType("assignment")
    exec(source, made.__dict__)
    return made


shipped = module(SHIPPED)


@pytest.mark.parametrize(
    ("now", "hours"), [("07:59:59", 8), ("08:00:00", None), ("19:59:59", None), ("20:00:00", 24 + 8)]
)
def test_in_daytime(now: str, hours: int | None) -> None:
    """The hours from midnight until it is due; None: at once."""
    found = shipped.in_daytime(TASK, datetime.fromisoformat(f"2026-12-31T{now}Z"), Grid())
    assert found == (None if hours is None else datetime(2026, 12, 31, tzinfo=UTC) + timedelta(hours=hours))


def test_spread_over_an_hour_is_the_same_for_one_id_and_spreads_many() -> None:
    tasks = [replace(TASK, task_id=f"t{n}") for n in range(2000)]
    times, again = ([shipped.spread_over_an_hour(task, NOON, Grid()) for task in tasks] for _ in range(2))
    assert times == again
    assert {(time - NOON) // timedelta(minutes=1) for time in times} == set(range(60))


def test_the_documents_policy_works() -> None:
    text = (ROOT / "docs" / "how-to" / "assignment.md").read_text(encoding="utf-8")
    source = re.findall(r"<<'PYTHON'\n(.*?)^PYTHON$", text, re.DOTALL | re.MULTILINE)[0]
    by_priority = module(SHIPPED + source).by_priority
    assert by_priority(replace(TASK, attributes={"priority": "urgent"}), NOON, Grid()) is None
    assert by_priority(TASK, NOON, Grid()) == NOON + timedelta(hours=1)


@pytest.mark.parametrize("name", ["nowhere:policy", "dynatick:nothing", "dynatick", ":x", "dynatick:__version__"])
def test_a_policy_that_cannot_be_loaded_is_named(name: str) -> None:
    with pytest.raises(ConfigurationError, match="DYNATICK_ASSIGNMENT_POLICY"):
        load_policy(name)
