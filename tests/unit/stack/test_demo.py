"""The demo's verdict: of a batch that ended as it must nothing is said, and each thing that differs is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from dynatick.client import TaskView
from dynatick_stack.demo.batch import FAILED, REFUSED, batch, unmet

PLANNED = {one.task_id: one for one in batch(datetime(2026, 12, 31, 11, 58, 30, tzinfo=UTC), "http://127.0.0.1:1")}


@dataclass
class Found:
    """What was seen, as ``unmet`` wants it."""

    refused: dict[str, str]
    tasks: dict[str, TaskView]
    called: list[str]
    letters: list[str]


@pytest.fixture
def found() -> Found:
    there = [one for one in PLANNED.values() if one.ends != REFUSED]
    return Found(
        refused={one.task_id: one.error for one in PLANNED.values() if one.ends == REFUSED},
        tasks={
            one.task_id: TaskView.from_row(
                {"taskId": one.task_id, "status": one.ends} | ({"error": one.error} if one.error else {})
            )
            for one in there
        },
        called=[one.task_id for one in there for _ in range(one.calls)],
        letters=[one.task_id for one in there if one.ends == FAILED],
    )


def problems(found: Found) -> list[str]:
    return list(unmet(list(PLANNED.values()), found.refused, found.tasks, found.called, found.letters))


def test_nothing_is_said_of_a_batch_that_ended_as_it_must(found: Found) -> None:
    assert problems(found) == []


def seen(task_id: str, **values: Any) -> Callable[[Found], object]:
    """Changes what was seen of a task."""
    return lambda found: found.tasks.update({task_id: replace(found.tasks[task_id], **values)})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (seen("bare", status="failed"), "bare: failed '', expected completed ''"),
        (seen("bare", error="e"), "bare: completed 'e', expected completed ''"),
        (lambda f: f.refused.pop("refused-naive"), "refused-naive: not there '', expected refused 'offset'"),
        (lambda f: f.refused.update({"refused-naive": "no"}), "refused-naive: refused 'no', expected refused 'offset'"),
        (lambda f: f.called.append("hook-gone"), "hook-gone: 2 webhooks came, expected 1"),
        (lambda f: f.letters.remove("hook-gone"), "hook-gone: 0 dead letters came"),
        (lambda f: f.letters.append("bare"), "bare: 1 dead letters came"),
    ],
)
def test_what_differs_is_said(found: Found, change: Callable[[Found], object], said: str) -> None:
    change(found)
    assert problems(found) == [said]
