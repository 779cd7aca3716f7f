"""The action ``webhook``: sends a request to a URL.

    {"url": "https://example.com/hook", "data": {...}, "headers": {...}, "timeoutSeconds": 10}

Only ``url`` is required. Only public addresses are called (see ``webhook_url``), redirects are not followed, and only
the status of the answer counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from dynatick.actions.payload import parsed
from dynatick.actions.payload_field import SecretText, handed_over
from dynatick.actions.plain_value import to_json
from dynatick.actions.rate_limit import RateLimits
from dynatick.actions.secret import Secrets, UsedSecrets
from dynatick.actions.task_metadata import percent_encoded, task_metadata
from dynatick.actions.webhook_payload import (
    BODILESS,
    EXPECTED_VALUE,
    MAX_HEADER_CHARACTERS,
    NOT_GIVEN,
    WebhookPayload,
    fits_header,
    too_many,
)
from dynatick.actions.webhook_url import Hosts, canonical_host, parse_target
from dynatick.domain import attributes as attr
from dynatick.domain.completion import completion_token
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext, Clock
from dynatick.errors import PermanentError, RetryableError
from dynatick.tracing import request_span

if TYPE_CHECKING:
    from dynatick.actions.connection import Answer, Connections
import base64
import binascii
import hashlib
import hmac

# -- signature ---------------------------------------------------------------------------------------------------------
#
# By Standard Webhooks: HMAC-SHA256 of id, time and body.

_KEY_BYTES = range(24, 65)
_WRONG_KEY = "payload.signingSecret: expected the secret to be whsec_ and the base64 of 24 to 64 bytes"


def signature(secrets: str, key: str, now: datetime, body: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks. The id is the idempotency key, the same for each attempt.

    ``secrets``: one secret, or two with a space between them while a secret is being replaced. Raises PermanentError
    for a malformed secret.
    """
    # Dots separate the signed parts: an id with a dot could be read as a shorter id and another time.
    message_id, timestamp = percent_encoded(key).replace(".", "%2E"), str(int(now.timestamp()))
    signed = f"{message_id}.{timestamp}.".encode() + body
    signatures = [
        base64.b64encode(hmac.digest(_key_of(secret), signed, hashlib.sha256)).decode() for secret in secrets.split()
    ]
    if not signatures:
        raise PermanentError(_WRONG_KEY)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{one}" for one in signatures),
    }


def _key_of(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) not in _KEY_BYTES:
        raise PermanentError(_WRONG_KEY)
    return key


# -- action ------------------------------------------------------------------------------------------------------------

MAX_RETRY_AFTER_SECONDS = 86_400.0

_RETRYABLE = frozenset({408, 425, 429})
_UNAUTHORISED = frozenset({401, 403})
_MIN_SECONDS = 0.1


