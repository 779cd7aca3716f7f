"""The HTTP API served on this machine: by uvicorn, over the in-memory store."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import urllib3
import uvicorn
from tests.unit.api.support import Caller

from dynatick_stack.api import Application


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    caller = Caller()
    caller.publish_settings()
    listener = socket.create_server(("127.0.0.1", 0))  # where requests wait until the thread has begun to answer
    server = uvicorn.Server(uvicorn.Config(Application(caller.client), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(60)


@pytest.fixture
def http() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False) as pool:
        yield pool


def send(http: urllib3.PoolManager, method: str, url: str, body: object = None, **headers: str) -> Any:
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    kind = {"Content-Type": "application/json"} if body is not None else {}
    return http.request(method, url, body=data, headers=kind | headers)


def test_a_task_there_and_back(url: str, http: urllib3.PoolManager) -> None:
    task_id = "a b#c%41/ä"
    made = send(http, "POST", f"{url}/v1/tasks", {"taskId": task_id, "delaySeconds": 60})
    assert made.status == 201
    assert send(http, "GET", url + made.headers["Location"]).json()["taskId"] == task_id
    assert send(http, "POST", f"{url}/v1/tasks", {"taskId": "50#ä", "delaySeconds": 60}).status == 201
    for path in ("50%23%C3%A4", "50%2523%25C3%25A4"):
        assert send(http, "GET", f"{url}/v1/tasks/{path}").json()["taskId"] == "50#ä"
    for path in ("50%25", "50%2525", "%2541%2525"):
        assert send(http, "GET", f"{url}/v1/tasks/{path}").json()["code"] == "invalid-input"
    assert send(http, "GET", f"{url}/v1/tasks/50%2523%25C3%25A4%253Fmore").json()["taskId"] == "50#ä"


def test_a_query_says_how_many_occurrences_of_a_schedule_are_listed(url: str, http: urllib3.PoolManager) -> None:
    send(http, "POST", f"{url}/v1/schedules", {"taskId": "nightly", "scheduleExpression": "rate(1 day)"})
    assert len(send(http, "GET", f"{url}/v1/schedules/nightly/preview?count=3").json()["occurrences"]) == 3


def test_one_that_waits_holds_up_no_other(url: str, http: urllib3.PoolManager) -> None:
    send(http, "POST", f"{url}/v1/tasks", {"taskId": "waited-for", "delaySeconds": 60})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(send, http, "GET", f"{url}/v1/tasks/waited-for?waitSeconds=10")
        assert send(http, "POST", f"{url}/v1/tasks/waited-for/cancel").status == 200
        assert waiting.result().json()["outcome"] == "cancelled"


def test_problems_are_those_of_the_deployed_one(url: str, http: urllib3.PoolManager) -> None:
    for method, path, body, code in (
        ("GET", "/v1/none", None, "not-found"),
        ("GET", "/v1/tasks/%ff", None, "invalid-input"),
        ("POST", "/v1/tasks", b'{"taskId": "\xc3"}', "malformed-body"),
        ("POST", "/v1/tasks", b'{"payload": {"text": "' + b"x" * 6_000_000 + b'"}}', "body-too-large"),
    ):
        answer = send(http, method, url + path, body)
        assert answer.json()["code"] == code
        assert answer.headers["X-Request-Id"] == answer.json()["requestId"]
    raw = send(http, "POST", f"{url}/v1/tasks", b"\xff{}", **{"Content-Type": "application/x+json"})
    assert raw.json()["code"] == "malformed-body"


def test_the_document_and_the_page_to_try_it_by(url: str, http: urllib3.PoolManager) -> None:
    root = send(http, "GET", f"{url}/")
    assert (root.status, root.headers["Location"]) == (307, "/docs")
    document = send(http, "GET", f"{url}/openapi.json").json()
    assert document["openapi"].startswith("3.1.")
    assert document["servers"][0]["url"] == "/"
    page = send(http, "GET", f"{url}/docs")
    assert page.headers["Content-Type"].startswith("text/html")
    for name in ("swagger-ui.css", "swagger-ui.js"):
        assert f"/docs/{name}" in page.data.decode()
        assert len(send(http, "GET", f"{url}/docs/{name}").data) > 50_000
    assert "https://" not in page.data.decode()  # nothing is fetched from elsewhere
    assert "SwaggerUIBundle({" in send(http, "GET", f"{url}/docs/start.js").data.decode()
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self';" in policy and "frame-ancestors 'none'" in policy


def test_pages_of_other_origins_or_names_change_and_get_nothing_and_its_own_may(
    url: str, http: urllib3.PoolManager
) -> None:
    """A form can send a POST without a body from any page, with the developer's credentials behind it."""
    origins = [{"Origin": origin} for origin in ("https://example.com", "null", "http://127.0.0.1:1")]
    for headers in (*origins, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        assert send(http, "POST", f"{url}/v1/tasks", b'{"taskId": "mine"}', **headers).status == 403, headers
        assert send(http, "POST", f"{url}/v1/tasks/mine/run", **headers).status == 403, headers
        assert send(http, "GET", f"{url}/v1/tasks/mine", **headers).status == 403, headers
    assert send(http, "GET", f"{url}/v1/tasks/mine").status == 404
    for own in ("same-origin", "none"):
        answer = send(http, "POST", f"{url}/v1/tasks", {"taskId": own}, **{"Origin": url, "Sec-Fetch-Site": own})
        assert answer.status == 201
    for host in ("example.com", "localhost.example.com", "127.0.0.1.example.com:80"):
        assert send(http, "GET", f"{url}/v1/ticks", Host=host).status == 421
    for host in ("localhost", "localhost:8080", "127.0.0.1"):
        assert send(http, "GET", f"{url}/v1/ticks", Host=host).status == 200
