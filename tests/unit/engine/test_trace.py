"""The row keeps where an attempt has failed."""

from __future__ import annotations

import json
import logging
import sys
import types
from collections.abc import Callable, Iterator, Mapping

import orjson
import pytest
from tests.unit.engine.support import World, world

from dynatick.actions.handlers import Handler
from dynatick.domain.task import Task
from dynatick.engine.ports import trace_of
from dynatick.errors import PermanentError, RetryableError
from dynatick.store.codec import OWN_BYTES, encode, item_bytes


def deep(levels: int, error: BaseException) -> None:
    if levels:
        deep(levels - 1, error)
    raise error


def caught(raises: Callable[[], object]) -> BaseException:
    try:
        raises()
    except BaseException as error:
        return error
    raise AssertionError


def test_it_names_file_line_function_and_statement_of_the_innermost_frames() -> None:
    lines = str(trace_of(caught(lambda: deep(0, ValueError("no"))))).splitlines()
    assert lines[0].startswith("engine/test_trace.py:")
    assert lines[0].endswith(" in caught: raises()")
    assert lines[-1].endswith(" in deep: raise error")
    lines = str(trace_of(caught(lambda: deep(50, ValueError("no"))))).splitlines()
    assert len(lines) == 4
    assert lines[-1].endswith(" in deep: raise error")
    assert len(str(trace_of(caught(lambda: Task.from_row({})))).splitlines()) == 2, "Dynatick's own are left out"


def test_an_error_names_where_its_cause_was_raised_and_nothing_if_neither_was() -> None:
    declared = PermanentError("ValueError: no")
    assert trace_of(declared) is None
    declared.__cause__ = caught(lambda: deep(0, ValueError("no")))
    assert str(trace_of(declared)).endswith("raise error")


class Unreadable(ValueError):
    """Its message, its representation, its traceback and its cause can't be read."""

    def __str__(self) -> str:
        sys.exit("no message")

    __repr__ = __str__

    @property
    def __traceback__(self) -> None:  # type: ignore[override]
        raise RuntimeError("no traceback")

    @property
    def __cause__(self) -> None:  # type: ignore[override]
        raise RecursionError("no cause")


class Text(str):
    """A text that can't be iterated over."""

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no characters")

    def __format__(self, spec: str) -> str:
        raise RuntimeError("no format")


class OddText(ValueError):
    def __str__(self) -> str:
        return Text("odd")


class Nameless(type(ValueError)):  # type: ignore[misc]
    @property
    def __name__(self) -> str:
        raise RuntimeError("no name")


def of_causes(number: int) -> ValueError:
    """A chain of errors, one the cause of the next; or one that is its own cause."""
    error = first = ValueError("the first")
    for n in range(number - 1):
        following = ValueError(str(n))
        following.__cause__ = error
        error = following
    first.__cause__ = first if number == 1 else None
    return error


def in_an_odd_file(name: str) -> BaseException:
    """Raised in a function, a file and a line whose names no table takes."""
    code = compile("def odd():\n    raise ValueError('\U0001f989' * 500)\n", "odd.py", "exec")
    function = types.FunctionType(
        code.co_consts[0].replace(co_filename=name, co_name=name), {"__name__": name, "__loader__": object()}
    )
    return caught(function)


ODD_ERRORS: Mapping[str, Callable[[], BaseException]] = {
    "unreadable": Unreadable,
    "odd-text": OddText,
    "nameless": lambda: Nameless("Nameless", (ValueError,), {})("no"),
    "its-own-cause": lambda: of_causes(1),
    "many-causes": lambda: of_causes(20_000),
    "huge": lambda: ValueError("x" * 30_000_000),
    "huge-of-many-bytes": lambda: ValueError("\U0001f989" * 5_000_000),
    "surrogates": lambda: ValueError("\ud800" * 2000 + "\x00"),
    "group": lambda: BaseExceptionGroup("many", [ValueError(str(n)) for n in range(10_000)]),
    "odd-file": lambda: in_an_odd_file("\ud800\x00\n" * 300),
    "long-file": lambda: in_an_odd_file("\U0001f989/" * 5000),
    "exit": lambda: SystemExit("no"),
    "interrupt": KeyboardInterrupt,
}


@pytest.mark.parametrize("make", ODD_ERRORS.values(), ids=ODD_ERRORS)
def test_a_task_whose_action_or_handler_raises_any_error_fails_with_what_can_be_read_of_it(
    make: Callable[[], BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without pytest's own capturing: a report with such texts can't be sent from process to process."""
    monkeypatch.setattr(logging.getLogger("dynatick"), "propagate", False)
    monkeypatch.setattr(logging.getLogger("dynatick"), "handlers", [logging.NullHandler()])
    w = world()
    w.insert("t", "declared", payload={"text": "x"}, retryPolicy={"minBackoffSeconds": 0})
    w.insert("other")
    before = item_bytes(w.row("t"))
    w.actions.behaviour["t"] = lambda task, context: deep(50, make())
    handler = Handler("fails", lambda payload: deep(0, make()), permanent=(ValueError,))
    w.actions.behaviour["declared"] = handler.run
    w.ticks(8)
    assert [w.outcome(task_id) for task_id in ("t", "declared", "other")] == ["failed", "failed", "completed"]
    assert w.row("t")["error"]
    assert len(attempts(w, "t")) == 4
    assert len(attempts(w, "declared")) == (1 if isinstance(make(), ValueError) else 4)
    orjson.dumps(encode(w.row("t")))  # which refuses lone surrogates, as a table does
    assert item_bytes(w.row("t")) - before <= OWN_BYTES


def test_the_largest_errors_of_all_attempts_fit_into_a_row(w: World) -> None:
    again = {"minBackoffSeconds": 0, "maxBackoffSeconds": 0, "maximumRetryAttempts": 30}
    w.insert("t", retryPolicy=again)
    before = item_bytes(w.row("t"))
    w.actions.behaviour["t"] = lambda task, context: deep(0, in_an_odd_file("\U0001f989/" * 5000))
    w.ticks(40)
    assert w.outcome("t") == "failed"
    assert item_bytes(w.row("t")) - before <= OWN_BYTES


def attempts(w: World, task_id: str) -> list[Mapping[str, object]]:
    found = w.row(task_id)["attempts"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("error", [ValueError("no"), RetryableError("not yet"), PermanentError("never")])
def test_the_row_keeps_the_latest(w: World, error: Exception) -> None:
    w.insert("t", retryPolicy={"minBackoffSeconds": 0, "maximumRetryAttempts": 2})
    w.actions.behaviour["t"] = lambda task, context: deep(context.attempt, error)
    w.ticks(4)
    found = attempts(w, "t")
    assert w.outcome("t") == "failed"
    assert len(found) == (1 if isinstance(error, PermanentError) else 3)
    assert ["trace" in one for one in found] == [False] * (len(found) - 1) + [True]
    assert str(found[-1]["trace"]).endswith("raise error")
    assert len(json.dumps(found, default=str)) < 2000
