"""The action webhook: what it sends, and what the answer means. Failure modes 14 and 22."""

import base64
import json
import logging
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from boto3.dynamodb.types import Binary
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError
from tests.unit.actions.support import NOW, SecretValues, a_context, a_server, a_task, a_webhook

from dynatick import CompleteLater
from dynatick.actions.connection import Answer
from dynatick.actions.secret import Secrets
from dynatick.actions.webhook import signature
from dynatick.actions.webhook_url import Hosts
from dynatick.domain.completion import completion_token
from dynatick.errors import ActionError, PermanentError, RetryableError

SECRET = "hunter2"
KEY = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()


def stored(**values):
    return SecretValues({f"/dynatick/{name}": value for name, value in values.items()})


def webhook_with(parameters, now=NOW, **options):
    secrets = Secrets(["arn:aws:ssm:*:*:parameter/dynatick/*"], clients=lambda service: parameters)
    return a_webhook(clock=lambda: now, hosts=Hosts(private=["127.0.0.1"]), secrets=secrets, **options)


def call(server, parameters=None, /, now=NOW, task=None, **payload):
    one = a_task({"url": server.url, **payload}, **(task or {}))
    return webhook_with(parameters or stored(), now).run(one, a_context(one))


def ssm(name, **more):
    return {"secret": {"ssm": f"/dynatick/{name}"}, **more}


# What is sent


def test_the_data_is_sent_as_json_with_dynaticks_headers(server):
    server.status = 202
    data = {"n": Decimal(3), "f": Decimal("0.5"), "b": Binary(b"\x00"), "s": {"y", "x"}}
    task = {"task_id": "order/42", "attempt": 2, "run": 3, "schedule_id": "nightly 1"}
    assert call(server, url=f"{server.url}?a=b#c", data=data, task=task) == {"status": 202}
    (request,) = server.requests
    assert request.path == "/hook?a=b"
    assert json.loads(request.body) == {"n": 3, "f": 0.5, "b": "AA==", "s": ["x", "y"]}
    assert request.headers == {
        "host": f"127.0.0.1:{server.port}", "accept-encoding": "identity", "content-length": str(len(request.body)),
        "content-type": "application/json", "idempotency-key": "order/42#3", "user-agent": "dynatick-webhook",
        "x-dynatick-task-id": "order/42", "x-dynatick-attempt": "2", "x-dynatick-due-at": "2026-12-31T11:59:30Z",
        "x-dynatick-schedule-id": "nightly%201",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("payload", "method", "body", "content_type"),
    [
        ({}, "POST", b"{}", "application/json"),
        ({"data": None}, "POST", b"null", "application/json"),
        ({"data": "é"}, "POST", b'"\\u00e9"', "application/json"),
        ({"data": Decimal("12345678901234567890")}, "POST", b"12345678901234567890", "application/json"),
        *(({"method": method, "data": {"n": 1}}, method, b'{"n":1}', "application/json")
          for method in ("POST", "PUT", "PATCH", "DELETE")),
        ({"body": "é"}, "POST", "é".encode(), "text/plain; charset=utf-8"),
        ({"body": "é", "headers": {"Content-Type": "application/xml"}}, "POST", "é".encode(), "application/xml"),
        ({"method": "GET"}, "GET", b"", None),
    ],
)  # fmt: skip
def test_the_payload_chooses_method_and_body(server, payload, method, body, content_type):
    assert call(server, **payload) == {"status": 200}
    (request,) = server.requests
    assert (request.method, request.body, request.headers.get("content-type")) == (method, body, content_type)
    assert ("content-length" in request.headers) == (method != "GET")


@pytest.mark.parametrize(
    ("task_id", "sent"),
    [("a b", "a%20b"), ("100%", "100%25"), ("a\r\nX-Injected: 1", "a%0D%0AX-Injected:%201"), ("\x00\x7f", "%00%7F"),
     ("🕛" * 256, "%F0%9F%95%9B" * 256)],
)  # fmt: skip
def test_a_task_id_is_percent_encoded_in_headers(server, task_id, sent):
    call(server, task={"task_id": task_id})
    headers = server.requests[0].headers
    assert (headers["x-dynatick-task-id"], headers["idempotency-key"]) == (sent, f"{sent}#1")
    assert "x-injected" not in headers


