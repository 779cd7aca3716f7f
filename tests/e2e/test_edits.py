"""Rows that are edited by hand while they wait."""

from __future__ import annotations

from tests.e2e.support import STREAM_SECONDS, TICK_SECONDS, DeployedStack, bucket, eventually, iso, room


def test_a_task_that_was_edited_runs_at_its_new_time_only(world: DeployedStack) -> None:
    room(10)
    world.put_webhook("sooner", dueAt="2030-01-01T12:00:00Z")
    world.put_webhook("later", taskDateTime=bucket(1))
    world.put_webhook("malformed", taskDateTime=bucket(1))
    for task_id in ("sooner", "later", "malformed"):
        world.settled(task_id)
    world.edit("sooner", dueAt=iso(1))
    world.edit("later", taskDateTime="2030-01-01T13:07:30+01:00", note="mine")
    world.edit("malformed", taskDateTime="2030-02-31#12:00")
    eventually(lambda: world.status("malformed") == "failed", within=STREAM_SECONDS)
    assert "'2030-02-31#12:00'" in world.the("malformed")["error"]
    world.run_to_end(["sooner"], within=2 * TICK_SECONDS)
    assert len(world.runs("sooner")) == 1
    assert world.runs("later") == world.runs("malformed") == []
    later = world.the("later")
    assert (later["taskDateTime"], later["dueAt"]) == ("2030-01-01#12:08", "2030-01-01T12:07:30Z")
    assert (later["status"], later["note"]) == ("scheduled", "mine")
