"""Keeps what was read for a few seconds: the parts of one page ask for the same things."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar, cast

T = TypeVar("T")

_MAX_KEPT = 1000


@dataclass(slots=True)
class _Kept:
    lock: Lock = field(default_factory=Lock)
    value: Any = None
    until: float = 0.0


class Recent:
    """Values by key. Of several threads that want the same one, one reads it and the others wait."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = Lock()
        self._kept: dict[Hashable, _Kept] = {}

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """The value of a key, read now unless it was read a moment ago. Raises what ``read`` raises."""
        with self._lock:
            if len(self._kept) > _MAX_KEPT:
                self._kept = {}
            kept = self._kept.setdefault(key, _Kept())
        with kept.lock:
            if time.monotonic() >= kept.until:
                kept.value = read()
                kept.until = time.monotonic() + self._seconds
            return cast("T", kept.value)

    def clear(self) -> None:
        """Forgets everything: something was changed."""
        with self._lock:
            self._kept = {}
