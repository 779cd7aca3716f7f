"""The options of a webhook's payload: method, body, expected statuses, secrets and signature."""

from __future__ import annotations

import base64
import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError
from tests.unit.actions.support import NOW, Server, a_context, a_task, a_webhook

from dynatick.actions.secret import Secrets
from dynatick.actions.signing import signature
from dynatick.actions.webhook_url import Hosts
from dynatick.errors import ActionError, PermanentError, RetryableError

SECRET = "hunter2"
KEY = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()
ALLOWED = ["arn:aws:ssm:*:*:parameter/dynatick/*"]


class Parameters:
    """A fake boto3 client of SSM."""

    def __init__(self, **values: str) -> None:
        self.values = {f"/dynatick/{name}": value for name, value in values.items()}
        self.meta: Any = type("Meta", (), {"events": type("Events", (), {"register": lambda *_: None})()})()

    def get_parameter(self, Name: str, WithDecryption: bool) -> dict[str, Any]:
        assert WithDecryption
        return {"Parameter": {"Value": self.values[Name]}}


def webhook_with(parameters: Parameters, now: datetime = NOW) -> Any:
    """The action, with these secrets."""
    secrets = Secrets(ALLOWED, clients=lambda service: parameters)
    return a_webhook(clock=lambda: now, hosts=Hosts(private=["127.0.0.1"]), secrets=secrets)


def call(server: Server, parameters: Parameters | None = None, /, now: datetime = NOW, **payload: Any) -> object:
    task = a_task({"url": server.url, **payload})
    return webhook_with(parameters or Parameters(), now).run(task, a_context(task))


def ssm(name: str, **more: str) -> dict[str, Any]:
    return {"secret": {"ssm": f"/dynatick/{name}"}, **more}


# --- Method, body, statuses ---------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_method_with_data(server: Server, method: str) -> None:
    assert call(server, method=method, data={"n": 1}) == {"status": 200}
    assert [(request.method, request.body) for request in server.requests] == [(method, b'{"n":1}')]


def test_a_get_has_no_body_and_can_be_signed(server: Server) -> None:
    call(server, Parameters(key=KEY), now=datetime.now(UTC), method="GET", signingSecret={"ssm": "/dynatick/key"})
    (request,) = server.requests
    assert (request.method, request.body) == ("GET", b"")
    assert not {"content-type", "content-length"} & set(request.headers)
    Verifier(KEY).verify(request.body, request.headers, json_parse=False)


@pytest.mark.parametrize(
    ("headers", "content_type"),
    [({}, "text/plain; charset=utf-8"), ({"Content-Type": "application/xml"}, "application/xml")],
)
def test_a_body_is_sent_unchanged(server: Server, headers: dict[str, str], content_type: str) -> None:
    call(server, body="<a>é</a>", headers=headers)
    assert server.requests[0].body == "<a>é</a>".encode()
    assert server.requests[0].headers["content-type"] == content_type


@pytest.mark.parametrize("status", [200, 304, 500])
def test_an_expected_status_is_success(server: Server, status: int) -> None:
    server.status, server.body = status, b""
    assert call(server, expectedStatuses=[status]) == {"status": status}


@pytest.mark.parametrize(
    ("status", "error", "message"), [(202, PermanentError, "; expected 200, 204"), (503, RetryableError, "")]
)
def test_any_other_status_fails_if_statuses_are_expected(
    server: Server, status: int, error: type[ActionError], message: str
) -> None:
    server.status = status
    with pytest.raises(error, match=f"^the target answered {status}{message}$"):
        call(server, expectedStatuses=[200, 204])


def test_the_request_of_an_occurrence_names_its_schedule(server: Server) -> None:
    task = a_task({"url": server.url}, schedule_id="nightly 1")
    webhook_with(Parameters()).run(task, a_context(task))
    assert server.requests[0].headers["x-dynatick-schedule-id"] == "nightly%201"


# --- Hosts --------------------------------------------------------------------


def test_a_host_that_is_not_allowed_gets_no_call(server: Server) -> None:
    webhook = a_webhook(hosts=Hosts(private=["127.0.0.1"], allowed=["example.com"]))
    task = a_task({"url": server.url})
    with pytest.raises(PermanentError, match=r"^payload\.url: its host is not among AllowedWebhookHosts$"):
        webhook.run(task, a_context(task))
    assert server.requests == []


# --- Secrets ------------------------------------------------------------------


def test_a_secret_in_a_header(server: Server) -> None:
    call(server, Parameters(token=SECRET), headers={"Authorization": ssm("token", prefix="Bearer ")})
    assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"


def test_a_url_that_is_a_secret(server: Server) -> None:
    parameters = Parameters(hook=f"{server.url}?token={SECRET}", token=SECRET)
    call(server, parameters, url=ssm("hook"))
    call(server, parameters, url=ssm("token", prefix=f"{server.url}?key="))
    assert [request.path for request in server.requests] == [f"/hook?token={SECRET}", f"/hook?key={SECRET}"]


