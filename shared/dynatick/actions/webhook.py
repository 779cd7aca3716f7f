"""The action ``webhook``: sends a request to a URL.

    {"url": "https://example.com/hook", "data": {...}, "headers": {...}, "timeoutSeconds": 10}

All but ``url`` may be left out. Only public addresses are called (see ``addresses``), redirects are not followed, and
of the answer only the status counts.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    model_validator,
)
from pydantic.dataclasses import dataclass

from dynatick.actions.addresses import Hosts, check_url, parse_target
from dynatick.actions.limits import Limits
from dynatick.actions.payloads import parsed
from dynatick.actions.secrets import SecretRef, Secrets
from dynatick.actions.shapes import CONFIG, Secret, SecretText, Text, form_of, wrong
from dynatick.actions.telling import escaped, facts
from dynatick.actions.values import to_json
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext, Clock
from dynatick.errors import PermanentError, RetryableError, shown

if TYPE_CHECKING:
    from dynatick.actions.connections import Answer, Connections

DEFAULT_TIMEOUT_SECONDS = 10.0
MAX_TIMEOUT_SECONDS = 60.0
MAX_RETRY_AFTER_SECONDS = 86_400.0
MAX_HEADERS = 32
MAX_HEADER_CHARACTERS = 8192
"""Names and values of ``payload.headers`` together."""

_NOT_GIVEN: Any = object()
_BODILESS = ("GET",)
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_VALUE = re.compile(r"(?:[!-~](?:[ \t!-~]*[!-~])?)?", re.ASCII)
_EXPECTED_VALUE = "expected text in printable ASCII without spaces at its ends"
# They say how the request is carried, which is ours to say: a second opinion smuggles requests.
_CARRIAGE = frozenset(
    {
        "connection", "content-encoding", "content-length", "expect", "host", "keep-alive", "te",
        "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_RETRYABLE = frozenset({408, 425, 429})
_UNAUTHORISED = frozenset({401, 403})
_KEY_BYTES = range(24, 65)  # of a signing key (Standard Webhooks)
_LEAST_SECONDS = 0.1


def _checked_url(url: str) -> str:
    try:
        check_url(url)
    except PermanentError as error:
        raise wrong(str(error).removeprefix("payload.url: ")) from None
    return url


def _checked_names(headers: object) -> object:
    if not isinstance(headers, Mapping) or len(headers) > MAX_HEADERS:
        raise wrong(f"expected a map of at most {MAX_HEADERS} headers")
    seen: set[str] = set()
    for name in headers:
        lower = str(name).lower()
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            raise wrong(f"{shown(name)} is not the name of a header")
        if lower in _CARRIAGE or lower.startswith("proxy-"):
            raise wrong(f"{shown(name)} can't be set")
        if lower in seen:
            raise wrong(f"{shown(name)} is there twice")
        seen.add(lower)
    return headers


def _checked_value(value: object) -> object:
    if not isinstance(value, str) or _VALUE.fullmatch(value) is None:
        raise wrong(_EXPECTED_VALUE)
    return value


def _checked_size(headers: dict[str, str | SecretText]) -> dict[str, str | SecretText]:
    if _characters({name: text if isinstance(text, str) else text.prefix for name, text in headers.items()}):
        raise wrong(f"expected at most {MAX_HEADER_CHARACTERS} characters in all")
    return headers


def _checked_seconds(value: object) -> object:
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if not number or not 0 < value <= MAX_TIMEOUT_SECONDS:  # type: ignore[operator]
        raise wrong(f"expected a number of seconds, more than 0 and at most {MAX_TIMEOUT_SECONDS:.0f}")
    return value


def _checked_status(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or not 200 <= value <= 599:
        raise wrong("expected a status from 200 to 599")
    return value


Url = Annotated[
    Annotated[Text, AfterValidator(_checked_url), Tag("<text>")] | Annotated[SecretText, Tag("<secret>")],
    Discriminator(form_of),
]
HeaderValue = Annotated[
    Annotated[Text, BeforeValidator(_checked_value), Tag("<text>")] | Annotated[SecretText, Tag("<secret>")],
    Discriminator(form_of),
]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class WebhookPayload:
    """A request to be sent."""

    url: Annotated[Url, Field(description="Where to: https and a public host. A secret, if the URL itself is one.")]
    method: Annotated[Literal["POST", "PUT", "PATCH", "DELETE", "GET"], Field(description="A GET has no body.")] = (
        "POST"
    )
    headers: Annotated[
        dict[Text, HeaderValue],
        BeforeValidator(_checked_names),
        AfterValidator(_checked_size),
        Field(max_length=MAX_HEADERS, description="Headers beside ours; a value may be a secret."),
    ] = Field(default_factory=dict)
    data: Annotated[Any, Field(description="Sent as JSON; `{}` if it is left out. A GET sends none.")] = Field(
        default_factory=lambda: _NOT_GIVEN
    )
    body: Annotated[
        Text | None, Field(description="Sent as it is, in UTF-8, in place of `data`. Name its Content-Type.")
    ] = None
    timeout_seconds: Annotated[
        float,
        BeforeValidator(_checked_seconds),
        Field(gt=0, le=MAX_TIMEOUT_SECONDS, description="For the whole request."),
    ] = DEFAULT_TIMEOUT_SECONDS
    expected_statuses: Annotated[
        list[Annotated[int, BeforeValidator(_checked_status), Field(ge=200, le=599)]] | None,
        Field(min_length=1, max_length=20, description="Statuses that mean success; every 2xx if it is left out."),
    ] = None
    signing_secret: Annotated[
        Secret | None, Field(description="Signs the request as Standard Webhooks say: `whsec_` and base64.")
    ] = None

    @model_validator(mode="after")
    def _one_body(self) -> WebhookPayload:
        if self.body is not None and self.data is not _NOT_GIVEN:
            raise wrong("expected data or body, not both", field="body")
        for name, value in (("data", self.data), ("body", self.body)):
            if self.method in _BODILESS and value is not _NOT_GIVEN and value is not None:
                raise wrong(f"a {self.method} sends no body; leave it out", field=name)
        return self


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
            headers |= _signature(key, context.idempotency_key, self._clock(), body or b"")
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
            if _VALUE.fullmatch(text) is None:
                raise PermanentError(f"payload.headers.{name}: its secret can't stand in a header; {_EXPECTED_VALUE}")
        if _characters(found):
            raise PermanentError(f"payload.headers: expected at most {MAX_HEADER_CHARACTERS} characters in all")
        return found

    def _timeout(self, payload: WebhookPayload, context: ActionContext) -> float:
        left = (context.deadline - self._clock()).total_seconds()
        if left < _LEAST_SECONDS:
            raise RetryableError("no time was left to call the target")
        return min(max(payload.timeout_seconds, _LEAST_SECONDS), left)

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
    if payload.method in _BODILESS:
        return None, {}
    try:
        data = {} if payload.data is _NOT_GIVEN else payload.data
        return to_json(data).encode(), {"content-type": "application/json"}
    except ValueError as error:
        raise PermanentError(f"payload.data: {error}") from None


def _signature(secrets: str, key: str, now: datetime, body: bytes) -> dict[str, str]:
    """Headers by Standard Webhooks. The id is the idempotency key: the same at each attempt. While a key is being
    replaced the secret holds both, with a space between them."""
    message_id, timestamp = escaped(key), str(int(now.timestamp()))
    signed = f"{message_id}.{timestamp}.".encode() + body
    signatures = [
        base64.b64encode(hmac.digest(_signing_key(secret), signed, hashlib.sha256)).decode()
        for secret in secrets.split()
    ]
    if not signatures:
        raise PermanentError(_WRONG_KEY)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


_WRONG_KEY = "payload.signingSecret: expected the secret to be whsec_ and the base64 of 24 to 64 bytes"


def _signing_key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) not in _KEY_BYTES:
        raise PermanentError(_WRONG_KEY)
    return key


def _secrets_of(payload: WebhookPayload) -> list[tuple[SecretRef, str]]:
    texts = [("payload.url", payload.url), *((f"payload.headers.{n}", value) for n, value in payload.headers.items())]
    found: list[tuple[SecretRef, str]] = [(text.secret, field) for field, text in texts if isinstance(text, SecretText)]
    return found if payload.signing_secret is None else [*found, (payload.signing_secret, "payload.signingSecret")]


def _characters(headers: Mapping[str, str]) -> bool:
    """Whether there are too many."""
    return sum(len(name) + len(text) for name, text in headers.items()) > MAX_HEADER_CHARACTERS


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
