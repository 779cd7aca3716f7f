"""Payloads of the built-in actions: the check at insertion, the check of the action, and the schemas."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from dynatick import InvalidInput
from dynatick.actions.payload import parsed
from dynatick.actions.webhook_payload import WebhookPayload
from dynatick.client import check_payload
from dynatick.errors import PermanentError

SECRET = "hunter2"

BAD: list[tuple[Any, str]] = [
    (None, "payload.url: 'nothing' is not accepted; it is missing"),
    ({"url": 7}, "payload.url: 'a number' is not accepted; Input should be a valid string"),
    ({"url": f"https://u:{SECRET}@e.com"}, "payload.url: 'a text of 23 characters' is not accepted"),
    ({"url": "https://e.com", "retries": 1}, "payload: 'a map' is not accepted; unknown 'retries'"),
    ({"url": "https://e.com", "headers": {"A": SECRET + "\n"}}, "payload.headers.A: 'a text"),
    ([SECRET], "payload: 'a list' is not accepted; expected a map of names to values"),
]


@pytest.mark.parametrize(("payload", "message"), BAD)
def test_the_check_refuses_what_the_action_would(payload: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_payload("webhook", payload)
    assert str(refused.value).startswith(message)
    assert SECRET not in str(refused.value)
    with pytest.raises(PermanentError) as failed:
        parsed(WebhookPayload, {} if payload is None else payload)
    assert str(failed.value) == f"{refused.value.field}: {refused.value.expected}"


def test_an_insert_imports_pydantic_only_if_the_action_needs_it() -> None:
    # The store's own libraries bring urllib3 along.
    program = """
import sys, boto3
BEFORE = list(sys.modules)
from dynatick import MemoryStore, TaskClient
client = TaskClient(MemoryStore())
client.insert("a", action="log", payload={"x": 1}, delay_seconds=5)
client.insert("b", action="of-mine", payload={"x": 1}, delay_seconds=5)
assert not {"pydantic", "urllib3.connectionpool", "aws_lambda_powertools"} & set(sys.modules) - set(BEFORE)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