def test_dynaticks_headers_override_the_users(server):
    theirs = {"Authorization": "Bearer a b", "X-Empty": "", "content-TYPE": "text/plain", "X-Dynatick-Attempt": "99"}
    call(server, headers={**theirs, "IDEMPOTENCY-KEY": "mine"})
    sent = {"authorization": "Bearer a b", "x-empty": "", "content-type": "application/json",
            "idempotency-key": "t-1#1", "x-dynatick-attempt": "1"}  # fmt: skip
    assert sent.items() <= server.requests[0].headers.items()


# What is refused before anything is sent


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"dta": 1}, "payload: unknown 'dta'; expected any of body, completeWithinSeconds, data, expectedStatuses,"),
        ({"method": "get"}, "payload.method: Input should be 'POST', 'PUT', 'PATCH', 'DELETE' or 'GET'"),
        ({"method": "GET", "data": {}}, "payload.data: a GET sends no body; leave it out"),
        ({"body": "a", "data": None}, "payload.body: expected data or body, not both"),
        ({"body": "\ud800"}, "payload.body: expected text that UTF-8 can hold"),
        ({"expectedStatuses": []}, "payload.expectedStatuses: List should have at least 1 item"),
        *(({"expectedStatuses": [status]}, "payload.expectedStatuses.0: expected a status from 200 to 599")
          for status in (199, True)),
        ({"signingSecret": SECRET}, "payload.signingSecret: Input should be"),
        ({"signingSecret": {"ssm": "a", "key": "b"}}, "payload.signingSecret.key: Unexpected keyword argument"),
        ({"headers": {"A": {"secret": SECRET}}}, "payload.headers.A.secret: Input should be"),
        ({"data": {"a": object()}}, "payload.data: a object is not a value that a row can hold"),
        ({"data": float("nan")}, "payload.data: Out of range float values"),
        *(({"headers": headers}, "payload.headers: expected a map of at most 32 headers")
          for headers in ("x", {f"a{n}": "" for n in range(33)})),
        *(({"headers": {name: "x"}}, f"payload.headers: {name!r} is not the name of a header")
          for name in ("a b", "a\n")),
        *(({"headers": {"a": value}}, "payload.headers.a: expected text in printable")
          for value in (f"{SECRET}\r\nb: c", f"{SECRET} ", Decimal(1))),
        *(({"headers": {"a": {"secret": {"ssm": "/a"}, "prefix": prefix}}},
           "payload.headers.a: expected a prefix that can begin a header; expected text in printable")
          for prefix in ("Bearer\n", " Bearer ", "Bearär ")),
        *(({"headers": {name: "x"}}, f"payload.headers: {name!r} can't be set")
          for name in ("Host", "Transfer-Encoding", "Proxy-Authorization")),
        ({"headers": {"a": "x", "A": "y"}}, "payload.headers: 'A' is there twice"),
        ({"headers": {"a": "x" * 9000}}, "payload.headers: expected at most 8192 characters"),
        *(({"timeoutSeconds": seconds}, "payload.timeoutSeconds: expected a number of seconds, more than")
          for seconds in (0, 61, True)),
        ({"data": {"password": SECRET}, "url": "http://example.com/"}, "payload.url: expected https"),
        ({"url": None}, "payload.url: Input should be a valid string"),
    ],
)  # fmt: skip
def test_a_payload_that_is_refused_sends_nothing(server, more, message):
    with pytest.raises(PermanentError) as caught:
        call(server, **more)
    assert str(caught.value).startswith(message)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert server.requests == []


