"""A request that is wrong in several ways is reported all of them at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.api.support import Caller

from dynatick import InvalidInput, Refused
from dynatick.engine.installation_settings import publish_settings

TASK: dict[str, Any] = {
    "taskId": "",
    "dueAt": "noon",
    "action": "nope",
    "payload": {"text": "\udfff"},
    "retryPolicy": {"maximumRetryAttempts": -1},
    "timeoutSeconds": 0,
    "status": "completed",
    "scheduleExpression": "rate(1 day)",
}
OF_TASK = {
    "#/taskId", "#/dueAt", "#/action", "#/payload/text", "#/retryPolicy/maximumRetryAttempts", "#/timeoutSeconds",
    "#/status", "#/scheduleExpression",
}  # fmt: skip
SCHEDULE: dict[str, Any] = {
    "taskId": "nightly",
    "scheduleExpression": "cron(0 3 * *)",
    "scheduleExpressionTimezone": "Europe/Nowhere",
    "startDate": "soon",
    "flexibleTimeWindow": -1,
    "action": "nope",
    "timeoutSeconds": 0,
    "catchUp": "some",
    "overlap": "never",
}


def reported(problem: Any) -> list[str]:
    return [error.get("pointer") or error["parameter"] for error in problem["errors"]]


def test_of_a_task(caller: Caller) -> None:
    problem = caller.refused("invalid-input", "POST", "/v1/tasks", TASK)
    assert set(reported(problem)) == OF_TASK
    assert len(reported(problem)) == len(OF_TASK)
    assert problem["detail"].startswith("taskId: ")
    assert all(error["detail"] for error in problem["errors"])


@pytest.mark.parametrize("left_out", TASK)
def test_what_is_right_is_not_among_them(caller: Caller, left_out: str) -> None:
    row = {**TASK, left_out: "fine"} if left_out == "taskId" else {k: v for k, v in TASK.items() if k != left_out}
    pointers = reported(caller.refused("invalid-input", "POST", "/v1/tasks", row))
    assert set(pointers) == {one for one in OF_TASK if one.split("/")[1] != left_out}


def test_of_each_task_of_many(caller: Caller) -> None:
    body = {"tasks": [{"taskId": "fine"}, TASK, {"taskId": "b", "dueAt": "noon"}]}
    _, first, second = caller.ask("POST", "/v1/tasks/bulk", json.dumps(body))["results"]
    assert {error["pointer"] for error in first["errors"]} == {one.replace("#", "#/tasks/1") for one in OF_TASK}
    assert (first["pointer"], first["detail"]) == (first["errors"][0]["pointer"], first["errors"][0]["detail"])
    assert [error["pointer"] for error in second["errors"]] == ["#/tasks/2/dueAt"]


def test_of_the_simple_form(caller: Caller) -> None:
    body = {"action": "webhook", "payload": {"method": "TRACE"}, "run_at": "noon"}
    problem = caller.refused("invalid-input", "POST", "/schedule-task", body)
    assert reported(problem) == ["#/payload/url", "#/payload/method", "#/run_at"]


def test_of_a_payload(caller: Caller) -> None:
    body = {"taskId": "a", "action": "webhook", "payload": {"url": 7, "timeoutSeconds": 61}}
    assert reported(caller.refused("invalid-input", "POST", "/v1/tasks", body)) == [
        "#/payload/url",
        "#/payload/timeoutSeconds",
    ]


def test_of_a_handlers_payload(caller: Caller) -> None:
    fields = {"type": "object", "properties": {"to": {"type": "string"}, "n": {"type": "integer"}}, "required": ["to"]}
    grid = caller.client.settings()
    assert grid is not None
    publish_settings(
        caller.store, grid.grid, now=caller.clock(), actions=["mail"], payload_schemas={"mail": json.dumps(fields)}
    )
    body = {"taskId": "a", "action": "mail", "payload": {"n": "x"}, "dueAt": "noon"}
    assert reported(caller.refused("invalid-input", "POST", "/v1/tasks", body)) == [
        "#/payload/to",
        "#/payload/n",
        "#/dueAt",
    ]


def test_of_a_change(caller: Caller) -> None:
    caller.ask("POST", "/v1/tasks", {"taskId": "a", "delaySeconds": 60})
    body = {"dueAt": "noon", "payload": {"": 1}}
    assert reported(caller.refused("invalid-input", "PATCH", "/v1/tasks/a", body)) == ["#/dueAt", "#/payload"]
    hook = {"action": "webhook", "payload": {"url": "https://example.com"}}
    caller.ask("POST", "/v1/tasks", {"taskId": "b", "delaySeconds": 60, **hook})
    problem = caller.refused("invalid-input", "PATCH", "/v1/tasks/b", {"dueAt": "noon", "payload": {}})
    assert reported(problem) == ["#/dueAt", "#/payload/url"]
    caller.refused("invalid-input", "PATCH", "/v1/tasks/none", body)


def test_of_a_schedule(caller: Caller) -> None:
    problem = caller.refused("invalid-input", "POST", "/v1/schedules", SCHEDULE)
    assert set(reported(problem)) == {f"#/{name}" for name in SCHEDULE if name != "taskId"}


def test_of_a_change_of_a_schedule(caller: Caller) -> None:
    caller.ask("POST", "/v1/schedules", {"taskId": "nightly", "scheduleExpression": "rate(1 day)"})
    body = {name: value for name, value in SCHEDULE.items() if name != "taskId"}
    problem = caller.refused("invalid-input", "PATCH", "/v1/schedules/nightly", body)
    assert set(reported(problem)) == {f"#/{name}" for name in body}


@pytest.mark.parametrize(
    ("path", "query", "wrong"),
    [
        ("/v1/tasks", "start=soon&end=later", ["start", "end"]),
        ("/v1/tasks", "limit=0&status=done", ["status", "limit"]),
        ("/v1/buckets", "start=soon&end=later", ["start", "end"]),
        ("/v1/ticks", "start=soon&end=later", ["start", "end"]),
        ("/v1/schedules/nightly/history", "start=soon&end=later", ["start", "end"]),
        ("/v1/schedules", "scheduleState=ON&limit=x", ["scheduleState", "limit"]),
    ],
)
def test_of_parameters(caller: Caller, path: str, query: str, wrong: list[str]) -> None:
    caller.ask("POST", "/v1/schedules", {"taskId": "nightly", "scheduleExpression": "rate(1 day)"})
    assert reported(caller.refused("invalid-input", "GET", path, query=query)) == wrong


def test_of_a_selection(caller: Caller) -> None:
    problem = caller.refused("invalid-input", "POST", "/v1/tasks/cancel", {"start": "soon", "end": "later"})
    assert reported(problem) == ["#/start", "#/end"]


def test_the_client_has_them_on_the_first(caller: Caller) -> None:
    with pytest.raises(InvalidInput) as refused:
        caller.client.insert("", due_at="noon")
    assert refused.value.field == "taskId"
    assert [error.field for error in refused.value.others] == ["dueAt"]
    (result,) = caller.client.insert_lazily([{"taskId": "a", "dueAt": "noon", "timeoutSeconds": -1}])
    assert isinstance(result, Refused)
    assert [result.error.field, *(error.field for error in result.error.others)] == ["timeoutSeconds", "dueAt"]
