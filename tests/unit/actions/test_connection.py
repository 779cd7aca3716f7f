"""Connections to webhooks' hosts: targets that misbehave, addresses, TLS, and reuse. Failure modes 14 and 22."""

import logging
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from ipaddress import ip_address

import pytest
from tests.ports import reserved_port
from tests.unit.actions.support import NOW, a_context, a_rude_server, a_server, a_task, a_webhook
from tests.unit.certificate import self_signed

from dynatick.actions import connection
from dynatick.actions.aws_client import MAX_IDLE_SECONDS
from dynatick.actions.connection import Connections
from dynatick.actions.webhook_url import Hosts, PrivateHosts
from dynatick.errors import PermanentError, RetryableError
from dynatick_stack.processes import wait_until

SECRET = "hunter2"


@pytest.fixture
def webhook(clock):
    return a_webhook(clock=clock, hosts=Hosts(private=["127.0.0.1"]))


def call(webhook, url, timeout=10, **context):
    task = a_task({"url": url, "timeoutSeconds": Decimal(str(timeout))})
    return webhook.run(task, a_context(task, **context))


def connecting(clock, *, private_hosts=(), hosts=None, **options):
    """A webhook with a test's resolver or TLS context. ``hosts`` may be called by plain http."""
    connections = Connections(private_hosts=PrivateHosts(private_hosts), clock=clock, per_host=4, **options)
    return a_webhook(clock=clock, hosts=Hosts(private=hosts or private_hosts), connect=lambda: connections)


# Targets that do not answer, or not as they should


def answering(*parts, every=0.0):
    """Reads a request, sends these parts with pauses, and closes."""

    def behave(connection):
        connection.recv(65536)
        for part in parts:
            connection.sendall(part)
            time.sleep(every)  # wait: the target drips

    return behave


OK = b"HTTP/1.1 200 OK\r\n"
DRIPPED_HEADERS = (OK, *[b"a: b\r\n"] * 200)
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n"


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
        call(webhook, url)
    assert str(caught.value).startswith("the connection to the target broke before it answered")
    assert "127.0.0.1" not in str(caught.value)


def stay_silent(connection):
    time.sleep(1)  # wait: the target is silent for longer than its task allows


DRIPPED_STATUS = [bytes([byte]) for byte in OK * 100]
SLOW = {
    "stays silent": stay_silent,
    "drips the status line": answering(*DRIPPED_STATUS, every=0.05),
    "drips the headers": answering(*DRIPPED_HEADERS, every=0.05),
    "drips interim answers": answering(*[EARLY_HINTS] * 200, every=0.05),
}


@pytest.mark.parametrize("behave", SLOW.values(), ids=SLOW)
def test_a_timeout_is_retryable(webhook, behave):
    # Had each read a limit of its own, what drips would come to its end, and break off.
    with (
        a_rude_server(behave) as url,
        pytest.raises(RetryableError, match=r"^the target did not answer within 0\.3 s$"),
    ):
        call(webhook, url, 0.3)


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


def soon_answered(webhook, url):
    """The answer to a request that has 0.3 s; to another if the machine is too busy for that."""
    for _ in range(100):
        with suppress(RetryableError):
            return call(webhook, url, 0.3)
    raise AssertionError("no answer came within 0.3 s, in a hundred tries")


@pytest.mark.parametrize("behave", BODIES.values(), ids=BODIES)
def test_only_the_status_counts_and_not_the_body(webhook, behave):
    with a_rude_server(behave) as url:
        assert soon_answered(webhook, url) == {"status": 200}


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
WITHOUT_END = {
    "a body": (OK + b"Content-Length: 60000\r\n\r\n", b"x"),
    "a body that ends with the connection": (OK + b"Connection: close\r\n\r\n", b"x"),
    "the size of a chunk": (CHUNKED, b"0"),
    "an extension of a chunk": (CHUNKED + b"1;", b"x"),
    "small chunks": (CHUNKED, b"1\r\nx\r\n"),
    "trailers": (CHUNKED + b"0\r\n", b"X-A: b\r\n"),
    "silence": (OK + b"Content-Length: 1\r\n\r\n", b""),
}


