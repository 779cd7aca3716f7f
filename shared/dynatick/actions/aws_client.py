"""boto3 clients with short timeouts, which don't use a connection that has long been idle.

Lambda freezes a process between invocations, for hours. The other end closes its connections meanwhile, or a gateway on
the way forgets them, and the first request afterwards fails or gets no answer. A client that tries once would lose it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

MAX_IDLE_SECONDS = 15
"""Short of what any service or gateway on the way keeps."""


def create_client(
    service: str,
    *,
    connect_seconds: float,
    read_seconds: float,
    tries: int,
    region: str | None = None,
    connections: int = 10,
    clock: Callable[[], float] = time.time,
) -> Any:
    """A client of a service. ``tries`` of each call, all included. ``region`` None: the function's own. ``clock``:
    seconds, of a clock that goes on while the process is frozen."""
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=connect_seconds,
        read_timeout=read_seconds,
        retries={"total_max_attempts": tries, "mode": "standard"},
        max_pool_connections=connections,
    )
    client = boto3.client(service, region_name=region, config=config)  # type: ignore[call-overload]
    idle = _IdleConnections(client, clock)
    client.meta.events.register("before-send", idle.drop)
    client.meta.events.register("response-received", idle.note)
    return client


class _IdleConnections:
    """Closes a client's idle connections before a request, if its last was long ago. Safe for use by many threads."""

    def __init__(self, client: Any, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._used_at = clock()
        self._lock = threading.Lock()

    def drop(self, **_: object) -> None:
        """Returns nothing: what a handler returns would be the response."""
        with self._lock:
            now = self._clock()
            if now - self._used_at > MAX_IDLE_SECONDS:
                self._client.close()  # those in use are closed when their requests have ended
            self._used_at = now

    def note(self, **_: object) -> None:
        with self._lock:
            self._used_at = self._clock()


# -- clients that are kept ---------------------------------------------------------------------------------------------

_CONNECT_SECONDS = 2
_TRIES = 2
_WAITS = (2, 5, 10, 30, 60, 120, 300, 600, 900)  # seconds for an answer; few values, because each needs a client
_MAX_EXACT = 16  # clients with an exact wait


class ClientCache:
    """One client for each service, region and wait. Safe for use by many threads at once."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str | None, int, int], Any] = {}
        self._exact: OrderedDict[tuple[str, str | None, int, int], Any] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(
        self, service: str, *, region: str | None = None, seconds: float = 10, tries: int = _TRIES, exact: bool = False
    ) -> Any:
        """A client whose calls take about ``seconds`` at most, all tries included, but not less than 8.

        ``region`` None: the function's own. ``exact``: each try waits ``seconds``, in whole seconds, for an answer.
        """
        if exact:
            wait = max(int(seconds), 1)
        else:
            wait = max((w for w in _WAITS if (w + _CONNECT_SECONDS) * tries <= max(seconds, 8)), default=_WAITS[0])
        key = (service, region, wait, tries)
        kept = self._exact if exact else self._clients
        with self._lock:  # creating one is slow and not thread-safe
            if key not in kept:
                kept[key] = create_client(
                    service,
                    connect_seconds=_CONNECT_SECONDS,
                    read_seconds=wait,
                    tries=tries,
                    region=region,
                    connections=64,
                )
            if exact:
                self._exact.move_to_end(key)
                if len(self._exact) > _MAX_EXACT:
                    self._exact.popitem(last=False)
            return kept[key]
