"""An installation that a test ticks by hand: the real client and engine over any store, on a clock of its own."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.ui import handlers

from dynatick import TaskClient
from dynatick.actions import build_actions
from dynatick.domain.buckets import Grid
from dynatick.engine.ports import Store
from dynatick.engine.rules import Rules
from dynatick.testing.functions import Functions, rule_event
from dynatick.testing.table import Table
from dynatick_stack.bench.installation import Clock


class Installation:
    """Ticks come when a test sends them. All happens in the caller's thread, in the same order each time."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store, self.clock = store, clock
        self.client = TaskClient(store, clock=clock)
        self._functions = Functions(
            store=store,
            clock=clock,
            actions=build_actions(handlers_module="tests.ui.handlers", clock=clock),
            rules=Rules(grid=Grid(), index_lag=timedelta(), in_one_thread=True),
            pause=lambda seconds: None,
            jitter=lambda: 0.5,
            life=timedelta(minutes=15),
        )

    def tick(self, at: datetime, *, late_seconds: float = 0.4) -> None:
        """Sends the tick of a minute, ``late_seconds`` after it."""
        handlers.clock = self.clock
        self._place()
        self.clock.to(at + timedelta(seconds=late_seconds))
        for _ in self._functions.run(rule_event(at)):
            self._place()

    def _place(self) -> None:
        """Delivers the stream, if the store is a table in memory: another's rows are inserted with their bucket."""
        while isinstance(self.store, Table) and (records := self.store.take_records()):
            self._functions.deliver(records)
