"""Clients of AWS services after their process was frozen."""

from __future__ import annotations

import pytest
from tests.unit.actions.support import a_server

from dynatick.actions.aws_client import MAX_IDLE_SECONDS, create_client


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
