"""The action webhook, against web servers on the loopback. Failure modes 14 and 22."""

import json
import logging
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from ipaddress import ip_address

import pytest
from boto3.dynamodb.types import Binary
from tests.unit.actions.support import NOW, a_context, a_rude_server, a_server, a_task, a_webhook
from tests.unit.certificate import self_signed

from dynatick.actions import connection
from dynatick.actions.connection import IDLE_SECONDS, Connections
from dynatick.actions.webhook_url import Hosts, PrivateHosts
from dynatick.errors import PermanentError, RetryableError

SECRET = "hunter2"


@pytest.fixture
def webhook(clock):
    return a_webhook(clock=clock, hosts=Hosts(private=["127.0.0.1"]))


def call(webhook, payload, task=None, **context):
    task = task or a_task(payload)
    return webhook.run(task, a_context(task, **context))


def connecting(clock, *, private_hosts=(), **options):
    """A webhook with a test's resolver or TLS context."""
    connections = Connections(private_hosts=PrivateHosts(private_hosts), clock=clock, per_host=4, **options)
    return a_webhook(clock=clock, hosts=Hosts(private=private_hosts), connect=lambda: connections)


# What is sent


def test_the_data_is_sent_as_json_with_dynaticks_headers(webhook, server):
    payload = {
        "url": f"{server.url}?a=b#c",
        "data": {"n": Decimal(3), "f": Decimal("0.5"), "b": Binary(b"\x00"), "s": {"y", "x"}},
    }
    task = a_task(payload, task_id="order/42", attempt=2, run=3)
    server.status = 202
    assert call(webhook, payload, task) == {"status": 202}
    (request,) = server.requests
    assert request.path == "/hook?a=b"
    assert json.loads(request.body) == {"n": 3, "f": 0.5, "b": "AA==", "s": ["x", "y"]}
    assert request.headers == {
        "host": f"127.0.0.1:{server.port}", "accept-encoding": "identity", "content-length": str(len(request.body)),
        "content-type": "application/json", "idempotency-key": "order/42#3", "user-agent": "dynatick-webhook",
        "x-dynatick-task-id": "order/42", "x-dynatick-attempt": "2", "x-dynatick-due-at": "2026-12-31T11:59:30Z",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "body"),
    [({}, b"{}"), ({"data": None}, b"null"), ({"data": "é"}, b'"\\u00e9"'),
     ({"data": Decimal("12345678901234567890")}, b"12345678901234567890")],
)  # fmt: skip
def test_any_data_can_be_sent(webhook, server, data, body):
    call(webhook, {"url": server.url, **data})
    assert server.requests[0].body == body


@pytest.mark.parametrize(
    ("task_id", "sent"),
    [("a b", "a%20b"), ("100%", "100%25"), ("a\r\nX-Injected: 1", "a%0D%0AX-Injected:%201"), ("\x00\x7f", "%00%7F"),
     ("🕛" * 256, "%F0%9F%95%9B" * 256)],
)  # fmt: skip
def test_a_task_id_is_percent_encoded_in_headers(webhook, server, task_id, sent):
    payload = {"url": server.url}
    call(webhook, payload, a_task(payload, task_id=task_id))
    headers = server.requests[0].headers
    assert (headers["x-dynatick-task-id"], headers["idempotency-key"]) == (sent, f"{sent}#1")
    assert "x-injected" not in headers


def test_dynaticks_headers_override_the_users(webhook, server):
    theirs = {"Authorization": "Bearer a b", "X-Empty": "", "content-TYPE": "text/plain", "X-Dynatick-Attempt": "99"}
    call(webhook, {"url": server.url, "headers": {**theirs, "IDEMPOTENCY-KEY": "mine"}})
    sent = {"authorization": "Bearer a b", "x-empty": "", "content-type": "application/json",
            "idempotency-key": "t-1#1", "x-dynatick-attempt": "1"}  # fmt: skip
    assert sent.items() <= server.requests[0].headers.items()


