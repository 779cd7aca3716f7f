"""The short way to DynamoDB, for the few kinds of requests that a pass makes by the thousand.

botocore builds a request from its model of the service, and takes the answer apart by it, value by value; for a batch
of 25 statements that is most of the time that a pass takes. Here a request is written, and its answer read, as the JSON
that it is, over connections of the standard library's. What is not ours to write stays botocore's: credentials,
endpoint, and the event ``before-send`` of its client. And whatever does not go well is left to it as a whole: after
anything but a plain answer the same request is made by the client, which knows of throttling, of retries and of errors.
"""

from __future__ import annotations

import base64
import ssl
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, cast
from urllib.parse import urlsplit

import orjson
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError
from botocore.handlers import add_recursion_detection_header
from botocore.httpsession import get_cert_path
from botocore.session import Session
from botocore.utils import get_environ_proxies
from urllib3.util import wait_for_read

from dynatick.store.signing import host_of, signed_headers

SERVICE = "dynamodb"
API_VERSION = "DynamoDB_20120810"

_LONG_WAY = {
    "BatchExecuteStatement": "batch_execute_statement",
    "BatchGetItem": "batch_get_item",
    "Query": "query",
}
"""By operation: the client's method."""


class Wire:
    """Makes requests beside a botocore client, with the session that it is of."""

    def __init__(self, client: Any, session: Session) -> None:
        self._client = client
        self._events = client.meta.events
        self._url: str = client.meta.endpoint_url.rstrip("/") + "/"
        self._host = host_of(self._url)
        self._region: str = client.meta.region_name
        self._credentials = session.get_credentials()
        config = client.meta.config
        self._user_agent: str = config.user_agent
        self._connections = Connections(self._url, config, session.get_config_variable("ca_bundle"))
        # Proxies and client certificates are rare, and botocore's connections know them.
        by_others = config.proxies or config.client_cert or get_environ_proxies(self._url)
        self._is_open = not by_others and urlsplit(self._url).path == "/"

    def call(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """One request. In its answer, binaries are bytes or, as JSON has them, base64. Raises as the client does."""
        answer = self._try(operation, request)
        if answer is None:
            answer = getattr(self._client, _LONG_WAY[operation])(**request)
        return answer

    def _try(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """None for anything but a plain answer."""
        if self._credentials is None or not self._is_open:
            return None
        try:
            body = orjson.dumps(request, default=_as_base64)
            prepared = self._prepare(operation, body, self._credentials.get_frozen_credentials())
            _, response = self._events.emit_until_response(f"before-send.{SERVICE}.{operation}", request=prepared)
            if response is None:
                response = self._connections.send(prepared)
            if response.status_code == 200:
                answer = orjson.loads(response.content)
                return answer if isinstance(answer, dict) else None
        except (BotoCoreError, HTTPException, OSError, orjson.JSONEncodeError, orjson.JSONDecodeError):
            pass
        return None

    def _prepare(self, operation: str, body: bytes, credentials: ReadOnlyCredentials) -> AWSPreparedRequest:
        headers = signed_headers(
            self._host,
            self._region,
            SERVICE,
            credentials,
            target=f"{API_VERSION}.{operation}",
            body=body,
            now=datetime.now(UTC),
        )
        headers["User-Agent"] = self._user_agent
        add_recursion_detection_header({"headers": headers})  # which is not to be signed
        kept: Any = HeadersDict(headers)
        return AWSPreparedRequest("POST", self._url, kept, body, False)


class Connections:
    """Connections to one endpoint, kept for later requests.

    What botocore's ``URLLib3Session`` comes to without proxies, at a fraction of the time.
    """

    def __init__(self, url: str, config: Any, ca_bundle: str | None) -> None:
        self._address = urlsplit(url)
        self._connect_timeout: float = config.connect_timeout
        self._read_timeout: float = config.read_timeout
        self._context: ssl.SSLContext | None = None
        if self._address.scheme == "https":
            self._context = ssl.create_default_context(cafile=ca_bundle or get_cert_path(True))
        self._most: int = config.max_pool_connections
        self._idle: deque[HTTPConnection] = deque()

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        """One try. Raises HTTPException or OSError."""
        connection = self._take() or self._connect()
        try:
            connection.request(request.method, "/", cast(bytes, request.body), dict(request.headers.items()))
            response = connection.getresponse()
            content = response.read()
        except BaseException:
            connection.close()
            raise
        if response.will_close or len(self._idle) >= self._most:
            connection.close()
        else:
            self._idle.append(connection)
        no_headers: Any = {}  # nobody asks for them
        return AWSResponse(request.url, response.status, no_headers, _Content(content))

    def _take(self) -> HTTPConnection | None:
        """The one that was used last. None: there is none that is still open."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not wait_for_read(connection.sock, timeout=0):
                return connection
            connection.close()  # nothing is to be read but that the endpoint has closed it

    def _connect(self) -> HTTPConnection:
        host, port = str(self._address.hostname), self._address.port
        connection = (
            HTTPConnection(host, port, timeout=self._connect_timeout)
            if self._context is None
            else HTTPSConnection(host, port, timeout=self._connect_timeout, context=self._context)
        )
        connection.connect()
        connection.sock.settimeout(self._read_timeout)
        return connection


class _Content:
    """What an AWSResponse reads."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> Iterator[bytes]:
        """All of it at once."""
        yield self._content


def _as_base64(value: object) -> str:
    """A binary value, as JSON has it."""
    if not isinstance(value, (bytes, bytearray)):
        raise TypeError(f"a {type(value).__name__} is no value of DynamoDB")
    return base64.b64encode(value).decode()
