"""Fixtures that several files of this folder share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """What the engine logs, wherever it goes otherwise."""
    records: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger, kept = logging.getLogger("dynatick.engine"), Kept()
    level = logger.level
    logger.addHandler(kept)
    yield records
    logger.removeHandler(kept)
    logger.setLevel(level)
