"""Where an attempt has failed, as the row keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from tests.unit.engine.support import World, bucket_at, world

from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick.engine.trace import MAX_CHARACTERS, trace_of
from dynatick.errors import PermanentError, RetryableError

AGAIN = {"retryPolicy": {"minBackoffSeconds": 0, "maximumRetryAttempts": 2}}


def deep(levels: int, error: Exception) -> None:
    if levels:
        deep(levels - 1, error)
    raise error


def raised(error: Exception, levels: int = 0) -> BaseException:
    try:
        deep(levels, error)
    except Exception as found:
        return found
    raise AssertionError


def test_it_names_file_line_function_and_statement() -> None:
    lines = str(trace_of(raised(ValueError("no")))).splitlines()
    assert lines[0].startswith("engine/test_trace.py:")
    assert lines[0].endswith(" in raised: deep(levels, error)")
    assert lines[-1].endswith(" in deep: raise error")


def test_the_innermost_frames_are_kept() -> None:
    lines = str(trace_of(raised(ValueError("no"), levels=50))).splitlines()
    assert len(lines) == 4
    assert lines[-1].endswith("raise error")


def test_it_is_short_whatever_the_code_looks_like() -> None:
    names: dict[str, object] = {}
    exec(compile(f"def {'f' * 900}():\n    raise ValueError('no')\n", "x" * 500, "exec"), names)
    try:
        names["f" * 900]()  # type: ignore[operator]
    except ValueError as error:
        assert len(str(trace_of(error))) <= MAX_CHARACTERS


def test_dynaticks_own_frames_are_left_out() -> None:
    try:
        Task.from_row({})
    except Exception as error:
        assert len(str(trace_of(error)).splitlines()) == 1, "this test's"


def test_an_error_in_place_of_another_names_where_that_was_raised() -> None:
    declared = PermanentError("ValueError: no")
    declared.__cause__ = raised(ValueError("no"))
    assert str(trace_of(declared)).endswith("raise error")


def test_an_error_without_a_frame_has_none() -> None:
    assert trace_of(ValueError("no")) is None


def attempts(w: World, task_id: str) -> list[Mapping[str, object]]:
    found = w.row(task_id)["attempts"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("error", [ValueError("no"), RetryableError("not yet"), PermanentError("never")])
def test_the_row_keeps_the_latest(error: Exception) -> None:
    w = world()

    def fails(task: Task, context: ActionContext) -> None:
        deep(context.attempt, error)

    w.insert("t", at=bucket_at(1), **AGAIN)
    w.actions.behaviour["t"] = fails
    w.ticks(4)
    found = attempts(w, "t")
    assert w.outcome("t") == "failed"
    assert len(found) == (1 if isinstance(error, PermanentError) else 3)
    assert ["trace" in one for one in found] == [False] * (len(found) - 1) + [True]
    assert str(found[-1]["trace"]).endswith("raise error")
    assert len(json.dumps(found, default=str)) < 2000


def test_a_task_that_completes_after_all_keeps_the_attempts_it_took() -> None:
    w = world()
    w.insert("t", at=bucket_at(1), **AGAIN)
    w.actions.behaviour["t"] = lambda task, context: deep(0, ValueError("no")) if context.attempt == 1 else None
    w.ticks(3)
    (found,) = attempts(w, "t")
    assert (w.outcome("t"), "trace" in found) == ("completed", True)
