"""Keeps what was read of whole hours for pages that follow each tick. Pure: ``now`` is a parameter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

T = TypeVar("T")

LONGEST = timedelta(minutes=30)
_HOUR = timedelta(hours=1)
_MAX_KEPT = 1000


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
class _Kept(Generic[T]):
    value: T
    at: datetime


class KeptHours(Generic[T]):
    """What was read of each hour. Safe for several threads, which may read the same hour at once."""

    def __init__(self, is_open: Callable[[T], bool]) -> None:
        self._is_open = is_open
        self._kept: dict[datetime, _Kept[T]] = {}

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
        hours[start] = _Kept(value, now)
        return value

    def clear(self) -> None:
        """Forgets everything: something was changed."""
        self._kept = {}
