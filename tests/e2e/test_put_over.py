"""A plain put over an id that is there is a new task, and what is deleted by hand stays deleted."""

from __future__ import annotations

import pytest
from tests.builders import key_of
from tests.e2e.support import STREAM_SECONDS, World, eventually, iso, room

pytestmark = pytest.mark.long


def test_rows_that_wait_or_have_ended(world: World) -> None:
    room(20)
    # Over a task that waits: only the new one runs, and a receiver can tell it from the old one.
    world.put_webhook("over-waiting", "/old", dueAt=iso(3600))
    old = world.settled("over-waiting")
    world.put_webhook("over-waiting", "/new")
    eventually(lambda: world.status("over-waiting") == "scheduled", within=STREAM_SECONDS)
    assert world.the("over-waiting")["taskDateTime"] < old["taskDateTime"]
    # Over one that was refused.
    world.put_webhook("over-failed", taskDateTime="tomorrow")
    eventually(lambda: world.status("over-failed") == "failed", within=STREAM_SECONDS)
    world.put_webhook("over-failed", "/repaired")
    # Over one that waits for the same tick, with what can't be understood.
    world.put_webhook("over-malformed")
    world.settled("over-malformed")
    world.put_webhook("over-malformed", dueAt="2027-02-31T12:00:00Z")
    # Deleted while it waits.
    world.put_webhook("deleted")
    world.settled("deleted")
    world.delete("deleted")
    # Deleted and put again at once: a new task.
    world.put_webhook("reborn", "/old")
    first = world.settled("reborn")
    world.delete("reborn")
    world.put_webhook("reborn", "/new")

    ended = world.run_to_end(["over-waiting", "over-failed", "over-malformed", "reborn"])
    assert world.runs("over-waiting") == [("/new", key_of(ended["over-waiting"]))]
    assert key_of(ended["over-waiting"]) != key_of(old)
    assert ended["over-waiting"]["status"] == "completed"
    assert [path for path, _ in world.runs("over-failed")] == ["/repaired"]
    assert ended["over-failed"]["status"] == "completed"
    assert "error" not in ended["over-failed"]
    assert world.runs("over-malformed") == []
    assert "dueAt: '2027-02-31T12:00:00Z'" in ended["over-malformed"]["error"]
    assert world.runs("reborn") == [("/new", key_of(ended["reborn"]))]
    assert key_of(ended["reborn"]) != key_of(first)
    assert world.row("deleted") is None
    assert world.runs("deleted") == []

    # And over one that has completed: it runs once more, under another key.
    world.put_webhook("over-waiting", "/again")
    world.run_until(lambda: len(world.runs("over-waiting")) == 2)
    again = key_of(world.the("over-waiting"))
    assert world.runs("over-waiting")[1] == ("/again", again)
    assert again not in (key_of(old), key_of(ended["over-waiting"]))
    assert world.row("deleted") is None
