"""Keeps what was read of the table: for a few seconds, since the parts of one page ask for the same things; and whole
hours for pages that follow each tick."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")

LONGEST = timedelta(minutes=30)
_HOUR = timedelta(hours=1)
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


def kept_for(start: datetime, now: datetime, *, is_open: bool) -> timedelta:
    """For how long a page that follows ticks shows an hour without reading it again: a minute for each hour that it is
    away, half an hour at most. An hour that is over and in which all has ended changes by a redrive only: half an hour.

    ``is_open``: not all of it has ended.
    """
    away = (start - now.replace(minute=0, second=0, microsecond=0)) // _HOUR
    if away < 0 and not is_open:
        return LONGEST
    return min(timedelta(minutes=abs(away)), LONGEST)


@dataclass(frozen=True, slots=True)
class _Hour(Generic[T]):
    value: T
    at: datetime


class KeptHours(Generic[T]):
    """What was read of each hour. Safe for several threads, which may read the same hour at once."""

    def __init__(self, is_open: Callable[[T], bool]) -> None:
        self._is_open = is_open
        self._kept: dict[datetime, _Hour[T]] = {}

    def get(self, start: datetime, now: datetime, read: Callable[[], T], *, anew: bool) -> T:
        """The value of an hour, read now unless it may still be shown. ``anew``: read in any case. Raises what ``read``
        raises."""
        hours = self._kept  # what is read while everything is forgotten is not kept
        found = None if anew else hours.get(start)
        if found is not None and now - found.at < kept_for(start, now, is_open=self._is_open(found.value)):
            return found.value
        value = read()
        if len(hours) >= _MAX_KEPT:
            hours.clear()
        hours[start] = _Hour(value, now)
        return value

    def clear(self) -> None:
        """Forgets everything: something was changed."""
        self._kept = {}
