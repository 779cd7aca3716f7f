"""A request that is wrong in several ways is reported all of them at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.api.support import Caller, fields

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
    "expectedWithinSeconds": 0,
    "catchUp": "some",
    "overlap": "never",
}


def test_of_a_task(caller: Caller) -> None:
    problem = caller.refused("invalid-input", "POST", "/v1/tasks", TASK)
    assert set(fields(problem)) == OF_TASK
    assert len(fields(problem)) == len(OF_TASK)
    assert problem["detail"].startswith("taskId: ")
    assert all(error["detail"] for error in problem["errors"])


@pytest.mark.parametrize("left_out", TASK)
def test_what_is_right_is_not_among_them(caller: Caller, left_out: str) -> None:
    row = {**TASK, left_out: "fine"} if left_out == "taskId" else {k: v for k, v in TASK.items() if k != left_out}
    pointers = caller.refused_fields("POST", "/v1/tasks", row)
    assert set(pointers) == {one for one in OF_TASK if one.split("/")[1] != left_out}


def test_of_each_task_of_many(caller: Caller) -> None:
    body = {"tasks": [{"taskId": "fine"}, TASK, {"taskId": "b", "dueAt": "noon"}]}
    _, first, second = caller.ask("POST", "/v1/tasks/bulk", json.dumps(body))["results"]
    assert {error["pointer"] for error in first["errors"]} == {one.replace("#", "#/tasks/1") for one in OF_TASK}
    assert (first["pointer"], first["detail"]) == (first["errors"][0]["pointer"], first["errors"][0]["detail"])
    assert [error["pointer"] for error in second["errors"]] == ["#/tasks/2/dueAt"]


def test_of_a_handlers_payload(caller: Caller) -> None:
    form = {"type": "object", "properties": {"to": {"type": "string"}, "n": {"type": "integer"}}, "required": ["to"]}
    settings = caller.client.settings()
    assert settings is not None
    publish_settings(
        caller.store, settings.grid, now=caller.clock(), actions=["mail"], payload_schemas={"mail": json.dumps(form)}
    )
    body = {"taskId": "a", "action": "mail", "payload": {"n": "x"}, "dueAt": "noon"}
    assert caller.refused_fields("POST", "/v1/tasks", body) == ["#/payload/to", "#/payload/n", "#/dueAt"]


def test_of_a_change(caller: Caller) -> None:
    caller.ask("POST", "/v1/tasks", {"taskId": "a", "delaySeconds": 60})
    body = {"dueAt": "noon", "payload": {"": 1}}
    assert caller.refused_fields("PATCH", "/v1/tasks/a", body) == ["#/dueAt", "#/payload"]
    hook = {"action": "webhook", "payload": {"url": "https://example.com"}}
    caller.ask("POST", "/v1/tasks", {"taskId": "b", "delaySeconds": 60, **hook})
    assert caller.refused_fields("PATCH", "/v1/tasks/b", {"dueAt": "noon", "payload": {}}) == [
        "#/dueAt",
        "#/payload/url",
    ]
    caller.refused("invalid-input", "PATCH", "/v1/tasks/none", body)


def test_of_a_schedule_and_of_its_change(caller: Caller) -> None:
    wrong = {name: value for name, value in SCHEDULE.items() if name != "taskId"}
    assert set(caller.refused_fields("POST", "/v1/schedules", SCHEDULE)) == {f"#/{name}" for name in wrong}
    caller.ask("POST", "/v1/schedules", {"taskId": "nightly", "scheduleExpression": "rate(1 day)"})
    assert set(caller.refused_fields("PATCH", "/v1/schedules/nightly", wrong)) == {f"#/{name}" for name in wrong}


SPAN = {"start": "soon", "end": "later"}
SIMPLE = {"action": "webhook", "payload": {"method": "TRACE"}, "run_at": "noon"}
PAYLOAD = {"taskId": "a", "action": "webhook", "payload": {"url": 7, "timeoutSeconds": 61}}


@pytest.mark.parametrize(
    ("method", "path", "query", "body", "wrong"),
    [
        ("POST", "/schedule-task", "", SIMPLE, ["#/payload/url", "#/payload/method", "#/run_at"]),
        ("POST", "/v1/tasks", "", PAYLOAD, ["#/payload/url", "#/payload/timeoutSeconds"]),
        ("POST", "/v1/tasks/cancel", "", SPAN, ["#/start", "#/end"]),
        ("GET", "/v1/tasks", "start=soon&end=later", None, ["start", "end"]),
        ("GET", "/v1/tasks", "limit=0&status=done", None, ["status", "limit"]),
        ("GET", "/v1/buckets", "start=soon&end=later", None, ["start", "end"]),
        ("GET", "/v1/ticks", "start=soon&end=later", None, ["start", "end"]),
        ("GET", "/v1/schedules/nightly/history", "start=soon&end=later", None, ["start", "end"]),
        ("GET", "/v1/schedules", "scheduleState=ON&limit=x", None, ["scheduleState", "limit"]),
    ],
)
def test_of_other_requests(caller: Caller, method: str, path: str, query: str, body: object, wrong: list[str]) -> None:
    caller.ask("POST", "/v1/schedules", {"taskId": "nightly", "scheduleExpression": "rate(1 day)"})
    assert caller.refused_fields(method, path, body, query=query) == wrong


def test_the_client_has_them_on_the_first(caller: Caller) -> None:
    with pytest.raises(InvalidInput) as refused:
        caller.client.insert("", due_at="noon")
    assert refused.value.field == "taskId"
    assert [error.field for error in refused.value.others] == ["dueAt"]
    (result,) = caller.client.insert_lazily([{"taskId": "a", "dueAt": "noon", "timeoutSeconds": -1}])
    assert isinstance(result, Refused)
    assert [result.error.field, *(error.field for error in result.error.others)] == ["timeoutSeconds", "dueAt"]
