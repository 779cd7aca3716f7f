"""The short way to DynamoDB, for the few kinds of requests that a pass makes by the thousand.

botocore builds a request from its model of the service, and takes the answer apart by it, value by value; for a batch
of 25 statements that is most of the time that a pass takes. Here a request is written, and its answer read, as the JSON
that it is. What is not ours to write stays botocore's: credentials, endpoint, signature, connections, and the events
``before-send`` of its client. And whatever does not go well is left to it as a whole: after anything but a plain answer
the same request is made by the client, which knows of throttling, of retries and of errors.
"""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Mapping
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.endpoint import EndpointCreator
from botocore.exceptions import BotoCoreError
from botocore.handlers import add_recursion_detection_header
from botocore.session import Session

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
        self._http = (
            EndpointCreator(self._events)
            .create_endpoint(
                client.meta.service_model,
                region_name=self._region,
                endpoint_url=self._url,
                verify=session.get_config_variable("ca_bundle"),
                timeout=(config.connect_timeout, config.read_timeout),  # type: ignore[arg-type]  # which it may be
                max_pool_connections=config.max_pool_connections,
                proxies=config.proxies,
                proxies_config=config.proxies_config,
                client_cert=config.client_cert,
                # Headers and body go in two packets: without it the second waits for the first to be acknowledged.
                socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            )
            .http_session
        )

    def call(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """One request. In its answer, binaries are bytes or, as JSON has them, base64. Raises as the client does."""
        answer = self._try(operation, request)
        if answer is None:
            answer = getattr(self._client, _LONG_WAY[operation])(**request)
        return answer

    def _try(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """None for anything but a plain answer."""
        if self._credentials is None:
            return None
        body = json.dumps(request, default=_as_base64).encode()
        headers = {**self._headers, "X-Amz-Target": f"{API_VERSION}.{operation}"}
        add_recursion_detection_header({"headers": headers})
        unsigned = AWSRequest("POST", self._url, headers=headers, data=body)
        try:
            SigV4Auth(self._credentials.get_frozen_credentials(), SERVICE, self._region).add_auth(unsigned)
            prepared = unsigned.prepare()
            _, response = self._events.emit_until_response(f"before-send.{SERVICE}.{operation}", request=prepared)
            if response is None:
                response = self._http.send(prepared)
            if response.status_code == 200:
                answer = json.loads(response.content)
                return answer if isinstance(answer, dict) else None
        except (BotoCoreError, ValueError):
            pass
        return None


def _as_base64(value: object) -> str:
    """A binary value, as JSON has it."""
    if not isinstance(value, (bytes, bytearray)):
        raise TypeError(f"a {type(value).__name__} is no value of DynamoDB")
    return base64.b64encode(value).decode()
