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
from tests.sandbox.journal import INSERT
from tests.sandbox.seam import Fault
from tests.sandbox.worker import NO_LEASE
from tests.sandbox.world import AFTER_LEASE, RECONCILE, TIMEOUT, World

from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.instants import format_instant

EVERY_RUN: dict[str, Any] = {"catchUp": "all", "overlap": "allow"}


def put(world: World, *ids: str, **row: Any) -> datetime:
    """Schedules for every minute, as raw items. Returns when they have their first run."""
    for schedule_id in ids:
        world.put(**{"taskId": schedule_id, "scheduleExpression": "rate(1 minute)", **row})
    world.deliver_stream()
    return world.bucket(1).instant


def check(world: World, *ids: str, first: datetime, last: datetime | None = None) -> None:
    """Ticks until no task is open any more; schedules always are. Then every run of these minutes was executed, and no
    other; again only where it had to be. The verdict takes each for a task that was inserted."""
    for _ in range(20):
        assert world.next_tick().what == "returned"
        if not any("outcome" not in row and row.get("status") != "recurring" for row in world.rows().values()):
            break
    minutes = range(minute_of(first), minute_of(last or world.clock()) + 1)
    expected = [f"{one}#1#{format_instant(instant_of(minute))}" for one in ids for minute in minutes]
    world.note(INSERT, *expected)
    verdict = world.judge(schedules_end=False)
    assert verdict.problems == []
    assert verdict.results == {"executed": len(expected)}
    world.assert_trace_is_lawful()


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
    """The steps include the time between writing an occurrence and moving its schedule on."""
    first = put(world, "s1", "s2", "s3", **EVERY_RUN)
    for at, do in STEPS:
        assert world.next_tick(faults=[Fault(at=at, do=do)]).what == "killed", (at, do)
    world.clock.forward(seconds=AFTER_LEASE)
    check(world, "s1", "s2", "s3", first=first)


@pytest.mark.parametrize("lease", [True, False], ids=["shard lease", "no shard lease"])
def test_ticks_overlap(new_world: NewWorld, lease: bool) -> None:
    world = new_world(**({} if lease else {NO_LEASE: "1"}))
    first = put(world, *(f"s{n}" for n in range(10)), **EVERY_RUN)
    for _ in range(3):
        sandboxes = world.ready_sandboxes(3)
        world.to_next_minute()
        for sandbox in sandboxes:
            sandbox.begin(world.event(), timeout=TIMEOUT)
        assert [world.end(sandbox).what for sandbox in sandboxes] == ["returned"] * 3
    check(world, *(f"s{n}" for n in range(10)), first=first)
    assert max(Counter(e.task_id for e in world.journal.done()).values()) == 1


@pytest.mark.parametrize("at", ["occurrence", "advance"])
def test_a_frozen_process_wakes_up_beside_its_successor(world: World, at: str) -> None:
    first = put(world, "s", **EVERY_RUN)
    frozen = world.frozen_tick(Fault(at=at, do="freeze before"))
    world.clock.forward(seconds=AFTER_LEASE)
    for _ in range(3):
        world.next_tick()
    frozen.thaw()
    world.end(frozen)
    check(world, "s", first=first)


def test_the_stream_repeats_and_reorders(world: World) -> None:
    world.put(taskId="s", scheduleExpression="rate(1 minute)", **EVERY_RUN)
    records = world.stream.new()
    first = world.bucket(1).instant
    world.deliver(records)
    for _ in range(4):
        world.next_tick()
        later = world.stream.new()
        world.deliver([*reversed(later), *records, *later])
        records = [*records, *later]
    check(world, "s", first=first)


def test_the_stream_loses_a_schedule(world: World) -> None:
    """The daily reconcile makes one of it."""
    world.put(taskId="s", cronExpression="rate(1 minute)")
    world.stream.new()
    world.next_tick()
    assert "status" not in world.row("s")
    world.invoke(RECONCILE)
    first = world.bucket(1).instant
    check(world, "s", first=first)


def test_the_schedule_is_deleted_while_its_tick_works(world: World) -> None:
    """Moving the schedule on does not bring it back."""
    first = put(world, "s", **EVERY_RUN)
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
    """Returns schedule and reason of each overdue occurrence that was logged. The metric counts each, too."""
    logged = [json.loads(line) for line in world.log.read_text().splitlines() if line.startswith("{")]
    found = [(one["schedule_id"], one["reason"]) for one in logged if one.get("action") == "occurrence_overdue"]
    assert sum(sum(one.get("OccurrencesOverdue", [])) for one in logged) == len(found)
    return found


WAITS = "waits for attempt 2, at "


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        (Fault(at="advance", do="kill before"), 2),  # reported, and the row has not forgotten it
        (Fault(at="advance", do="kill after"), 1),
        (Fault(at="advance", do="lose response"), 1),
        (Fault(at="advance", do="fail before"), 1),  # the store tries again
        (Fault(at="advance", do="throttle parts", amount=1.0, times=30), 2),
        (Fault(at="any", do="kill before"), 1),  # before it has read anything
    ],
    ids=lambda value: f"{value.do} {value.at}" if isinstance(value, Fault) else "",
)
def test_an_overdue_occurrence_is_reported_whatever_happens_then(world: World, fault: Fault, times: int) -> None:
    """The occurrence waits for a retry an hour later, and its schedule runs again tomorrow."""
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
