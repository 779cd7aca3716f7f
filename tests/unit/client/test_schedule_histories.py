"""Whatever is done with a schedule, its history tells of each run once: its task, or why there is none."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.builders import InProcess

from dynatick import TaskClient, TaskExists
from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.recurrence import MAX_MISSED_ENTRIES
from dynatick.domain.schedule import Schedule

EXPRESSIONS = ("rate(1 minute)", "rate(3 minutes)", "cron(* * * * ? *)", "cron(0/2 * * * ? *)", "cron(0/5 * * * ? *)")
OPERATIONS = st.one_of(
    st.tuples(st.just("ticks"), st.integers(1, 4)),
    st.tuples(st.just("outage"), st.integers(2, 9)),
    st.tuples(st.just("late"), st.integers(1, 50)),
    st.tuples(st.sampled_from(["pause", "resume", "pause by hand", "resume by hand", "run"]), st.none()),
    st.tuples(st.sampled_from(["expression", "expression by hand"]), st.sampled_from(EXPRESSIONS)),
    st.tuples(st.just("overlap"), st.sampled_from(["skip", "allow", "bufferOne"])),
    st.tuples(st.just("catchUp"), st.sampled_from(["latest", "all", "none"])),
    st.tuples(st.just("backfill"), st.integers(1, 15)),
)


def do(world: InProcess, operation: str, value: Any) -> None:
    schedules = TaskClient(world.store, clock=world.clock).schedules
    match operation:
        case "ticks":
            world.ticks(value)
        case "outage":
            world.next_tick(value)
        case "late":  # the next minute has begun, and its tick is still to come
            world.clock.to(instant_of(minute_of(world.clock()) + 1) + timedelta(seconds=value))
        case "pause" | "resume":
            getattr(schedules, operation)("s")
        case "pause by hand" | "resume by hand":
            by_hand(world, scheduleState="DISABLED" if operation.startswith("pause") else "ENABLED")
        case "run":
            with suppress(TaskExists):
                schedules.run_now("s")
        case "expression":
            schedules.update("s", expression=value)
        case "expression by hand":
            by_hand(world, scheduleExpression=value)
        case "overlap":
            schedules.update("s", overlap=value)
        case "catchUp":
            schedules.update("s", catch_up=value)
        case "backfill":
            now = world.clock()
            list(schedules.backfill("s", start=now - timedelta(minutes=value), end=now))


def by_hand(world: InProcess, **values: object) -> None:
    """An update-item, and its record of the stream."""
    old = world.row("s")
    world.store.put({**old, **values})  # type: ignore[attr-defined]
    world.stream(world.store.get("s"), old)


@settings(max_examples=200)
@example("rate(1 minute)", [("outage", 3)] * 6, None)  # each is two notes
@given(st.sampled_from(EXPRESSIONS), st.lists(OPERATIONS, max_size=9), st.sampled_from([None, None, 30, 150, 3600]))
def test_each_run_is_told_once(expression: str, operations: list[tuple[str, Any]], expected: int | None) -> None:
    world = InProcess()
    world.tick()
    client = TaskClient(world.store, clock=world.clock)
    client.schedules.insert("s", expression, expected_within_seconds=expected)
    for operation, value in operations:
        do(world, operation, value)
    world.ticks(2)
    if client.schedules.get("s").state == "DISABLED":
        client.schedules.resume("s")
    client.schedules.update("s", overlap="allow")  # so that none is waiting for the one before
    world.ticks(2)
    reported = client.schedules.history("s", limit=1000)
    notes = Schedule.from_row(world.row("s")).missed
    if len(notes) == MAX_MISSED_ENTRIES:  # what was missed before the oldest of them is forgotten
        reported = [run for run in reported if run.status != "gone" or run.occurrence_at >= notes[0].first]
    assert [run for run in reported if run.status not in ("completed", "missed")] == []
    assert all((run.task_id is None) == (run.status == "missed") == (run.reason is not None) for run in reported)
    assert len({(run.occurrence_at, run.run_now) for run in reported}) == len(reported)
    rows = [row for row in world.store.scan(open_only=False).rows if row.get("scheduleId") == "s" != row["taskId"]]
    assert {run.task_id for run in reported if run.task_id} == {row["taskId"] for row in rows}
    assert {row["status"] for row in rows} <= {"completed"}
