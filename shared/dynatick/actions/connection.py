"""Connections to webhooks' hosts: pooled, limited in time and size, and to checked addresses only.

Imported, with urllib3 (a dependency of botocore), when the first webhook runs. Opening a connection resolves the host's
name, checks each address, and connects to one of the checked addresses, so the name can't change in between. TLS still
verifies the name. The timeout of a request includes the name's resolution.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from http import HTTPStatus
from http.client import HTTPResponse
from ipaddress import ip_address
from typing import Any

from urllib3 import HTTPConnectionPool, PoolManager, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.response import BaseHTTPResponse
from urllib3.util.connection import create_connection

from dynatick.actions.aws_client import MAX_IDLE_SECONDS
from dynatick.actions.webhook_url import PrivateHosts, Target, is_public
from dynatick.engine.ports import Clock
from dynatick.errors import PermanentError, RetryableError

Resolve = Callable[[str, int], Sequence[str]]
"""Returns the addresses of (host, port). Raises OSError if it has none."""

MAX_BODY_BYTES = 65_536
"""An answer's body is read up to this size and dropped, so that its connection can be reused."""

MAX_LOOKUPS = 64
"""How many names are resolved at once, each in a thread of its own: names that hang must not use up all threads."""

_MAX_HOSTS = 64  # hosts with open connections; the least recently used is dropped first


@dataclass(frozen=True, slots=True)
class Answer:
    """A target's answer."""

    status: int
    retry_after: str | None  # the header's text


def resolve(host: str, port: int) -> Sequence[str]:
    """The host's addresses by the system's resolver, in its order of preference."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@cache
def _default_context() -> ssl.SSLContext:
    """One for all connections of a process: loading the certificates takes longer than a call."""
    return ssl.create_default_context()


class Connections:
    """Sends requests. Safe for use by many threads at once."""

    def __init__(
        self,
        *,
        private_hosts: PrivateHosts,
        clock: Clock,
        per_host: int,
        resolve: Resolve = resolve,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        address_check = _AddressCheck(private_hosts, _Lookups(resolve), clock)
        self._pools = _Pools(address_check, maxsize=per_host, ssl_context=ssl_context or _default_context())

    def send(
        self, method: str, target: Target, *, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> Answer:
        """Sends one request and returns the answer's status; ``timeout`` in seconds covers everything.

        Only the status line counts: the body may be long, slow or cut off. Raises PermanentError if the host has an
        address that is not allowed, RetryableError if the target can't be reached or does not answer in time.
        """
        pool = self._pools.connection_from_host(target.host, target.port, target.scheme)
        try:
            response = pool.urlopen(
                method,
                target.path,
                body=body,
                headers=headers,
                retries=False,
                redirect=False,
                assert_same_host=False,
                timeout=Timeout(total=timeout),
                preload_content=False,
                decode_content=False,
            )
        except HTTPError as error:
            raise RetryableError(_message_of(error, timeout)) from None  # the original text contains addresses
        answer = Answer(response.status, response.headers.get("Retry-After"))
        _read_rest(response)
        return answer


class _Lookups:
    """Resolves names with a timeout: the system's resolver can hang for half a minute.

    Each name is resolved in a thread of its own. Other requests for the same name wait for that thread, so a name that
    hangs occupies one thread, and there are MAX_LOOKUPS of them.
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self._under_way: dict[tuple[str, int], Future[Sequence[str]]] = {}

    def addresses(self, host: str, port: int, timeout: float) -> Sequence[str]:
        """The addresses. Raises OSError if the name has no address, or its look-up times out; RetryableError if too
        many other names are being resolved."""
        with suppress(ValueError):  # an address waits for no names
            return [str(ip_address(host))]
        with self._lock:
            lookup = self._under_way.get((host, port))
            if lookup is None:
                if len(self._under_way) >= MAX_LOOKUPS:
                    raise RetryableError(f"{MAX_LOOKUPS} other names of hosts are being resolved")
                lookup = Future()
                threading.Thread(target=self._look_up, args=(host, port, lookup), daemon=True).start()
                self._under_way[host, port] = lookup  # only after the thread has started, which removes it again
        return lookup.result(timeout)

    def _look_up(self, host: str, port: int, lookup: Future[Sequence[str]]) -> None:
        try:
            found = self._resolve(host, port)
        except Exception as error:
            finish: Callable[[], None] = partial(lookup.set_exception, error)  # it is raised in the threads that wait
        else:
            finish = partial(lookup.set_result, found)
        with self._lock:  # before anyone has the answer: who asks after that resolves the name anew
            del self._under_way[host, port]
        finish()


@dataclass(frozen=True, slots=True)
class _AddressCheck:
    """Decides which addresses a connection may be opened to."""

    private_hosts: PrivateHosts
    lookups: _Lookups
    clock: Clock

    def addresses(self, host: str, port: int, timeout: float) -> Sequence[str]:
        """The host's addresses. Raises PermanentError if one of them is not allowed."""
        found = self.lookups.addresses(host.strip("[]"), port, timeout)
        # If one of several addresses is not public, none is called: it is an attack or a mistake.
        if host in self.private_hosts or all(map(is_public, found)):
            return found
        raise PermanentError(
            "payload.url: its host has an address that is not public; webhooks go there only if "
            "the host is listed in WebhookPrivateHosts"
        )


