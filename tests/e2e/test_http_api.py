"""The HTTP API of the deployed stack, over a real connection to the gateway: paths, queries, headers and bodies.

It has one route for all operations; tests/integration/test_least_privilege.py calls each of them on the emulator."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
import urllib3
from tests.e2e.support import DeployedStack, bucket, eventually, now
from tests.ports import reserved_port

from dynatick.domain.instants import format_instant

# Signed: on AWS a caller signs each request; the emulator only looks whether one is.
SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=test/20261231/us-east-1/execute-api/aws4_request, "
    "SignedHeaders=host, Signature=00"
}


@dataclass
class HttpApi:
    """A caller of the API."""

    url: str
    http: urllib3.PoolManager

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> urllib3.BaseHTTPResponse:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        return self.http.request(
            method, self.url + path, body=data, headers={**SIGNED, **kind, **(headers or {})}, retries=False
        )

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        answer = self.send(method, path, body, headers)
        assert answer.status < 300, answer.data
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["X-Request-Id"]
        return answer.json()

    def refused(self, code: str, method: str, path: str, body: object = None, **headers: str) -> Any:
        answer = self.send(method, path, body, headers)
        assert answer.headers["Content-Type"] == "application/problem+json", answer.data
        problem = answer.json()
        assert (problem["code"], problem["status"]) == (code, answer.status)
        assert problem["requestId"] == answer.headers["X-Request-Id"]
        return problem


@pytest.fixture(scope="module")
def api(world: DeployedStack) -> HttpApi:
    return HttpApi(world.stack.outputs["ApiUrl"], urllib3.PoolManager())


@pytest.fixture
def task_id() -> str:
    """Ids are each test's own, and hold what paths make trouble of."""
    return f"ada+{uuid.uuid4().hex[:8]}@example.com #7 ä"


def in_path(task_id: str) -> str:
    return f"/v1/tasks/{quote(task_id, safe='')}"


def test_tasks_go_their_way(world: DeployedStack, api: HttpApi, task_id: str) -> None:
    payload = {"url": f"{world.receiver.url}/http-api", "data": {"n": 1, "text": "ä"}}
    made = api.send(
        "POST", "/v1/tasks", {"taskId": task_id, "delaySeconds": 5, "action": "webhook", "payload": payload}
    )
    assert made.status == 201
    assert made.headers["Location"] == in_path(task_id)
    assert made.json()["taskId"] == task_id
    run_at = format_instant(now() + timedelta(seconds=3))
    simple = {"action": "webhook", "payload": {**payload, "data": ["ä", None, 0.5]}, "run_at": run_at}
    same = api.send("POST", "/schedule-task", simple)
    assert (same.status, same.json()["status"], same.json()["dueAt"]) == (201, "scheduled", run_at)

    world.run_to_end([task_id, same.json()["taskId"]])
    ended = api.ask("GET", in_path(task_id))
    assert (ended["status"], ended["attempt"], ended["payload"]) == ("completed", 1, payload)
    (call,) = world.receiver.of(task_id)
    assert call.path == "/http-api"
    ended = api.ask("GET", same.headers["Location"])
    assert (ended["taskId"], ended["status"]) == (same.json()["taskId"], "completed")
    assert ended["createdAt"] < run_at <= ended["startedAt"] <= ended["finishedAt"]
    (call,) = world.receiver.of(ended["taskId"])
    assert json.loads(call.body) == ["ä", None, 0.5]
    ticks = api.ask("GET", "/v1/ticks?minutes=30")["ticks"]
    assert any(tick["kind"] == "pass" and tick["completed"] >= 1 for tick in ticks)


def test_a_task_is_changed_cancelled_restored_and_run(api: HttpApi, task_id: str) -> None:
    path = in_path(task_id)
    made = api.send("POST", "/v1/tasks", {"taskId": task_id, "taskDateTime": bucket(600)})
    seen = api.send("GET", path).headers["ETag"]
    assert made.headers["ETag"] == seen
    later = bucket(700)
    moved = api.ask("PATCH", path, {"taskDateTime": later, "payload": {"n": 1}}, **{"If-Match": seen})
    assert (moved["taskDateTime"], moved["payload"]) == (later, {"n": 1})
    api.refused("changed", "PATCH", path, {"payload": {}}, **{"If-Match": seen})
    assert api.ask("POST", f"{path}/cancel")["outcome"] == "cancelled"
    api.refused("not-possible-now", "POST", f"{path}/cancel")
    assert api.ask("POST", f"{path}/restore")["taskDateTime"] == later
    assert api.ask("POST", f"{path}/run")["status"] == "scheduled"


