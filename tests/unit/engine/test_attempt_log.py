"""At level DEBUG the processor logs each attempt, for a terminal that follows; in production it logs none."""

from __future__ import annotations

import logging

import pytest
from tests.unit.engine.support import fails, world


@pytest.mark.parametrize(("level", "number"), [(logging.DEBUG, 2), (logging.INFO, 0)])
def test_each_attempt_is_logged_with_its_result_at_level_debug(
    logged: list[logging.LogRecord], level: int, number: int
) -> None:
    logging.getLogger("dynatick.engine").setLevel(level)
    w = world()
    w.actions.behaviour["again"] = fails
    w.insert("fine", "again", payload={"secret": "xyzzy"})
    w.first_pass()
    attempts = {vars(one)["task_id"]: vars(one) for one in logged if vars(one).get("action") == "attempt_recorded"}
    assert len(attempts) == number
    assert {task_id: one["result"] for task_id, one in attempts.items()} == (
        {"fine": "completed", "again": "retried"} if number else {}
    )
    for one in attempts.values():
        assert (one["attempt"], one["max_attempts"], one["run"], one["turn"], one["handler"]) == (1, 4, 1, 0, "log")
        assert (one["due_at"], one["started_at"][:19]) == ("2026-12-31T12:01:00Z", "2026-12-31T12:01:00")
        assert "xyzzy" not in str(one)
