"""The short way to DynamoDB, for the few kinds of requests that a pass makes by the thousand.

botocore builds a request from its model of the service, and takes the answer apart by it, value by value; for a batch
of 25 statements that is most of the time that a pass takes. Here a request is written, and its answer read, as the JSON
that it is, on a pool of urllib3's. What is not ours to write stays botocore's: credentials, endpoint, signature, and
the event ``before-send`` of its client. And whatever does not go well is left to it as a whole: after anything but a
plain answer the same request is made by the client, which knows of throttling, of retries and of errors.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import orjson
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.exceptions import BotoCoreError
from botocore.handlers import add_recursion_detection_header
from botocore.httpsession import get_cert_path
from botocore.session import Session
from botocore.utils import get_environ_proxies
from urllib3 import Timeout, connection_from_url
from urllib3.exceptions import HTTPError

from dynatick.store.large import is_large, read_answer

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
        self._region: str = client.meta.region_name
        self._credentials = session.get_credentials()
        config = client.meta.config
        self._headers = {"Content-Type": "application/x-amz-json-1.0", "User-Agent": config.user_agent}
        self._connections = Connections(self._url, config, session.get_config_variable("ca_bundle"))
        # Proxies and client certificates are rare, and botocore's connections know them.
        by_others = config.proxies or config.client_cert or get_environ_proxies(self._url)
        self._is_open = not by_others and urlsplit(self._url).path == "/"

    def call(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """One request. In its answer, binaries are bytes or, as JSON has them, base64; of a large one, items are
        LargeItems. Raises as the client does."""
        answer = self._try(operation, request)
        if answer is None:
            answer = getattr(self._client, _LONG_WAY[operation])(**request)
        return answer

    def _try(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """None for anything but a plain answer."""
        if self._credentials is None or not self._is_open:
            return None
        headers = {**self._headers, "X-Amz-Target": f"{API_VERSION}.{operation}"}
        add_recursion_detection_header({"headers": headers})
        try:
            body = orjson.dumps(request, default=_as_base64)
            unsigned = AWSRequest("POST", self._url, headers=headers, data=body)
            SigV4Auth(self._credentials.get_frozen_credentials(), SERVICE, self._region).add_auth(unsigned)
            prepared = unsigned.prepare()
            _, response = self._events.emit_until_response(f"before-send.{SERVICE}.{operation}", request=prepared)
            if response is None:
                response = self._connections.send(prepared)
            if response.status_code == 200:
                return _read(operation, response.content)
        except (BotoCoreError, HTTPError, orjson.JSONEncodeError, ValueError):
            pass
        return None


class Connections:
    """Connections to one endpoint: what botocore's ``URLLib3Session`` comes to without proxies, at half the time."""

    def __init__(self, url: str, config: Any, ca_bundle: str | None) -> None:
        secured: dict[str, Any] = {}
        if url.startswith("https:"):
            secured["ssl_context"] = ssl.create_default_context(cafile=ca_bundle or get_cert_path(True))
        self._pool = connection_from_url(
            url,
            maxsize=config.max_pool_connections,
            timeout=Timeout(connect=config.connect_timeout, read=config.read_timeout),
            **secured,
        )

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        """One try. Raises urllib3's HTTPError."""
        raw: Any = self._pool.urlopen(
            request.method,
            "/",
            body=cast(bytes, request.body),
            headers=dict(request.headers.items()),
            retries=False,
            preload_content=False,
            decode_content=False,
        )
        # Read to its end, so that the connection is free again; and at once: in pieces it takes twice the memory.
        return AWSResponse(request.url, raw.status, raw.headers, _Body(raw.read()))


class _Body:
    """The body of an answer that was read already."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> Iterator[bytes]:
        yield self._content


def _read(operation: str, content: bytes) -> Mapping[str, Any] | None:
    """An answer; None if it is no object. Raises ValueError for what is no JSON."""
    if is_large(operation, content):
        return read_answer(operation, content)
    answer = orjson.loads(content)
    return answer if isinstance(answer, dict) else None


def keep_large(client: Any) -> None:
    """Has large answers to the client's own requests read in the same way, instead of taken apart by its model."""
    client.meta.events.register(f"before-parse.{SERVICE}.*", _read_large, unique_id="dynatick-large")


def _read_large(
    operation_model: Any, response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    """Of an event of botocore's. What is customized is put into the answer that it makes of the body."""
    operation, content = operation_model.name, response_dict["body"]
    if response_dict["status_code"] == 200 and is_large(operation, content):
        try:
            customized_response_dict.update(read_answer(operation, content))
        except ValueError:  # botocore says what is wrong with it
            return
        response_dict["body"] = b"{}"


def _as_base64(value: object) -> str:
    """A binary value, as JSON has it."""
    if not isinstance(value, (bytes, bytearray)):
        raise TypeError(f"a {type(value).__name__} is no value of DynamoDB")
    return base64.b64encode(value).decode()
