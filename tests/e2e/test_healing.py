"""The reconcile finds rows that the stream missed and no tick would poll."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.builders import key_of
from tests.e2e.support import DeployedStack, Row, now

from dynatick.domain.buckets import Bucket, minute_of

pytestmark = pytest.mark.long


def test_reconcile_finds_what_no_tick_would_see(world: DeployedStack) -> None:
    # What a stream that was down leaves behind: rows that nobody has looked at, in buckets that are over, or in none.
    past = str(Bucket(minute_of(now() - timedelta(hours=3))))
    created = {"action": "webhook", "payload": {"url": f"{world.receiver.url}/"}}
    scheduled = created | {"status": "scheduled", "attempt": 0, "run": 1, "dueAt": "2026-01-01T00:00:00Z"}
    world.put_unseen("lost-bare", **created)
    world.put_unseen("lost-past", taskDateTime=past, **created)
    world.put_unseen("lost-scheduled", taskDateTime=past, **scheduled)
    world.put_unseen("lost-nonsense", taskDateTime="soon", **created)
    good = ["lost-bare", "lost-past", "lost-scheduled"]

    def lost() -> dict[str, Row]:
        return {row["taskId"]: row for row in world.rows() if row["taskId"].startswith("lost-")}

    before = lost()
    world.stack.tick()
    assert lost() == before, "no tick sees them"

    world.stack.invoke_processor({"dynatick": {"reconcile": True}})
    assert world.status("lost-nonsense") == "failed"
    ended = world.run_to_end(good)
    assert {world.the(task_id)["status"] for task_id in good} == {"completed"}
    assert [world.runs(task_id) for task_id in good] == [[("/", key_of(ended[task_id]))] for task_id in good]
    lines = [line.record for line in world.stack.logs(function="processor") if line.record is not None]
    assert [line["repaired"] for line in lines if line.get("action") == "reconcile_ended"] == [len(good) + 1]
