"""docs/remote-calls.md: its table has the timeouts of the clients that the functions make."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dynatick import wiring
from dynatick.actions.aws import CALL_SECONDS
from dynatick.actions.aws_client import ClientCache
from dynatick.actions.outcome_events import PUT_FOR
from dynatick.engine.invocation import LETTER_TIMEOUT, WAKE_UP_TIMEOUT
from dynatick.engine.pools import START_TIMEOUT
from dynatick.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "remote-calls.md"
URL = "https://sqs.example/1/own"
SETTINGS = Settings.from_env(
    {
        "DYNATICK_TABLE": "tasks",
        "DYNATICK_DEAD_LETTER_QUEUE_URL": URL,
        "DYNATICK_PRECISION": "second",
        "DYNATICK_WAKE_UP_QUEUE_URL": URL,
        "DYNATICK_OUTCOME_EVENTS": "failed",
        "DYNATICK_OUTCOME_EVENTS_BUS": "arn:aws:events:us-east-1:123456789012:event-bus/default",
        "DYNATICK_LOST_EVENTS_QUEUE_URL": URL,
    }
)


def cells(service: str) -> list[list[str]]:
    """The cells of the rows that begin with this."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [row for row in rows if row[0].startswith(service)]


def config_of(service: str) -> Any:
    match service:
        case "Dead-letter queue: passes" | "Dead-letter queue: scheduler":
            client = wiring._dead_letters(SETTINGS)._client  # type: ignore[attr-defined]
        case "Dead-letter queue: API":
            client = wiring._dead_letter_queue(SETTINGS)._client  # type: ignore[union-attr]
        case "EventBridge: events":
            client = wiring._event_bus(SETTINGS)._client  # type: ignore[union-attr]
        case "Queue of wake-ups: passes" | "Queue of wake-ups: scheduler":
            client = wiring._wake_ups(SETTINGS)._client  # type: ignore[union-attr]
        case "Lambda, to start invocations for" | "Lambda, to start invocations that" | "Lambda, to continue":
            client = wiring.LambdaInvoker("processor").client
        case "SSM":
            client = ClientCache()("ssm")
        case _:
            client = ClientCache()("sns", seconds=CALL_SECONDS)
    return client.meta.config


@pytest.mark.parametrize(
    "service",
    [
        "Dead-letter queue: passes",
        "Dead-letter queue: scheduler",
        "Dead-letter queue: API",
        "Queue of wake-ups: passes",
        "Queue of wake-ups: scheduler",
        "EventBridge: events",
        "Lambda, to start invocations for",
        "Lambda, to start invocations that",
        "Lambda, to continue",
        "SSM",
        "Targets of `sns`",
    ],
)
def test_the_table_has_the_timeouts_of_the_clients(service: str) -> None:
    ((_, tries, *_),) = cells(service)
    found = re.fullmatch(r"(\d+) . \((\d+) s \+ (\d+) s\)", tries)
    assert found is not None
    config = config_of(service)
    expected = (config.retries["total_max_attempts"], config.connect_timeout, config.read_timeout)
    assert tuple(map(int, found.groups())) == expected


def test_the_table_has_the_bounds_of_the_engine() -> None:
    for service, bound in (
        ("Dead-letter queue: passes", LETTER_TIMEOUT),
        ("Queue of wake-ups: passes", WAKE_UP_TIMEOUT),
        ("Lambda, to start invocations for", START_TIMEOUT),
        ("EventBridge: events", PUT_FOR),
    ):
        ((_, _, in_all, *_),) = cells(service)
        assert in_all.startswith(f"{bound.total_seconds():.0f} s; "), service
