"""Payloads of the built-in actions: the check at insertion, the check of the action, and the schemas."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from tests.unit.actions.support import NOW, a_context, a_task

from dynatick import InvalidInput
from dynatick.actions import build_actions
from dynatick.client import check_payload
from dynatick.errors import PermanentError

SECRET = "hunter2"

BAD: list[tuple[str, Any, str]] = [
    ("webhook", None, "payload.url: 'nothing' is not accepted; Field required"),
    ("webhook", {"url": 7}, "payload.url: 'a number' is not accepted; Input should be a valid string"),
    ("webhook", {"url": f"https://u:{SECRET}@e.com"}, "payload.url: 'a text of 23 characters' is not accepted"),
    ("webhook", {"url": "https://e.com", "retries": 1}, "payload: 'a map' is not accepted; unknown 'retries'"),
    ("webhook", {"url": "https://e.com", "headers": {"A": SECRET + "\n"}}, "payload.headers.A: 'a text"),
    ("webhook", [SECRET], "payload: 'a list' is not accepted; expected a map of names to values"),
]  # fmt: skip


@pytest.mark.parametrize(("action", "payload", "message"), BAD)
def test_the_check_refuses_what_the_action_would(action: str, payload: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_payload(action, payload)
    assert str(refused.value).startswith(message)
    assert SECRET not in str(refused.value)
    task = a_task({} if payload is None else payload, action=action)
    if isinstance(task.payload, dict):
        actions = build_actions(handlers_module=None, clock=lambda: NOW)
        with pytest.raises(PermanentError) as failed:
            actions.run(task, a_context(task))
        field, _, expected = str(refused.value).partition(": ")
        assert str(failed.value) == f"{field}: {expected.partition(' is not accepted; ')[2]}"


@pytest.mark.parametrize(("action", "payload"), [("log", {"x": 1}), ("log", None), ("of-mine", {"url": 7})])
def test_the_check_accepts_what_only_the_processor_can_refuse(action: str, payload: Any) -> None:
    check_payload(action, payload)


def test_an_insert_imports_pydantic_only_if_the_action_needs_it() -> None:
    program = """
import sys
from dynatick import MemoryStore, TaskClient
client = TaskClient(MemoryStore())
client.insert("a", action="log", payload={"x": 1}, delay_seconds=5)
client.insert("b", action="of-mine", payload={"x": 1}, delay_seconds=5)
assert not {"pydantic", "urllib3.connectionpool", "aws_lambda_powertools"} & set(sys.modules) - set(BEFORE)
"""
    # The store's own libraries bring urllib3 along.
    program = program.replace("import sys\n", "import sys, boto3\nBEFORE = list(sys.modules)\n", 1)
    subprocess.run([sys.executable, "-c", program], check=True)
