"""A refused request names everything that is wrong, at once, and changes nothing."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from tests.unit.api.support import Caller, fields

from dynatick import Refused
from dynatick.api import Api
from dynatick.domain.completion import completion_token
from dynatick.engine.settings import publish_settings

LATER = "2026-12-31T15:00:00Z"
BUCKET = "2026-12-31#13:00"
IN_BUCKET, BUCKET_PATH = "bucket=2026-12-31%2313:00", "/v1/buckets/2026-12-31%2313:00"
HOOK = {"action": "webhook", "payload": {"url": "https://example.com/hook"}}
NIGHTLY = {"taskId": "nightly", "scheduleExpression": "rate(1 day)", "action": "log", "payload": {"n": 1}}
TASK: dict[str, Any] = {
    "taskId": "", "dueAt": "noon", "action": "nope", "payload": {"text": "\udfff"},
    "retryPolicy": {"maximumRetryAttempts": -1}, "timeoutSeconds": 0, "subject": "ä" * 129, "status": "completed",
    "scheduleExpression": "rate(1 day)", "limitKey": "customer",
}  # fmt: skip
OF_TASK = {
    "#/taskId", "#/dueAt", "#/action", "#/payload/text", "#/retryPolicy/maximumRetryAttempts", "#/timeoutSeconds",
    "#/subject", "#/status", "#/scheduleExpression", "#/limitKey",
}  # fmt: skip
SCHEDULE: dict[str, Any] = {
    "scheduleExpression": "cron(0 3 * *)", "scheduleExpressionTimezone": "Europe/Nowhere", "startDate": "soon",
    "flexibleTimeWindow": -1, "action": "nope", "timeoutSeconds": 0, "expectedWithinSeconds": 0, "catchUp": "some",
    "overlap": "never", "limitKey": "customer:",
}  # fmt: skip
OF_SCHEDULE = {f"#/{name}" for name in SCHEDULE}


@pytest.fixture
def caller(caller: Caller) -> Caller:
    """A caller of an installation with a task, t, and a schedule, nightly. What waits by mistake ends at once."""
    caller.api = Api(caller.client, seconds=map(float, count()).__next__, pause=lambda seconds: None)
    caller.ask("POST", "/v1/tasks", {"taskId": "t", "delaySeconds": 60, **HOOK})
    caller.ask("POST", "/v1/schedules", NIGHTLY)
    return caller


def test_of_a_task(caller: Caller) -> None:
    problem = caller.refused("invalid-input", "POST", "/v1/tasks", TASK)
    assert sorted(fields(problem)) == sorted(OF_TASK)
    assert problem["detail"].startswith("taskId: ")
    assert all(error["detail"] for error in problem["errors"])


@pytest.mark.parametrize("right", TASK)
def test_what_is_right_is_not_among_them(caller: Caller, right: str) -> None:
    row = {**TASK, "taskId": "fine"} if right == "taskId" else {k: v for k, v in TASK.items() if k != right}
    wrong = {one for one in OF_TASK if one.split("/")[1] != right}
    assert set(caller.refused_fields("POST", "/v1/tasks", row)) == wrong


def test_of_a_handlers_payload(caller: Caller) -> None:
    form = {"type": "object", "properties": {"to": {"type": "string"}, "n": {"type": "integer"}}, "required": ["to"]}
    settings = caller.client.settings()
    assert settings is not None
    publish_settings(
        caller.store, settings.grid, now=caller.clock(), actions=["mail"], payload_schemas={"mail": json.dumps(form)}
    )
    body = {"taskId": "a", "action": "mail", "payload": {"n": "x"}, "dueAt": "noon"}
    assert caller.refused_fields("POST", "/v1/tasks", body) == ["#/payload/to", "#/payload/n", "#/dueAt"]


def test_of_a_schedule_and_of_its_change(caller: Caller) -> None:
    assert set(caller.refused_fields("POST", "/v1/schedules", {"taskId": "new", **SCHEDULE})) == OF_SCHEDULE
    assert set(caller.refused_fields("PATCH", "/v1/schedules/nightly", SCHEDULE)) == OF_SCHEDULE


def test_the_client_has_all_of_them_too(caller: Caller) -> None:
    (result,) = caller.client.insert_lazily([{"taskId": "a", "dueAt": "noon", "timeoutSeconds": -1}])
    assert isinstance(result, Refused)
    assert [result.error.field, *(error.field for error in result.error.others)] == ["timeoutSeconds", "dueAt"]


# What a body begins with, unless its case says otherwise.
BEGUN: dict[str, dict[str, Any]] = {
    "POST /v1/tasks": {"taskId": "new"},
    "POST /v1/schedules": NIGHTLY | {"taskId": "new"},
    "POST /schedule-task": {"action": "log", "payload": {}, "run_at": LATER},
}
TOKEN = completion_token("lease", "t")
REFUSED: list[tuple[str, object, list[str]]] = [
    ("POST /v1/tasks", HOOK | {"payload": {"url": 7, "timeoutSeconds": 61}},
     ["#/payload/url", "#/payload/timeoutSeconds"]),
    ("POST /v1/tasks", {"payload": {"a": [{"": 1}]}}, ["#/payload/a/0"]),
    ("POST /v1/tasks", {"payload": {"a/b": {"c~d": "\udfff"}}}, ["#/payload/a~1b/c~0d"]),
    ("POST /v1/tasks", {"payload": {"text": "x" * 400_000}}, ["#/payload"]),
    ("POST /v1/tasks", {"idempotencyDigest": "x"}, ["#/idempotencyDigest"]),
    ("PATCH /v1/tasks/t", {}, ["#/payload"]),
    ("PATCH /v1/tasks/t", {"status": "cancelled"}, ["#/status"]),
    ("PATCH /v1/tasks/t", {"dueAt": "noon", "payload": {}}, ["#/dueAt", "#/payload/url"]),
    ("POST /v1/tasks/t/redrive", {"fields": {}}, ["#/fields"]),
    ("POST /schedule-task", {"run_at": None}, ["#/run_at"]),
    ("POST /schedule-task", {"action": ""}, ["#/action"]),
    ("POST /schedule-task", {"payload": []}, ["#/payload"]),
    ("POST /schedule-task", {"when": "now"}, ["#/when"]),
    ("POST /schedule-task", {"action": "webhook", "payload": {"method": "TRACE"}, "run_at": "noon"},
     ["#/payload/url", "#/payload/method", "#/run_at"]),
    ("POST /v1/completions", {}, ["#/token"]),
    ("POST /v1/completions", {"token": "no"}, ["#/token"]),
    ("POST /v1/completions", {"token": TOKEN, "outcome": "ended"}, ["#/outcome"]),
    ("POST /v1/completions", {"token": TOKEN, "outcome": "failed"}, ["#/error"]),
    ("POST /v1/completions", {"token": TOKEN, "error": "x"}, ["#/outcome"]),
    ("POST /v1/completions", {"token": TOKEN, "outcome": "heartbeat", "retry": True}, ["#/outcome"]),
    ("POST /v1/completions", {"token": TOKEN, "outcome": "heartbeat", "result": 1}, ["#/outcome"]),
    *(("POST /v1/tasks/bulk", {"tasks": tasks}, ["#/tasks"])
      for tasks in ([], [{"taskId": "new"}] * 1001, {"taskId": "new"}, None)),
    ("POST /v1/tasks/bulk", {"tasks": ["a"]}, ["#/tasks/0"]),
    ("POST /v1/tasks/cancel", {"start": "soon", "end": "later"}, ["#/start", "#/end"]),
    ("POST /v1/tasks/cancel", {}, ["#/bucket"]),
    ("POST /v1/tasks/cancel", {"bucket": BUCKET, "start": LATER}, ["#/bucket"]),
    ("POST /v1/tasks/cancel", {"bucket": BUCKET, "limit": 0}, ["#/limit"]),
    ("POST /v1/tasks/cancel", {"bucket": BUCKET, "dryRun": "yes"}, ["#/dryRun"]),
    *((f"GET /v1/{path}?start=soon&end=later", None, ["start", "end"])
      for path in ("tasks", "buckets", "ticks", "schedules/nightly/history")),
    ("GET /v1/tasks?limit=0&status=done", None, ["status", "limit"]),
    (f"GET /v1/tasks?{IN_BUCKET}&start=2026-12-31T12:00:00Z", None, ["bucket"]),
    (f"GET /v1/tasks?{IN_BUCKET}&pageToken=x", None, ["pageToken"]),
    (f"GET /v1/tasks?{IN_BUCKET}&bucket=2026-12-31%2314:00", None, ["bucket"]),
    ("GET /v1/buckets?start=2026-12-31T12:00:00Z", None, ["end"]),
    ("GET /v1/buckets/noon", None, ["bucket"]),
    (f"GET {BUCKET_PATH}?pageToken=x", None, ["pageToken"]),
    *((f"GET {path}?waitSeconds={wrong}", None, ["waitSeconds"]) for path in ("/v1/tasks/t", BUCKET_PATH)
      for wrong in ("-1", "11", "1.5", "soon", "")),
    *((f"GET /v1/{noun}s/{wrong}", None, [f"{noun}Id"]) for noun in ("task", "schedule")
      for wrong in ("~", "~!!", "_dynatick%23settings", "x" * 3000)),
    ("GET /v1/ticks?minutes=0", None, ["minutes"]),
    ("POST /v1/schedules", {"scheduleState": "COMPLETED"}, ["#/scheduleState"]),
    ("PATCH /v1/schedules/nightly", {"scheduleState": "ENABLED"}, ["#/scheduleState"]),
    ("PATCH /v1/schedules/nightly", {"taskId": "other"}, ["#/taskId"]),
    ("PATCH /v1/schedules/nightly", {}, ["#"]),
    ("GET /v1/schedules?scheduleState=ON&limit=x", None, ["scheduleState", "limit"]),
    *((f"GET /v1/{nouns}?subject={'x' * 257}", None, ["subject"]) for nouns in ("tasks", "schedules")),
    ("GET /v1/status?hours=25", None, ["hours"]),
    *((f"GET /v1/actions?last={wrong}", None, ["last"]) for wrong in ("5d", "soon")),
    *((f"POST /v1/actions/{wrong}/pause", {}, ["action"]) for wrong in ("lgo", "dynatick.batch")),
    ("GET /v1/dead-letters?limit=0", None, ["limit"]),
    ("POST /v1/dead-letters/redrive", {"limit": 0}, ["#/limit"]),
    ("POST /v1/dead-letters/redrive", {"obsolete": True}, ["#/obsolete"]),
    ("POST /v1/dead-letters/purge", {"obsolete": 1}, ["#/obsolete"]),
    ("POST /v1/pause", {"reason": 7}, ["#/reason"]),
]  # fmt: skip


@pytest.mark.parametrize(("request_line", "body", "wrong"), REFUSED)
def test_of_one_request(caller: Caller, request_line: str, body: Any, wrong: list[str]) -> None:
    before = caller.store.scan(open_only=False).rows
    method, _, url = request_line.partition(" ")
    path, _, query = url.partition("?")
    whole = None if body is None else BEGUN.get(request_line, {}) | body
    assert caller.refused_fields(method, path, whole, query=query) == wrong
    assert caller.store.scan(open_only=False).rows == before


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("/v1/schedules", {}, "#/taskId: it is missing"),
        ("/v1/tasks", None, "#: it is missing"),
        ("/schedule-task", {"action": "log"}, "#/run_at: it is missing"),
    ],
)
def test_what_is_not_given_is_missing(caller: Caller, path: str, body: object, detail: str) -> None:
    assert caller.refused("invalid-input", "POST", path, body)["detail"] == detail
