"""A handler that outlives the function: the others run, and its task ends as failed after its attempts.

Also if the pass can't end in order meanwhile, its process ends, and with it the handler's thread.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.builders import key_of
from tests.e2e.handlers import HANDLERS
from tests.e2e.support import TICK_SECONDS, bucket, deployed, eventually, now, room

from dynatick.engine.cursor import cursor_id
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
        assert [one["attempt"] for one in hung["attempts"]] == [1, 2]
        # Two recoveries at once may each send one, of which one records: the same failure, so the same message.
        letters = world.letters_of("hang")
        assert {(letter["createdAt"], letter["run"], letter["error"]) for letter in letters} == {
            (hung["createdAt"], 1, hung["error"])
        }

        assert {(row["status"], row["attempt"]) for row in ended.values()} == {("completed", 1)}
        for task_id in (*HEALTHY, *LATER):
            assert world.runs(task_id) == [("/", key_of(ended[task_id]))]
        # Each time the function ended by itself, just before its time was up, and said so.
        passes = [line.record for line in world.stack.logs(function="processor") if line.record is not None]
        ended_with = ("pass_ended", "recovery_ended")
        assert sum(one.get("unfinished", 0) for one in passes if one.get("action") in ended_with) == 2


def test_its_process_ends_although_the_pass_raised(tmp_path: Path) -> None:
    """The cursor can't be read when the pass wants to renew its lease or to end. Lambda would keep the process of a
    function that raises, with the handler's thread, for later invocations."""
    root = with_handlers(tmp_path / "checkout", HANDLERS)
    parameters = {"HandlersModule": MODULE, "ProcessorTimeoutSeconds": TIMEOUT, "TickState": "DISABLED"}
    with deployed(tmp_path / "local", root=root, **parameters) as world, ThreadPoolExecutor(1) as pool:
        room(20)
        due = bucket(1)
        payload = {"url": world.receiver.url, "seconds": TIMEOUT + 10}
        world.put("a-late", action="late", taskDateTime=due, payload=payload)
        # More than a pass holds at once, so that it is not at its end before the cursor is changed.
        naps = [f"nap-{n:03d}" for n in range(130)]
        for task_id in naps:
            world.put(task_id, action="nap", taskDateTime=due, payload={"seconds": 2})
        eventually(lambda: bucket(0) == due, within=TICK_SECONDS, what="the minute of the bucket")
        began = now()
        tick = pool.submit(world.tick_and_wait)
        eventually(lambda: world.status("a-late") == "running", within=TIMEOUT, what=lambda: world.row("a-late"))
        cursor = cursor_id(0)
        version = world.the(cursor)["version"]
        world.edit(cursor, version="no number")
        answered = tick.result()
        world.edit(cursor, version=version)
        assert answered["errorMessage"] == "Worker process died"  # which Lambda calls Runtime.ExitError

        # Others are invoked, also after the thread would have come to its end.
        world.run_until(lambda: (now() - began).total_seconds() > TIMEOUT + 15, tick_every=5)
        ended = world.run_to_end(["a-late", *naps], within=4 * TIMEOUT, tick_every=5)

        assert {row["status"] for row in ended.values()} == {"completed"}
        attempts = [call.attempt for call in world.receiver.of("a-late")]
        assert attempts == ["2"], "two processes have worked on it at once"
        assert ended["a-late"]["attempt"] == 2
