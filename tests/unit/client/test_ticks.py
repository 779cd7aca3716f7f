"""What the ticks did: records, runs of idle ones, and nothing left unexplained."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.builders import NOON
from tests.unit.engine.support import World

from dynatick import MemoryStore, TaskClient
from dynatick.client import IdleTicks, MissedTicks, TickEntry, TickView
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.engine.cursor import cursor_id


def reported(entries: list[TickEntry]) -> list[str]:
    """Each entry in short: its kind and the minutes that it stands for."""
    lines = []
    for entry in entries:
        match entry:
            case TickView():
                lines.append(f"pass {entry.tick[-5:]} claimed {entry.claimed}")
            case IdleTicks():
                lines.append(f"idle {entry.since[-5:]} to {entry.until[-5:]}: {entry.ticks}")
            case MissedTicks():
                lines.append(f"missed {entry.since[-5:]} to {entry.until[-5:]}: {entry.ticks}")
    return lines


def test_before_the_first_tick_there_is_nothing() -> None:
    assert TaskClient(MemoryStore()).ticks() == []


def test_ticks_with_work_and_idle_ones_in_between(world: World, client: TaskClient) -> None:
    world.ticks(3)
    client.insert("a", delay_seconds=1)
    client.insert("b", delay_seconds=1)
    world.ticks(4)
    client.insert("c", delay_seconds=1)
    world.ticks(1)
    assert reported(client.ticks()) == [
        "idle 12:00 to 12:03: 4", "pass 12:04 claimed 2", "idle 12:05 to 12:07: 3", "pass 12:08 claimed 1",
    ]  # fmt: skip
    assert reported(client.ticks(timedelta(minutes=1))) == ["pass 12:08 claimed 1"], "of the last minute"
    (view,) = [entry for entry in client.ticks() if isinstance(entry, TickView) and entry.claimed == 2]
    assert (view.shard, view.continuation, view.due, view.completed, view.failed) == (0, 0, 2, 2, 0)
    assert view.started_at == NOON + timedelta(minutes=4, milliseconds=200)
    assert view.to_row()["kind"] == "pass"
    assert view.to_row()["startedAt"] == "2026-12-31T12:04:00.200Z"
    mean, *late = [view.to_row()[f"lateness{of}Ms"] for of in ("Mean", "P50", "P99", "Max")]
    assert late == sorted(late)
    assert 0 < mean <= late[-1]
    assert 200 <= view.lateness_p50_ms <= view.lateness_max_ms


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("12:02", "12:04", ["idle 12:00 to 12:03: 4"]),
        ("12:04", "12:05", ["pass 12:04 claimed 1"]),
        ("12:05", "12:06", ["idle 12:05 to 12:07: 3"]),
        ("12:03", "12:06", ["idle 12:00 to 12:03: 4", "pass 12:04 claimed 1", "idle 12:05 to 12:07: 3"]),
        ("11:00", "12:00", []),
    ],
)
def test_a_range_in_the_past(world: World, client: TaskClient, start: str, end: str, expected: list[str]) -> None:
    world.ticks(3)
    client.insert("a", delay_seconds=1)
    world.ticks(4)
    client.insert("b", delay_seconds=1)
    world.ticks(5)
    found = client.ticks(start=f"2026-12-31T{start}:00Z", end=f"2026-12-31T{end}:00Z")
    assert reported(found) == expected


def test_ticks_that_did_not_come_are_told(world: World, client: TaskClient) -> None:
    world.ticks(1)
    client.insert("a", delay_seconds=1)
    world.ticks(1)
    world.clock.forward(minutes=5)  # 12:07
    client.insert("b", delay_seconds=1)
    world.ticks(1)
    assert reported(client.ticks()) == [
        "idle 12:00 to 12:01: 2", "pass 12:02 claimed 1", "missed 12:03 to 12:07: 5", "pass 12:08 claimed 1",
    ]  # fmt: skip
    world.clock.forward(minutes=10)  # 12:18
    assert reported(client.ticks())[-1] == "missed 12:09 to 12:16: 8"  # the last two may be on their way


def test_ticks_that_a_longer_pass_has_served_are_not_missing(world: World, client: TaskClient) -> None:
    client.insert("slow", delay_seconds=1)
    world.actions.behaviour["slow"] = lambda *_: world.clock.forward(seconds=100) and None
    world.next_tick()  # from 12:01 to 12:02:40
    world.next_tick()  # 12:03
    assert reported(client.ticks()) == ["idle 12:00 to 12:00: 1", "pass 12:01 claimed 1", "idle 12:03 to 12:03: 1"]


def test_a_cursor_that_is_malformed_hides_no_pass(world: World, client: TaskClient) -> None:
    client.insert("a", delay_seconds=1)
    world.next_tick()
    world.store.write(ConditionalUpdate(task_id=cursor_id(0), set={"checkpoint": "soon"}))
    assert reported(client.ticks())[-1] == "pass 12:01 claimed 1"
    assert client.doctor().missed_ticks == 0


def test_a_pass_that_went_on_is_told_in_its_parts(world: World, client: TaskClient) -> None:
    world.life = timedelta(seconds=20)
    # Whichever is the first: nothing is claimed after it, though there is time to record what ends.
    takes = iter([16])
    for n in range(60):
        client.insert(f"t{n}", delay_seconds=1)
        world.actions.behaviour[f"t{n}"] = lambda *_: world.clock.forward(seconds=next(takes, 0)) and None
    world.next_tick()
    passes = [entry for entry in client.ticks() if isinstance(entry, TickView)]
    assert len(passes) > 1
    assert [view.continuation for view in passes] == list(range(len(passes)))
    # The last part may have found nothing left to do; then it has no record.
    assert all(view.continued for view in passes[:-1])
    assert sum(view.claimed - view.released for view in passes) == 60
