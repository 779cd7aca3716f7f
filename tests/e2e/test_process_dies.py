"""A task that kills its process: the others run, and it ends as failed after its attempts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders import key_of
from tests.e2e.checkout import MODULE, with_handlers
from tests.e2e.support import bucket, deployed, room

pytestmark = pytest.mark.long

TIMEOUT = 30  # the shortest that the template allows
HEALTHY = [f"healthy-{n:02}" for n in range(12)]
LATER = [f"later-{n}" for n in range(3)]


def test_others_run_and_it_ends_as_failed(tmp_path: Path) -> None:
    root = with_handlers(tmp_path / "checkout")
    parameters = {"TickMinutes": 1, "HandlersModule": MODULE, "ProcessorTimeoutSeconds": TIMEOUT}
    with deployed(tmp_path / "local", root=root, **parameters) as world:
        room(10)
        due = bucket(1)
        # In the midst of the others: some are begun before it, some would be after it.
        world.put("healthy-06-die", action="die", taskDateTime=due, retryPolicy={"maximumRetryAttempts": 1})
        for task_id in HEALTHY:
            world.put_webhook(task_id, taskDateTime=due)
        for task_id in LATER:
            world.put_webhook(task_id, taskDateTime=bucket(2))

        # Each of its two attempts costs the shard's lease; then it is taken alone.
        ended = world.run_to_end(["healthy-06-die", *HEALTHY, *LATER], within=60 + 4 * TIMEOUT, tick_every=5)

        dead = ended.pop("healthy-06-die")
        assert (dead["status"], dead["attempt"]) == ("failed", 2)
        assert dead["error"] == "its process died, or did not finish in time, at the last of 2 attempts"
        assert [one["attempt"] for one in dead["attempts"]] == [1, 2]
        (letter,) = world.letters_of("healthy-06-die")
        assert letter["error"] == dead["error"]
        assert letter["action"] == "die"

        assert {row["status"] for row in ended.values()} == {"completed"}
        for task_id in (*HEALTHY, *LATER):
            runs = world.runs(task_id)
            # What was under way when the process died runs again, with the same key, and says that it is an attempt.
            assert set(runs) == {("/", key_of(ended[task_id]))}
            assert 1 <= len(runs) <= 2
            attempts = [call.attempt for call in world.receiver.of(task_id)]
            assert sorted(set(attempts)) == attempts
        assert {ended[task_id]["attempt"] for task_id in LATER} == {1}
