"""The demo's verdict: of a batch that ended as it must nothing is said, and each thing that differs is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dynatick.client import TaskView
from dynatick_stack.demo.batch import FAILED, REFUSED, Planned, batch, unmet
from dynatick_stack.demo.receiver import Call

NOW = datetime(2026, 12, 31, 11, 58, 30, tzinfo=UTC)
PLANNED = {one.task_id: one for one in batch(NOW, "http://127.0.0.1:1")}


@dataclass
class Found:
    """What was seen, as ``unmet`` wants it."""

    refused: dict[str, str]
    tasks: dict[str, TaskView]
    calls: list[Call]
    letters: list[dict[str, Any]]

    def unmet(self) -> list[str]:
        return unmet(list(PLANNED.values()), self.refused, self.tasks, self.calls, self.letters)


def view(one: Planned) -> TaskView:
    attempts = {"attempt": one.attempts if one.attempts is not None else 1}
    return TaskView.from_row(
        {"taskId": one.task_id, "status": one.ends, **attempts} | ({"error": one.error} if one.error else {})
    )


def call(task_id: str, attempt: int) -> Call:
    headers = {
        "content-type": "application/json", "idempotency-key": f"{task_id}#1-1", "x-dynatick-task-id": task_id,
        "x-dynatick-attempt": str(attempt), "x-dynatick-due-at": "2026-12-31T12:00:00Z",
    }  # fmt: skip
    return Call(path="/", headers=headers, body=b"{}", at=NOW)


@pytest.fixture
def found() -> Found:
    there = [one for one in PLANNED.values() if one.ends != REFUSED]
    quoted = {"hook-grüße 100 %": "hook-gr%C3%BC%C3%9Fe%20100%20%25"}
    return Found(
        refused={one.task_id: one.error for one in PLANNED.values() if one.ends == REFUSED},
        tasks={one.task_id: view(one) for one in there},
        calls=[call(quoted.get(one.task_id, one.task_id), attempt) for one in there for attempt in one.calls],
        letters=[{"taskId": one.task_id} for one in there if one.ends == FAILED],
    )


def test_nothing_is_said_of_a_batch_that_ended_as_it_must(found: Found) -> None:
    assert found.unmet() == []


def seen(task_id: str, **values: Any) -> Callable[[Found], object]:
    """Changes what was seen of a task."""
    return lambda found: found.tasks.update({task_id: replace(found.tasks[task_id], **values)})


@pytest.mark.parametrize(
    ("task_id", "change", "said"),
    [
        ("bare", seen("bare", status="failed"), "failed, expected completed"),
        ("bare", seen("bare", error="e"), "its error is 'e', expected ''"),
        ("bare", seen("bare", started_at=NOW, due_at=NOW + timedelta(seconds=1)), "it started at"),
        ("rehearsal", seen("rehearsal", attempt=1), "1 attempts"),
        ("refused-naive", lambda f: f.refused.pop("refused-naive"), "not there, expected refused"),
        ("refused-naive", lambda f: f.refused.update({"refused-naive": "no"}), "its error is 'no'"),
        ("hook-gone", lambda f: f.calls.append(call("hook-gone", 2)), "webhooks came at the attempts ['1', '2']"),
        ("other", lambda f: f.calls.append(call("other", 1)), "a webhook of no task of ours"),
        ("hook-gone", lambda f: f.letters.remove({"taskId": "hook-gone"}), "0 dead letters came"),
        ("bare", lambda f: f.letters.append({"taskId": "bare"}), "1 dead letters came"),
    ],
)
def test_what_differs_is_said(found: Found, task_id: str, change: Callable[[Found], object], said: str) -> None:
    change(found)
    problems = found.unmet()
    assert any(said in problem for problem in problems)
    assert {problem.partition(":")[0] for problem in problems} == {task_id}
