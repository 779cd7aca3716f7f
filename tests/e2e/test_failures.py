"""Targets that fail: retries, and a dead letter that one can act on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders import key_of
from tests.e2e.support import TICK_SECONDS, deployed, instant

from dynatick_stack.demo.receiver import Call

pytestmark = pytest.mark.long

ONCE = {"maximumRetryAttempts": 1, "minBackoffSeconds": 1, "maxBackoffSeconds": 1}


def test_a_target_that_is_down_and_comes_back(tmp_path: Path) -> None:
    repaired: set[str] = set()  # paths that answer well from now on

    def answers(call: Call, earlier: int) -> int:
        return 204 if call.path in repaired else 500

    with deployed(tmp_path / "local", answers=answers, TickMinutes=1) as world:
        world.put_webhook("down", "/down", retryPolicy=ONCE, note="mine")
        ended = world.run_to_end(["down"], within=2 * TICK_SECONDS)["down"]
        assert (ended["status"], ended["attempt"], ended["error"]) == ("failed", 2, "the target answered 500")
        assert world.runs("down") == [("/down", key_of(ended))] * 2
        assert [call.attempt for call in world.receiver.of("down")] == ["1", "2"]
        first, second = ended["attempts"]
        assert instant(first["startedAt"]) < instant(first["finishedAt"]) < instant(second["startedAt"])
        assert "expiresAt" in ended

        # All that one needs to know, without a look into the table.
        (letter,) = world.letters_of("down")
        assert letter["error"] == "the target answered 500"
        assert letter["payload"] == {"url": f"{world.receiver.url}/down"}
        assert (letter["version"], letter["run"], letter["attempt"], letter["action"]) == (1, 1, 2, "webhook")
        assert letter["dueAt"] == ended["dueAt"]
        assert letter["taskDateTime"] == ended["taskDateTime"]
        assert [(one["attempt"], one["error"]) for one in letter["attempts"]] == [(1, "the target answered 500")]
        assert instant(letter["failedAt"]) >= instant(second["startedAt"])

        # And one can act on it: once the target is well again, the task gets another run, under another key.
        repaired.add("/down")
        assert world.client.redrive(letter["taskId"]).status == "scheduled"
        again = world.run_to_end(["down"])["down"]
        assert (again["status"], again["run"], again["attempt"]) == ("completed", 2, 1)
        assert "error" not in again
        assert again["note"] == "mine"
        assert world.runs("down")[2:] == [("/down", key_of(ended, 2))]
        assert world.letters_of("down") == [letter]
