"""Clients of AWS services: after their process was frozen; and their cache, few clients with timeouts that fit."""

from __future__ import annotations

import pytest
from tests.unit.actions.support import a_server

from dynatick.actions.aws_client import MAX_IDLE_SECONDS, ClientCache, create_client


@pytest.mark.parametrize(("idle", "connections"), [(MAX_IDLE_SECONDS - 1, 1), (MAX_IDLE_SECONDS + 1, 2)])
def test_a_connection_that_has_long_been_idle_is_not_used_again(
    idle: float, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    with a_server() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
        client = create_client("sqs", connect_seconds=30, read_seconds=30, tries=1, clock=lambda: now)
        for wait in (0.0, idle, 1.0):  # the last one: in use again, it is kept
            now += wait
            client.send_message(QueueUrl="https://sqs.example/1/own", MessageBody="x")
        assert len(server.requests) == 3
        assert len(server.connections) == connections


def test_a_connection_is_not_idle_while_its_answer_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a function that is invoked and waited for."""
    now = 0.0
    with a_server() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
        client = create_client("sqs", connect_seconds=30, read_seconds=30, tries=1, clock=lambda: now)

        def takes_long(**_: object) -> None:
            nonlocal now
            now += 60

        client.meta.events.register_first("response-received", takes_long)
        for _ in range(2):
            client.send_message(QueueUrl="https://sqs.example/1/own", MessageBody="x")
        assert len(server.connections) == 1


# -- clients that are kept -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "waits"),
    [
        ({"seconds": 14}, 5),  # twice, with two seconds each to connect
        ({"seconds": 14, "tries": 1}, 10),
        ({"seconds": 300, "tries": 1}, 120),
        ({"seconds": 1}, 2),
        ({"seconds": 60, "tries": 1, "exact": True}, 60),
        ({"seconds": 7.9, "tries": 1, "exact": True}, 7),
        ({"seconds": 1, "tries": 1, "exact": True}, 1),
    ],
)
def test_a_clients_timeout_fits_the_given_seconds(asked: dict[str, float], waits: int) -> None:
    config = ClientCache()("sqs", region="eu-west-1", **asked).meta.config  # type: ignore[arg-type]
    assert config.read_timeout == waits
    assert config.retries["total_max_attempts"] == asked.get("tries", 2)


def test_clients_are_reused_and_limited_in_number() -> None:
    clients = ClientCache()
    assert clients("sqs", region="eu-west-1", seconds=20) is clients("sqs", region="eu-west-1", seconds=21)
    assert clients("sqs", region="eu-west-1") is not clients("sqs", region="eu-central-1")
    assert clients("sqs", region="eu-west-1", seconds=28) is not clients("sqs", region="eu-west-1", seconds=14, tries=1)
    first = clients("lambda", region="eu-west-1", seconds=900, tries=1, exact=True)
    for seconds in range(1, 16):
        clients("lambda", region="eu-west-1", seconds=seconds, tries=1, exact=True)
    assert clients("lambda", region="eu-west-1", seconds=900, tries=1, exact=True) is first
    for seconds in range(1, 18):
        clients("lambda", region="eu-west-1", seconds=seconds, tries=1, exact=True)
    assert clients("lambda", region="eu-west-1", seconds=900, tries=1, exact=True) is not first, "it was long ago"