@pytest.mark.parametrize(
    "payload",
    [{"url": ssm("url")}, {"url": ssm("inside")}, {"headers": {"A": ssm("lines")}}, {"headers": {"A": ssm("long")}},
     *({"signingSecret": {"ssm": name}} for name in ("/dynatick/url", "/dynatick/short", "/dynatick/blank", "/other"))],
)  # fmt: skip
def test_no_message_contains_a_secret(
    server: Server, payload: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    parameters = Parameters(
        url=f"ftp://{SECRET}", inside=f"https://127.1.2.3/{SECRET}", lines=f"{SECRET}\r\nB: c", long=SECRET * 2000,
        short=base64.b64encode(SECRET.encode()).decode(), blank=" ",
    )  # fmt: skip
    with pytest.raises(ActionError) as caught:
        call(server, parameters, **payload)
    for text in (SECRET, parameters.values["/dynatick/short"]):
        assert text not in str(caught.value)
        assert text not in str([vars(record) for record in caplog.records])
    assert caught.value.__cause__ is None
    assert server.requests == []


def test_a_text_that_looks_like_a_reference_stays_text(server: Server) -> None:
    """An end user's text must not fetch a secret."""
    text = "{{resolve:ssm:/dynatick/token}}"
    data = {"comment": text, "nested": ssm("token")}
    call(server, Parameters(token=SECRET), data=data, headers={"X-Comment": text})
    (request,) = server.requests
    assert json.loads(request.body) == data
    assert request.headers["x-comment"] == text


@pytest.mark.parametrize("status", [401, 403])
def test_a_replaced_secret_is_fetched_and_the_task_retried(server: Server, status: int) -> None:
    server.status = status
    parameters = Parameters(token=SECRET)
    webhook = webhook_with(parameters)
    task = a_task({"url": server.url, "headers": {"Authorization": ssm("token")}})
    with pytest.raises(PermanentError, match=f"^the target answered {status}$"):
        webhook.run(task, a_context(task))
    parameters.values["/dynatick/token"] = "new"
    with pytest.raises(RetryableError, match=f"^the target answered {status}, and a secret has changed meanwhile$"):
        webhook.run(task, a_context(task))
    server.status = 200
    webhook.run(task, a_context(task))
    assert [request.headers["authorization"] for request in server.requests] == [SECRET, SECRET, "new"]


# --- Signatures, seen by an independent verifier -------------------------------


def verified(key: str, request: Any) -> Any:
    return Verifier(key).verify(request.body, request.headers)


@pytest.mark.parametrize("payload", [{"data": {"n": 1}}, {"data": "é"}, {"data": {}}])
def test_a_signature(server: Server, payload: dict[str, Any]) -> None:
    now = datetime.now(UTC)
    call(server, Parameters(key=KEY), now=now, signingSecret={"ssm": "/dynatick/key"}, **payload)
    (request,) = server.requests
    assert verified(KEY, request) == payload["data"]
    assert request.headers["webhook-id"] == request.headers["idempotency-key"]
    assert abs(int(request.headers["webhook-timestamp"]) - now.timestamp()) < 1
    with pytest.raises(WebhookVerificationError):
        verified(OTHER_KEY, request)
    request.body += b" "
    with pytest.raises(WebhookVerificationError):
        verified(KEY, request)


def test_an_id_with_dots_signs_no_other_message() -> None:
    """Otherwise a verifier could read a shorter id, another time, and the rest as the body."""
    now = datetime.now(UTC)
    later = int(now.timestamp()) + 60
    headers = signature(KEY, f"a.{later}.{{}}#1-1", now, b"{}")
    Verifier(KEY).verify(b"{}", headers)
    assert "." not in headers["webhook-id"]
    forged = {**headers, "webhook-id": "a", "webhook-timestamp": str(later)}
    for rest in (f"{{}}#1-1.{headers['webhook-timestamp']}.{{}}", f"{{}}%231-1.{headers['webhook-timestamp']}.{{}}"):
        with pytest.raises(WebhookVerificationError):
            Verifier(KEY).verify(rest.encode(), forged, json_parse=False)


def test_a_secret_with_two_keys_signs_with_both(server: Server) -> None:
    keys = Parameters(keys=f"{KEY} {OTHER_KEY}")
    call(server, keys, now=datetime.now(UTC), signingSecret={"ssm": "/dynatick/keys"})
    (request,) = server.requests
    assert verified(KEY, request) == verified(OTHER_KEY, request) == {}
    assert re.fullmatch(r"v1,\S+ v1,\S+", request.headers["webhook-signature"])


def test_users_cannot_set_the_signature_themselves(server: Server) -> None:
    forged = {"webhook-id": "x", "Webhook-Signature": "v1,x", "webhook-timestamp": "1"}
    call(server, Parameters(key=KEY), now=datetime.now(UTC), headers=forged, signingSecret={"ssm": "/dynatick/key"})
    verified(KEY, server.requests[0])