def test_a_host_that_is_not_allowed_gets_no_call(server):
    webhook = a_webhook(hosts=Hosts(private=["127.0.0.1"], allowed=["example.com"]))
    with pytest.raises(PermanentError, match=r"^payload\.url: its host is not among AllowedWebhookHosts$"):
        webhook.run(a_task({"url": server.url}), a_context())
    assert server.requests == []


# What the answer means: no failure becomes a success

REDIRECT = ", a redirect, and redirects are not followed; give the URL that it leads to"


@pytest.mark.parametrize(
    ("statuses", "expected", "error", "message"),
    [
        ((200, 204, 299), None, None, ""),
        ((408, 425, 429, 500, 599), None, RetryableError, ""),
        ((400, 401, 403, 404, 499), None, PermanentError, ""),
        ((300, 301, 302, 308), None, PermanentError, REDIRECT),
        ((200, 304, 500), [200, 304, 500], None, ""),
        ((202,), [200, 204], PermanentError, "; expected 200, 204"),
        ((503,), [200, 204], RetryableError, ""),
    ],
)
def test_the_status_decides_between_success_retry_and_failure(server, statuses, expected, error, message):
    webhook = webhook_with(stored())
    server.body = b"" if error is None else SECRET.encode()
    task = a_task({"url": server.url} | ({} if expected is None else {"expectedStatuses": expected}))
    with a_server() as elsewhere:
        for status in statuses:
            server.status, server.headers = status, {"Location": elsewhere.url}
            if error is None:
                assert webhook.run(task, a_context(task)) == {"status": status}
                continue
            with pytest.raises(error) as caught:
                webhook.run(task, a_context(task))
            assert str(caught.value) == f"the target answered {status}{message}"
            assert getattr(caught.value, "retry_after", None) is None
        assert elsewhere.requests == []
    assert len(server.connections) == 1, "no status closes it"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0), ("120", 120.0), (" 7 ", 7.0), ("86401", 86_400.0), ("9" * 5000, 86_400.0),
        ("Thu, 31 Dec 2026 12:01:07 GMT", 60.0), ("Thu, 31 Dec 2026 13:01:07 +0100", 60.0),
        ("Thu, 31 Dec 2026 12:01:07 -0000", 60.0), ("Thu, 31 Dec 2026 11:00:00 GMT", 0.0),
        ("Fri, 01 Jan 2100 00:00:00 GMT", 86_400.0), ("", None), ("soon", None), ("-5", None), ("1.5", None),
        ("1e9", None), ("Thu, 99 Dec 2026 12:00:00 GMT", None), ("Thu, 31 Dec 99999 12:00:00 GMT", None),
        ("\xb2", None),
    ],
)  # fmt: skip
def test_retry_after(server, header, seconds):
    server.status, server.headers = 429, {"Retry-After": header}
    with pytest.raises(RetryableError) as caught:
        call(server)
    assert caught.value.retry_after == seconds


# Secrets


