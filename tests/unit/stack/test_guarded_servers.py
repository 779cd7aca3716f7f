"""Whatever listens on a developer's machine does nothing for the pages that are open there.

In a browser, and the emulator itself: tests/ui/test_other_origins.py.
"""

from __future__ import annotations

import asyncio
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import urllib3
from starlette.testclient import TestClient

from dynatick.ui import loopback
from dynatick_stack import emulator
from dynatick_stack.counting.__main__ import application
from dynatick_stack.demo.receiver import Receiver

FOREIGN = [
    ({"Origin": "https://evil.example"}, 403), ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-origin"}, 403), ({"Host": "evil.example"}, 421),
]  # fmt: skip


def test_the_emulator_runs_behind_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program, with an application in MiniStack's place; that it runs so, the next test shows."""
    served: list[Any] = []
    reached: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope)

    package, module = ModuleType("ministack"), ModuleType("ministack.app")
    module.app = app  # type: ignore[attr-defined]
    module.main = lambda: served.append(module.app)  # type: ignore[attr-defined]
    package.app = module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ministack", package)
    monkeypatch.setattr(sys, "argv", [str(emulator.PROGRAM), loopback.__file__])
    runpy.run_path(str(emulator.PROGRAM), run_name="__main__")
    assert sys.argv[1:] == [], "the emulator would take the argument for one of its own"
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    def ask(**headers: str) -> None:
        lines = [(name.encode(), value.encode()) for name, value in headers.items()]
        asyncio.run(served[0]({"type": "http", "method": "POST", "headers": lines}, receive, send))

    ask(host="127.0.0.1:4566", origin="https://evil.example")
    assert (reached, sent[0]["status"]) == ([], 403)
    ask(host="127.0.0.1:4566")
    assert len(reached) == 1


@contextmanager
def counting() -> Iterator[Callable[[dict[str, str]], int]]:
    yield (
        lambda headers: (
            TestClient(application(), base_url="http://127.0.0.1").get("/counts", headers=headers).status_code
        )
    )


@contextmanager
def receiver() -> Iterator[Callable[[dict[str, str]], int]]:
    with Receiver() as listening, urllib3.PoolManager() as pool:

        def post(headers: dict[str, str]) -> int:
            before = len(listening.calls)
            status: int = pool.request("POST", f"{listening.url}/ok", body=b"{}", headers=headers).status
            assert len(listening.calls) - before == (status == 204)
            return status

        yield post


@pytest.mark.parametrize(("server", "answered"), [(counting, 200), (receiver, 204)])
def test_a_server_for_tests_answers_programs_only(server: Any, answered: int) -> None:
    with server() as ask:
        for headers, refused in FOREIGN:
            assert ask(headers) == refused, headers
        assert ask({}) == answered
