"""How many units a second a table or an index has: its partitions, by the hash of their keys, and its quota."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import md5
from itertools import pairwise
from math import ceil

from tests.simulate.assumptions import PARTITION_READ_UNITS, SPLIT_AFTER

from dynatick.domain.executions import PARTITION_WRITE_UNITS
from dynatick_stack.plan.figures import TABLE_WRITE_UNITS

HASHES = 2**32


class Allowance:
    """``rate`` units a second. What is not used is kept up to ``burst``: without one, the units of a second."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, rate: float, now: float, *, burst: float | None = None) -> None:
        self._rate, self._at = rate, now
        self._burst = self._left = rate if burst is None else burst

    def has_room(self, now: float) -> bool:
        if now > self._at:
            self._left = min(self._burst, self._left + (now - self._at) * self._rate)
            self._at = now
        return self._left > 0

    def take(self, units: float) -> None:
        """Takes the units of a request that was admitted, however many: its size is known only then."""
        self._left -= units


class Partition:
    """A partition, and since when it has refused requests, with no whole second without one."""

    __slots__ = ("hot_since", "last_refusal", "reads", "writes")

    def __init__(self, now: float) -> None:
        self.writes, self.reads = Allowance(PARTITION_WRITE_UNITS, now), Allowance(PARTITION_READ_UNITS, now)
        self.hot_since = self.last_refusal = now

    def refuse(self, now: float) -> None:
        if now - self.last_refusal > 1:
            self.hot_since = now
        self.last_refusal = now


class Capacity:
    """The partitions of a table or an index. ``warm``: write units a second that it is warm for; its reads are in
    proportion.

    Counts its refusals, and the write units that it gave.
    """

    def __init__(self, warm: float, clock: Callable[[], float], *, quota: float = TABLE_WRITE_UNITS) -> None:
        self._clock = clock
        number = max(1, ceil(warm / PARTITION_WRITE_UNITS))
        self._starts = [HASHES * n // number for n in range(number)]
        self._partitions = [Partition(clock()) for _ in self._starts]
        self._quota = Allowance(quota, clock())
        self.refused_writes = self.refused_reads = 0
        self.by_second: dict[int, float] = {0: 0.0}  # write units

    @property
    def partitions(self) -> int:
        return len(self._partitions)

    def admits_write(self, key: str) -> bool:
        now = self._clock()
        found = self._partition(key)
        if found.writes.has_room(now) and self._quota.has_room(now):
            return True
        self.refused_writes += 1
        self._refuse(found, now)
        return False

    def admits_read(self, key: str) -> bool:
        now = self._clock()
        found = self._partition(key)
        if found.reads.has_room(now):
            return True
        self.refused_reads += 1
        self._refuse(found, now)
        return False

    def take_write(self, key: str, units: float) -> None:
        self._partition(key).writes.take(units)
        self._quota.take(units)
        second = int(self._clock())
        self.by_second[second] = self.by_second.get(second, 0.0) + units

    def take_read(self, key: str, units: float) -> None:
        self._partition(key).reads.take(units)

    def fullest(self, keys: Iterable[str]) -> int:
        """How many of these keys lie on the partition that has most of them."""
        return max(Counter(map(self._place, keys)).values())

    def _partition(self, key: str) -> Partition:
        return self._partitions[self._place(key)]

    def _place(self, key: str) -> int:
        found = int.from_bytes(md5(key.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()[:4])
        return bisect_right(self._starts, found) - 1

    def _refuse(self, partition: Partition, now: float) -> None:
        partition.refuse(now)
        if now - partition.hot_since >= SPLIT_AFTER:
            self._split(self._partitions.index(partition), now)

    def _split(self, n: int, now: float) -> None:
        """Gives each half of its keys a partition of its own."""
        start, end = next(pair for pair in pairwise([*self._starts[n:], HASHES]))
        self._starts.insert(n + 1, (start + end) // 2)
        self._partitions[n : n + 1] = [Partition(now), Partition(now)]