# What is refused before anything is sent


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"dta": 1}, "payload: unknown 'dta'; expected any of body, data, expectedStatuses, headers, method,"),
        ({"method": "get"}, "payload.method: Input should be 'POST', 'PUT', 'PATCH', 'DELETE' or 'GET'"),
        ({"method": "GET", "data": {}}, "payload.data: a GET sends no body; leave it out"),
        ({"body": "a", "data": None}, "payload.body: expected data or body, not both"),
        ({"body": "\ud800"}, "payload.body: expected text that UTF-8 can hold"),
        ({"expectedStatuses": []}, "payload.expectedStatuses: List should have at least 1 item"),
        ({"expectedStatuses": [199]}, "payload.expectedStatuses.0: expected a status from 200 to 599"),
        ({"expectedStatuses": [True]}, "payload.expectedStatuses.0: expected a status from 200 to 599"),
        ({"signingSecret": SECRET}, "payload.signingSecret: Input should be"),
        ({"signingSecret": {"ssm": "a", "key": "b"}}, "payload.signingSecret.key: Unexpected keyword argument"),
        ({"headers": {"A": {"secret": SECRET}}}, "payload.headers.A.secret: Input should be"),
        ({"data": {"a": object()}}, "payload.data: a object is not a value that a row can hold"),
        ({"data": float("nan")}, "payload.data: Out of range float values"),
        ({"headers": "x"}, "payload.headers: expected a map of at most 32 headers"),
        ({"headers": {f"a{n}": "" for n in range(33)}}, "payload.headers: expected a map of at"),
        ({"headers": {"a b": "x"}}, "payload.headers: 'a b' is not the name of a header"),
        ({"headers": {"a\n": "x"}}, "payload.headers: 'a\\n' is not the name of a header"),
        ({"headers": {"a": f"{SECRET}\r\nb: c"}}, "payload.headers.a: expected text in printable"),
        ({"headers": {"a": f"{SECRET} "}}, "payload.headers.a: expected text in printable"),
        ({"headers": {"a": Decimal(1)}}, "payload.headers.a: expected text in printable"),
        ({"headers": {"Host": "x"}}, "payload.headers: 'Host' can't be set"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "payload.headers: 'Transfer-Encoding'"),
        ({"headers": {"Proxy-Authorization": "x"}}, "payload.headers: 'Proxy-Authorization' can"),
        ({"headers": {"a": "x", "A": "y"}}, "payload.headers: 'A' is there twice"),
        ({"headers": {"a": "x" * 9000}}, "payload.headers: expected at most 8192 characters"),
        ({"timeoutSeconds": 0}, "payload.timeoutSeconds: expected a number of seconds, more than"),
        ({"timeoutSeconds": 61}, "payload.timeoutSeconds: expected"),
        ({"timeoutSeconds": True}, "payload.timeoutSeconds: expected"),
        ({"url": "http://example.com/"}, "payload.url: expected https"),
        ({"url": None}, "payload.url: Input should be a valid string"),
    ],
)
def test_payloads_that_are_refused(webhook, server, more, message):
    with pytest.raises(PermanentError) as caught:
        call(webhook, {"url": server.url, **more})
    assert str(caught.value).startswith(message)
    assert SECRET not in str(caught.value)
    assert server.requests == []


# What the answer means: no failure becomes a success

REDIRECT = ", a redirect, and redirects are not followed; give the URL that it leads to"


@pytest.mark.parametrize(
    ("statuses", "error", "message"),
    [((200, 204, 299), None, ""), ((408, 425, 429, 500, 599), RetryableError, ""),
     ((400, 401, 403, 404, 499), PermanentError, ""), ((300, 301, 302, 308), PermanentError, REDIRECT)],
)  # fmt: skip
def test_the_status_decides_between_success_retry_and_failure(webhook, server, statuses, error, message):
    server.body = b"" if error is None else SECRET.encode()
    with a_server() as elsewhere:
        for status in statuses:
            server.status, server.headers = status, {"Location": elsewhere.url}
            if error is None:
                assert call(webhook, {"url": server.url}) == {"status": status}
                continue
            with pytest.raises(error) as caught:
                call(webhook, {"url": server.url})
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
def test_retry_after(webhook, server, header, seconds):
    server.status, server.headers = 429, {"Retry-After": header}
    with pytest.raises(RetryableError) as caught:
        call(webhook, {"url": server.url})
    assert caught.value.retry_after == seconds


