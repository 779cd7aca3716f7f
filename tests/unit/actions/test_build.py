"""The registry of all actions, with the example handlers that the template deploys."""

import importlib
import logging
import sys
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import pytest
from tests.unit.actions.support import NOW, a_context, a_task

from dynatick.actions import build_actions
from dynatick.actions.allow_list import ActionSettings
from dynatick.errors import ConfigurationError, PermanentError, RetryableError
from dynatick.settings import Settings
from dynatick.wiring import build_processor

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
    (tmp_path / "handlers_called_log.py").write_text("from dynatick import task\n@task('log')\ndef log(payload): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match="'log' is there twice"):
        build_actions(handlers_module="handlers_called_log", clock=lambda: NOW)


HANDLERS = """
from dynatick import task
@task("slow", timeout_seconds=60)
def slow(payload): ...
@task("quick")
def quick(payload): ...
"""


@pytest.fixture
def timed(monkeypatch):
    """The name of a module of handlers of which one declares a timeout."""
    monkeypatch.setitem(sys.modules, "handlers_with_timeouts", module := ModuleType("handlers_with_timeouts"))
    exec(HANDLERS, module.__dict__)
    return module.__name__


def test_an_attempt_takes_as_long_as_the_task_says_or_else_its_handler(timed):
    settings = ActionSettings(rate_limits=("slow=1/s",))
    actions = build_actions(handlers_module=timed, clock=lambda: NOW, settings=settings)
    assert actions.timeout_seconds(a_task({}, action="slow")) == 60
    assert actions.timeout_seconds(a_task({}, action="slow", timeout_seconds=5)) == 5
    assert actions.timeout_seconds(a_task({}, action="quick", timeout_seconds=5)) == 5
    for action in ("quick", "log", "nope"):
        assert actions.timeout_seconds(a_task({}, action=action)) is None


def test_a_handler_that_takes_longer_than_the_processor_may_run_is_refused(timed):
    with pytest.raises(ConfigurationError) as refused:
        build_actions(handlers_module=timed, clock=lambda: NOW, max_timeout_seconds=52)
    assert str(refused.value) == (
        "handler slow: has a timeout_seconds of 60; expected at most 52, as long as an attempt can take here "
        "(the parameter ProcessorTimeoutSeconds)"
    )
    actions = build_actions(handlers_module=timed, clock=lambda: NOW, max_timeout_seconds=60)
    assert "slow" in actions.names()


def test_the_processor_refuses_it_when_it_starts(timed, monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    environment = {
        "DYNATICK_TABLE": "tasks",
        "DYNATICK_HANDLERS_MODULE": timed,
        "AWS_LAMBDA_FUNCTION_NAME": "processor",
    }
    with pytest.raises(ConfigurationError, match="handler slow: has a timeout_seconds of 60; expected at most 52"):
        build_processor(Settings.from_env({**environment, "DYNATICK_TIMEOUT_SECONDS": "60"}))
    built = build_processor(Settings.from_env({**environment, "DYNATICK_TIMEOUT_SECONDS": "120"}))
    assert built.rules.max_timeout_seconds == 112


@pytest.mark.parametrize(
    ("payload", "seconds"),
    [
        ({}, 11),
        ({"timeoutSeconds": Decimal(30)}, 31),
        ({"timeoutSeconds": Decimal("2.5")}, 4),
        ({"timeoutSeconds": 60}, 53),  # it makes do with what the invocation has
        ({"timeoutSeconds": 10**400}, 53),
        ({"timeoutSeconds": -5}, 1),
        ({"timeoutSeconds": "x"}, 1),
        ({"timeoutSeconds": Decimal("NaN")}, 1),
        ({"timeoutSeconds": Decimal("Infinity")}, 1),
    ],
)
def test_a_webhook_takes_as_long_as_its_request_may(payload, seconds):
    actions = build_actions(handlers_module=None, clock=lambda: NOW, max_timeout_seconds=53)
    assert actions.timeout_seconds(a_task(payload, action="webhook")) == seconds
    assert actions.timeout_seconds(a_task(payload, action="webhook", timeout_seconds=7)) == 7


def test_send_reminder(actions, caplog):
    caplog.set_level(logging.INFO, "dynatick.handlers")
    reminder = {"to": "ann@example.com", "text": "hello"}
    assert run(actions, "send-reminder", reminder, task_id="t-5") == {"characters": 5}
    (record,) = caplog.records
    assert (record.action, record.task_id, record.idempotency_key) == ("reminder_due", "t-5", "t-5#1")
    assert "ann@example.com" not in str(record.__dict__)


@pytest.mark.parametrize(
    ("payload", "message"),
    [({"to": "ann"}, "payload.text: Field required"), ({"to": "ann", "text": "hello"}, "to: expected a mail address")],
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


@pytest.mark.parametrize("action", ["eventbridge", "lambda", "sns", "sqs", "stepfunctions"])
def test_each_action_for_an_aws_service_is_loaded_for_its_first_task(action):
    allowed = ("arn:aws:any:*:*:*",)
    settings = ActionSettings(
        topics=allowed, queues=allowed, event_buses=allowed, functions=allowed, state_machines=allowed
    )
    actions = build_actions(handlers_module=None, clock=lambda: NOW, settings=settings)
    with pytest.raises(PermanentError, match="Field required"):
        run(actions, action, {})
