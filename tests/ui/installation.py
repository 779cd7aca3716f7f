"""An installation that a test ticks by hand: the real client and engine over any store, on a clock of its own."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import count

from tests.ui import handlers

from dynatick import TaskClient
from dynatick.actions import build_actions
from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.buckets import Grid
from dynatick.domain.instants import format_instant
from dynatick.engine.ports import Store
from dynatick.engine.processor import Processor
from dynatick.engine.rules import Rules
from dynatick.engine.scheduler import Scheduler
from dynatick.store.codec import decode
from dynatick.testing.queues import Invocations
from dynatick.testing.table import Table
from dynatick_stack.bench.installation import Clock

INVOCATION = timedelta(minutes=15)


class Installation:
    """Ticks come when a test sends them. All happens in the caller's thread, in the same order each time."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store, self.clock = store, clock
        self.client = TaskClient(store, clock=clock)
        self._invocations = Invocations()
        letters, rules = MemoryDeadLetters(), Rules(grid=Grid(), index_lag=timedelta(), in_one_thread=True)
        tokens = count(1)
        self._processor = Processor(
            store=store,
            actions=build_actions(handlers_module="tests.ui.handlers", clock=clock),
            dead_letters=letters,
            invoker=self._invocations,
            rules=rules,
            clock=clock,
            new_token=lambda: f"seeded.{next(tokens)}",
            pause=lambda seconds: None,
            jitter=lambda: 0.5,
        )
        self._scheduler = Scheduler(store=store, dead_letters=letters, rules=rules, clock=clock, decode=decode)

    def tick(self, at: datetime, *, late_seconds: float = 0.4) -> None:
        """Sends the tick of a minute, ``late_seconds`` after it."""
        handlers.clock = self.clock
        self._place()
        self.clock.to(at + timedelta(seconds=late_seconds))
        self._invocations.append({"source": "aws.events", "time": format_instant(at)})
        while self._invocations:
            self._processor.handle(self._invocations.popleft(), hard_end=self.clock() + INVOCATION)
            self._place()

    def _place(self) -> None:
        """Delivers the stream, if the store is a table in memory: another's rows are inserted with their bucket."""
        while isinstance(self.store, Table) and (records := self.store.take_records()):
            assigned = self._scheduler.handle({"Records": records})
            assert not assigned.failed, assigned.failed
