"""Rows that are edited by hand while they wait."""

from __future__ import annotations

from tests.e2e.support import STREAM_SECONDS, TICK_SECONDS, DeployedStack, bucket, eventually, iso, room


def test_an_edited_time_is_derived_anew(world: DeployedStack) -> None:
    for task_id in ("edit-bucket", "edit-due", "edit-both", "edit-malformed", "edit-other"):
        world.put(task_id, taskDateTime="2030-01-01#12:00")
    for task_id in ("edit-bucket", "edit-due", "edit-both", "edit-malformed", "edit-other"):
        world.settled(task_id)

    world.edit("edit-bucket", taskDateTime="2030-01-01T13:07:30+01:00")
    world.edit("edit-due", dueAt="2030-02-01T08:00:01Z")
    world.edit("edit-both", taskDateTime="2030-03-01#10:00", dueAt="2030-03-01T09:59:30Z")
    world.edit("edit-malformed", taskDateTime="2030-02-31#12:00")
    world.edit("edit-other", note="mine")

    def of(task_id: str) -> tuple[object, object, object]:
        row = world.the(task_id)
        return row["taskDateTime"], row.get("dueAt"), row["status"]

    expected = {
        "edit-bucket": ("2030-01-01#12:08", "2030-01-01T12:07:30Z", "scheduled"),
        "edit-due": ("2030-02-01#08:01", "2030-02-01T08:00:01Z", "scheduled"),
        "edit-both": ("2030-03-01#10:00", "2030-03-01T09:59:30Z", "scheduled"),
        "edit-other": ("2030-01-01#12:00", "2030-01-01T12:00:00Z", "scheduled"),
    }
    eventually(
        lambda: {task_id: of(task_id) for task_id in expected} == expected,
        within=STREAM_SECONDS,
        what=lambda: {task_id: of(task_id) for task_id in expected},
    )
    eventually(lambda: world.status("edit-malformed") == "failed", within=STREAM_SECONDS)
    assert "'2030-02-31#12:00'" in world.the("edit-malformed")["error"]
    assert world.the("edit-other")["note"] == "mine"
    eventually(lambda: world.letters_of("edit-malformed"), within=STREAM_SECONDS)


def test_a_task_that_was_edited_runs_at_its_new_time_only(world: DeployedStack) -> None:
    room(10)
    world.put_webhook("sooner", dueAt="2030-01-01T12:00:00Z")
    world.put_webhook("later", taskDateTime=bucket(1))
    world.put_webhook("to-the-past", dueAt="2030-01-01T12:00:00Z")
    for task_id in ("sooner", "later", "to-the-past"):
        world.settled(task_id)
    world.edit("sooner", dueAt=iso(1))
    world.edit("later", taskDateTime="2030-01-01#12:00")
    world.edit("to-the-past", taskDateTime="2021-12-31#12:00")
    world.run_to_end(["sooner", "to-the-past"], within=2 * TICK_SECONDS)
    assert len(world.runs("sooner")) == len(world.runs("to-the-past")) == 1
    assert world.runs("later") == []
    assert world.the("later")["taskDateTime"] == "2030-01-01#12:00"