def test_a_secret_can_be_a_url_or_a_part_of_it_or_of_a_header(server):
    parameters = stored(hook=f"{server.url}?token={SECRET}", token=SECRET)
    call(server, parameters, url=ssm("hook"))
    call(server, parameters, url=ssm("token", prefix=f"{server.url}?key="))
    call(server, parameters, headers={"Authorization": ssm("token", prefix="Bearer ")})
    assert [one.path for one in server.requests] == [f"/hook?token={SECRET}", f"/hook?key={SECRET}", "/hook"]
    assert server.requests[2].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    "payload",
    [{"url": ssm("url")}, {"url": ssm("inside")}, {"headers": {"A": ssm("lines")}}, {"headers": {"A": ssm("long")}},
     *({"signingSecret": {"ssm": name}} for name in ("/dynatick/url", "/dynatick/short", "/dynatick/blank", "/other"))],
)  # fmt: skip
def test_no_message_contains_a_secret(server, payload, caplog):
    caplog.set_level(logging.DEBUG)
    parameters = stored(
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


def test_a_text_that_looks_like_a_reference_stays_text(server):
    """An end user's text must not fetch a secret."""
    text = "{{resolve:ssm:/dynatick/token}}"
    data = {"comment": text, "nested": ssm("token")}
    call(server, stored(token=SECRET), data=data, headers={"X-Comment": text})
    (request,) = server.requests
    assert (json.loads(request.body), request.headers["x-comment"]) == (data, text)


@pytest.mark.parametrize("status", [401, 403])
def test_a_replaced_secret_is_fetched_and_the_task_retried(server, status):
    parameters = stored(token=SECRET)
    webhook = webhook_with(parameters)
    task = a_task({"url": server.url, "headers": {"Authorization": ssm("token")}})
    server.status = status
    with pytest.raises(PermanentError, match=f"^the target answered {status}$"):
        webhook.run(task, a_context(task))
    parameters.values["/dynatick/token"] = "new"
    with pytest.raises(RetryableError, match=f"^the target answered {status}, and a secret has changed meanwhile$"):
        webhook.run(task, a_context(task))
    server.status = 200
    webhook.run(task, a_context(task))
    assert [request.headers["authorization"] for request in server.requests] == [SECRET, SECRET, "new"]


def test_every_task_that_was_under_way_when_its_secret_was_replaced_is_retried():
    parameters = stored(token="old")

    class Target:
        under_way = 0

        def send(self, *_, headers, **__):
            assert headers["authorization"] == "old"
            self.under_way += 1
            if self.under_way < 3:
                run()  # another one, before this one is answered
            parameters.values["/dynatick/token"] = "new"
            return Answer(401, None)

    target = Target()
    webhook = webhook_with(parameters, connect=lambda: target)
    task = a_task({"url": "https://127.0.0.1/", "headers": {"Authorization": ssm("token")}})

    def run():
        with pytest.raises(RetryableError, match=r"a secret has changed meanwhile$"):
            webhook.run(task, a_context(task))

    run()
    assert target.under_way == 3


# Signatures, seen by an independent verifier


def verified(key, request):
    return Verifier(key).verify(request.body, request.headers, json_parse=bool(request.body))


@pytest.mark.parametrize("payload", [{"data": {"n": 1}}, {"data": "é"}, {"data": {}}, {"method": "GET"}])
def test_a_signature_covers_the_body_and_is_not_the_users(server, payload):
    now = datetime.now(UTC)
    forged = {"webhook-id": "x", "Webhook-Signature": "v1,x", "webhook-timestamp": "1"}
    call(server, stored(key=KEY), now=now, signingSecret={"ssm": "/dynatick/key"}, headers=forged, **payload)
    (request,) = server.requests
    verified(KEY, request)
    assert request.headers["webhook-id"] == request.headers["idempotency-key"]
    assert abs(int(request.headers["webhook-timestamp"]) - now.timestamp()) < 1
    with pytest.raises(WebhookVerificationError):
        verified(OTHER_KEY, request)
    request.body += b" "
    with pytest.raises(WebhookVerificationError):
        verified(KEY, request)


def test_a_secret_with_two_keys_signs_with_both(server):
    keys = stored(keys=f"{KEY} {OTHER_KEY}")
    call(server, keys, now=datetime.now(UTC), signingSecret={"ssm": "/dynatick/keys"})
    (request,) = server.requests
    assert verified(KEY, request) == verified(OTHER_KEY, request) == {}
    assert re.fullmatch(r"v1,\S+ v1,\S+", request.headers["webhook-signature"])


def test_an_id_with_dots_signs_no_other_message():
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


def test_a_target_that_completes_the_task_gets_the_token(server):
    later = CompleteLater(timedelta(hours=1), timedelta(minutes=1))
    times = {"completeWithinSeconds": 3600, "heartbeatSeconds": 60}
    assert call(server, task={"lease": "l"}, **times) == later
    assert server.requests[0].headers["x-dynatick-completion-token"] == completion_token("l", a_task().task_id)
    server.status = 503
    with pytest.raises(RetryableError):
        call(server, **times)
