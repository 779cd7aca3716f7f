"""boto3 clients for actions: created when the first task needs one, then reused."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from dynatick.actions.aws_client import create_client

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
                kept[key] = _create(service, region, wait, tries)
            if exact:
                self._exact.move_to_end(key)
                if len(self._exact) > _MAX_EXACT:
                    self._exact.popitem(last=False)
            return kept[key]


def _create(service: str, region: str | None, wait: int, tries: int) -> Any:
    return create_client(
        service, connect_seconds=_CONNECT_SECONDS, read_seconds=wait, tries=tries, region=region, connections=64
    )
