"""Which instants an expression names, as plain lists: reckoned here apart from the product's way of doing it.

In seconds of the simulation, which begins at 23:40 UTC on New Year's Eve. In none of the zones a clock jumps meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FIRST_MINUTE = 1420  # of the day, at second 0
MIDNIGHT = 20 * 60.0
HORIZON = 2 * 86_400.0


@dataclass(frozen=True)
class Times:
    """Instants every ``every`` minutes, from the start (rates) or from midnight UTC; ``once``: at that second only."""

    every: int = 1
    of_the_clock: bool = False
    once: float | None = None
    zone: str = "UTC"

    def named(self, start: float, end: float, after: float, until: float) -> Sequence[float]:
        """Returns all instants in (after, until], and from ``start`` to ``end``."""
        if self.once is not None:
            return [self.once] if after < self.once <= until else []
        first = 60.0 * (-FIRST_MINUTE) if self.of_the_clock else start
        step = 60.0 * self.every
        low, high = max(after, start - 0.001), min(until, end, after + HORIZON)
        n = max(0, math.floor((low - first) / step) + 1)
        found = []
        while (instant := first + n * step) <= high:
            found.append(instant)
            n += 1
        return found


EXPRESSIONS: Mapping[str, Times] = {
    "rate(1 minute)": Times(),
    "rate(2 minutes)": Times(every=2),
    "rate(7 minutes)": Times(every=7),
    "cron(* * * * ? *)": Times(of_the_clock=True),
    "cron(0/5 * * * ? *)": Times(every=5, of_the_clock=True),
    "cron(30 5 * * ? *)": Times(every=1440, of_the_clock=True, zone="Asia/Kolkata"),
    "at(2027-01-01T00:00:00)": Times(once=MIDNIGHT),
}