def test_an_id_that_no_path_can_hold_is_reached_by_its_location(api: HttpApi, task_id: str) -> None:
    made = api.send("POST", "/v1/tasks", {"taskId": f"{task_id}%41/?", "delaySeconds": 36_000})
    assert api.ask("GET", made.headers["Location"])["taskId"] == f"{task_id}%41/?"
    assert api.send("DELETE", made.headers["Location"]).status == 204
    api.refused("task-not-found", "GET", made.headers["Location"])


def test_many_tasks_and_their_bucket(api: HttpApi) -> None:
    due = now() + timedelta(days=40)
    name = due.strftime("%Y-%m-%d#%H:%M")
    in_query = name.replace("#", "%23")
    tasks = [{"taskId": f"many-{uuid.uuid4()}", "taskDateTime": name, "action": "log"} for _ in range(60)]
    assert api.ask("POST", "/v1/tasks/bulk", {"tasks": [*tasks, tasks[0], {"taskId": ""}]})["counts"] == {
        "inserted": 60, "exists": 1, "refused": 1
    }  # fmt: skip
    page = api.ask("GET", f"/v1/tasks?bucket={in_query}&limit=40&status=scheduled")
    rest = api.ask("GET", f"/v1/tasks?bucket={in_query}&limit=40&status=scheduled&pageToken={page['nextPageToken']}")
    assert {task["taskId"] for task in page["tasks"] + rest["tasks"]} == {task["taskId"] for task in tasks}
    dry = api.ask("POST", "/v1/tasks/cancel", {"bucket": name, "dryRun": True})
    assert dry["counts"] == {"wouldChange": 60}
    assert api.ask("POST", "/v1/tasks/cancel", {"bucket": name})["counts"] == {"changed": 60}
    assert api.ask("GET", f"/v1/buckets/{in_query}")["counts"] == {"cancelled": 60}
    start, end = (format_instant(due + timedelta(minutes=minutes)) for minutes in (-2, 2))
    listed = api.ask("GET", f"/v1/buckets?start={start}&end={end}")
    assert [(one["bucket"], one["total"]) for one in listed["buckets"]] == [(name, 60)]
    again = api.ask("POST", "/v1/tasks/restore", {"bucket": name, "limit": 5})
    assert (again["counts"], again["more"]) == ({"changed": 5}, True)


def test_what_is_refused(api: HttpApi) -> None:
    api.refused("not-found", "GET", "/v1/nothing")
    assert api.send("PUT", "/v1/tasks").headers["Allow"] == "GET, POST"
    api.refused("malformed-body", "POST", "/v1/tasks", b"\xff\xfe", **{"Content-Type": "application/octet+json"})
    huge = json.dumps({"payload": {"text": "x" * 5_300_000}}).encode()
    api.refused("body-too-large", "POST", "/v1/tasks", huge)


def test_the_log_has_requests_and_no_payload(world: DeployedStack, api: HttpApi, task_id: str) -> None:
    secret = uuid.uuid4().hex
    answer = api.send("POST", "/v1/tasks", {"taskId": task_id, "delaySeconds": 36_000, "payload": {"secret": secret}})
    api.refused(
        "invalid-input", "POST", "/v1/tasks", {"taskId": task_id, "payload": {"secret": secret}, "dueAt": secret}
    )
    lines = [line for line in world.stack.logs(function="api") if line.record]
    answers = [line.record for line in lines if line.record["request_id"] == answer.headers["X-Request-Id"]]
    assert [(one["action"], one["route"], one["status"]) for one in answers] == [("request_answered", "/v1/tasks", 201)]
    assert not [line for line in lines if secret in line.text]


def test_it_is_served_from_the_checkout_too(world: DeployedStack) -> None:
    """`make api`: the same over the same table, without a gateway."""
    with reserved_port() as port:
        _check_that_it_is_served(world, port)


def _check_that_it_is_served(world: DeployedStack, port: int) -> None:
    program = [sys.executable, "-m", "dynatick_stack", "--state-dir", str(world.stack.state_dir)]
    command = [*program, "api", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            http, url = urllib3.PoolManager(), f"http://127.0.0.1:{port}"

            def serves() -> bool:
                assert server.poll() is None, server.stdout.read() if server.stdout else ""
                with contextlib.suppress(urllib3.exceptions.HTTPError):
                    return http.request("GET", f"{url}/docs", retries=False).status == 200
                return False

            eventually(serves, within=180, what="the server")
            row = {"taskId": f"served-{port}", "delaySeconds": 36_000}
            answer = http.request("POST", f"{url}/v1/tasks", json=row, retries=False)
            assert answer.status == 201
            assert world.the(row["taskId"])["status"] == "scheduled"
            busy = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            assert (busy.returncode != 0, f"Port {port} is in use" in busy.stderr) == (True, True)
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
