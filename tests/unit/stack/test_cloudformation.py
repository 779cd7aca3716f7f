"""A stack of CloudFormation: what it says of itself, and waiting until it is at rest."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dynatick_stack import cloudformation
from dynatick_stack.cloudformation import Stack
from dynatick_stack.errors import DeployError, NotRunningError

ABSENT = ClientError({"Error": {"Code": "ValidationError", "Message": "Stack mine does not exist"}}, "DescribeStacks")
REFUSED = ClientError({"Error": {"Code": "AccessDenied", "Message": "not allowed"}}, "DescribeStacks")
NOON = datetime(2026, 12, 31, 12, tzinfo=UTC)


class Client:
    """Answers with these, one after the other; the last one for ever."""

    meta = SimpleNamespace(endpoint_url="https://cloudformation.example")

    def __init__(self, *answers: Mapping[str, Any] | ClientError, events: list[Mapping[str, Any]] | None = None):
        self.answers = list(answers)
        self.events = events or []
        self.asked: list[str] = []

    def describe_stacks(self, StackName: str) -> Mapping[str, Any]:
        self.asked.append(StackName)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ClientError):
            raise answer
        return {"Stacks": [answer]}

    def get_paginator(self, name: str) -> Any:
        assert name == "describe_stack_events"
        return SimpleNamespace(paginate=lambda StackName: ({"StackEvents": [event]} for event in self.events))


def mine(*answers: Mapping[str, Any] | ClientError, events: list[Mapping[str, Any]] | None = None) -> Stack:
    return Stack(Client(*answers, events=events), "mine", poll_seconds=0)  # type: ignore[arg-type]


def event(resource: str, status: str, *, seconds: int, **more: str) -> Mapping[str, Any]:
    at = NOON.replace(second=seconds)
    return {"LogicalResourceId": resource, "ResourceStatus": status, "Timestamp": at, **more}


def test_a_stack_that_is_not_there_has_no_parameters_and_is_refused_where_it_is_needed() -> None:
    absent = mine(ABSENT)
    assert (absent.describe(), absent.parameters()) == (None, {})
    with pytest.raises(NotRunningError, match=r"There is no stack mine at https://cloudformation\.example"):
        absent.outputs()
    with pytest.raises(ClientError, match="not allowed"):
        mine(REFUSED).parameters()


def test_outputs_and_parameters_are_read_by_name() -> None:
    outputs = [{"OutputKey": "Table", "OutputValue": "t"}]
    parameters = [{"ParameterKey": "ShardCount", "ParameterValue": "2"}]
    found = mine({"StackStatus": "CREATE_COMPLETE", "Outputs": outputs, "Parameters": parameters})
    assert (found.outputs(), found.parameters()) == ({"Table": "t"}, {"ShardCount": "2"})
    assert mine({"StackStatus": "CREATE_COMPLETE"}).outputs() == {}


def test_waiting_says_once_what_fails_first_things_first_and_nothing_older() -> None:
    events = [  # the newest first, as CloudFormation has them
        event("Queue", "UPDATE_FAILED", seconds=40),
        event("Function", "UPDATE_FAILED", seconds=30, ResourceStatusReason="no such layer"),
        event("Function", "UPDATE_IN_PROGRESS", seconds=30),
        event("Table", "UPDATE_FAILED", seconds=10, ResourceStatusReason="of the deployment before"),
    ]
    statuses = ("UPDATE_IN_PROGRESS", "UPDATE_ROLLBACK_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE")
    stack = mine(*({"StackStatus": status} for status in statuses), events=events)
    said: list[str] = []
    assert stack.wait(NOON.timestamp() + 20, say=said.append) == "UPDATE_ROLLBACK_COMPLETE"
    assert said == ["  Function: no such layer", "  Queue: no reason given"]


def test_a_deleted_stack_is_followed_by_its_id_to_its_end() -> None:
    stack = mine({"StackStatus": "DELETE_IN_PROGRESS"}, ABSENT)
    assert stack.wait(0, stack_id="arn:mine") == "DELETE_COMPLETE"
    assert stack.client.asked == ["arn:mine", "arn:mine"]  # type: ignore[attr-defined]


def test_a_stack_that_never_comes_to_rest_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloudformation, "MAX_SECONDS", 0.05)
    with pytest.raises(DeployError, match="mine has not come to rest within an hour"):
        mine({"StackStatus": "UPDATE_IN_PROGRESS"}).wait(0)
