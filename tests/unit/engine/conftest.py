"""Fixtures that several files of this folder share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from tests.builders import FakeClock
from tests.unit.engine.support import World, world

from dynatick.engine import invocation
from dynatick.engine.invocation import Execution, PauseWatch


@pytest.fixture(autouse=True)
def _records_are_written_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a pass waits less than in production for further attempts to record together."""
    monkeypatch.setattr(invocation, "RECORD_DELAY_SECONDS", 0.002)


@pytest.fixture
def time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """While an invocation waits with nothing in flight, the time passes: nothing else can end such a wait.

    Where something is in flight, its end ends the wait, or the test puts the clock forward.
    """
    wait = Execution.wait

    def waits(self: Execution, *, until: Callable[[], bool], end: datetime | None = None) -> None:
        def is_idle() -> bool:
            calls = (self.letters, self.wake_ups, self.starts)
            return not self.unfinished and not any(one.under_way for one in calls)

        self.handle_events(0)  # what has its turn is claimed
        wait(self, until=lambda: until() or is_idle(), end=end)
        if not until() and is_idle():
            clock = self.services.clock
            assert isinstance(clock, FakeClock)
            clock.wait_until(self.budget.stop_waiting if end is None else end)

    monkeypatch.setattr(Execution, "wait", waits)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[logging.LogRecord]:
    """Collects all log records of the engine."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("dynatick.engine")
    monkeypatch.setattr(logger, "handlers", [*logger.handlers, handler])
    monkeypatch.setattr(logger, "level", logger.level)
    return records


@pytest.fixture
def watches(monkeypatch: pytest.MonkeyPatch) -> list[PauseWatch]:
    """Those of the invocations so far."""
    made, init = list[PauseWatch](), PauseWatch.__init__

    def noted(self: PauseWatch, *arguments: Any, **settings: Any) -> None:
        init(self, *arguments, **settings)
        made.append(self)

    monkeypatch.setattr(PauseWatch, "__init__", noted)
    return made


@pytest.fixture
def w() -> World:
    """A world at noon whose first tick has been."""
    return world()