# Targets that do not answer, or not as they should


def answering(*parts, every=0.0):
    """Reads a request, sends these parts with pauses, and closes."""

    def behave(connection):
        connection.recv(65536)
        for part in parts:
            connection.sendall(part)
            time.sleep(every)

    return behave


OK = b"HTTP/1.1 200 OK\r\n"
DRIPPED_HEADERS = (OK, *[b"a: b\r\n"] * 200)


def reset(connection):
    connection.recv(10)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")


BREAKING = {
    "closes at once": answering(),
    "resets": reset,
    "talks nonsense": answering(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "sends too long a header": answering(OK + b"A: " + b"x" * 100_000 + b"\r\n\r\n"),
    "sends too many headers": answering(OK + b"a: b\r\n" * 500 + b"\r\n"),
}


@pytest.mark.parametrize("behave", BREAKING.values(), ids=BREAKING)
def test_a_connection_that_breaks_is_retryable(webhook, behave):
    with a_rude_server(behave) as url, pytest.raises(RetryableError) as caught:
        call(webhook, {"url": url})
    assert str(caught.value).startswith("the connection to the target broke before it answered")
    assert "127.0.0.1" not in str(caught.value)


def stay_silent(connection):
    time.sleep(1)


DRIPPED_STATUS = [bytes([byte]) for byte in OK * 100]
SLOW = {
    "stays silent": stay_silent,
    "drips the status line": answering(*DRIPPED_STATUS, every=0.05),
    "drips the headers": answering(*DRIPPED_HEADERS, every=0.05),
}


@pytest.mark.parametrize("behave", SLOW.values(), ids=SLOW)
def test_a_timeout_is_retryable(webhook, behave):
    began = time.monotonic()
    with (
        a_rude_server(behave) as url,
        pytest.raises(RetryableError, match=r"^the target did not answer within 0\.3 s$"),
    ):
        call(webhook, {"url": url, "timeoutSeconds": Decimal("0.3")})
    assert time.monotonic() - began < 5


def flood(connection):
    connection.recv(65536)
    connection.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    while True:
        connection.sendall(chunk)


BODIES = {
    "drips it": answering(OK + b"Content-Length: 1000\r\n\r\n", *[b"x"] * 1000, every=0.05),
    "floods": flood,
    "breaks off": answering(OK + b"Content-Length: 1000\r\n\r\nx"),
    "sends a bomb": answering(OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope"),
}


@pytest.mark.parametrize("behave", BODIES.values(), ids=BODIES)
def test_only_the_status_counts_and_not_the_body(webhook, behave):
    began = time.monotonic()
    with a_rude_server(behave) as url:
        assert call(webhook, {"url": url, "timeoutSeconds": Decimal("0.3")}) == {"status": 200}
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_refused_connection_is_retryable(clock, host):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(RetryableError) as caught:
        call(a_webhook(clock=clock, hosts=Hosts(private=[host])), {"url": f"http://{host}:{port}/"})
    assert str(caught.value) == "the target could not be connected to"


def test_an_unknown_host_is_retryable(clock):
    def resolve(host, port):
        raise socket.gaierror(-2, f"{SECRET} Name or service not known")

    with pytest.raises(RetryableError) as caught:
        call(connecting(clock, resolve=resolve), {"url": "https://hooks.example/"})
    assert str(caught.value) == "the name of the target's host could not be resolved"
    assert caught.value.__cause__ is None


def test_a_hanging_resolver_counts_towards_the_timeout(clock):
    asked, answers = [], threading.Event()

    def resolve(host, port):
        asked.append(host)
        answers.wait(60)
        return ["127.0.0.1"]

    webhook = connecting(clock, resolve=resolve)
    payload = {"url": "https://hooks.example/", "timeoutSeconds": 0.2}
    try:
        for _ in range(3):
            with pytest.raises(RetryableError, match="name of the target's host could not be resolved"):
                call(webhook, payload)
        assert not answers.is_set()
        assert asked == ["hooks.example"], "one thread hangs, not one for each try"
    finally:
        answers.set()


def test_no_request_is_sent_without_time_left(webhook, server):
    with pytest.raises(RetryableError, match="no time was left to call the target"):
        call(webhook, {"url": server.url}, deadline=NOW + timedelta(seconds=0.05))
    assert server.requests == []


def test_the_deadline_limits_the_timeout(webhook):
    with a_rude_server(stay_silent) as url, pytest.raises(RetryableError, match=r"within 0\.2 s"):
        call(webhook, {"url": url}, deadline=NOW + timedelta(seconds=0.2))


# Where it does not go


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["169.254.169.254"], ["10.0.0.1"], ["::ffff:127.0.0.1"], ["1.1.1.1", "127.0.0.1"],
     ["127.0.0.1", "1.1.1.1"]],
)  # fmt: skip
@pytest.mark.parametrize("scheme", ["https", "http"])
def test_a_name_with_a_private_address_is_refused(clock, monkeypatch, addresses, scheme):
    monkeypatch.setattr(connection, "create_connection", None)  # any attempt would fail loudly
    webhook = connecting(clock, resolve=lambda host, port: addresses)
    if scheme == "http":  # only hosts that are listed get so far; the address check applies to them too
        webhook._hosts = Hosts(private=["hooks.example"])
    with pytest.raises(PermanentError) as caught:
        call(webhook, {"url": f"{scheme}://hooks.example/"})
    assert str(caught.value) == (
        "payload.url: its host has an address that is not public; webhooks go there only if the "
        "host is listed in WebhookPrivateHosts"
    )


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0", "[::1]",
     "[::ffff:127.0.0.1]", "[::]", "169.254.169.254"],
)  # fmt: skip
def test_numeric_forms_of_private_addresses_are_refused(clock, host):
    with pytest.raises(PermanentError, match="its host has an address that is not public"):
        call(a_webhook(clock=clock), {"url": f"https://{host}/"})


