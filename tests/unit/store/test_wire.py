"""Fast requests: equal to those of botocore, which repeats them after any answer but a success."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest
from boto3.dynamodb.types import Binary
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.config import Config
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import ClientError, ConnectionClosedError, NoCredentialsError
from botocore.httpsession import URLLib3Session
from botocore.session import Session
from freezegun import freeze_time
from tests.unit.actions.support import a_rude_server, a_server
from tests.unit.certificate import self_signed
from tests.unit.store.support import response
from urllib3.exceptions import ProtocolError, ReadTimeoutError, SSLError

from dynatick.store.codec import decode
from dynatick.store.sdk_internals import register_large_reader
from dynatick.store.wire import Connections, Wire

BATCH = {"Statements": [{"Statement": 'UPDATE "t" SET "a"=? WHERE "taskId"=?', "Parameters": [{"S": "é"}, {"S": "b"}]}]}


class Network:
    """Replaces botocore's connections. ``answers``: status and body, or the exception, for each request."""

    def __init__(self) -> None:
        self.requests: list[AWSPreparedRequest] = []
        self.answers: list[tuple[int, bytes] | Exception] = []

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        self.requests.append(request)
        match self.answers.pop(0):
            case Exception() as error:
                raise error
            case status, body:
                return response(request, body, status)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    made = Network()
    for connections in (Connections, URLLib3Session):
        monkeypatch.setattr(connections, "send", lambda session, request: made.send(request))
    return made


def client_of(session: Session, **options: Any) -> Any:
    return session.create_client("dynamodb", region_name="eu-west-1", **options)


@pytest.fixture
def session() -> Session:
    made = Session()
    made.set_credentials("AKID", "secret", "token")
    return made


@pytest.fixture
def wire(session: Session) -> Wire:
    client = client_of(session)
    register_large_reader(client)
    return Wire(client, session)


ENCODED = {"Responses": [{"Item": {"b": {"B": "AAE="}}}]}


def test_a_successful_answer_is_returned_as_plain_json(network: Network, wire: Wire) -> None:
    network.answers = [(200, json.dumps(ENCODED).encode())]
    assert wire.call("Query", {"a": {"B": b"\x00\x01"}, "b": {"BS": [bytearray(b"\x02")]}}) == ENCODED
    (request,) = network.requests
    assert json.loads(request.body) == {"a": {"B": "AAE="}, "b": {"BS": ["Ag=="]}}, "binaries are base64 in JSON"


@freeze_time("2026-12-31T12:00:00Z")
def test_the_request_equals_that_of_botocore(network: Network, session: Session, wire: Wire) -> None:
    """Host, path, target, body and token are equal, and the same method signs it."""
    network.answers = [(200, b'{"Responses": []}')] * 2
    wire.call("BatchExecuteStatement", BATCH)
    client_of(session).batch_execute_statement(**BATCH)
    ours, theirs = network.requests
    assert (ours.method, ours.url) == (theirs.method, theirs.url)
    assert json.loads(ours.body) == json.loads(theirs.body)
    for name in ("X-Amz-Target", "Content-Type", "X-Amz-Date", "X-Amz-Security-Token"):
        assert _text(ours.headers[name]) == _text(theirs.headers[name]), name
    scope = "Credential=AKID/20261231/eu-west-1/dynamodb/aws4_request"
    assert scope in _text(ours.headers["Authorization"])
    assert scope in _text(theirs.headers["Authorization"])
    assert _text(ours.headers["User-Agent"]).startswith("Botocore/")


@pytest.mark.parametrize(
    "bad",
    [
        (500, b'{"__type": "com.amazonaws#InternalServerError"}'),
        (200, b"<html>a proxy's page</html>"),
        (200, b"[]"),
        ConnectionClosedError(endpoint_url="https://x"),
        ProtocolError("Connection aborted."),
    ],
    ids=["error", "no json", "no object", "closed", "broken"],
)
def test_after_any_other_answer_the_client_repeats_the_request(
    network: Network, wire: Wire, bad: tuple[int, bytes] | Exception
) -> None:
    network.answers = [bad, (200, json.dumps(ENCODED).encode())]
    assert wire.call("BatchExecuteStatement", BATCH)["Responses"] == [{"Item": {"b": {"B": b"\x00\x01"}}}]
    first, second = network.requests
    assert json.loads(first.body) == json.loads(second.body)


def test_errors_are_raised_as_by_the_client(network: Network, wire: Wire) -> None:
    network.answers = [(400, b'{"__type": "com.amazonaws#AccessDeniedException", "message": "no"}')] * 2
    with pytest.raises(ClientError, match=r"AccessDeniedException.*BatchExecuteStatement operation: no"):
        wire.call("BatchExecuteStatement", BATCH)
    assert len(network.requests) == 2
    # orjson refuses a lone surrogate, botocore sends it, and DynamoDB refuses it.
    network.answers = [(400, b'{"__type": "com.amazonaws#SerializationException", "message": "no"}')]
    with pytest.raises(ClientError, match="SerializationException"):
        wire.call("BatchExecuteStatement", {"Statements": [{"Statement": "\ud800"}]})
    assert len(network.requests) == 3


