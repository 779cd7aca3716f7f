"""Failure mode 22, errors: what is recorded, sent and shown of a failure is bounded, on one line, and holds neither
payloads nor secrets."""

from __future__ import annotations

import logging

import pytest
from tests.builders import InProcess
from tests.unit.actions.support import NOW, a_context, a_task

from dynatick.actions import build_actions
from dynatick.actions.allow_list import ActionSettings
from dynatick.actions.dead_letter import message_of
from dynatick.domain.lifecycle import MAX_ERROR_CHARACTERS
from dynatick.domain.task import Row
from dynatick.errors import ActionError

SECRET = "hunter2"

BAD_ROWS: dict[str, Row] = {
    "a payload that is no map": {"payload": SECRET},
    "a payload that is a list": {"payload": [SECRET]},
    "a bad action beside it": {"action": 7, "payload": {"password": SECRET}},
    "a bad time beside it": {"dueAt": "tomorrow", "payload": {"password": SECRET}},
    "a bad policy beside it": {"retryPolicy": {"x": 1}, "payload": {"password": SECRET}},
    "no such action": {"action": "nothing", "payload": {"password": SECRET}},
}

WEBHOOKS: dict[str, dict[str, object]] = {
    "credentials": {"url": f"https://user:{SECRET}@example.com/"},
    "a token in an odd scheme": {"url": f"ftp://example.com/{SECRET}"},
    "a token in a URL inside": {"url": f"https://127.0.0.1/{SECRET}"},
    "a token for nobody": {"url": f"http://localhost:9/{SECRET}"},
    "a header": {"url": "https://127.0.0.1/", "headers": {"Authorization": f"{SECRET}\r\n"}},
    "the data": {"url": "https://127.0.0.1/", "data": {"password": SECRET}},
    "a name": {"url": "https://127.0.0.1/", "timeoutSeconds": SECRET},
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_the_error_of_a_row_holds_nothing_of_its_payload(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    world = InProcess()
    monkeypatch.setattr(world, "actions", build_actions(handlers_module=None, clock=world.clock))
    world.tick()
    world.put(taskId="x", **BAD_ROWS[name])
    world.next_tick()
    row = world.row("x")
    assert row["outcome"] == "failed"
    assert SECRET not in str(row["error"])
    (letter,) = world.dead_letters.letters
    assert SECRET not in letter.error
    assert SECRET not in str([vars(record) for record in caplog.records])


@pytest.mark.parametrize("name", WEBHOOKS)
def test_the_error_of_a_webhook_holds_nothing_of_its_payload(name: str) -> None:
    actions = build_actions(
        handlers_module=None, clock=lambda: NOW, settings=ActionSettings(private_hosts=("localhost",))
    )
    task = a_task(WEBHOOKS[name], action="webhook")
    with pytest.raises(ActionError) as raised:
        actions.run(task, a_context(task))
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None, "whose text may hold the URL"


HOSTILE = 'boom\r\n{"level":"ERROR"}\x1b[2J\u2028\u202e' + "x" * 100_000


def test_what_a_handler_raises_is_kept_on_one_bounded_line() -> None:
    def fail(*_: object) -> object:
        raise RuntimeError(HOSTILE)

    world = InProcess()
    world.tick()
    world.actions.behaviour["x"] = fail
    world.put(taskId="x", retryPolicy={"maximumRetryAttempts": 1, "minBackoffSeconds": 0, "maxBackoffSeconds": 0})
    world.ticks(4)
    row = world.row("x")
    assert row["outcome"] == "failed"
    for error in (row["error"], *(entry["error"] for entry in row["attempts"])):
        assert len(error) <= MAX_ERROR_CHARACTERS
        assert error.isprintable()
        assert error.startswith('RuntimeError: boom {"level":"ERROR"} [2J')
    (letter,) = world.dead_letters.letters
    body = message_of(letter)
    assert body.isascii() and "\n" not in body
    assert len(body) < 20_000