def test_the_connection_goes_to_the_checked_address(clock, server, monkeypatch):
    """A second resolution with another address has no effect on the open connection."""
    monkeypatch.setattr(connection, "is_public", lambda address: address == "127.0.0.1")
    asked = []

    def resolve(host, port):
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    webhook = connecting(clock, resolve=resolve)
    webhook._hosts = Hosts(private=["hooks.example"])  # for plain http; the address check has none
    monkeypatch.setattr(socket, "getaddrinfo", only_literals(socket.getaddrinfo))  # nothing else may resolve
    url = f"http://hooks.example:{server.port}/"
    assert call(webhook, {"url": url}) == {"status": 200}
    assert server.requests[0].headers["host"] == f"hooks.example:{server.port}"
    assert call(webhook, {"url": url}) == {"status": 200}
    assert asked == ["hooks.example"]  # the open connection was used again
    clock.forward(IDLE_SECONDS + 1)
    with pytest.raises(PermanentError, match="not public"):
        call(webhook, {"url": url})


def test_a_name_is_resolved_anew_by_who_asks_after_an_answer():
    """Also if the thread that resolved it gets no CPU for a while."""
    answers = iter([["127.0.0.1"], ["127.0.0.2"]])
    lookups = connection._Lookups(lambda host, port: next(answers))

    class SlowForOthers:
        lock = threading.Lock()

        def __enter__(self):
            if threading.current_thread() is not threading.main_thread():
                time.sleep(0.1)
            self.lock.acquire()

        def __exit__(self, *_):
            self.lock.release()

    lookups._lock = SlowForOthers()
    assert [lookups.addresses("hooks.example", 80, 10) for _ in range(2)] == [["127.0.0.1"], ["127.0.0.2"]]


def only_literals(original):
    def getaddrinfo(host, *rest, **more):
        ip_address(host)  # raises for a name
        return original(host, *rest, **more)

    return getaddrinfo


def test_the_next_address_is_tried_after_a_failed_one(clock, server):
    webhook = connecting(clock, private_hosts=["hooks.example"], resolve=lambda host, port: ["127.0.0.3", "127.0.0.1"])
    assert call(webhook, {"url": f"http://hooks.example:{server.port}/"}) == {"status": 200}