class Webhook:
    """Sends requests. One instance serves all threads and keeps connections open."""

    def __init__(
        self,
        *,
        clock: Clock,
        hosts: Hosts,
        secrets: Secrets,
        limits: RateLimits | None = None,
        connections_per_host: int = 32,
        connect: Callable[[], Connections] | None = None,
    ) -> None:
        """``hosts``: the allowed hosts. ``connections_per_host``: how many are kept open, one for each thread.
        ``connect`` creates the connections, for tests.
        """
        self._clock = clock
        self._hosts = hosts
        self._secrets = secrets
        self._limits = limits
        self._per_host = connections_per_host
        self._connect = connect or self._open
        self._lock = threading.Lock()
        self._connections: Connections | None = None

    def run(self, task: Task, context: ActionContext) -> object:
        """Sends one request. Returns ``{"status": 204}`` with the answer's status; or with ``completeWithinSeconds``,
        where the target has the header ``x-dynatick-completion-token``, that it completes the task.

        Success is a status of 2xx, or one of ``expectedStatuses``. Raises RetryableError for 408, 425, 429 and 5xx
        (with the target's Retry-After), for no answer in time and for a failed connection; PermanentError for any other
        status and for an invalid payload. Error messages contain nothing of the payload but the names of secrets.
        """
        payload = parsed(WebhookPayload, task.payload)
        secrets = UsedSecrets(self._secrets)
        target = parse_target(_with_secret(payload.url, "payload.url", secrets), self._hosts)
        if self._limits:
            self._limits.acquire(task, "webhook", f"webhook:{canonical_host(target.host)}")
        body, own = _body(payload)
        later = handed_over(payload.complete_within_seconds, payload.heartbeat_seconds)
        headers = {**_users_headers(payload, secrets), **own, **_own_headers(task, context)}
        if later is not None:
            headers["x-dynatick-completion-token"] = completion_token(task.lease, task.task_id)
        if payload.signing_secret is not None:
            key = secrets.value(payload.signing_secret, "payload.signingSecret")
            headers |= signature(key, context.idempotency_key, self._clock(), body or b"")
        with request_span(task, payload.method, target.host, target.port) as request:
            answer = self._opened().send(
                payload.method,
                target,
                headers={**request.headers, **headers},  # one in the payload is preferred
                body=body,
                timeout=self._timeout(payload, context),
            )
            request.answered(answer.status)
            result = self._result(answer, payload, secrets)
        return result if later is None else later

    def _timeout(self, payload: WebhookPayload, context: ActionContext) -> float:
        left = (context.deadline - self._clock()).total_seconds()
        if left < _MIN_SECONDS:
            raise RetryableError("no time was left to call the target")
        return min(max(payload.timeout_seconds, _MIN_SECONDS), left)

    def _result(self, answer: Answer, payload: WebhookPayload, secrets: UsedSecrets) -> object:
        status, expected = answer.status, payload.expected_statuses
        if status in expected if expected is not None else 200 <= status < 300:
            return {"status": status}
        if status in _RETRYABLE or status >= 500:
            wait = _retry_after(answer.retry_after, self._clock())
            raise RetryableError(f"the target answered {status}", retry_after=wait)
        if status in _UNAUTHORISED and secrets.renew():
            raise RetryableError(f"the target answered {status}, and a secret has changed meanwhile")
        if 300 <= status < 400:
            raise PermanentError(
                f"the target answered {status}, a redirect, and redirects are not followed; "
                "give the URL that it leads to"
            )
        if expected is not None:
            raise PermanentError(f"the target answered {status}; expected {', '.join(map(str, expected))}")
        raise PermanentError(f"the target answered {status}")

    def _opened(self) -> Connections:
        with self._lock:
            if self._connections is None:
                self._connections = self._connect()
            return self._connections

    def _open(self) -> Connections:
        # Imported here: urllib3 and ssl are slow to import, and an interface that checks payloads does not need them.
        from dynatick.actions.connection import Connections

        return Connections(private_hosts=self._hosts.private, clock=self._clock, per_host=self._per_host)


def _with_secret(value: str | SecretText, field: str, secrets: UsedSecrets) -> str:
    """The text of a field, with the value of its secret."""
    return value if isinstance(value, str) else value.prefix + secrets.value(value.secret, field)


def _users_headers(payload: WebhookPayload, secrets: UsedSecrets) -> dict[str, str]:
    """The payload's headers, with the values of secrets. All headers here have names in lower case."""
    found: dict[str, str] = {}
    for name, value in payload.headers.items():
        found[name.lower()] = text = _with_secret(value, f"payload.headers.{name}", secrets)
        if not fits_header(text):
            raise PermanentError(f"payload.headers.{name}: its secret can't stand in a header; {EXPECTED_VALUE}")
    if too_many(found):
        raise PermanentError(f"payload.headers: expected at most {MAX_HEADER_CHARACTERS} characters in all")
    return found


def _own_headers(task: Task, context: ActionContext) -> dict[str, str]:
    metadata = task_metadata(task, context)
    headers = {
        "idempotency-key": percent_encoded(metadata["idempotencyKey"]),
        "user-agent": "dynatick-webhook",
        "x-dynatick-task-id": percent_encoded(metadata[attr.TASK_ID]),
        "x-dynatick-attempt": percent_encoded(metadata[attr.ATTEMPT]),
        "x-dynatick-due-at": percent_encoded(metadata[attr.DUE_AT]),
    }
    if attr.SCHEDULE_ID in metadata:
        headers["x-dynatick-schedule-id"] = percent_encoded(metadata[attr.SCHEDULE_ID])
    return headers


def _body(payload: WebhookPayload) -> tuple[bytes | None, dict[str, str]]:
    """The body and its headers."""
    if payload.body is not None:
        named = any(name.lower() == "content-type" for name in payload.headers)
        try:
            return payload.body.encode(), {} if named else {"content-type": "text/plain; charset=utf-8"}
        except UnicodeEncodeError:
            raise PermanentError("payload.body: expected text that UTF-8 can hold") from None
    if payload.method in BODILESS:
        return None, {}
    try:
        data = {} if payload.data is NOT_GIVEN else payload.data
        return to_json(data).encode(), {"content-type": "application/json"}
    except ValueError as error:
        raise PermanentError(f"payload.data: {error}") from None


def _retry_after(header: str | None, now: datetime) -> float | None:
    """Seconds from a Retry-After header, which is a number or a date; None for anything else."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return MAX_RETRY_AFTER_SECONDS if len(text) > 9 else min(float(text), MAX_RETRY_AFTER_SECONDS)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return min(max((at - now).total_seconds(), 0.0), MAX_RETRY_AFTER_SECONDS)
