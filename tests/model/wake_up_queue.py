"""The queue of wake-ups: a message may get lost, come early, late or again, and before those that were sent earlier."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tests.model.faulty_store import Actor, FaultyStore
from tests.model.steps import ShortRepr

from dynatick.actions.wake_up_queue import MAX_DELAY_SECONDS
from dynatick.engine.ports import ENVELOPE
from dynatick.wiring import WAKE_UP_LEAD


@dataclass(frozen=True, repr=False)
class QueueMode(ShortRepr):
    """How the queue is at present. ``seed`` 0: every message comes once, in time."""

    seed: int = 0
    lost: float = 0.0  # how probable it is that a message gets lost
    again: float = 0.0  # that it comes again
    early: float = 0.0  # s, at most
    late: float = 0.0


class WakeUpQueue:
    """The WakeUps port, for the process that runs. ``deliver`` gets each message when it comes, ``report`` each
    violation."""

    def __init__(self, store: FaultyStore, deliver: Callable[[str], None], report: Callable[[str], None]) -> None:
        self.queue_mode = QueueMode()
        self.sent: list[str] = []
        self._store, self._simulation = store, store.simulation
        self._deliver, self._report = deliver, report
        self._planned: dict[str, Actor] = {}  # messages that a pass has planned, each with that pass
        self._rng = random.Random(0)

    def set(self, queue_mode: QueueMode) -> None:
        self.queue_mode, self._rng = queue_mode, random.Random(queue_mode.seed)

    def forget(self) -> None:
        """Cursors were put back to what they were: what was planned since is planned again."""
        self._planned.clear()

    def send(self, wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> int:
        return self._store.call(lambda by: self._take(by, wake_ups), lambda: len(wake_ups), lambda _: len(wake_ups))

    def deliver_again(self, nth: int) -> None:
        """Delivers a message that was sent before; ``nth``: counted from the last."""
        if nth < len(self.sent):
            self._deliver(self.sent[-1 - nth])

    def _take(self, by: Actor, wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> int:
        self._store.table.trace.add("sent", by, orders=[event for event, _ in wake_ups])
        for event, at in wake_ups:
            body = json.dumps(event)
            delay = min((at - WAKE_UP_LEAD - by.clock()).total_seconds(), MAX_DELAY_SECONDS)
            for off in self._times(body):
                self._simulation.at(self._simulation.now + max(0.0, delay) + off, lambda body=body: self._deliver(body))
            self.sent.append(body)
            order = json.loads(body)[ENVELOPE]["wakeUp"]
            is_due = any(of == "due" for *_, of in order.get("tasks", ()))  # which of passes only planning sends
            if is_due and by.kind == "processor" and not by.woken and self._planned.setdefault(body, by) is not by:
                self._report(f"{order['bucket']}: planned twice")
        return 0

    def _times(self, body: str) -> list[float]:
        """Returns when a message comes, each time that it does, as seconds after it should."""
        queue_mode, rng = self.queue_mode, self._rng
        if not queue_mode.seed or body in self.sent:  # those that came too early and are sent again would breed
            return [0.0]
        times = 0 if rng.random() < queue_mode.lost else 2 if rng.random() < queue_mode.again else 1
        return [rng.uniform(-queue_mode.early, queue_mode.late) for _ in range(times)]