def test_the_proxy_of_the_environment_is_not_used(webhook, server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    assert call(webhook, {"url": server.url}) == {"status": 200}


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for hooks.example: (server's context, client's context)."""
    server, file = self_signed(tmp_path_factory.mktemp("tls"), "hooks.example")
    return server, ssl.create_default_context(cafile=file)


def a_tls_webhook(clock, context, host="hooks.example"):
    return connecting(clock, private_hosts=[host], resolve=lambda host, port: ["127.0.0.1"], ssl_context=context)


def test_tls_verifies_the_hosts_name(clock, certificate):
    with a_server(certificate[0]) as server:
        webhook = a_tls_webhook(clock, certificate[1])
        url = f"https://hooks.example:{server.port}/x"
        assert call(webhook, {"url": url, "data": {"big": "x" * 300_000}}) == {"status": 200}
        assert call(webhook, {"url": url}) == {"status": 200}
        assert len(server.connections) == 1
        assert server.requests[0].headers["host"] == f"hooks.example:{server.port}"


@pytest.mark.parametrize(
    ("host", "trusted", "message"), [("other.example", True, "Hostname mismatch"), ("hooks.example", False, "self")]
)
def test_a_certificate_of_another_name_or_issuer_is_refused(clock, certificate, host, trusted, message):
    with a_server(certificate[0]) as server:
        webhook = a_tls_webhook(clock, certificate[1] if trusted else None, host=host)
        with pytest.raises(RetryableError, match=f"^the target's certificate was refused: {message}"):
            call(webhook, {"url": f"https://{host}:{server.port}/"})
        assert server.requests == []


@pytest.mark.parametrize(
    ("behave", "message"),
    [
        (BREAKING["talks nonsense"], "the TLS connection to the target failed"),
        (stay_silent, r"did not answer within 0\.3 s"),
    ],
)
def test_a_failed_or_hanging_tls_handshake_is_retryable(clock, behave, message):
    with a_rude_server(behave) as url:
        payload = {"url": url.replace("http://127.0.0.1", "https://hooks.example"), "timeoutSeconds": Decimal("0.3")}
        with pytest.raises(RetryableError, match=message):
            call(a_tls_webhook(clock, None), payload)


def test_slow_headers_over_tls_time_out(clock, certificate):
    def behave(connection):
        with certificate[0].wrap_socket(connection, server_side=True) as wrapped:
            answering(*DRIPPED_HEADERS, every=0.05)(wrapped)

    with a_rude_server(behave) as url:
        port = url.split(":")[2].split("/")[0]
        webhook = a_tls_webhook(clock, certificate[1])
        with pytest.raises(RetryableError, match=r"did not answer within 0\.4 s"):
            call(webhook, {"url": f"https://hooks.example:{port}/", "timeoutSeconds": Decimal("0.4")})


# Connections


def test_threads_share_connections(webhook, server, caplog):
    caplog.set_level(logging.WARNING)
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: call(webhook, {"url": server.url}), range(200)))
    assert results == [{"status": 200}] * len(server.requests) == [{"status": 200}] * 200
    assert len(server.connections) <= 8
    assert caplog.records == []


def test_a_long_answer_closes_the_connection(webhook, server):
    for server.body in (b"x" * 1_000_000, b""):
        assert call(webhook, {"url": server.url}) == {"status": 200}
    assert len(server.connections) == 2


def test_an_idle_connection_is_opened_anew(webhook, server, clock):
    call(webhook, {"url": server.url})
    for seconds, connections in ((IDLE_SECONDS - 1, 1), (IDLE_SECONDS + 1, 2)):
        clock.forward(seconds)
        call(webhook, {"url": server.url})
        assert len(server.connections) == connections


def test_a_second_request_on_a_connection_has_its_whole_timeout(webhook, server):
    payload = {"url": server.url, "timeoutSeconds": Decimal("0.3")}
    call(webhook, payload)
    time.sleep(0.5)
    assert call(webhook, payload) == {"status": 200}
    assert len(server.connections) == 1


def test_no_timer_is_left_behind(webhook, server):
    before = threading.active_count()
    call(webhook, {"url": server.url})
    with a_rude_server(answering()) as url, pytest.raises(RetryableError):
        call(webhook, {"url": url})
    time.sleep(0.1)
    assert threading.active_count() <= before + 1  # the server's thread of the open connection
