"""The settings from environment variables."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dynatick.actions.allow_list import ActionSettings
from dynatick.domain.buckets import Grid
from dynatick.engine.rules import Precision
from dynatick.errors import ConfigurationError
from dynatick.settings import Settings

TABLE = {"DYNATICK_TABLE": "tasks"}


EVERY = {
    "DYNATICK_TABLE": "tasks",
    "DYNATICK_TICK_MINUTES": "5",
    "DYNATICK_SHARD_COUNT": "4",
    "DYNATICK_RETENTION_DAYS": "7",
    "DYNATICK_DEFAULT_ACTION": "mail.send",
    "DYNATICK_DEAD_LETTER_QUEUE_URL": "https://sqs.example/dead",
    "DYNATICK_INDEX_LAG_SECONDS": "300",
    "DYNATICK_PRECISION": "second",
    "DYNATICK_WAKE_UP_QUEUE_URL": "https://sqs.example/wake-ups",
    "DYNATICK_HANDLERS_MODULE": "mine",
    "DYNATICK_HANDLERS_ENVIRONMENT": '{"SENDER": "noreply@example.com"}',
    "DYNATICK_MAX_TURNS": "9",
    "DYNATICK_TASK_THREADS": "2",
    "DYNATICK_MAX_WORKERS": "8",
    "DYNATICK_TIMEOUT_SECONDS": "300",
    "DYNATICK_WEBHOOK_PRIVATE_HOSTS": " 127.0.0.1, localhost ,,",
    "DYNATICK_ALLOWED_WEBHOOK_HOSTS": "*.example.com,hooks.internal",
    "DYNATICK_ACTION_RATE_LIMITS": "sns=1/s",
    "DYNATICK_ALLOWED_ACTIONS": "log,sns",
    "DYNATICK_ALLOWED_SECRETS": "arn:1,arn:2",
    "DYNATICK_ALLOWED_TOPIC_ARNS": "arn:topic",
    "DYNATICK_ALLOWED_QUEUE_ARNS": "arn:queue",
    "DYNATICK_ALLOWED_EVENT_BUS_ARNS": "arn:bus",
    "DYNATICK_ALLOWED_FUNCTION_ARNS": "arn:function",
    "DYNATICK_ALLOWED_STATE_MACHINE_ARNS": "arn:machine",
    "DYNATICK_ASSIGNMENT_POLICY": "assignment:in_daytime",
    "AWS_LAMBDA_FUNCTION_NAME": "dynatick-processor",
    "DYNATICK_BATCHED": "0",
}


def test_every_setting_is_read() -> None:
    assert Settings.from_env({**EVERY, "PATH": "/bin"}) == Settings(
        table="tasks",
        grid=Grid(tick_minutes=5, shard_count=4),
        retention_days=7,
        default_action="mail.send",
        dead_letter_queue_url="https://sqs.example/dead",
        index_lag=timedelta(seconds=300),
        precision=Precision.SECOND,
        handlers_module="mine",
        handlers_environment={"SENDER": "noreply@example.com"},
        task_threads=2,
        max_workers=8,
        max_turns=9,
        processor_timeout=timedelta(seconds=300),
        action_settings=ActionSettings(
            rate_limits=("sns=1/s",),
            actions=("log", "sns"),
            webhook_hosts=("*.example.com", "hooks.internal"),
            private_hosts=("127.0.0.1", "localhost"),
            secrets=("arn:1", "arn:2"),
            topics=("arn:topic",),
            queues=("arn:queue",),
            event_buses=("arn:bus",),
            functions=("arn:function",),
            state_machines=("arn:machine",),
            wake_up_queue_url="https://sqs.example/wake-ups",
        ),
        assignment_policy="assignment:in_daytime",
        function_name="dynatick-processor",
        batched=False,
    )


@pytest.mark.parametrize("name", [name for name in EVERY if name.startswith("DYNATICK_") and name not in TABLE])
def test_an_empty_setting_counts_as_missing(name: str) -> None:
    """A template can't leave a variable out."""
    assert Settings.from_env({**TABLE, name: ""}) == Settings.from_env(TABLE)


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
        ("DYNATICK_INDEX_LAG_SECONDS", " 120", "expected a whole number from 0 to 86400, found ' 120'"),
        ("DYNATICK_TASK_THREADS", "0", "expected a whole number from 1 to 256, found '0'"),
        ("DYNATICK_MAX_WORKERS", "101", "expected a whole number from 0 to 100, found '101'"),
        ("DYNATICK_PRECISION", "minute", "expected tick or second, found 'minute'"),
        ("DYNATICK_MAX_TURNS", "0", "expected a whole number from 1 to 1000000, found '0'"),
        ("DYNATICK_HANDLERS_ENVIRONMENT", "{SENDER", "expected a JSON object: "),
        ("DYNATICK_HANDLERS_ENVIRONMENT", '["a"]', "expected a JSON object whose values are texts"),
        ("DYNATICK_HANDLERS_ENVIRONMENT", '{"A": 1}', "expected a JSON object whose values are texts"),
        ("DYNATICK_HANDLERS_ENVIRONMENT", '{"A B": "x"}', "found 'A B'"),
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


def test_seconds_need_frequent_ticks() -> None:
    Settings.from_env({**TABLE, "DYNATICK_PRECISION": "second", "DYNATICK_TICK_MINUTES": "5"})
    with pytest.raises(ConfigurationError, match=r"DYNATICK_PRECISION: .* of 5 or less, found 6"):
        Settings.from_env({**TABLE, "DYNATICK_PRECISION": "second", "DYNATICK_TICK_MINUTES": "6"})
