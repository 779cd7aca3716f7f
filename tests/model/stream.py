"""The table's stream, and the service that hands it to the scheduler.

Two shards, each in order; a batch is sent again until it was taken, from its first failed record on, and now and then
although it was taken. Records can be kept back for a while, or be lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.model.simulation import Simulation
from tests.model.table import Effect

from dynatick.engine.assign import Arrival

SHARDS = 2


@dataclass(frozen=True)
class Mode:
    """How the stream is at present."""

    seed: int = 0
    delay: float = 0.2  # s before a batch is sent, at most
    batch: int = 10
    again: float = 0.0  # how probable it is that a batch comes again
    held: bool = False  # nothing is sent


@dataclass(eq=False)
class _Feed:
    records: list[Arrival] = field(default_factory=list)
    position: int = 0
    busy: bool = False


Deliver = Callable[[Sequence[Arrival], Callable[[frozenset[str] | None], None]], None]
"""Gives a batch to the scheduler, which then says which records failed; None: it died."""


class Stream:
    """``hear`` is told of every effect, ``deliver`` gets the batches."""

    def __init__(self, simulation: Simulation, deliver: Deliver) -> None:
        self.mode = Mode()
        self._simulation = simulation
        self._deliver = deliver
        self._feeds = [_Feed() for _ in range(SHARDS)]
        self._written = 0
        self._dice = random.Random(0)

    def hear(self, by: object, effect: Effect) -> None:
        if effect.new is None or not is_shown(effect.old, effect.new):
            return
        self._written += 1
        feed = self._feed(effect.task_id)
        feed.records.append(Arrival(str(self._written), effect.new, effect.old))
        self._kick(feed)

    def set(self, mode: Mode) -> None:
        self.mode, self._dice = mode, random.Random(mode.seed)
        for feed in self._feeds:
            self._kick(feed)

    def roll(self) -> int:
        """A seed for whoever is sent a batch now."""
        return self._dice.randint(1, 9999) if self.mode.seed else 0

    def drop(self, task_id: str) -> bool:
        """Loses the next record of a task that nobody has yet; False if there is none."""
        feed = self._feed(task_id)
        for n in range(feed.position, len(feed.records)):
            if not feed.busy and str((feed.records[n].new or {})["taskId"]) == task_id:
                del feed.records[n]
                return True
        return False

    def pending(self) -> set[str]:
        """The tasks of which a record is still to come, or under way."""
        return {str((record.new or {})["taskId"]) for feed in self._feeds for record in feed.records[feed.position :]}

    def _feed(self, task_id: str) -> _Feed:
        return self._feeds[sum(task_id.encode()) % SHARDS]

    def _kick(self, feed: _Feed) -> None:
        if feed.busy or self.mode.held or feed.position >= len(feed.records):
            return
        feed.busy = True
        delay = self._dice.uniform(0.1, self.mode.delay) if self.mode.seed else 0.1
        self._simulation.at(self._simulation.now + delay, lambda: self._send(feed))

    def _send(self, feed: _Feed) -> None:
        batch = feed.records[feed.position : feed.position + self.mode.batch]

        def answered(failed: frozenset[str] | None) -> None:
            feed.busy = False
            if failed is not None:
                taken = next((n for n, record in enumerate(batch) if record.key in failed), len(batch))
                feed.position += taken
                if self.mode.seed and self._dice.random() < self.mode.again:
                    feed.position = max(0, feed.position - self._dice.randint(1, 3))
            if failed:
                feed.busy = True
                self._simulation.at(self._simulation.now + 1.0, lambda: self._send(feed))
            elif failed is None:
                feed.busy = True
                self._simulation.at(self._simulation.now + 5.0, lambda: self._send(feed))
            else:
                self._kick(feed)

        self._deliver(batch, answered)


def is_shown(old: Mapping[str, object] | None, new: Mapping[str, object]) -> bool:
    """The filter of the stream in template.yaml (protocol 8)."""
    status = new.get("status")
    if not isinstance(status, str):
        return True
    return status not in ("cursor", "settings", "tick") if old is None else status == "scheduled"
