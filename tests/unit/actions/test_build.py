"""The registry of all actions, with the example handlers that the template deploys."""

import importlib
import logging
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from boto3.dynamodb.types import Binary
from tests.unit.actions.support import ARN, NOW, a_module, a_task, run

from dynatick.actions import build_actions, handler_secrets
from dynatick.actions.allow_list import ActionSettings
from dynatick.errors import ConfigurationError, PermanentError
from dynatick.settings import Settings
from dynatick.wiring import build_processor

PROCESSOR = Path(__file__).parents[3] / "functions" / "processor"
TIMED = a_module("""
from dynatick import task
@task("slow", timeout_seconds=60)
def slow(payload): ...
@task("quick")
def quick(payload): ...
""")


def build(module=None, **options):
    return build_actions(handlers_module=module, clock=lambda: NOW, **options)


@pytest.fixture
def actions(monkeypatch):
    monkeypatch.syspath_prepend(PROCESSOR)
    importlib.invalidate_caches()
    return build("handlers")


def test_built_in_kinds_and_handlers_are_in_one_namespace(actions):
    assert actions.names() == ["log", "rehearse", "send-reminder", "webhook"]
    assert build().names() == ["log", "webhook"]
    with pytest.raises(ConfigurationError, match="'log' is there twice"):
        build(a_module("from dynatick import task\n@task('log')\ndef log(payload): ...\n"))


def test_an_attempt_takes_as_long_as_the_task_says_or_else_its_handler():
    actions = build(TIMED, settings=ActionSettings(rate_limits=("slow=1/s",)))
    assert actions.timeout_seconds(a_task({}, action="slow")) == 60
    assert actions.timeout_seconds(a_task({}, action="slow", timeout_seconds=5)) == 5
    assert actions.timeout_seconds(a_task({}, action="quick", timeout_seconds=5)) == 5
    for action in ("quick", "log", "nope"):
        assert actions.timeout_seconds(a_task({}, action=action)) is None


def test_a_processor_whose_handler_takes_longer_than_it_may_run_does_not_start(monkeypatch):
    monkeypatch.setitem(sys.modules, TIMED.__name__, TIMED)
    monkeypatch.setattr(handler_secrets._Current, "secrets", None)  # those before, when the test is over
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    environment = {"DYNATICK_TABLE": "tasks", "DYNATICK_HANDLERS_MODULE": TIMED.__name__,
                   "AWS_LAMBDA_FUNCTION_NAME": "processor"}  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"^handler slow: .* 60; expected at most 52, .*ProcessorTimeout"):
        build_processor(Settings.from_env({**environment, "DYNATICK_PROCESSOR_TIMEOUT_SECONDS": "60"}))
    built = build_processor(Settings.from_env({**environment, "DYNATICK_PROCESSOR_TIMEOUT_SECONDS": "120"}))
    assert built.rules.max_timeout_seconds == 112


@pytest.mark.parametrize(
    ("payload", "seconds"),
    [
        ({}, 11),
        ({"timeoutSeconds": Decimal(30)}, 31),
        ({"timeoutSeconds": Decimal("2.5")}, 4),
        ({"timeoutSeconds": 60}, 53),  # it makes do with what the invocation has
        ({"timeoutSeconds": 10**400}, 53),
        *(({"timeoutSeconds": wrong}, 1) for wrong in (-5, "x", Decimal("NaN"), Decimal("Infinity"))),
    ],
)
def test_a_webhook_takes_as_long_as_its_request_may(payload, seconds):
    actions = build(max_timeout_seconds=53)
    assert actions.timeout_seconds(a_task(payload, action="webhook")) == seconds
    assert actions.timeout_seconds(a_task(payload, action="webhook", timeout_seconds=7)) == 7


@pytest.mark.parametrize(
    ("payload", "seconds"),
    [
        ({}, None),
        ({"timeoutSeconds": 60}, None),
        ({"invocationType": "Event", "timeoutSeconds": 60}, None),
        ({"invocationType": "RequestResponse"}, 65),
        ({"invocationType": "RequestResponse", "timeoutSeconds": Decimal(40)}, 45),
        ({"invocationType": "RequestResponse", "timeoutSeconds": 900}, 112),  # it makes do with what the invocation has
        ({"invocationType": "RequestResponse", "timeoutSeconds": "x"}, 5),  # it is refused
        ({"invocationType": []}, None),
    ],
)
def test_a_function_that_is_waited_for_takes_as_long_as_its_answer_may(payload, seconds):
    reach = ActionSettings(targets=(ARN.format("lambda", "function:report"),))
    actions = build(settings=reach, max_timeout_seconds=112)
    assert actions.timeout_seconds(a_task(payload, action="lambda")) == seconds
    assert actions.timeout_seconds(a_task(payload, action="lambda", timeout_seconds=7)) == 7


@pytest.mark.parametrize("payload", [{}, {"b": Binary(b"hunter2"), "s": {"hunter2"}}, {"odd": object()}])
def test_log_writes_one_line_with_ids_and_without_payload(payload, caplog):
    caplog.set_level(logging.INFO, "dynatick.actions")
    assert run(build(), "log", payload, task_id="t-7", attempt=2) is None
    (record,) = caplog.records
    assert record.getMessage() == record.action == "task_logged"
    assert (record.task_id, record.attempt, record.due_at) == ("t-7", 2, "2026-12-31T11:59:30Z")
    assert "hunter2" not in str(record.__dict__)


def test_send_reminder(actions, caplog):
    caplog.set_level(logging.INFO, "dynatick.handlers")
    reminder = {"to": "ann@example.com", "text": "hello"}
    assert run(actions, "send-reminder", reminder, task_id="t-5") == {"characters": 5}
    (record,) = caplog.records
    assert (record.action, record.task_id, record.idempotency_key) == ("reminder_due", "t-5", "t-5#1")
    assert "ann@example.com" not in str(record.__dict__)
    with pytest.raises(PermanentError, match=r"^to: expected a mail address$"):
        run(actions, "send-reminder", {"to": "ann", "text": "hello"})


def test_secrets_without_named_hosts_are_refused_whatever_has_deployed_the_processor():
    secrets = ("arn:aws:ssm:eu-west-1:123456789012:parameter/token",)
    with pytest.raises(ConfigurationError, match=r"AllowedSecrets: it needs AllowedWebhookHosts, which is empty"):
        build(settings=ActionSettings(secrets=secrets))
    assert build(settings=ActionSettings(secrets=secrets, webhook_hosts=("*",))).names() == ["log", "webhook"]
