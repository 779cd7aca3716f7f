"""At level DEBUG the processor logs each attempt, for a terminal that follows; in production it logs none."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.builders import NOON
from tests.unit.engine.support import bucket_at, fails, world


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


@pytest.mark.parametrize(("level", "number"), [(logging.DEBUG, 2), (logging.INFO, 0)])
def test_each_attempt_is_logged_with_its_result_at_level_debug(
    logged: list[logging.LogRecord], level: int, number: int
) -> None:
    logging.getLogger("dynatick.engine").setLevel(level)
    w = world()
    w.actions.behaviour["again"] = fails
    w.insert("fine", "again", at=bucket_at(1), payload={"secret": "xyzzy"})
    w.clock.to(NOON + timedelta(minutes=1))
    w.tick()
    attempts = {vars(one)["task_id"]: vars(one) for one in logged if vars(one).get("action") == "attempt_recorded"}
    assert len(attempts) == number
    assert {task_id: one["result"] for task_id, one in attempts.items()} == (
        {"fine": "completed", "again": "retried"} if number else {}
    )
    for one in attempts.values():
        assert (one["attempt"], one["max_attempts"], one["run"], one["turn"], one["handler"]) == (1, 4, 1, 0, "log")
        assert (one["due_at"], one["started_at"][:19]) == ("2026-12-31T12:01:00Z", "2026-12-31T12:01:00")
        assert "xyzzy" not in str(one)
