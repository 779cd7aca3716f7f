"""On a stack with Precision second, tasks begin at their second and never before it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.e2e.support import TICK_SECONDS, deployed, eventually, instant, iso, now, room

from dynatick.domain.instants import format_instant

pytestmark = pytest.mark.long

# Less than the half minute that a tick would take on average, and enough for a busy machine.
LATE = timedelta(seconds=20)


def test_tasks_begin_at_their_second(tmp_path: Path) -> None:
    with deployed(tmp_path / "local", TickMinutes=1, Precision="second") as world:
        world.stack.tick()  # plans the first two minutes
        room(55)
        began = now()
        due = {f"due-{n}": began + timedelta(seconds=8 + n, milliseconds=137 * n) for n in range(8)}
        for task_id, at in due.items():
            world.put_webhook(task_id, dueAt=format_instant(at))
        world.put_webhook("at-once")
        would_begin = now() + timedelta(seconds=40)
        world.put_webhook("cancelled", dueAt=format_instant(would_begin))
        world.put_webhook("again", "/fails", dueAt=iso(5), retryPolicy={"minBackoffSeconds": 4, "maxBackoffSeconds": 4})
        world.put_webhook("edited", dueAt="2036-12-31T12:00:00Z")
        world.settled("cancelled")
        world.client.cancel("cancelled")
        world.settled("edited")
        world.edit("edited", dueAt=iso(5))
        ended = world.run_to_end([*due, "at-once", "cancelled", "edited"], within=TICK_SECONDS, tick_every=3600)
        for task_id, at in due.items():
            started = instant(ended[task_id]["startedAt"])
            assert at <= started + timedelta(milliseconds=1), "not even a millisecond early"
            assert started - at < LATE
            assert ended[task_id]["taskDateTime"] > format_instant(started)[:16].replace("T", "#")
        assert instant(ended["at-once"]["startedAt"]) - began < LATE
        eventually(lambda: now() > would_begin + timedelta(seconds=2), within=60)
        assert world.runs("cancelled") == []
