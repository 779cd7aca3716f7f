"""A stack of CloudFormation: what it says of itself, and waiting until it is at rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dynatick_stack import cloudformation
from dynatick_stack.cloudformation import Operation, Stack
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
        self.read: list[str] = []  # ids of events: a page has one

    def describe_stacks(self, StackName: str) -> Mapping[str, Any]:
        self.asked.append(StackName)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ClientError):
            raise answer
        return {"Stacks": [answer]}

    def get_paginator(self, name: str) -> Any:
        assert name == "describe_stack_events"
        return SimpleNamespace(paginate=self.pages)

    def pages(self, StackName: str) -> Iterator[Mapping[str, Any]]:
        for event in self.events:
            self.read.append(event["EventId"])
            yield {"StackEvents": [event]}


def mine(*answers: Mapping[str, Any] | ClientError, events: list[Mapping[str, Any]] | None = None) -> Stack:
    return Stack(Client(*answers, events=events), "mine", poll_seconds=0)  # type: ignore[arg-type]


def event(event_id: str, resource: str, status: str, token: str | None, **more: str) -> Mapping[str, Any]:
    # Clocks differ: of this deployment, too, the events seem to be from long ago.
    of = {} if token is None else {"ClientRequestToken": token}
    return {
        "EventId": event_id,
        "LogicalResourceId": resource,
        "ResourceStatus": status,
        "Timestamp": NOON,
        **of,
        **more,
    }


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


def test_waiting_says_once_what_fails_first_things_first_and_reads_no_older_event_twice() -> None:
    statuses = ("UPDATE_IN_PROGRESS", "UPDATE_ROLLBACK_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE")
    stack = mine(*({"StackStatus": status} for status in statuses))
    change, client = Operation(stack), stack.client
    history = [  # the newest first, as CloudFormation has them
        event("4", "Queue", "UPDATE_FAILED", change.token),
        event("3", "Function", "UPDATE_FAILED", change.token, ResourceStatusReason="no such layer"),
        event("2", "Function", "UPDATE_IN_PROGRESS", change.token),
        event("1", "Table", "UPDATE_FAILED", "another", ResourceStatusReason="of the deployment before"),
        event("0", "Table", "UPDATE_FAILED", None, ResourceStatusReason="by hand"),
    ]
    client.events = history[1:]  # type: ignore[attr-defined]
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        client.events = history  # type: ignore[attr-defined]

    assert change.wait(say=say) == "UPDATE_ROLLBACK_COMPLETE"
    assert said == change.reasons == ["  Function: no such layer", "  Queue: no reason given"]
    assert client.read == ["3", "2", "1", "4", "3", "4"]  # type: ignore[attr-defined]


def test_a_deleted_stack_is_followed_by_its_id_to_its_end() -> None:
    stack = mine({"StackStatus": "DELETE_IN_PROGRESS"}, ABSENT)
    assert Operation(stack, "arn:mine").wait() == "DELETE_COMPLETE"
    assert stack.client.asked == ["arn:mine", "arn:mine"]  # type: ignore[attr-defined]


def test_a_stack_that_never_comes_to_rest_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloudformation, "MAX_SECONDS", 0.05)
    with pytest.raises(DeployError, match="mine has not come to rest within an hour"):
        Operation(mine({"StackStatus": "UPDATE_IN_PROGRESS"})).wait()
