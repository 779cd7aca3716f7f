"""The settings from environment variables."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from operator import attrgetter

import pytest

from dynatick.actions.allow_list import ActionSettings
from dynatick.actions.secret import SecretReference
from dynatick.domain.buckets import Grid
from dynatick.domain.ends import OutcomeEvents
from dynatick.domain.limit_keys import parse_limits
from dynatick.engine.rules import Precision
from dynatick.errors import ConfigurationError
from dynatick.settings import Settings

TABLE = {"DYNATICK_TABLE": "tasks"}
URL = "https://sqs.example/queue"
EVERY = [
    ("TABLE", "tasks", "table", "tasks"),
    ("TICK_MINUTES", "5", "grid.tick_minutes", 5),
    ("SHARD_COUNT", "4", "grid.shard_count", 4),
    ("RETENTION_DAYS", "7", "retention_days", 7),
    ("KEY_LIMITS", "customer=1, mail=100/m", "key_limits", parse_limits(["customer=1", "mail=100/m"])),
    ("DEFAULT_ACTION", "mail.send", "default_action", "mail.send"),
    ("DEAD_LETTER_QUEUE_URL", URL, "dead_letter_queue_url", URL),
    ("PRECISION", "second", "precision", Precision.SECOND),
    ("WAKE_UP_QUEUE_URL", URL, "action_settings.wake_up_queue_url", URL),
    ("HANDLERS_MODULE", "mine", "handlers_module", "mine"),
    ("HANDLERS_ENVIRONMENT", '{"SENDER": "a@b.c"}', "handlers_environment", {"SENDER": "a@b.c"}),
    (
        "HANDLERS_SECRETS",
        '{"KEY": "ssm:/key"}',
        "handlers_secrets",
        {"KEY": SecretReference(service="ssm", name="/key")},
    ),
    ("TASK_THREADS", "2", "task_threads", 2),
    ("MAX_WORKERS", "8", "max_workers", 8),
    ("PROCESSOR_TIMEOUT_SECONDS", "300", "processor_timeout", timedelta(seconds=300)),
    ("WEBHOOK_PRIVATE_HOSTS", " 127.0.0.1, localhost ,,", "action_settings.private_hosts", ("127.0.0.1", "localhost")),
    ("ALLOWED_WEBHOOK_HOSTS", "*.a.com,b", "action_settings.webhook_hosts", ("*.a.com", "b")),
    ("ACTION_RATE_LIMITS", "sns=1/s", "action_settings.rate_limits", ("sns=1/s",)),
    ("ALLOWED_ACTIONS", "log,sns", "action_settings.actions", ("log", "sns")),
    ("ALLOWED_SECRETS", "arn:1,arn:2", "action_settings.secrets", ("arn:1", "arn:2")),
    ("ALLOWED_TARGET_ARNS", "arn:topic,arn:queue", "action_settings.targets", ("arn:topic", "arn:queue")),
    ("OWN_TARGETS", "api-1,,letters", "action_settings.own_targets", ("api-1", "letters")),
    ("ASSIGNMENT_POLICY", "assignment:in_daytime", "assignment_policy", "assignment:in_daytime"),
    ("OUTCOME_EVENTS", "failed", "outcome_events", OutcomeEvents.FAILED),
    ("OUTCOME_EVENTS_BUS", "arn:bus", "outcome_bus", "arn:bus"),
    ("LOST_EVENTS_QUEUE_URL", URL, "lost_events_queue_url", URL),
    ("API_WAIT_SECONDS", "0", "api_wait_seconds", 0),
    ("BATCHED", "0", "batched", False),
]


@pytest.mark.parametrize(("name", "text", "setting", "value"), EVERY)
def test_a_setting_is_read_from_its_variable_and_an_empty_one_counts_as_missing(
    name: str, text: str, setting: str, value: object
) -> None:
    """A template can't leave a variable out."""
    name = f"DYNATICK_{name}"
    found = attrgetter(setting)(Settings.from_env({**TABLE, name: text, "PATH": "/bin"}))
    assert (found, type(found)) == (value, type(value))
    if name not in TABLE:
        assert attrgetter(setting)(Settings.from_env(TABLE)) != value
        assert Settings.from_env({**TABLE, name: ""}) == Settings.from_env(TABLE)


