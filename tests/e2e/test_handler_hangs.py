"""A handler that outlives the function: the others run, and its task ends as failed after its attempts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders import key_of
from tests.e2e.handlers import HANDLERS
from tests.e2e.support import bucket, deployed, room

from dynatick_stack.checkout import MODULE, with_handlers

pytestmark = pytest.mark.long

TIMEOUT = 30  # the shortest that the template allows
HEALTHY = [f"healthy-{n}" for n in range(8)]
LATER = [f"later-{n}" for n in range(3)]


def test_others_run_and_it_ends_as_failed(tmp_path: Path) -> None:
    root = with_handlers(tmp_path / "checkout", HANDLERS)
    parameters = {"TickMinutes": 1, "HandlersModule": MODULE, "ProcessorTimeoutSeconds": TIMEOUT}
    with deployed(tmp_path / "local", root=root, **parameters) as world:
        room(10)
        due = bucket(1)
        world.put("hang", action="hang", taskDateTime=due, retryPolicy={"maximumRetryAttempts": 1})
        for task_id in HEALTHY:
            world.put_webhook(task_id, taskDateTime=due)
        # It holds up nobody: these are done while it still runs.
        world.run_to_end(HEALTHY)
        assert world.status("hang") == "running"
        for task_id in LATER:
            world.put_webhook(task_id)

        ended = world.run_to_end(["hang", *HEALTHY, *LATER], within=4 * TIMEOUT, tick_every=5)
        hung = ended.pop("hang")
        assert (hung["status"], hung["attempt"]) == ("failed", 2)
        assert hung["error"] == "its process died, or did not finish in time, at the last of 2 attempts"
        # Two recoveries at once may each send one, of which one records: the same failure, so the same message.
        letters = {(letter["createdAt"], letter["run"], letter["error"]) for letter in world.letters_of("hang")}
        assert letters == {(hung["createdAt"], 1, hung["error"])}
        assert {(row["status"], row["attempt"]) for row in ended.values()} == {("completed", 1)}
        for task_id in (*HEALTHY, *LATER):
            assert world.runs(task_id) == [("/", key_of(ended[task_id]))]
        # Each time the function ended by itself, just before its time was up, and said so.
        lines = [line.record for line in world.stack.logs(function="processor") if line.record is not None]
        ends = [one for one in lines if one.get("action") in ("pass_ended", "recovery_ended")]
        assert sum(one.get("unfinished", 0) for one in ends) == 2