NUMBERS = {"L": [{"N": "1"}] * 60_000}
LARGE = json.dumps({"Responses": [{"Item": {"taskId": {"S": "a"}, "payload": NUMBERS}}]}).encode()


@pytest.mark.parametrize("first", [[], [(500, b"{}")]], ids=["the short way", "the client's"])
def test_a_large_value_stays_encoded(network: Network, wire: Wire, first: list[tuple[int, bytes]]) -> None:
    network.answers = [*first, (200, LARGE)]
    (found,) = wire.call("BatchExecuteStatement", BATCH)["Responses"]
    assert found["Item"] == {"taskId": {"S": "a"}}
    assert json.loads(found["Item"].large["payload"]) == NUMBERS
    network.answers = [(200, LARGE[:-9])] * 2
    assert "Responses" not in wire.call("BatchExecuteStatement", BATCH), "it is not JSON"
    assert network.answers == []


def test_a_large_answer_to_the_client_stays_encoded_too(network: Network, session: Session) -> None:
    client = client_of(session)
    register_large_reader(client)
    item = {"taskId": {"S": "a"}, "payload": NUMBERS, "binary": {"B": "AAE="}}
    network.answers = [(200, json.dumps({"Item": item}).encode())]
    found = client.get_item(TableName="t", Key={"taskId": {"S": "a"}})["Item"]
    assert decode(found) == {"taskId": "a", "payload": [1] * 60_000, "binary": Binary(b"\x00\x01")}
    assert set(found.large) == {"payload"}


def test_each_request_uses_the_current_credentials(network: Network, session: Session, wire: Wire) -> None:
    network.answers = [(200, b"{}")] * 2
    wire.call("Query", {})
    found = session.get_credentials()
    found.get_frozen_credentials = lambda: ReadOnlyCredentials("NEW", "secret", None)
    wire.call("Query", {})
    assert ["AKID" in _text(r.headers["Authorization"]) for r in network.requests] == [True, False]
    assert "NEW" in _text(network.requests[1].headers["Authorization"])


def test_the_client_sends_what_needs_it(network: Network, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to an endpoint with a path, through a proxy, and without credentials."""
    sent: list[object] = []
    monkeypatch.setattr(Connections, "send", lambda self, request: sent.append(request))
    network.answers = [(200, b'{"Count": 7}')] * 2
    below = client_of(session, endpoint_url="http://127.0.0.1:9/below")
    assert Wire(below, session).call("Query", {"TableName": "t"})["Count"] == 7
    assert network.requests[0].url.startswith("http://127.0.0.1:9/below")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert Wire(client_of(session), session).call("Query", {"TableName": "t"})["Count"] == 7
    monkeypatch.delenv("HTTPS_PROXY")
    monkeypatch.setattr(Session, "get_credentials", lambda self: None)
    with pytest.raises(NoCredentialsError):
        Wire(client_of(session), session).call("Query", {"TableName": "t"})
    assert (sent, len(network.requests)) == ([], 2)


def test_listeners_to_the_clients_events_get_the_request(network: Network, session: Session) -> None:
    client = client_of(session)
    client.meta.events.register("before-send.dynamodb.Query", lambda request, **_: response(request, b'{"Count": 7}'))
    assert Wire(client, session).call("Query", {"TableName": "t"}) == {"Count": 7}
    assert network.requests == []


def test_an_untrusted_certificate_is_refused(session: Session, tmp_path: Path) -> None:
    context, certificate = self_signed(tmp_path, "localhost")
    with a_server(context) as server:
        url = f"https://localhost:{server.port}"
        config = Config(retries={"total_max_attempts": 1}, connect_timeout=3, read_timeout=10)
        client = client_of(session, endpoint_url=url, config=config)
        request = AWSRequest("POST", url + "/", data=b"{}").prepare()
        trusting = Connections(url + "/", client.meta.config, certificate)
        assert [trusting.send(request).content for _ in range(2)] == [b"{}"] * 2
        assert len(server.connections) == 1, "both on the same connection"
        with pytest.raises(SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            Connections(url + "/", client.meta.config, None).send(request)
        with pytest.raises(botocore.exceptions.SSLError):  # after which the client says the same
            Wire(client, session).call("Query", {"TableName": "t"})


@pytest.mark.parametrize("ending", ["", "Connection: close\r\n"], ids=["meanwhile", "as it says"])
def test_a_closed_connection_is_not_used_again(session: Session, ending: str) -> None:
    closed = threading.Semaphore(0)

    def answer_once(connection: socket.socket) -> None:
        while not connection.recv(65_536).endswith(b"{}"):
            pass
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{ending}\r\n{{}}".encode())
        connection.close()
        closed.release()

    with a_rude_server(answer_once) as url:
        short = Connections(url, client_of(session, endpoint_url=url).meta.config, None)
        for _ in range(3):
            assert short.send(AWSRequest("POST", url, data=b"{}").prepare()).content == b"{}"
            assert closed.acquire(timeout=60)


def test_a_missing_answer_times_out_as_in_the_client(session: Session) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        config = Config(read_timeout=0.05)
        client = client_of(session, endpoint_url=url, config=config)
        with pytest.raises(ReadTimeoutError):
            Connections(url, client.meta.config, None).send(AWSRequest("POST", url, data=b"{}").prepare())


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