def test_every_setting_has_a_variable_of_its_own() -> None:
    function = Settings.from_env({**TABLE, "AWS_LAMBDA_FUNCTION_NAME": "dynatick-processor"}).function_name
    assert function == "dynatick-processor"
    parts = {setting.rpartition(".")[2] for _, _, setting, _ in EVERY} | {"grid", "action_settings", "function_name"}
    assert parts == {field.name for kind in (Settings, ActionSettings, Grid) for field in fields(kind)}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("DYNATICK_TABLE", "", "DYNATICK_TABLE: it is not set; the template sets it for its functions"),
        ("DYNATICK_TABLE", None, "DYNATICK_TABLE: it is not set"),
        ("DYNATICK_TICK_MINUTES", "five", "expected a whole number from 0 to 99999, found 'five'"),
        ("DYNATICK_TICK_MINUTES", "7", "tickMinutes: 7 is not accepted; expected one of 1, 2,"),
        ("DYNATICK_SHARD_COUNT", "257", "shardCount: 257 is not accepted; expected a number from 1"),
        ("DYNATICK_SHARD_COUNT", "1.0", "expected a whole number from 0 to 99999, found '1.0'"),
        ("DYNATICK_RETENTION_DAYS", "٣", "expected a whole number"),
        ("DYNATICK_RETENTION_DAYS", "9" * 5000, "expected a whole number from 1 to 3650"),
        ("DYNATICK_PROCESSOR_TIMEOUT_SECONDS", " 120", "expected a whole number from 0 to 900, found ' 120'"),
        ("DYNATICK_TASK_THREADS", "0", "expected a whole number from 1 to 256, found '0'"),
        ("DYNATICK_MAX_WORKERS", "101", "expected a whole number from 0 to 100, found '101'"),
        ("DYNATICK_OUTCOME_EVENTS", "some", "expected off, failed or all, found 'some'"),
        ("DYNATICK_KEY_LIMITS", "customer=1,host", "'host' is not a limit; expected one such as customer=1"),
        ("DYNATICK_PRECISION", "minute", "expected tick or second, found 'minute'"),
        ("DYNATICK_HANDLERS_ENVIRONMENT", "{SENDER", "expected a JSON object: "),
        ("DYNATICK_HANDLERS_ENVIRONMENT", '["a"]', "expected a JSON object whose values are texts"),
        ("DYNATICK_HANDLERS_ENVIRONMENT", '{"A": 1}', "expected a JSON object whose values are texts"),
        ("DYNATICK_HANDLERS_ENVIRONMENT", '{"A B": "x"}', "found 'A B'"),
        ("DYNATICK_HANDLERS_SECRETS", '{"KEY": "hunter2"}', "KEY is no reference; expected ssm:NAME"),
        ("DYNATICK_HANDLERS_ENVIRONMENT", '{"AWS_REGION": "x"}', "that don't begin with AWS_, DYNATICK_"),
    ],
)
def test_an_invalid_setting_is_refused_by_name(name: str, value: str | None, message: str) -> None:
    environ = {key: text for key, text in {**TABLE, name: value}.items() if text is not None}
    with pytest.raises(ConfigurationError) as caught:
        Settings.from_env(environ)
    assert name in caught.value.name
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400


def test_precision_second_needs_frequent_ticks() -> None:
    seconds = TABLE | {"DYNATICK_PRECISION": "second"}
    Settings.from_env({**seconds, "DYNATICK_TICK_MINUTES": "5"})
    with pytest.raises(ConfigurationError, match=r"DYNATICK_PRECISION: .* of 5 or less, found 6"):
        Settings.from_env({**seconds, "DYNATICK_TICK_MINUTES": "6"})
