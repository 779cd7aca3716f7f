"""Requests that a gateway lets through: all are answered in one form, and nothing of the inside is shown."""

from __future__ import annotations

import json

import pytest
from tests.unit.api.support import Caller, event, read

from dynatick.api.requests import MAX_BODY_BYTES
from dynatick.errors import ItemTooLarge, StoreError


@pytest.mark.parametrize("path", ["/", "", "/v1/tasks/", "/v1//tasks", "/v2/tasks", "/v1/tasks/a/b", "/v1/Tasks"])
def test_a_path_that_is_not_there(caller: Caller, path: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        caller.refused("not-found", method, path)


def test_a_path_that_is_no_text(caller: Caller) -> None:
    request = event("GET", "/v1/tasks/a") | {"rawPath": "/v1/tasks/\udcff"}
    assert read(caller.api.handle(request, None))["code"] == "invalid-input"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/tasks", "GET, POST"),
        ("HEAD", "/v1/tasks/a", "DELETE, GET, PATCH, PUT"),
        ("GET", "/v1/tasks/bulk", "POST"),
        ("PROPFIND", "/v1/ticks", "GET"),
    ],
)
def test_a_method_that_is_not_possible(caller: Caller, method: str, path: str, allowed: str) -> None:
    answer = caller.send(method, path)
    assert answer.response["headers"]["Allow"] == allowed
    caller.refused("method-not-allowed", method, path)


@pytest.mark.parametrize(
    ("path", "allowed"), [("/v1/tasks", "GET, OPTIONS, POST"), ("/v1/tasks/a%20b", "DELETE, GET, OPTIONS, PATCH, PUT")]
)
def test_a_browser_that_asks_first_is_told_what_is_possible(caller: Caller, path: str, allowed: str) -> None:
    headers = {"origin": "https://app.example.com", "access-control-request-method": "PATCH"}
    answer = caller.send("OPTIONS", path, **headers)
    assert (answer.status, answer.response["body"], answer.code) == (204, "", None)
    assert answer.response["headers"]["Allow"] == allowed
    assert answer.response["headers"]["X-Request-Id"] == "request-1"
    others = [name for name in answer.response["headers"] if name.lower().startswith("access-control")]
    assert others == [], "these are the gateway's to say"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        *(
            (text, "malformed-body")
            for text in ("{", "{}{}", '{"payload": {"n": NaN}}', '{"taskId": "a", "taskId": "b"}')
        ),
        *((text, "invalid-input") for text in ("", "null", '[{"taskId": "a"}]', '"text"')),
        ('{"payload": {"n": 1' + "0" * 5000 + "}}", "malformed-body"),
        ('{"payload": {"n": 1e400}}', "invalid-input"),
        ("[" * 100_000, "invalid-input"),
        ('{"payload": ' + '{"a":' * 120 + "1" + "}" * 121, "invalid-input"),
        (b"\xff\xfe{}", "malformed-body"),
        (b'{"taskId": "\xc3"}', "malformed-body"),
        (json.dumps({"payload": {"text": "x" * MAX_BODY_BYTES}}), "body-too-large"),
    ],
)
def test_a_body_that_is_none(caller: Caller, body: str | bytes, code: str) -> None:
    caller.refused(code, "POST", "/v1/tasks", body, **{"content-type": "application/json"})
    assert [row for row in caller.store.scan().rows if not str(row["taskId"]).startswith("_")] == []


def test_only_json_is_taken_under_its_names(caller: Caller) -> None:
    """A page of another client's can send the others without asking; JSON it can't."""
    for kind in ("", "text/plain", "multipart/form-data; boundary=x"):
        caller.refused("unsupported-media-type", "POST", "/v1/tasks", '{"taskId": "a"}', **{"content-type": kind})
    for task_id, kind in (("a", "APPLICATION/JSON; charset=utf-8"), ("b", "application/merge-patch+json")):
        caller.ask("POST", "/v1/tasks", {"taskId": task_id}, **{"Content-Type": kind})


def test_a_body_comes_as_text_or_as_base64_and_is_not_read_where_none_is_expected(caller: Caller) -> None:
    json_type = {"content-type": "application/json"}
    text = json.dumps({"taskId": "ä", "payload": {"text": "€"}}, ensure_ascii=False)
    first = caller.ask("POST", "/v1/tasks", text, **json_type)
    second = caller.ask("POST", "/v1/tasks", b"\xef\xbb\xbf" + text.replace("ä", "ö").encode(), **json_type)
    assert (first["taskId"], second["taskId"]) == ("ä", "ö")
    assert first["payload"] == second["payload"] == {"text": "€"}
    request = event("POST", "/v1/tasks", **json_type) | {"body": "no base64!", "isBase64Encoded": True}
    assert read(caller.api.handle(request, None))["code"] == "malformed-body"
    caller.ask("GET", "/v1/tasks/%C3%A4", "{", **json_type)
    caller.ask("POST", "/v1/tasks/%C3%A4/cancel", b"\xff", **{"content-type": "text/plain"})


def test_answers_are_ascii_are_not_cached_and_name_their_request(caller: Caller) -> None:
    caller.ask("POST", "/v1/tasks", {"taskId": "ä\u2028\u202e", "delaySeconds": 30})
    query = "start=2026-12-31T12:00:00Z&end=2026-12-31T13:00:00Z"
    response = caller.api.handle(event("GET", "/v1/tasks", query=query, request_id="abc"), None).response
    assert response["body"].isascii() and "u2028" in response["body"]
    assert (response["headers"]["X-Request-Id"], response["headers"]["Cache-Control"]) == ("abc", "no-store")


def broken(error: Exception) -> Caller:
    """An API whose table raises an error."""

    def fails(*_: object) -> object:
        raise error

    made = Caller()
    made.store.get = made.store.create = fails  # type: ignore[method-assign, assignment]
    return made


def test_a_fault_shows_nothing_to_the_caller_and_everything_to_its_operator(caplog: pytest.LogCaptureFixture) -> None:
    inside = "host 10.0.0.1, table tasks-prod: no route"
    for error, code in ((StoreError(inside), "unavailable"), (RuntimeError(inside), "internal")):
        for path in ("/v1/health", "/v1/tasks/a"):
            caplog.clear()
            assert inside not in json.dumps(broken(error).refused(code, "GET", path))
            assert inside in caplog.text
    records = [record for record in caplog.records if getattr(record, "action", None) == "request_failed"]
    assert [getattr(record, "request_id", None) for record in records] == ["request-1"]
    away = broken(StoreError(inside)).send("GET", "/v1/tasks/a")
    assert away.response["headers"]["Retry-After"] == "1"
    broken(ItemTooLarge("x")).refused("item-too-large", "POST", "/v1/tasks", {"taskId": "a"})
