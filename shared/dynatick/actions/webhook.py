"""The action ``webhook``: sends a request to a URL.

    {"url": "https://example.com/hook", "data": {...}, "headers": {...}, "timeoutSeconds": 10}

All but ``url`` may be left out. Only public addresses are called (see ``addresses``), redirects are not followed, and
of the answer only the status counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from dynatick.actions.addresses import Hosts, parse_target
from dynatick.actions.limits import Limits
from dynatick.actions.payload_fields import SecretText
from dynatick.actions.payloads import parsed
from dynatick.actions.plain_values import to_json
from dynatick.actions.secrets import SecretRef, Secrets
from dynatick.actions.signing import signature
from dynatick.actions.task_facts import escaped, facts
from dynatick.actions.webhook_payload import (
    BODILESS,
    EXPECTED_VALUE,
    MAX_HEADER_CHARACTERS,
    NOT_GIVEN,
    WebhookPayload,
    fits_header,
    too_many,
)
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext, Clock
from dynatick.errors import PermanentError, RetryableError

if TYPE_CHECKING:
    from dynatick.actions.connections import Answer, Connections

MAX_RETRY_AFTER_SECONDS = 86_400.0

_RETRYABLE = frozenset({408, 425, 429})
_UNAUTHORISED = frozenset({401, 403})
_MIN_SECONDS = 0.1


class Webhook:
    """Sends tasks to the web. One instance serves all threads and keeps connections open."""

    def __init__(
        self,
        *,
        clock: Clock,
        hosts: Hosts,
        secrets: Secrets,
        limits: Limits | None = None,
        connections_per_host: int = 32,
        connect: Callable[[], Connections] | None = None,
    ) -> None:
        """``hosts``: which ones may be called. ``connections_per_host``: how many are kept open, as many as there are
        threads. ``connect`` replaces the connections altogether.
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
        """Sends one request. The result is ``{"status": 204}``, with the status that came.

        Success is 2xx, or one of ``expectedStatuses``. RetryableError: 408, 425, 429, 5xx (with the target's
        Retry-After), no answer in time, no connection. PermanentError: any other status, and a payload that is not
        understood. Error texts hold nothing of the payload, but for the names of secrets.
        """
        payload = parsed(WebhookPayload, task.payload)
        target = parse_target(self._said(payload.url, "payload.url"), self._hosts)
        if self._limits:
            self._limits.take(task, "webhook", f"webhook:{target.host}")
        body, own = _body(payload)
        headers = {**self._users_headers(payload), **own, **_own_headers(task, context)}
        if payload.signing_secret is not None:
            key = self._secrets.value(payload.signing_secret, "payload.signingSecret")
            headers |= signature(key, context.idempotency_key, self._clock(), body or b"")
        answer = self._opened().send(
            payload.method, target, headers=headers, body=body, timeout=self._timeout(payload, context)
        )
        return self._judged(answer, payload)

    def _said(self, value: str | SecretText, field: str) -> str:
        """A text, with the secret in it."""
        return value if isinstance(value, str) else value.prefix + self._secrets.value(value.secret, field)

    def _users_headers(self, payload: WebhookPayload) -> dict[str, str]:
        """By name in lower case, as all headers here: names of headers are equal in any case."""
        found: dict[str, str] = {}
        for name, value in payload.headers.items():
            found[name.lower()] = text = self._said(value, f"payload.headers.{name}")
            if not fits_header(text):
                raise PermanentError(f"payload.headers.{name}: its secret can't stand in a header; {EXPECTED_VALUE}")
        if too_many(found):
            raise PermanentError(f"payload.headers: expected at most {MAX_HEADER_CHARACTERS} characters in all")
        return found

    def _timeout(self, payload: WebhookPayload, context: ActionContext) -> float:
        left = (context.deadline - self._clock()).total_seconds()
        if left < _MIN_SECONDS:
            raise RetryableError("no time was left to call the target")
        return min(max(payload.timeout_seconds, _MIN_SECONDS), left)

    def _judged(self, answer: Answer, payload: WebhookPayload) -> object:
        status, expected = answer.status, payload.expected_statuses
        if status in expected if expected is not None else 200 <= status < 300:
            return {"status": status}
        if status in _RETRYABLE or status >= 500:
            wait = _retry_after(answer.retry_after, self._clock())
            raise RetryableError(f"the target answered {status}", retry_after=wait)
        if status in _UNAUTHORISED and self._secrets.renew(_secrets_of(payload)):
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
        # urllib3 and ssl are dear at a cold start, and no door needs them to check a payload.
        from dynatick.actions.connections import Connections

        return Connections(private_hosts=self._hosts.private, clock=self._clock, per_host=self._per_host)


def _own_headers(task: Task, context: ActionContext) -> dict[str, str]:
    told = facts(task, context)
    headers = {
        "idempotency-key": escaped(told["idempotencyKey"]),
        "user-agent": "dynatick-webhook",
        "x-dynatick-task-id": escaped(told["taskId"]),
        "x-dynatick-attempt": escaped(told["attempt"]),
        "x-dynatick-due-at": escaped(told["dueAt"]),
    }
    if "scheduleId" in told:
        headers["x-dynatick-schedule-id"] = escaped(told["scheduleId"])
    return headers


def _body(payload: WebhookPayload) -> tuple[bytes | None, dict[str, str]]:
    """The body, and the headers that it brings along."""
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


def _secrets_of(payload: WebhookPayload) -> list[tuple[SecretRef, str]]:
    texts = [("payload.url", payload.url), *((f"payload.headers.{n}", value) for n, value in payload.headers.items())]
    found: list[tuple[SecretRef, str]] = [(text.secret, field) for field, text in texts if isinstance(text, SecretText)]
    return found if payload.signing_secret is None else [*found, (payload.signing_secret, "payload.signingSecret")]


def _retry_after(header: str | None, now: datetime) -> float | None:
    """Seconds from a Retry-After header: a number of them, or a date; None if it says neither."""
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
