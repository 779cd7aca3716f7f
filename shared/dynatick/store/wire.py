"""Fast requests to DynamoDB, for the few operations that a pass calls thousands of times.

botocore builds a request, and parses the answer, value by value from its model of the service. For a batch of 25
statements that takes most of the time of a pass. Here the request and the answer are plain JSON, sent by urllib3.
botocore still provides credentials, endpoint, signature and the client's event ``before-send``. After any answer but a
success, the botocore client repeats the request and handles throttling, retries and errors.
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
from botocore.session import Session
from urllib3 import Timeout, connection_from_url
from urllib3.exceptions import HTTPError

from dynatick.store.large import is_large, read_answer
from dynatick.store.sdk_internals import (
    add_recursion_detection_header,
    get_cert_path,
    get_environ_proxies,
    is_of_dynamodb,
)

SERVICE = "dynamodb"
API_VERSION = "DynamoDB_20120810"

_CLIENT_METHODS = {
    "BatchExecuteStatement": "batch_execute_statement",
    "BatchGetItem": "batch_get_item",
    "Query": "query",
}
"""The client's method, by operation."""


class Wire:
    """Sends requests with the credentials and the configuration of a botocore client and its session."""

    def __init__(self, client: Any, session: Session) -> None:
        self._client = client
        self._events = client.meta.events
        self._url: str = client.meta.endpoint_url.rstrip("/") + "/"
        self._region: str = client.meta.region_name
        self._credentials = session.get_credentials()
        config = client.meta.config
        self._headers = {"Content-Type": "application/x-amz-json-1.0", "User-Agent": config.user_agent}
        self._connections = Connections(self._url, config, session.get_config_variable("ca_bundle"))
        # Proxies and client certificates are rare: botocore sends those requests.
        needs_botocore = config.proxies or config.client_cert or get_environ_proxies(self._url)
        self._is_usable = not needs_botocore and urlsplit(self._url).path == "/"

    def call(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Sends one request and returns the answer. Binaries in it are bytes, or base64 as in JSON; large items are
        LargeItems. Its ``ResponseMetadata`` has how often it was sent again, if it was. Raises as the client does."""
        answer = self._try(operation, request)
        if answer is not None:
            return answer
        answer = getattr(self._client, _CLIENT_METHODS[operation])(**request)
        metadata = answer.get("ResponseMetadata", {})
        before = metadata.get("RetryAttempts", 0) + self._can_send
        return {**answer, "ResponseMetadata": {**metadata, "RetryAttempts": before}}

    def sends(self, operation: str) -> bool:
        """Whether it sends requests of this operation itself, before the client does."""
        return operation in _CLIENT_METHODS and self._can_send

    @property
    def _can_send(self) -> bool:
        return self._credentials is not None and self._is_usable

    def _try(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The answer of a successful request, else None."""
        if self._credentials is None or not self._is_usable:
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
            if response.status_code == 200 and is_of_dynamodb(response.headers):
                return _read(operation, response.content)
        except (BotoCoreError, HTTPError, orjson.JSONEncodeError, ValueError):
            pass
        return None


class Connections:
    """Connections to one endpoint: botocore's ``URLLib3Session`` without proxies, in half the time."""

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
        """Sends a request once. Raises urllib3's HTTPError."""
        raw: Any = self._pool.urlopen(
            request.method,
            "/",
            body=cast(bytes, request.body),
            headers=dict(request.headers.items()),
            retries=False,
            preload_content=False,
            decode_content=False,
        )
        # Read completely, so that the connection is free again, and at once: in pieces it would take twice the memory.
        return AWSResponse(request.url, raw.status, raw.headers, _Body(raw.read()))


class _Body:
    """The body of an answer, already read."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> Iterator[bytes]:
        yield self._content


def _read(operation: str, content: bytes) -> Mapping[str, Any] | None:
    """The decoded answer; None if it is not an object. Raises ValueError for malformed JSON."""
    if is_large(operation, content):
        return read_answer(operation, content)
    answer = orjson.loads(content)
    return answer if isinstance(answer, dict) else None


def _as_base64(value: object) -> str:
    """A binary value in JSON."""
    if not isinstance(value, (bytes, bytearray)):
        raise TypeError(f"a {type(value).__name__} is not a value of DynamoDB")
    return base64.b64encode(value).decode()
