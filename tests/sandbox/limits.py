"""Limits by key, judged by what really ran: at no instant more tasks of a key than its limit, nor more often. Pure.

What is judged is the *stay* of each attempt: from when it began until it gave its place back. One whose process was
killed stays until the hard end of that process, since no other can know that it runs no more.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dynatick.domain.limit_keys import KeyLimits, class_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Stay:
    """``begin`` and ``end``: in seconds of any one clock."""

    task_id: str
    key: str
    begin: float
    end: float


def broken(stays: Iterable[Stay], limits: KeyLimits, *, skew: float = 0.0) -> Iterator[str]:
    """Yields how the limits were broken. ``skew``: seconds by which the clocks of two processes may differ, and by
    which a start may be noted late."""
    of_key = defaultdict[str, list[Stay]](list)
    for stay in stays:
        of_key[stay.key].append(stay)
    for key, all_of_it in sorted(of_key.items()):
        limit = limits.get(class_of(key))
        if limit is None:
            continue
        in_order = sorted(all_of_it, key=lambda stay: (stay.begin, stay.end))
        if limit.at_once is not None:
            yield from _too_many(key, in_order, limit.at_once, skew)
        if interval := limit.interval.total_seconds():
            yield from _too_often(key, in_order, interval, skew)


def _too_many(key: str, stays: Iterable[Stay], at_once: int, skew: float) -> Iterator[str]:
    there: list[tuple[float, str]] = []  # a heap, by their ends
    for stay in stays:
        while there and there[0][0] - skew <= stay.begin:
            heapq.heappop(there)
        heapq.heappush(there, (stay.end, stay.task_id))
        if len(there) > at_once:
            others = ", ".join(sorted(task_id for _, task_id in there))
            yield f"{key}: {len(there)} at once at {stay.begin:.3f}, and {at_once} may be: {others}"


def _too_often(key: str, stays: Iterable[Stay], interval: float, skew: float) -> Iterator[str]:
    """Evenly spaced: between any two starts, however many lie between them, there is an interval for each. So no window
    of any length has more than its share."""
    earliest = None
    for number, stay in enumerate(stays):
        behind = stay.begin - number * interval  # grows, or stays what it is
        if earliest is not None and behind < earliest - skew:
            early = f"{earliest - behind:.3f} s before its rate allows it"
            yield f"{key}: {stay.task_id} began {early}, at {stay.begin:.3f}"
        earliest = behind if earliest is None else max(earliest, behind)
