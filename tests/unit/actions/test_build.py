"""All actions together, with the example handlers as the template deploys them."""

import importlib
import logging
from pathlib import Path

import pytest
from tests.unit.actions.support import NOW, a_context, a_task

from dynatick.actions import build_actions
from dynatick.actions.targets import Reach
from dynatick.errors import ConfigurationError, PermanentError, RetryableError

PROCESSOR = Path(__file__).parents[3] / "functions" / "processor"


@pytest.fixture
def actions(monkeypatch):
    monkeypatch.syspath_prepend(PROCESSOR)
    importlib.invalidate_caches()
    return build_actions(handlers_module="handlers", clock=lambda: NOW)


def run(actions, name, payload, **values):
    task = a_task(payload, action=name, **values)
    return actions.run(task, a_context(task))


def test_built_in_kinds_and_handlers_are_in_one_namespace(actions):
    assert actions.names() == ["log", "rehearse", "send-reminder", "webhook"]


def test_without_a_module_there_are_the_built_in_kinds():
    assert build_actions(handlers_module=None, clock=lambda: NOW).names() == ["log", "webhook"]


def test_a_handler_cannot_take_a_built_in_kinds_name(tmp_path, monkeypatch):
    (tmp_path / "handlers_called_log.py").write_text(
        "from dynatick import handler\n@handler('log')\ndef log(payload): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match="'log' is there twice"):
        build_actions(handlers_module="handlers_called_log", clock=lambda: NOW)


def test_a_webhook_goes_to_listed_private_hosts_only():
    actions = build_actions(handlers_module=None, clock=lambda: NOW, reach=Reach(private_hosts=("127.0.0.1",)))
    with pytest.raises(RetryableError, match="could not be connected to"):
        run(actions, "webhook", {"url": "http://127.0.0.1:9/"})
    with pytest.raises(PermanentError, match="expected https"):
        run(actions, "webhook", {"url": "http://127.0.0.2:9/"})


def test_send_reminder(actions, caplog):
    caplog.set_level(logging.INFO, "dynatick.handlers")
    reminder = {"to": "ann@example.com", "text": "hello"}
    assert run(actions, "send-reminder", reminder, task_id="t-5") == {"characters": 5}
    (record,) = caplog.records
    assert (record.action, record.task_id, record.idempotency_key) == ("reminder_due", "t-5", "t-5#1")
    assert "ann@example.com" not in str(record.__dict__)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"to": "ann"}, "payload.text: Field required"),
        ({"to": "ann", "text": "hello"}, "to: expected a mail address"),
    ],
)
def test_send_reminder_fails_for_good(actions, payload, message):
    with pytest.raises(PermanentError) as caught:
        run(actions, "send-reminder", payload)
    assert str(caught.value) == message


def test_rehearse(actions):
    payload = {"failures": 2, "retry_after_seconds": 30}
    with pytest.raises(RetryableError, match="failure 2 of 2, as rehearsed") as caught:
        run(actions, "rehearse", payload, attempt=2)
    assert caught.value.retry_after == 30
    assert run(actions, "rehearse", payload, attempt=3) == {"attempts": 3}