class _Deadline:
    """Shuts a connection's socket down when the time of its request is over, unless it is lifted before.

    urllib3 applies the timeout to each read and write, so an answer that comes byte by byte would never end: in its
    headers, its body, or the lines between the parts of a chunked one.
    """

    def __init__(self, connection: HTTPConnection, seconds: float) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._lifted = False
        self.has_passed = False
        self.sock: socket.socket | None = None
        """The socket of the answer: the connection forgets one that is to be closed after it."""
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True
        self._timer.start()

    def lift(self) -> None:
        """After this the socket is left alone: the connection may serve another request."""
        with self._lock:
            self._lifted = True
        self._timer.cancel()

    def _pass(self) -> None:
        with self._lock:
            if self._lifted:
                return
            self.has_passed = True
            sock = self.sock or self._connection.sock
            if sock is not None:
                with suppress(OSError):
                    # Not the TLS socket's own method, which would break the read that is under way.
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _FinalResponse(HTTPResponse):
    """Passes over every interim answer; http.client does so for 100 alone, and takes 102 or 103 for the answer."""

    def begin(self) -> None:
        super().begin()
        while self.status < HTTPStatus.OK and self.status != HTTPStatus.SWITCHING_PROTOCOLS:
            self.headers = None  # type: ignore[assignment]  # what tells begin that it has not begun
            super().begin()
        if self.status < HTTPStatus.OK:  # what follows is not HTTP any more, so no request may
            self.will_close = True


class _CheckedConnection(HTTPConnection):
    """urllib3's connection with an address check, a timeout for slow answers, and a limit on idle time."""

    response_class = _FinalResponse

    def __init__(self, *args: Any, address_check: _AddressCheck, **options: Any) -> None:
        super().__init__(*args, **options)
        self._address_check = address_check
        self._used_at: datetime | None = None
        self._ends: float | None = None  # of the request that opened the connection; time.monotonic()
        self.deadline: _Deadline | None = None
        """That of the latest request."""

    def _new_conn(self) -> socket.socket:
        # urllib3 calls this for the bare socket of each connection, with or without TLS.
        self._ends = ends = time.monotonic() + (self.timeout or 0.0)
        try:
            addresses = self._address_check.addresses(self._dns_host, self.port, self.timeout or 0.0)
        except (OSError, UnicodeError) as error:
            raise NameResolutionError(self.host, self, socket.gaierror(str(error))) from error
        failure: OSError | None = None
        for address in addresses:
            left = ends - time.monotonic()
            if left <= 0:
                break
            try:
                opened = create_connection((address, self.port), left, socket_options=self.socket_options)
            except OSError as error:
                failure = error
                continue
            opened.settimeout(max(ends - time.monotonic(), 0.001))  # the remaining time is for TLS
            return opened
        if failure is None or isinstance(failure, TimeoutError):
            raise ConnectTimeoutError(self, "timed out")
        raise NewConnectionError(self, "failed") from failure

    def request(self, *args: Any, **options: Any) -> None:
        left = (self.timeout or 0.0) if self._ends is None else self._ends - time.monotonic()
        if self.deadline is not None:
            self.deadline.lift()
        self.deadline = _Deadline(self, max(left, 0.0))
        try:
            super().request(*args, **options)
        except BaseException:
            self.deadline.lift()
            raise
        finally:
            self._ends = None

    def getresponse(self) -> Any:
        deadline = self.deadline
        assert deadline is not None  # a request goes before
        deadline.sock = self.sock
        try:
            response = None if deadline.has_passed else super().getresponse()
        except Exception:
            deadline.lift()
            if deadline.has_passed:
                raise TimeoutError from None
            raise
        if deadline.has_passed:  # the headers may be cut short, which http.client takes for their end
            raise TimeoutError
        self._used_at = self._address_check.clock()
        return response

    @property
    def is_connected(self) -> bool:
        if self._used_at is not None:
            idle = self._address_check.clock() - self._used_at
            if idle.total_seconds() > MAX_IDLE_SECONDS:
                return False
        return super().is_connected


class _CheckedTlsConnection(_CheckedConnection, HTTPSConnection):
    pass


class _Pools(PoolManager):
    """One pool of checked connections for each host."""

    def __init__(self, address_check: _AddressCheck, **options: Any) -> None:
        super().__init__(num_pools=_MAX_HOSTS, **options)
        self._address_check = address_check

    def _new_pool(
        self,
        scheme: str,
        host: str,
        port: int,
        request_context: dict[str, Any] | None = None,
    ) -> HTTPConnectionPool:
        pool = super()._new_pool(scheme, host, port, request_context)
        kind = _CheckedTlsConnection if scheme == "https" else _CheckedConnection
        pool.ConnectionCls = partial(kind, address_check=self._address_check)  # type: ignore[assignment]
        return pool


def _read_rest(response: BaseHTTPResponse) -> None:
    """Reads the rest of an answer if it is short and comes within the request's time; otherwise closes the
    connection."""
    left, deadline = MAX_BODY_BYTES, response.connection.deadline  # type: ignore[union-attr]
    try:
        while left > 0:
            part = response.read1(left)
            if not part:
                response.release_conn()
                return
            left -= len(part)
    except (HTTPError, OSError):
        pass
    finally:
        deadline.lift()
    response.close()
    response.release_conn()


def _message_of(error: HTTPError, timeout: float) -> str:
    """A message for the error, without the URL and without addresses."""
    match error:
        case NameResolutionError():
            return "the name of the target's host could not be resolved"
        case NewConnectionError():
            return "the target could not be connected to"
        case ConnectTimeoutError() | ReadTimeoutError():
            return f"the target did not answer within {timeout:.1f} s"
        case SSLError(args=(ssl.SSLCertVerificationError() as reason, *_)):
            # The first part is the reason, the rest names hosts.
            return f"the target's certificate was refused: {reason.verify_message.split(',')[0]}"
        case SSLError():
            return "the TLS connection to the target failed"
        case _:
            return f"the connection to the target broke before it answered ({type(error).__name__})"
