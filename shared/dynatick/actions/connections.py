"""Connections to webhooks' hosts: pooled, bounded in time and size, and to checked addresses only.

Imported, with urllib3 (botocore brings it along), when the first webhook runs.
A name is resolved when a connection is opened, each of its addresses is checked, and one of those
very addresses is connected to: the name can't point elsewhere in between. TLS still verifies the
name. Resolving it counts towards the request's time.
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
from functools import partial
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

from dynatick.actions.addresses import PrivateHosts, Target, is_public
from dynatick.engine.ports import Clock
from dynatick.errors import PermanentError, RetryableError

Resolve = Callable[[str, int], Sequence[str]]
"""From (host, port) to the host's addresses. Raises OSError if there are none."""

MAX_BODY_BYTES = 65_536
"""As much of an answer is read, so that its connection can be used again; nothing of it is kept."""

IDLE_SECONDS = 15.0
"""A connection that lay idle for longer is opened anew: a function that was frozen in between does
not hear that the other side, or a NAT gateway, has dropped it."""

_HOSTS = 64  # that connections are kept for; the least recently used is dropped first


@dataclass(frozen=True, slots=True)
class Answer:
    """What a target answered."""

    status: int
    retry_after: str | None  # the header, as it came


def resolve(host: str, port: int) -> Sequence[str]:
    """The host's addresses by the system's resolver, in its order of preference."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Connections:
    """Sends to targets. May be used by many threads at once."""

    def __init__(
        self,
        *,
        private_hosts: PrivateHosts,
        clock: Clock,
        per_host: int,
        resolve: Resolve = resolve,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        gate = _Gate(private_hosts, _Lookups(resolve), clock)
        # One context for all: loading the certificates takes longer than a call.
        context = ssl_context or ssl.create_default_context()
        self._pools = _Pools(gate, maxsize=per_host, ssl_context=context)

    def send(
        self, method: str, target: Target, *, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> Answer:
        """Sends one request and reads the answer's status; ``timeout`` (seconds) bounds it all.

        The status line is the answer: what comes after may be long, slow or cut off. Raises
        PermanentError if the target may not be reached, RetryableError if it can't be.
        """
        ends = time.monotonic() + timeout
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
            raise RetryableError(_said(error, timeout)) from None  # its text has addresses in it
        answer = Answer(response.status, response.headers.get("Retry-After"))
        _drain(response, ends)
        return answer


class _Lookups:
    """Resolves names and waits a given time at most: the system's resolver may hang for half a minute.

    A name is looked up in a thread of its own. Requests that need it meanwhile wait for the same one, so a name that
    hangs leaves one thread behind.
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self._under_way: dict[tuple[str, int], Future[Sequence[str]]] = {}

    def addresses(self, host: str, port: int, timeout: float) -> Sequence[str]:
        """Raises OSError if there are none, or none in time."""
        with self._lock:
            lookup = self._under_way.get((host, port))
            if lookup is None:
                lookup = Future()
                threading.Thread(target=self._look_up, args=(host, port, lookup), daemon=True).start()
                self._under_way[host, port] = lookup  # if there is a thread that takes it away again
        return lookup.result(timeout)

    def _look_up(self, host: str, port: int, lookup: Future[Sequence[str]]) -> None:
        try:
            lookup.set_result(self._resolve(host, port))
        except Exception as error:
            lookup.set_exception(error)  # it is raised in the threads that wait
        finally:
            with self._lock:
                del self._under_way[host, port]


@dataclass(frozen=True, slots=True)
class _Gate:
    """Decides which addresses a connection may be opened to."""

    private_hosts: PrivateHosts
    lookups: _Lookups
    clock: Clock

    def addresses(self, host: str, port: int, timeout: float) -> Sequence[str]:
        """The host's addresses, all of them checked."""
        found = self.lookups.addresses(host.strip("[]"), port, timeout)
        # One that is not public among others is a trap, or a mistake: neither gets a call.
        if host in self.private_hosts or all(map(is_public, found)):
            return found
        raise PermanentError(
            "payload.url: its host has an address that is not public; webhooks go there only if "
            "the host is listed in WebhookPrivateHosts"
        )


