"""Schedules under faults: no run is lost, and none is made twice.

Each nominal instant of a schedule has one occurrence. It may be executed again only where its process was killed
between execution and record, as any task.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import Any

import pytest
from tests.faults.conftest import NewWorld
from tests.faults.worker import NO_LEASE
from tests.faults.world import AFTER_LEASE, LIFE, World
from tests.sandbox.journal import INSERT
from tests.sandbox.seam import Fault

from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.instants import format_instant

EVERY_RUN: dict[str, Any] = {"catchUp": "all", "overlap": "allow"}
RECONCILE = {"dynatick": {"reconcile": True}}


def put(world: World, *ids: str, **row: Any) -> None:
    """Schedules for every minute, as raw items."""
    for schedule_id in ids:
        world.put(**{"taskId": schedule_id, "scheduleExpression": "rate(1 minute)", **row})
    world.deliver(world.stream.new())


def finish(world: World) -> None:
    """Ticks until no task is open any more; schedules always are."""
    for _ in range(20):
        assert world.next_tick().what == "returned"
        if not any("outcome" not in row and row.get("status") != "recurring" for row in world.rows().values()):
            return
    raise AssertionError(f"still open: {sorted(world.open())[:10]}")


def check(world: World, *ids: str, first: datetime, last: datetime) -> None:
    """Every run of these minutes was executed, and no other; again only where it had to be. The verdict takes each for
    a task that was inserted."""
    minutes = range(minute_of(first), minute_of(last) + 1)
    expected = [f"{one}#1#{format_instant(instant_of(minute))}" for one in ids for minute in minutes]
    world.note(INSERT, *expected)
    verdict = world.judge()
    assert verdict.problems == []
    assert verdict.record_results == {"executed": len(expected)}


def started(world: World) -> datetime:
    """When the schedules that were put now have their first run."""
    return instant_of(minute_of(world.clock()) + 1)


STEPS = [
    ("occurrence", "kill before"),
    ("occurrence", "kill after"),
    ("advance", "kill before"),
    ("advance", "kill after"),
    ("record", "kill before"),
    ("record", "kill after"),
    ("release shard", "kill before"),
]


def test_the_process_dies_at_each_step(world: World) -> None:
    """Also between writing an occurrence and moving its schedule on."""
    put(world, "s1", "s2", "s3", **EVERY_RUN)
    first = started(world)
    for at, do in STEPS:
        assert world.next_tick(faults=[Fault(at=at, do=do)]).what == "killed", (at, do)
    world.clock.forward(seconds=AFTER_LEASE)
    finish(world)
    check(world, "s1", "s2", "s3", first=first, last=world.clock())


@pytest.mark.parametrize("lease", [True, False], ids=["shard lease", "no shard lease"])
def test_ticks_overlap(new_world: NewWorld, lease: bool) -> None:
    world = new_world(**({} if lease else {NO_LEASE: "1"}))
    put(world, *(f"s{n}" for n in range(10)), **EVERY_RUN)
    first = started(world)
    for _ in range(3):
        sandboxes = [world.sandbox() for _ in range(3)]
        for sandbox in sandboxes:
            sandbox.wait_until_ready()
        world.clock.to(instant_of(minute_of(world.clock()) + 1))
        for sandbox in sandboxes:
            sandbox.begin(world.event(), life=LIFE)
        assert [world.end(sandbox).what for sandbox in sandboxes] == ["returned"] * 3
    finish(world)
    check(world, *(f"s{n}" for n in range(10)), first=first, last=world.clock())
    assert max(Counter(e.task_id for e in world.ledger.done()).values()) == 1


@pytest.mark.parametrize("at", ["occurrence", "advance"])
def test_a_frozen_process_wakes_up_beside_its_successor(world: World, at: str) -> None:
    put(world, "s", **EVERY_RUN)
    first = started(world)
    frozen = world.frozen_tick(Fault(at=at, do="freeze before"))
    world.clock.forward(seconds=AFTER_LEASE)
    for _ in range(3):
        world.next_tick()
    frozen.thaw()
    world.end(frozen)
    finish(world)
    check(world, "s", first=first, last=world.clock())


def test_the_stream_repeats_and_reorders(world: World) -> None:
    world.put(taskId="s", scheduleExpression="rate(1 minute)", **EVERY_RUN)
    records = world.stream.new()
    first = started(world)
    world.deliver(records)
    for _ in range(4):
        world.next_tick()
        later = world.stream.new()
        world.deliver([*reversed(later), *records, *later])
        records = [*records, *later]
    finish(world)
    check(world, "s", first=first, last=world.clock())


def test_the_stream_loses_a_schedule(world: World) -> None:
    """The daily reconcile makes one of it."""
    world.put(taskId="s", cronExpression="rate(1 minute)")
    world.stream.new()
    world.next_tick()
    assert "status" not in world.row("s")
    world.invoke(RECONCILE)
    first = started(world)
    finish(world)
    check(world, "s", first=first, last=world.clock())


def test_the_schedule_is_deleted_while_its_tick_works(world: World) -> None:
    """It stays deleted: moving it on does not bring it back."""
    put(world, "s", **EVERY_RUN)
    first = started(world)
    frozen = world.frozen_tick(Fault(at="advance", do="freeze before"))
    world.delete("s")
    world.thaw(frozen)
    for _ in range(4):
        world.next_tick()
    assert "s" not in world.rows()
    check(world, "s", first=first, last=first)


DEADLINE: dict[str, Any] = {
    "scheduleExpression": "cron(1 12 * * ? *)",
    "expectedWithinSeconds": 90,
    "payload": {"failures": 9},
    "retryPolicy": {"minBackoffSeconds": 3600, "maxBackoffSeconds": 3600},
}


def reports(world: World) -> list[tuple[str, str]]:
    """Of overdue occurrences: schedule and reason, as they were logged. Each is counted by the metric, too."""
    said = [json.loads(line) for line in world.log.read_text().splitlines() if line.startswith("{")]
    found = [(one["schedule_id"], one["reason"]) for one in said if one.get("action") == "occurrence_overdue"]
    assert sum(sum(one.get("OccurrencesOverdue", [])) for one in said) == len(found)
    return found


WAITS = "waits for attempt 2, at "


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        (Fault(at="advance", do="kill before"), 2),  # reported, and the row has not forgotten it
        (Fault(at="advance", do="kill after"), 1),
        (Fault(at="advance", do="lose answer"), 1),
        (Fault(at="advance", do="fail before"), 1),  # the store tries again
        (Fault(at="advance", do="throttle parts", amount=1.0, times=30), 2),
        (Fault(at="any", do="kill before"), 1),  # before it has read anything
    ],
    ids=lambda value: f"{value.do} {value.at}" if isinstance(value, Fault) else "",
)
def test_an_overdue_occurrence_is_reported_whatever_happens_then(world: World, fault: Fault, times: int) -> None:
    """It waits for a retry an hour later, and its schedule has its next run tomorrow."""
    put(world, "s", **DEADLINE)
    world.next_tick()
    (run,) = (task_id for task_id in world.rows() if task_id.startswith("s#1#"))
    assert world.row("s")["taskDateTime"] == "2026-12-31#12:03"
    world.next_tick()
    assert reports(world) == []
    assert world.next_tick(faults=[fault]).what == ("killed" if "kill" in fault.do else "returned")
    world.clock.forward(seconds=AFTER_LEASE)
    world.next_tick()
    found = reports(world)
    assert len(found) == times
    assert {(schedule_id, reason[: len(WAITS)]) for schedule_id, reason in found} == {("s", WAITS)}
    assert "awaited" not in world.row("s")
    assert world.row("s")["taskDateTime"] == "2027-01-01#12:01"
    world.next_tick(3)
    assert len(reports(world)) == times
    assert world.row(run)["status"] == "scheduled"
