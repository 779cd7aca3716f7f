"""The table's stream, through the filter of the template, and the service that hands it to the scheduler.

Two shards; the records of a task come in order, those of different tasks in any. A batch is sent again until it was
taken, from its first failed record on, and now and then although it was taken: then old records come after newer ones.
Records can be kept back for a while, or be lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.model.simulation import Simulation
from tests.model.steps import ShortRepr
from tests.model.table import Effect
from tests.sandbox.stream import matches, patterns

from dynatick.domain.task import Row
from dynatick.engine.scheduler import Arrival
from dynatick.store.codec import encode

SHARDS = 2
FILTER = patterns()


@dataclass(frozen=True, repr=False)
class StreamMode(ShortRepr):
    """How the stream is at present."""

    seed: int = 0
    delay: float = 0.2  # s before a batch is sent, at most
    batch: int = 10
    again: float = 0.0  # how probable it is that a batch comes again
    held: bool = False  # nothing is sent
    mixed: bool = False  # the tasks of a batch come in any order


@dataclass(eq=False)
class _Feed:
    records: list[Arrival] = field(default_factory=list)
    position: int = 0
    busy: bool = False
    failed: int = 0  # how often in a row


Deliver = Callable[[Sequence[Arrival], Callable[[frozenset[str] | None], None]], None]
"""Gives a batch to the scheduler, which then says which records failed; None: it died."""


class Stream:
    """``observe`` gets every effect, ``deliver`` gets the batches, ``note`` gets the effects that have records."""

    def __init__(
        self, simulation: Simulation, deliver: Deliver, note: Callable[[Effect], None] = lambda effect: None
    ) -> None:
        self.mode = StreamMode()
        self._simulation = simulation
        self._deliver, self._note = deliver, note
        self._feeds = [_Feed() for _ in range(SHARDS)]
        self._written = 0
        self._filter = FILTER
        self._rng = random.Random(0)

    def observe(self, by: object, effect: Effect) -> None:
        if effect.new is None or not self._shows(effect.old, effect.new):
            return
        self._written += 1
        self._note(effect)
        feed = self._feed(effect.task_id)
        feed.records.append(Arrival(str(self._written), effect.new, effect.old))
        self._send_next(feed)

    def set(self, mode: StreamMode) -> None:
        self.mode, self._rng = mode, random.Random(mode.seed)
        for feed in self._feeds:
            self._send_next(feed)

    def random_seed(self) -> int:
        """A seed for the process that gets a batch now."""
        return self._rng.randint(1, 9999) if self.mode.seed else 0

    def drop(self, task_id: str) -> bool:
        """Loses the next record of a task that was not delivered yet; False if there is none."""
        feed = self._feed(task_id)
        for n in range(feed.position, len(feed.records)):
            if not feed.busy and _task_of(feed.records[n]) == task_id:
                del feed.records[n]
                return True
        return False

    def start_anew(self) -> None:
        """Another table's stream: what this one's still had to send is not sent."""
        for feed in self._feeds:
            feed.records.clear()
        self._feeds = [_Feed() for _ in range(SHARDS)]

    @property
    def is_idle(self) -> bool:
        """Returns whether nothing is on its way, but for what is kept back."""
        return not any(feed.busy for feed in self._feeds)

    def pending(self) -> set[str]:
        """The tasks of which a record is still to come, or under way."""
        return {_task_of(record) for feed in self._feeds for record in feed.records[feed.position :]}

    def keeps_back(self, task_id: str) -> bool:
        """Returns whether a record of a task waits until something is sent again."""
        return self.mode.held and task_id in self.pending()

    def _shows(self, old: Row | None, new: Row) -> bool:
        """Returns whether the template's filter lets a record through (protocol 8)."""
        image = encode({"status": new["status"]}) if "status" in new else {}
        record = {"eventName": "INSERT" if old is None else "MODIFY", "dynamodb": {"NewImage": image}}
        return any(matches(pattern, record) for pattern in self._filter)

    def _feed(self, task_id: str) -> _Feed:
        return self._feeds[sum(task_id.encode()) % SHARDS]

    def _send_next(self, feed: _Feed) -> None:
        if feed.busy or self.mode.held or feed.position >= len(feed.records):
            return
        feed.busy = True
        delay = self._rng.uniform(0.1, self.mode.delay) if self.mode.seed else 0.1
        self._simulation.at(self._simulation.now + delay, lambda: self._send(feed))

    def _send(self, feed: _Feed) -> None:
        sent = slice(feed.position, feed.position + self.mode.batch)
        batch = feed.records[sent]
        if not batch:
            feed.busy = False
            return
        if self.mode.mixed:
            rank = {_task_of(record): self._rng.random() for record in batch}
            batch = feed.records[sent] = sorted(batch, key=lambda record: rank[_task_of(record)])

        def answered(failed: frozenset[str] | None) -> None:
            feed.busy = False
            if failed is not None:
                taken = next((n for n, record in enumerate(batch) if record.key in failed), len(batch))
                feed.position += taken
                if self.mode.seed and self._rng.random() < self.mode.again:
                    feed.position = max(0, feed.position - self._rng.randint(1, 3))
            if failed or failed is None:
                feed.busy, feed.failed = True, feed.failed + 1
                delay = (5.0 if failed is None else 1.0) * min(feed.failed, 20)
                self._simulation.at(self._simulation.now + delay, lambda: self._send(feed))
            else:
                feed.failed = 0
                self._send_next(feed)

        self._deliver(batch, answered)


def _task_of(record: Arrival) -> str:
    return str((record.new or {})["taskId"])