@pytest.mark.parametrize(("head", "drip"), WITHOUT_END.values(), ids=WITHOUT_END)
def test_a_target_whose_answer_does_not_end_is_hung_up_on(webhook, head, drip):
    """It would hold a thread for ever."""
    hung_up = threading.Event()

    def behave(connection):
        connection.recv(65536)
        connection.sendall(head)
        connection.settimeout(0.02)
        for _ in range(1000):
            with suppress(TimeoutError):
                if connection.recv(1) == b"":
                    break
            try:
                connection.sendall(drip)
            except OSError:
                break
        else:
            return
        hung_up.set()

    with a_rude_server(behave) as url:
        assert call(webhook, url, 0.3) == {"status": 200}
        assert hung_up.wait(60), "it could have gone on"


INTERIM = [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 102 Processing\r\n\r\n", EARLY_HINTS, EARLY_HINTS * 3]


@pytest.mark.parametrize("interim", INTERIM)
def test_an_interim_answer_is_passed_over(webhook, interim):
    """Were it taken for the answer, the next request on the connection would get this one's."""

    def behave(connection):
        for final in (b"200 OK", b"500 Internal Server Error", b"204 No Content"):
            connection.recv(65536)
            connection.sendall(interim + b"HTTP/1.1 " + final + b"\r\nContent-Length: 0\r\n\r\n")

    with a_rude_server(behave) as url:
        task = a_task({"url": url, "method": "GET"})
        assert webhook.run(task, a_context(task)) == {"status": 200}
        with pytest.raises(RetryableError, match=r"^the target answered 500$"):
            webhook.run(task, a_context(task))
        assert webhook.run(task, a_context(task)) == {"status": 204}


def test_a_switch_of_protocols_ends_its_connection(webhook):
    hung_up = threading.Event()

    def behave(connection):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        if connection.recv(1) == b"":
            hung_up.set()

    with a_rude_server(behave) as url, pytest.raises(PermanentError, match=r"^the target answered 101$"):
        task = a_task({"url": url, "method": "GET"})
        webhook.run(task, a_context(task))
    assert hung_up.is_set()


def test_a_chunked_answer_keeps_its_connection(webhook, server):
    server.headers, server.body = {"Transfer-Encoding": "chunked"}, b"2\r\nok\r\n0\r\n\r\n"
    for _ in range(2):
        assert call(webhook, server.url) == {"status": 200}
    assert len(server.connections) == 1


def test_the_end_of_a_requests_time_does_not_meet_the_next_request_of_the_connection(webhook, server, monkeypatch):
    passed = []

    class Late:
        """A timer whose function runs after it was cancelled, as one that has just begun does."""

        def __init__(self, seconds, function):
            passed.append(function)

        def start(self):
            pass

        cancel = start

    monkeypatch.setattr(connection.threading, "Timer", Late)
    for _ in range(3):
        assert call(webhook, server.url) == {"status": 200}
        passed[-1]()
    assert len(server.connections) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_refused_connection_is_retryable(clock, host):
    refused = pytest.raises(RetryableError, match=r"^the target could not be connected to$")
    with reserved_port() as port, refused:
        call(a_webhook(clock=clock, hosts=Hosts(private=[host])), f"http://{host}:{port}/{SECRET}")


NOT_RESOLVED = r"^the name of the target's host could not be resolved$"


def test_an_unknown_host_is_retryable(clock):
    def resolve(host, port):
        raise socket.gaierror(-2, f"{SECRET} Name or service not known")

    with pytest.raises(RetryableError, match=NOT_RESOLVED) as caught:
        call(connecting(clock, resolve=resolve), "https://hooks.example/")
    assert caught.value.__cause__ is None


def test_a_hanging_resolver_counts_towards_the_timeout(clock):
    asked, answers = [], threading.Event()

    def resolve(host, port):
        asked.append(host)
        answers.wait(60)
        return ["127.0.0.1"]

    webhook = connecting(clock, resolve=resolve)
    try:
        for _ in range(3):
            with pytest.raises(RetryableError, match=NOT_RESOLVED):
                call(webhook, "https://hooks.example/", 0.2)
        assert not answers.is_set()
        assert asked == ["hooks.example"], "one thread hangs, not one for each try"
    finally:
        answers.set()


def test_names_that_hang_do_not_use_up_the_threads():
    answers = threading.Event()

    def resolve(host, port):
        if host != "good.example":
            answers.wait(60)
        return [host]

    lookups, before = connection._Lookups(resolve), threading.active_count()

    def look_up(host):
        return lookups.addresses(host, 443, 0.0 if host.startswith("n") else 30)

    assert look_up("good.example") == ["good.example"]
    for number in range(connection.MAX_LOOKUPS):
        with pytest.raises(TimeoutError):
            look_up(f"n{number}.example")
    for host in ("n64.example", "good.example"):
        with pytest.raises(RetryableError, match=r"^64 other names of hosts are being resolved$"):
            look_up(host)
    assert look_up("192.0.2.7") == ["192.0.2.7"], "an address needs no thread"
    with pytest.raises(TimeoutError):
        look_up("n7.example")  # it waits for the look-up that is under way
    assert threading.active_count() <= before + connection.MAX_LOOKUPS
    under_way = list(lookups._under_way.values())
    answers.set()
    for lookup in under_way:
        lookup.result(30)
    assert look_up("good.example") == ["good.example"]


def test_the_deadline_limits_the_timeout(webhook, server):
    with a_rude_server(stay_silent) as url, pytest.raises(RetryableError, match=r"within 0\.2 s"):
        call(webhook, url, deadline=NOW + timedelta(seconds=0.2))
    with pytest.raises(RetryableError, match="no time was left to call the target"):
        call(webhook, server.url, deadline=NOW + timedelta(seconds=0.05))
    assert server.requests == []


# Where it does not go


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["169.254.169.254"], ["10.0.0.1"], ["::ffff:127.0.0.1"], ["1.1.1.1", "127.0.0.1"],
     ["127.0.0.1", "1.1.1.1"]],
)  # fmt: skip
@pytest.mark.parametrize("scheme", ["https", "http"])  # http goes to listed hosts only; they are checked too
def test_a_name_with_a_private_address_is_refused(clock, monkeypatch, addresses, scheme):
    monkeypatch.setattr(connection, "create_connection", None)  # any attempt would fail loudly
    hosts = ["hooks.example"] if scheme == "http" else []
    webhook = connecting(clock, hosts=hosts, resolve=lambda host, port: addresses)
    with pytest.raises(PermanentError, match=r"^payload\.url: its host has an .* not public; .*WebhookPrivateHosts$"):
        call(webhook, f"{scheme}://hooks.example/")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0", "[::1]",
     "[::ffff:127.0.0.1]", "[::]", "169.254.169.254"],
)  # fmt: skip
def test_numeric_forms_of_private_addresses_are_refused(clock, host):
    with pytest.raises(PermanentError, match="its host has an address that is not public"):
        call(a_webhook(clock=clock), f"https://{host}/")


