"""A task that must leave its shard keeps its time: never early."""

from __future__ import annotations

from tests.builders import InProcess


def test_a_task_in_an_unknown_shard_keeps_its_tick() -> None:
    system = InProcess()
    system.tick()
    row = system.put(taskId="a", taskDateTime="2026-12-31#18:30#77")
    assert row["taskDateTime"] == "2026-12-31#18:30"
    system.ticks(3)
    assert system.actions.times("a") == 0


def test_a_task_in_an_unknown_shard_off_the_grid_is_rounded_up() -> None:
    system = InProcess()
    system.reconfigure(tick_minutes=30)
    system.tick()
    assert system.put(taskId="a", taskDateTime="2026-12-31#18:07#77")["taskDateTime"] == "2026-12-31#18:30"