class _Gated(HTTPConnection):
    """Adds to urllib3's connection: the gate, an end to slow answers, and an end to idling."""

    def __init__(self, *args: Any, gate: _Gate, **options: Any) -> None:
        super().__init__(*args, **options)
        self._gate = gate
        self._used_at: datetime | None = None
        self._ends: float | None = None  # of the request that the connection was opened for
        self._late = threading.Event()
        self._watch: threading.Timer | None = None

    def _new_conn(self) -> socket.socket:
        # urllib3 calls this for the bare socket of each connection, with or without TLS.
        self._ends = ends = time.monotonic() + (self.timeout or 0.0)
        try:
            addresses = self._gate.addresses(self._dns_host, self.port, self.timeout or 0.0)
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
            opened.settimeout(max(ends - time.monotonic(), 0.001))  # what is left is for TLS
            return opened
        if failure is None or isinstance(failure, TimeoutError):
            raise ConnectTimeoutError(self, "timed out")
        raise NewConnectionError(self, "failed") from failure

    def request(self, *args: Any, **options: Any) -> None:
        # Each single read or write may take the whole timeout, so an answer that comes byte by byte
        # would have no end. Shutting the socket down ends it.
        left = (self.timeout or 0.0) if self._ends is None else self._ends - time.monotonic()
        self._late.clear()
        self._watch = threading.Timer(max(left, 0.0), self._shut_down)
        self._watch.daemon = True
        self._watch.start()
        try:
            super().request(*args, **options)
        finally:
            self._ends = None

    def getresponse(self) -> Any:
        try:
            response = super().getresponse()
        except Exception:
            if self._late.is_set():
                raise TimeoutError from None
            raise
        finally:
            self._stop_watch()
        if self._late.is_set():  # the head was cut short, which http.client takes for its end
            raise TimeoutError
        self._used_at = self._gate.clock()
        return response

    def close(self) -> None:
        self._stop_watch()
        super().close()

    @property
    def is_connected(self) -> bool:
        if self._used_at is not None:
            idle = self._gate.clock() - self._used_at
            if idle.total_seconds() > IDLE_SECONDS:
                return False
        return super().is_connected

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _shut_down(self) -> None:
        self._late.set()
        sock = self.sock
        if sock is not None:
            with suppress(OSError):
                # Not the TLS socket's own method, which would take the ground from under the read.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _GatedTls(_Gated, HTTPSConnection):
    pass


class _Pools(PoolManager):
    """One pool of gated connections for each host."""

    def __init__(self, gate: _Gate, **options: Any) -> None:
        super().__init__(num_pools=_HOSTS, **options)
        self._gate = gate

    def _new_pool(
        self,
        scheme: str,
        host: str,
        port: int,
        request_context: dict[str, Any] | None = None,
    ) -> HTTPConnectionPool:
        pool = super()._new_pool(scheme, host, port, request_context)
        kind = _GatedTls if scheme == "https" else _Gated
        pool.ConnectionCls = partial(kind, gate=self._gate)  # type: ignore[assignment]
        return pool


def _drain(response: BaseHTTPResponse, ends: float) -> None:
    """Reads the rest of an answer if it is short and quick; otherwise it costs the connection."""
    left = MAX_BODY_BYTES
    try:
        while left > 0 and time.monotonic() < ends:
            part = response.read1(left)
            if not part:
                response.release_conn()
                return
            left -= len(part)
    except (HTTPError, OSError):
        pass
    response.close()
    response.release_conn()


def _said(error: HTTPError, timeout: float) -> str:
    """What went wrong, in words that hold neither the URL nor an address."""
    match error:
        case NameResolutionError():
            return "the name of the target's host could not be resolved"
        case NewConnectionError():
            return "the target could not be connected to"
        case ConnectTimeoutError() | ReadTimeoutError():
            return f"the target did not answer within {timeout:.1f} s"
        case SSLError(args=(ssl.SSLCertVerificationError() as reason, *_)):
            # The first part says what is wrong, the rest names hosts.
            return f"the target's certificate was refused: {reason.verify_message.split(',')[0]}"
        case SSLError():
            return "the target could not be talked to by TLS"
        case _:
            return f"the connection to the target broke before it answered ({type(error).__name__})"
