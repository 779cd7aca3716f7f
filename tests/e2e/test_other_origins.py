"""The emulator as it is started answers programs of this machine, and nothing that a page in a browser sends.

A real browser tries it: tests/ui/test_other_origins.py.
"""

from __future__ import annotations

import json

import pytest
import urllib3

from dynatick_stack.local import LocalStack

FUNCTION = {"FunctionName": "evil", "Runtime": "python3.11", "Handler": "x.handler", "Role": "arn:aws:iam::1:role/x"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null", "Content-Type": "text/plain;charset=UTF-8"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Host": "rebound.example"}, 421),
    ],
)
def test_the_emulator_does_nothing_for_pages(stack: LocalStack, headers: dict[str, str], status: int) -> None:
    functions = f"{stack.endpoint}/2015-03-31/functions"
    before = stack.client("lambda").list_functions()["Functions"]
    for method in ("POST", "OPTIONS"):
        answer = urllib3.request(method, functions, body=json.dumps(FUNCTION), headers=headers, retries=False)
        assert answer.status == status
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert urllib3.request("GET", functions, headers=headers, retries=False).status == status
    assert stack.client("lambda").list_functions()["Functions"] == before
