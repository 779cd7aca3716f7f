"""What is counted of the attempts of one action, and added up over ticks and hours; and how numbers are distributed, in
memory that doesn't grow with their number. Pure.

Times of actions are counted in fixed ranges, each half as wide again as the one before: so sums of sums say the same as
the whole, and a percentile is at most that much too high.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil
from typing import Final

BOUNDS: Final = (0, 1, 2, 3, *(ceil(2 ** (n / 2)) for n in range(4, 63)))
"""The last millisecond of each range, up to 24 days."""

MAX_ACTIONS: Final = 20
OTHERS: Final = "(others)"
"""The counts of the actions beyond the busiest ones."""

_NUMBERS = ("completed", "failed", "retried")
_RANGES: Final = {str(n): n for n in range(len(BOUNDS))}  # as a row names them


@dataclass(slots=True)
class TimeCounts:
    """How many times, in milliseconds, lie in which range of ``BOUNDS``."""

    counts: Counter[int] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return self.counts.total()

    def add(self, milliseconds: int) -> None:
        self.counts[min(bisect_left(BOUNDS, milliseconds), len(BOUNDS) - 1)] += 1

    def update(self, other: TimeCounts) -> None:
        self.counts.update(other.counts)

    def percentile(self, percent: int) -> int | None:
        """The end of the range in which it lies; None: nothing was counted."""
        wanted = -(-percent * self.count // 100)
        through = 0
        for n in sorted(self.counts):
            through += self.counts[n]
            if through >= wanted:
                return BOUNDS[n]
        return None

    def to_value(self) -> dict[str, int]:
        return {str(n): self.counts[n] for n in sorted(self.counts)}

    @classmethod
    def from_value(cls, value: object) -> TimeCounts:
        """What can't be understood counts as not there: a person may have written it."""
        held = value.items() if isinstance(value, Mapping) else ()
        return cls(Counter({_RANGES[n]: number for n, count in held if n in _RANGES and (number := _number(count))}))


@dataclass(kw_only=True, slots=True)
class ActionCounts:
    """The attempts of an action that have ended: how many, how late they began, and how long they took."""

    completed: int = 0
    failed: int = 0  # tasks, for good
    retried: int = 0  # attempts that failed, and will be made again
    late: TimeCounts = field(default_factory=TimeCounts)  # of the attempts that count for lateness
    took: TimeCounts = field(default_factory=TimeCounts)

    @property
    def attempts(self) -> int:
        return self.took.count

    @property
    def failures(self) -> int:
        """Attempts that failed, for good or to be made again."""
        return self.failed + self.retried

    def update(self, other: ActionCounts) -> None:
        """Adds the counts of another."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.late.update(other.late)
        self.took.update(other.took)

    def to_value(self) -> dict[str, object]:
        """For a row, without zeros."""
        numbers = {name: number for name in _NUMBERS if (number := getattr(self, name))}
        times = {name: value for name, value in (("late", self.late), ("took", self.took)) if value.count}
        return numbers | {name: value.to_value() for name, value in times.items()}

    @classmethod
    def from_value(cls, value: object) -> ActionCounts:
        """What can't be understood counts as not there."""
        held = value if isinstance(value, Mapping) else {}
        return cls(
            **{name: _number(held.get(name)) for name in _NUMBERS},
            late=TimeCounts.from_value(held.get("late")),
            took=TimeCounts.from_value(held.get("took")),
        )


@dataclass(slots=True)
class CountsByAction:
    """The counts of each action."""

    by_action: dict[str, ActionCounts] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_action)

    def of(self, action: str) -> ActionCounts:
        """The counts of an action, to be changed."""
        found = self.by_action.get(action)
        if found is None:  # rather than setdefault, which would make counts for nothing each time
            found = self.by_action[action] = ActionCounts()
        return found

    def update(self, other: CountsByAction) -> None:
        for action, counts in other.by_action.items():
            self.of(action).update(counts)

    def only_failures(self) -> CountsByAction:
        """What failed of each action, and nothing else."""
        failed = {action: counts for action, counts in self.by_action.items() if counts.failures}
        return CountsByAction(
            {action: ActionCounts(failed=one.failed, retried=one.retried) for action, one in failed.items()}
        )

    @property
    def failures(self) -> int:
        return sum(counts.failures for counts in self.by_action.values())

    def busiest(self) -> Sequence[tuple[str, ActionCounts]]:
        """The actions with the most attempts first."""
        return sorted(self.by_action.items(), key=lambda one: (-one[1].attempts, -one[1].failures, one[0]))

    def to_value(self) -> dict[str, object]:
        """For a row: the busiest actions each, and all others together."""
        named = [one for one in self.busiest() if one[0] != OTHERS]
        kept = CountsByAction(dict(named[:MAX_ACTIONS]))
        for _, counts in (*named[MAX_ACTIONS:], *((n, c) for n, c in self.by_action.items() if n == OTHERS)):
            kept.of(OTHERS).update(counts)
        return {action: counts.to_value() for action, counts in kept.by_action.items()}

    @classmethod
    def from_value(cls, value: object) -> CountsByAction:
        held = value.items() if isinstance(value, Mapping) else ()
        return cls({str(action): ActionCounts.from_value(counts) for action, counts in held})

    @classmethod
    def sum(cls, parts: Iterable[CountsByAction]) -> CountsByAction:
        total = cls()
        for part in parts:
            total.update(part)
        return total


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)) or value < 0:
        return 0
    return int(value)


# -- distribution ------------------------------------------------------------------------------------------------------

_SIGNIFICANT_BITS = 7  # of a number: percentiles are at most 2 % too small


@dataclass(slots=True)
class Distribution:
    """Whole numbers from 0 on, rounded down to seven significant bits and counted."""

    count: int = 0
    total: int = 0
    max: int = 0
    _counts: Counter[int] = field(default_factory=Counter)

    def add(self, number: int) -> None:
        self.count += 1
        self.total += number
        self.max = max(self.max, number)
        dropped = max(0, number.bit_length() - _SIGNIFICANT_BITS)
        self._counts[number >> dropped << dropped] += 1

    def update(self, other: Distribution) -> None:
        """Adds the numbers of another."""
        self.count += other.count
        self.total += other.total
        self.max = max(self.max, other.max)
        self._counts.update(other._counts)

    @property
    def mean(self) -> int:
        """0 if there are no numbers, like the next two."""
        return self.total // self.count if self.count else 0

    def percentile(self, percent: int) -> int:
        """The smallest number that at least ``percent`` of them don't exceed; the 100th is exact."""
        return next(self._at_ranks([-(-percent * self.count // 100)]), 0)

    def sample(self, size: int) -> list[int]:
        """Returns at most ``size`` numbers, in order, with the same percentiles."""
        size = min(size, self.count)
        return list(self._at_ranks(-(-n * self.count // size) for n in range(1, size + 1)))

    def _at_ranks(self, ranks: Iterable[int]) -> Iterator[int]:
        """The numbers at these ranks, which begin at 1 and are in order."""
        counts = iter(sorted(self._counts.items()))
        number = through = 0
        for rank in ranks:
            while through < rank:
                number, more = next(counts)
                through += more
            if self.count:
                yield self.max if rank == self.count else number
