"""Fixtures that several files of this folder share."""

from __future__ import annotations

import logging

import pytest
from tests.unit.engine.support import World, world

from dynatick.engine import execution


@pytest.fixture(autouse=True)
def _records_are_written_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a pass waits less than in production for further attempts to record together."""
    monkeypatch.setattr(execution, "RECORD_DELAY_SECONDS", 0.002)


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
def w() -> World:
    """A world at noon whose first tick has been."""
    return world()
