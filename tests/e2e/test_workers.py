"""On a stack with MaxWorkers, invocations share a bucket that is too much for one, and each task runs once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.e2e.support import TICK_SECONDS, bucket, deployed, eventually, room

from dynatick.client.operations import TickView
from dynatick_stack.checkout import MODULE, with_handlers

pytestmark = pytest.mark.long

TASKS, SECONDS, THREADS, WORKERS = 600, 0.2, 2, 2  # a minute for one invocation: a worker may take long to start
HANDLERS = """\
import time

from dynatick import HandlerContext, task


@task("wait")
def wait(payload: dict[str, object], context: HandlerContext) -> None:
    with open({path!r}, "a") as executions:
        executions.write(context.task_id + "\\n")
    time.sleep({seconds})
"""


def test_workers_share_a_bucket(tmp_path: Path) -> None:
    path = tmp_path / "executions"
    root = with_handlers(tmp_path / "checkout", HANDLERS.format(path=str(path), seconds=SECONDS))
    parameters = {
        "TickMinutes": 1,
        "MaxWorkers": WORKERS,
        "TaskThreads": THREADS,
        "HandlersModule": MODULE,
        "DefaultAction": "wait",
    }
    with deployed(tmp_path / "local", root=root, **parameters) as world:
        world.stack.tick()
        room(30)
        due, ids = bucket(1), [f"burst-{n:03}" for n in range(TASKS)]
        counts = world.client.insert_many({"taskId": task_id, "taskDateTime": due} for task_id in ids)
        assert counts.inserted == TASKS
        world.run_until(lambda: all("outcome" in row for row in world.rows()), within=3 * TICK_SECONDS)
        assert {(row["status"], row["attempt"]) for row in world.rows()} == {("completed", 1)}
        assert Counter(path.read_text().split()) == Counter(ids)

        def started() -> int:
            ticks = world.client.operations.ticks(start=due, end=bucket(1))
            return sum(tick.workers for tick in ticks if isinstance(tick, TickView))

        def ended() -> list[int]:
            """What each worker that has ended completed."""
            logs = (line.record or {} for line in world.stack.logs(function="processor"))
            return [int(line["completed"]) for line in logs if line.get("action") == "worker_ended"]

        # The pass and the workers end after the last task.
        eventually(lambda: started() >= WORKERS and sum(ended()), within=180, what=lambda: (started(), ended()))
        assert len(ended()) <= started()
