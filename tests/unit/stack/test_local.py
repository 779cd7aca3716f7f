"""The first tick of a deployment: what the emulator has ended is repeated, a fault of the processor is not."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dynatick_stack import local
from dynatick_stack.errors import DeployError

ENDED = {"errorType": "RuntimeError", "errorMessage": "Worker process exited immediately. stderr: "}
BROKEN = {"errorType": "RuntimeError", "errorMessage": "Worker init failed: No module named 'no_such_library'"}


def deploying(monkeypatch: pytest.MonkeyPatch, answers: list[Mapping[str, str] | None]) -> Callable[[], None]:
    """The first tick on an emulator with these answers, the last of them again and again; None: it ran."""

    def invoke(**_: object) -> Mapping[str, Any]:
        error = answers.pop(0) if len(answers) > 1 else answers[0]
        if error is None:
            return {"Payload": io.BytesIO(b"null")}
        return {"Payload": io.BytesIO(json.dumps(error).encode()), "FunctionError": "Unhandled"}

    client = type("Lambda", (), {"invoke": staticmethod(invoke)})
    monkeypatch.setattr(local.LocalStack, "client", lambda self, service: client)
    monkeypatch.setattr(local.time, "sleep", lambda seconds: None)
    stack = local.LocalStack(endpoint="http://127.0.0.1:4777", outputs={"ProcessorFunctionName": "p"})
    return stack._first_occurrence


def test_a_worker_that_the_emulator_ends_hides_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeployError, match="no_such_library"):
        deploying(monkeypatch, [ENDED] * 10 + [BROKEN])()


def test_a_worker_that_the_emulator_ends_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [ENDED] * 10 + [None]
    deploying(monkeypatch, answers)()
    assert answers == [None]


def test_one_that_never_begins_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "FIRST_RUNS_SECONDS", 0)
    with pytest.raises(DeployError, match="exited immediately"):
        deploying(monkeypatch, [ENDED])()