def test_the_connection_goes_to_the_checked_address(clock, server, monkeypatch):
    """A second resolution with another address has no effect on the open connection."""
    monkeypatch.setattr(connection, "is_public", lambda address: address == "127.0.0.1")
    answers, system = iter([["127.0.0.1"], ["127.0.0.2"]]), socket.getaddrinfo

    def only_literals(host, *rest, **more):
        ip_address(host)  # raises for a name: nothing else may resolve it
        return system(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", only_literals)
    webhook = connecting(clock, hosts=["hooks.example"], resolve=lambda host, port: next(answers))
    url = f"http://hooks.example:{server.port}/"
    for _ in range(2):  # the open connection is used again
        assert call(webhook, url) == {"status": 200}
    assert server.requests[0].headers["host"] == f"hooks.example:{server.port}"
    clock.forward(MAX_IDLE_SECONDS + 1)
    with pytest.raises(PermanentError, match="not public"):
        call(webhook, url)


def test_a_name_is_resolved_anew_by_who_asks_after_an_answer():
    """The thread that resolved it may get no CPU for a while."""
    answers = iter([["127.0.0.1"], ["127.0.0.2"]])
    lookups = connection._Lookups(lambda host, port: next(answers))

    class SlowForOthers:
        lock = threading.Lock()

        def __enter__(self):
            if threading.current_thread() is not threading.main_thread():
                time.sleep(0.1)  # wait: the thread that resolved comes later than who asks, on purpose
            self.lock.acquire()

        def __exit__(self, *_):
            self.lock.release()

    lookups._lock = SlowForOthers()
    assert [lookups.addresses("hooks.example", 80, 10) for _ in range(2)] == [["127.0.0.1"], ["127.0.0.2"]]


def test_the_next_address_is_tried_after_a_failed_one(clock, server):
    webhook = connecting(clock, private_hosts=["hooks.example"], resolve=lambda host, port: ["127.0.0.3", "127.0.0.1"])
    assert call(webhook, f"http://hooks.example:{server.port}/") == {"status": 200}


def test_the_proxy_of_the_environment_is_not_used(webhook, server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    assert call(webhook, server.url) == {"status": 200}


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
        task = a_task({"url": f"https://hooks.example:{server.port}/x", "data": {"big": "x" * 300_000}})
        for _ in range(2):
            assert webhook.run(task, a_context(task)) == {"status": 200}
        assert len(server.connections) == 1
        assert server.requests[0].headers["host"] == f"hooks.example:{server.port}"


@pytest.mark.parametrize(
    ("host", "trusted", "message"), [("other.example", True, "Hostname mismatch"), ("hooks.example", False, "self")]
)
def test_a_certificate_of_another_name_or_issuer_is_refused(clock, certificate, host, trusted, message):
    with a_server(certificate[0]) as server:
        webhook = a_tls_webhook(clock, certificate[1] if trusted else None, host=host)
        with pytest.raises(RetryableError, match=f"^the target's certificate was refused: {message}"):
            call(webhook, f"https://{host}:{server.port}/")
        assert server.requests == []


@pytest.mark.parametrize(
    ("behave", "message"),
    [
        (BREAKING["talks nonsense"], "the TLS connection to the target failed"),
        (stay_silent, r"did not answer within 0\.4 s"),
        (None, r"did not answer within 0\.4 s"),
    ],
)
def test_a_tls_connection_that_fails_or_hangs_is_retryable(clock, certificate, behave, message):
    def drip_headers(connection):
        with certificate[0].wrap_socket(connection, server_side=True) as wrapped:
            answering(*DRIPPED_HEADERS, every=0.05)(wrapped)

    with a_rude_server(behave or drip_headers) as url, pytest.raises(RetryableError, match=message):
        call(a_tls_webhook(clock, certificate[1]), url.replace("http://127.0.0.1", "https://hooks.example"), 0.4)


# Connections


def test_threads_share_connections(webhook, server, caplog):
    caplog.set_level(logging.WARNING)
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: call(webhook, server.url), range(200)))
    assert results == [{"status": 200}] * len(server.requests) == [{"status": 200}] * 200
    assert len(server.connections) <= 8
    assert caplog.records == []


def test_a_long_answer_closes_the_connection(webhook, server):
    for server.body in (b"x" * 1_000_000, b""):
        assert call(webhook, server.url) == {"status": 200}
    assert len(server.connections) == 2


def test_an_idle_connection_is_opened_anew(webhook, server, clock):
    call(webhook, server.url)
    for seconds, connections in ((MAX_IDLE_SECONDS - 1, 1), (MAX_IDLE_SECONDS + 1, 2)):
        clock.forward(seconds)
        call(webhook, server.url)
        assert len(server.connections) == connections


def test_a_second_request_on_a_connection_has_its_whole_timeout(webhook, server):
    assert soon_answered(webhook, server.url) == {"status": 200}
    connections = len(server.connections)
    time.sleep(0.5)  # wait: for longer than the first request was allowed
    assert call(webhook, server.url, 30) == {"status": 200}
    assert len(server.connections) == connections


def test_no_timer_is_left_behind(webhook, server):
    before = threading.active_count()
    call(webhook, server.url)
    with a_rude_server(answering()) as url, pytest.raises(RetryableError):
        call(webhook, url)
    # But for the server's thread of the open connection. Those of closed ones end a moment later.
    assert wait_until(lambda: threading.active_count() <= before + 1, 60)
