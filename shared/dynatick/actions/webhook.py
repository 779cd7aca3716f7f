"""The action ``webhook``: sends the payload's data to a URL by POST.

    {"url": "https://example.com/hook", "data": {...}, "headers": {...}, "timeoutSeconds": 10}

All but ``url`` may be left out; ``data`` is then ``{}``. Only public addresses are called (see
``addresses``), redirects are not followed, and of the answer only the status counts.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

from dynatick.actions.addresses import PrivateHosts, parse_target
from dynatick.actions.values import to_json
from dynatick.domain.instants import format_instant
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext, Clock
from dynatick.errors import PermanentError, RetryableError, shown

if TYPE_CHECKING:
    from datetime import datetime

    from dynatick.actions.connections import Answer, Connections

DEFAULT_TIMEOUT_SECONDS = 10.0
MAX_TIMEOUT_SECONDS = 60.0
MAX_RETRY_AFTER_SECONDS = 86_400.0
MAX_HEADERS = 32
MAX_HEADER_CHARACTERS = 8192
"""Names and values of ``payload.headers`` together."""

_KEYS = ("data", "headers", "timeoutSeconds", "url")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_VALUE = re.compile(r"(?:[!-~](?:[ \t!-~]*[!-~])?)?", re.ASCII)
# They say how the request is carried, which is ours to say: a second opinion smuggles requests.
_CARRIAGE = frozenset(
    {
        "connection", "content-encoding", "content-length", "expect", "host", "keep-alive", "te",
        "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_RETRYABLE = frozenset({408, 425, 429})
# What may stand in a header as it is: printable ASCII but the percent sign, and no space.
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")
_LEAST_SECONDS = 0.1


class Webhook:
    """Posts tasks to the web. One instance serves all threads and keeps connections open."""

    def __init__(
        self,
        *,
        clock: Clock,
        private_hosts: Iterable[str] = (),
        connections_per_host: int = 32,
        connect: Callable[[], Connections] | None = None,
    ) -> None:
        """``private_hosts``: hosts that may have addresses inside and may be called by plain http.

        ``connections_per_host``: how many are kept open, as many as there are threads. ``connect``
        replaces the connections altogether. Raises ConfigurationError for a wrong private host.
        """
        self._clock = clock
        self._private_hosts = PrivateHosts(private_hosts)
        self._per_host = connections_per_host
        self._connect = connect or self._open
        self._lock = threading.Lock()
        self._connections: Connections | None = None

    def run(self, task: Task, context: ActionContext) -> object:
        """Sends one request. The result is ``{"status": 204}``, with the status that came.

        Success is 2xx. RetryableError: 408, 425, 429, 5xx (with the target's Retry-After), no
        answer in time, no connection. PermanentError: any other status, and a payload that is not
        understood. Error texts hold nothing of the payload.
        """
        payload = task.payload
        unknown = sorted(set(payload) - set(_KEYS))
        if unknown:
            names = ", ".join(shown(name) for name in unknown[:5])
            raise PermanentError(f"payload: unknown {names}; expected any of {', '.join(_KEYS)}")
        target = parse_target(payload.get("url"), self._private_hosts)
        headers = {**_users_headers(payload.get("headers")), **_own_headers(task, context)}
        body = _body(payload.get("data", {}))
        answer = self._opened().post(target, headers=headers, body=body, timeout=self._timeout(payload, context))
        return self._judged(answer)

    def _timeout(self, payload: Mapping[str, object], context: ActionContext) -> float:
        wanted = payload.get("timeoutSeconds", DEFAULT_TIMEOUT_SECONDS)
        number = isinstance(wanted, (int, float, Decimal)) and not isinstance(wanted, bool)
        if not number or not 0 < wanted <= MAX_TIMEOUT_SECONDS:  # type: ignore[operator]
            raise PermanentError(
                "payload.timeoutSeconds: expected a number of seconds, more than 0 and at most "
                f"{MAX_TIMEOUT_SECONDS:.0f}"
            )
        left = (context.deadline - self._clock()).total_seconds()
        if left < _LEAST_SECONDS:
            raise RetryableError("no time was left to call the target")
        return min(max(float(wanted), _LEAST_SECONDS), left)  # type: ignore[arg-type]

    def _judged(self, answer: Answer) -> object:
        status = answer.status
        if 200 <= status < 300:
            return {"status": status}
        if status in _RETRYABLE or status >= 500:
            wait = _retry_after(answer.retry_after, self._clock())
            raise RetryableError(f"the target answered {status}", retry_after=wait)
        if 300 <= status < 400:
            raise PermanentError(
                f"the target answered {status}, a redirect, and redirects are not followed; "
                "give the URL that it leads to"
            )
        raise PermanentError(f"the target answered {status}")

    def _opened(self) -> Connections:
        with self._lock:
            if self._connections is None:
                self._connections = self._connect()
            return self._connections

    def _open(self) -> Connections:
        # urllib3 and ssl are dear at a cold start, and many a stack never calls a webhook.
        from dynatick.actions.connections import Connections

        return Connections(private_hosts=self._private_hosts, clock=self._clock, per_host=self._per_host)


def _own_headers(task: Task, context: ActionContext) -> dict[str, str]:
    """By name in lower case, as all headers here: names of headers are equal in any case."""
    return {
        "content-type": "application/json",
        "idempotency-key": quote(context.idempotency_key, safe=_SAFE),
        "user-agent": "dynatick-webhook",
        "x-dynatick-task-id": quote(task.task_id, safe=_SAFE),
        "x-dynatick-attempt": str(context.attempt),
        "x-dynatick-due-at": format_instant(context.due_at),
    }


def _users_headers(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or len(value) > MAX_HEADERS:
        raise PermanentError(f"payload.headers: expected a map of at most {MAX_HEADERS} headers")
    found: dict[str, str] = {}
    for name, text in value.items():
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            raise PermanentError(f"payload.headers: {shown(name)} is not the name of a header")
        lower = name.lower()
        if lower in _CARRIAGE or lower.startswith("proxy-"):
            raise PermanentError(f"payload.headers: {shown(name)} can't be set")
        if not isinstance(text, str) or _VALUE.fullmatch(text) is None:
            raise PermanentError(
                f"payload.headers: the value of {shown(name)} is not accepted; expected text in "
                "printable ASCII without spaces at its ends"
            )
        if lower in found:
            raise PermanentError(f"payload.headers: {shown(name)} is there twice")
        found[lower] = text
    if sum(len(name) + len(text) for name, text in found.items()) > MAX_HEADER_CHARACTERS:
        raise PermanentError(f"payload.headers: expected at most {MAX_HEADER_CHARACTERS} characters in all")
    return found


def _body(data: object) -> bytes:
    try:
        return to_json(data).encode()
    except ValueError as error:
        raise PermanentError(f"payload.data: {error}") from None


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
