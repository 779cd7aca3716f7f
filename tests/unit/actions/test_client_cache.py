"""The cache of boto3 clients: few clients, each with a timeout that fits."""

from __future__ import annotations

import pytest

from dynatick.actions.aws_client import ClientCache


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
