"""boto3 clients for actions: made when the first task needs one, and kept."""

from __future__ import annotations

import threading
from typing import Any

_CONNECT_SECONDS = 2
_TRIES = 2
_WAITS = (2, 5, 10, 30, 60, 120, 300, 600, 900)  # seconds for an answer; few, for each is a client


class Clients:
    """A client for each service, region and time to wait. May be used by many threads at once."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str | None, int], Any] = {}
        self._lock = threading.Lock()

    def __call__(self, service: str, *, region: str | None = None, seconds: float = 10, tries: int = _TRIES) -> Any:
        """The client that has given up after about ``seconds``, tries of its own included. None in ``region``: the
        function's own. Raises ValueError if that is too short a time."""
        wait = max((w for w in _WAITS if (w + _CONNECT_SECONDS) * tries <= max(seconds, 8)), default=_WAITS[0])
        key = (service, region, wait)
        with self._lock:  # making one is slow, and not safe in several threads
            if key not in self._clients:
                self._clients[key] = _made(service, region, wait, tries)
            return self._clients[key]


def _made(service: str, region: str | None, wait: int, tries: int) -> Any:
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=wait,
        retries={"total_max_attempts": tries, "mode": "standard"},
        max_pool_connections=64,
        parameter_validation=True,
    )
    return boto3.client(service, region_name=region, config=config)  # type: ignore[call-overload]
