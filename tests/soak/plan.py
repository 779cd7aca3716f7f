"""Everything that a soak inflicts, drawn from its seed: the same seed, the same faults in the same order. Pure.

Who meets them depends on how the processes run, which no seed repeats.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.sandbox.seam import Fault

SPEED = 6.0
TIMEOUT = 36.0  # seconds of the fast clock: a little more than the least ProcessorTimeoutSeconds
LATEST = 70.0  # seconds that a tick may be late
SKEW = 2.0  # seconds by which a host's clock may be off
KILL_EVERY = 5.0  # seconds of the machine's clock, on the average

_STEPS = (
    "acquire shard", "poll", "claim", "record", "record", "release shard", "any", "reclaim", "read",
)  # fmt: skip
_ALWAYS = (
    Fault(at="any", do="throttle", chance=0.02, times=None),
    Fault(at="any", do="fail before", chance=0.015, times=None),
    Fault(at="any", do="lose response", chance=0.015, times=None),
    Fault(at="claim", do="throttle parts", amount=0.3, chance=0.05, times=None),
    Fault(at="record", do="throttle parts", amount=0.3, chance=0.05, times=None),
    Fault(at="record", do="lose response", chance=0.05, times=None),
    Fault(at="read", do="leave keys", amount=0.3, chance=0.05, times=None),
)
DROPPED, GAP, ON_TIME, LATE, REPEATED = "dropped", "in a gap", "on time", "late", "repeated"
LONGEST_GAP = 8  # ticks


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of a soak, and its seed."""

    seed: int
    minutes: float  # by the machine's clock, of inserting and of faults
    speed: float = SPEED  # how much faster the shared clock runs
    shards: int = 3
    schedules: int = 2
    processors: int = 3
    wake_up_processors: int = 1  # processes for wake-ups, which leave room for ticks
    inserters: int = 2
    precisions: Sequence[str] = ("second", "second", "tick")  # of deployments: first the first, then each as likely
    is_traced: bool = True

    def dice(self, what: str) -> random.Random:
        return random.Random(f"{self.seed} {what}")

    def ticks(self) -> Iterator[Sequence[tuple[str, float]]]:
        """Yields for each minute whether and after how many seconds its tick comes."""
        dice = self.dice("ticks")
        while True:
            if dice.random() < 0.03:
                yield from [[(GAP, 0.0)]] * dice.randint(3, LONGEST_GAP)
            if dice.random() < 0.15:
                yield [(DROPPED, 0.0)]
                continue
            late = dice.random() < 0.25
            ticks = [(LATE, dice.uniform(10, LATEST)) if late else (ON_TIME, dice.uniform(0, 2))]
            ticks += [(REPEATED, dice.uniform(0, LATEST)) for _ in range(dice.choice([0, 1, 1, 2]))]
            yield ticks

    def started(self) -> Iterator[Sequence[float]]:
        """Yields for each asynchronous invocation that a tick asks for after how many seconds it comes, if at all."""
        dice = self.dice("started")
        while True:
            chance = dice.random()
            soon = dice.uniform(0, 2)
            yield [] if chance < 0.05 else [soon, soon + dice.uniform(0, 20)] if chance < 0.15 else [soon]

    def wake_ups(self) -> Iterator[Sequence[float]]:
        """Yields for each wake-up how many seconds after its instant it comes, each time that it does."""
        dice = self.dice("wake-ups")
        while True:
            chance = dice.random()
            off = dice.uniform(-40, 90) if dice.random() < 0.2 else 0.0
            yield [] if chance < 0.2 else [off, off + dice.uniform(0, 30)] if chance < 0.35 else [off]

    def faults(self, of: str) -> Iterator[Sequence[Fault]]:
        """Yields the faults of each invocation."""
        dice = self.dice(f"faults of {of}")
        while True:
            chance = dice.random()
            step = Fault(at=dice.choice(_STEPS), do=dice.choice(["kill before", "kill after"]), skip=dice.randrange(4))
            if chance < 0.08:
                yield [*_ALWAYS, step]
            elif chance < 0.12:  # cut off from the table before it can record anything
                yield [*_ALWAYS, Fault(at="record", do=dice.choice(["throttle", "fail before"]), times=None)]
            else:
                yield _ALWAYS

    def kills(self) -> Iterator[tuple[float, str, float]]:
        """Seconds of the machine's clock until the next; the role of who is killed; and which of them, from 0 to 1."""
        dice = self.dice("kills")
        while True:
            role = dice.choices(["processor", "scheduler", "inserter"], [8, 1, 1])[0]
            yield dice.expovariate(1 / KILL_EVERY), role, dice.random()

    def deployments(self) -> Iterator[tuple[float, int, str]]:
        """Seconds of the machine's clock until the next, and the number of shards and the precision that it has."""
        dice, shards = self.dice("deployments"), self.shards
        while True:
            shards = dice.choice([n for n in range(1, self.shards + 3) if n != shards])
            yield dice.uniform(15, 45), shards, dice.choice(self.precisions)

    def refusals(self) -> Iterator[tuple[float, float]]:
        """Seconds of the machine's clock until the dead-letter queue refuses everything, and for how long it does."""
        dice = self.dice("refusals")
        while True:
            yield dice.uniform(10, 40), dice.uniform(5, 30)

    def skews(self) -> Iterator[float]:
        """Yields the skew of each process of a function."""
        dice = self.dice("skews")
        while True:
            yield round(dice.uniform(-SKEW, SKEW), 2)
