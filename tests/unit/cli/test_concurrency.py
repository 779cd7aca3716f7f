"""The doctor compares what a stack can take of the account's concurrent executions with what the account allows."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell

from dynatick.cli import concurrency
from dynatick.cli.concurrency import executions_of
from dynatick.domain.executions import RECOVERIES, Executions
from dynatick.engine import recovery
from dynatick_stack import template

Account = Callable[..., None]


@pytest.fixture
def account(world: InProcess, monkeypatch: pytest.MonkeyPatch) -> Account:
    """Says what the account allows, and with which parameters the stack ``mine`` is deployed."""

    def has(allowed: int, **parameters: str) -> None:
        found = [
            {"ParameterKey": name, "ParameterValue": value}
            for name, value in {**template.defaults(), **parameters}.items()
        ]

        def describe_stacks(*, StackName: str) -> dict[str, Any]:
            if StackName != "mine":
                raise ClientError({"Error": {"Code": "ValidationError", "Message": "no such stack"}}, "DescribeStacks")
            return {"Stacks": [{"Parameters": found}]}

        limits = {"AccountLimit": {"ConcurrentExecutions": 5000, "UnreservedConcurrentExecutions": allowed}}
        aws = SimpleNamespace(describe_stacks=describe_stacks, get_account_settings=lambda: limits)
        monkeypatch.setattr(concurrency, "aws_client", lambda session, service: aws)

    return has


def test_too_few_executions_are_said_with_what_takes_them_and_what_helps(
    shell: Shell, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    account(100, MaxWorkers="90", Precision="second")
    ended = shell("doctor", "--stack", "mine")
    assert ended.code == 0, "the quota is no fault of the table"
    assert ended.err.splitlines()[-1] == (
        "The account allows 100 concurrent executions, and this stack can take 125 (1 for ticks, 90 for workers, "
        "10 for wake-ups, 20 for recoveries, 4 for the stream): ticks of some shards may find none left. Raise the "
        "quota, or set MaxWorkers to 65 or less"
    )
    assert shell("doctor", "--stack", "mine", "-o", "json").json["concurrentExecutions"] == {
        "allowed": 100, "needed": 125, "ticks": 1, "workers": 90, "wakeUps": 10, "recoveries": 20, "stream": 4,
    }  # fmt: skip
    account(1000, MaxWorkers="90")
    assert shell("doctor", "--stack", "mine").err == "Read 0 tasks and schedules that have not ended: nothing wrong\n"
    account(10)
    monkeypatch.setenv("DYNATICK_STACK", "mine")
    assert shell("doctor").err.endswith("ticks of some shards may find none left. Raise the quota\n")


def test_without_the_right_it_says_that_it_does_not_know(shell: Shell, account: Account) -> None:
    account(1000)
    ended = shell("doctor", "--stack", "other")
    assert ended.code == 0
    assert ended.err.splitlines()[-1].startswith("Whether the account's concurrent executions suffice is not known: ")
    assert "no such stack" in shell("doctor", "--stack", "other", "-o", "json").json["concurrentExecutions"]["problem"]


def test_parameters_that_take_executions() -> None:
    of = executions_of({"MaxWorkers": "3", "ShardCount": "1"}, 8)
    assert of == Executions(ticks=8, workers=24), "every shard that was ever in use counts"
    of = executions_of({"StreamParallelism": "2", "WarmThroughput": "40000", "WakeUpConcurrency": "7"}, 1)
    assert of.stream == 80, "the stream has a shard for each partition of the table"
    assert of.wake_ups == 0, "with Precision tick there are none"
    assert RECOVERIES == recovery.MAX_RECOVERIES


@given(shards=st.integers(1, 256), allowed=st.integers(1, 5000), wake_ups=st.integers(0, 100))
def test_that_many_workers_leave_a_tick_for_each_shard(shards: int, allowed: int, wake_ups: int) -> None:
    none = Executions(ticks=shards, workers=0, wake_ups=wake_ups)
    maximum = none.max_workers(allowed)
    if none.total <= allowed:
        assert Executions(ticks=shards, workers=maximum * shards, wake_ups=wake_ups).total <= allowed
        assert Executions(ticks=shards, workers=(maximum + 1) * shards, wake_ups=wake_ups).total > allowed
    else:
        assert maximum == 0
