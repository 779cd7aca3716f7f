"""What is inserted is refused or becomes a task; what is stored can be shown; a history has each run once."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from tests.builders import InProcess

from dynatick import InvalidInput, MemoryStore, TaskClient, TaskExists
from dynatick.client import TaskView
from dynatick.client.new_task import NewTask, compose
from dynatick.domain.attributes import OWN_ATTRIBUTES
from dynatick.domain.buckets import Grid, instant_of, minute_of
from dynatick.domain.normalise import Defaults, normalise
from dynatick.domain.recurrence import MAX_MISSED_ENTRIES
from dynatick.domain.schedule import Schedule
from dynatick.domain.task import Task
from dynatick.engine.settings import publish_settings
from dynatick.store.codec import decode, encode

NOW = datetime(2026, 12, 31, 12, 0, 30, tzinfo=UTC)

TEXT = st.one_of(st.text(max_size=8), st.sampled_from(["2026-12-31#12:30", "2026-12-31T12:30:00Z", "log", "\ud800"]))
NUMBERS = st.one_of(
    st.integers(-(10**40), 10**40), st.integers(0, 2_000_000_000), st.floats(), st.decimals(), st.booleans()
)
SCALARS = st.one_of(
    st.none(), TEXT, NUMBERS, st.binary(max_size=4), st.datetimes(), st.datetimes(timezones=st.just(UTC))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3),
        st.frozensets(st.one_of(st.text(max_size=3), st.integers(), st.binary(max_size=2)), max_size=3),
    ),
    max_leaves=8,
)
INPUTS = ["taskDateTime", "dueAt", "delaySeconds", "action", "payload", "retryPolicy", "tenant", ""]
ROWS = st.dictionaries(st.one_of(st.sampled_from(INPUTS), st.text(max_size=4)), VALUES, max_size=3)

# Values that stand a chance.
TIMES = st.one_of(st.datetimes(timezones=st.just(UTC)), st.integers(0, 4_000_000_000), st.floats(0, 4e9), TEXT)
LIKELY_TIMES = {"dueAt": TIMES, "taskDateTime": TIMES, "delaySeconds": st.floats(0, 1e9)}
LIKELY_OTHERS = {
    "payload": st.dictionaries(st.text(max_size=3), VALUES, max_size=3), "tenant": VALUES,
    "action": st.sampled_from(["log", "webhook"]),
}  # fmt: skip
LIKELY_ROWS = st.builds(
    lambda time, more: {**time, **more},
    st.one_of(st.just({}), *(st.fixed_dictionaries({name: times}) for name, times in LIKELY_TIMES.items())),
    st.fixed_dictionaries({}, optional=LIKELY_OTHERS),
)


@given(row=st.one_of(ROWS, LIKELY_ROWS), tick_minutes=st.sampled_from([1, 5, 1440]), known=st.booleans())
def test_what_an_interface_takes_is_a_task_never_early(row: dict[str, object], tick_minutes: int, known: bool) -> None:
    store = MemoryStore()
    grid = Grid(tick_minutes=tick_minutes, shard_count=3)
    if known:
        publish_settings(store, grid, now=NOW, defaults=Defaults())
    client = TaskClient(store, clock=lambda: NOW)
    try:
        task = NewTask.from_row({"taskId": "x", **row})
        composed = compose(task, client._settings_cache, now=NOW)
    except InvalidInput as error:
        assert str(error)
        assert len(str(error)) < 2000
        return
    assert store.create(composed.row)
    stored = store.get("x")
    assert stored is not None
    if not composed.complete:
        change = normalise(stored, now=NOW, grid=grid, defaults=Defaults())
        assert "outcome" not in change.set, change.set.get("error")
        return
    placed = Task.from_row(stored)
    assert placed.bucket.minute > minute_of(NOW)
    assert placed.bucket.minute % tick_minutes == 0
    assert placed.bucket.instant >= placed.due_at
    assert stored.keys() <= OWN_ATTRIBUTES | {*row}


@given(row=st.dictionaries(st.sampled_from([*sorted(OWN_ATTRIBUTES - {"taskId"}), "tenant"]), VALUES, max_size=5))
def test_whatever_lies_in_the_table_can_be_shown(row: dict[str, object]) -> None:
    try:
        stored = decode(encode({"taskId": "x", **row}))
    except (InvalidInput, UnicodeEncodeError):
        return
    view = TaskView.from_row(stored)
    assert view.to_row()["taskId"] == "x"
    assert isinstance(view.status, str)


EXPRESSIONS = ("rate(1 minute)", "rate(3 minutes)", "cron(* * * * ? *)", "cron(0/2 * * * ? *)", "cron(0/5 * * * ? *)")
EDITS = [
    *({"expression": expression} for expression in EXPRESSIONS),
    *({"overlap": policy} for policy in ("skip", "allow", "bufferOne")),
    *({"catch_up": policy} for policy in ("latest", "all", "none")),
]
BY_HAND = [
    *({"scheduleState": state} for state in ("ENABLED", "DISABLED")),
    *({"scheduleExpression": expression} for expression in EXPRESSIONS),
]
OPERATIONS = st.one_of(
    st.tuples(st.just("ticks"), st.integers(1, 4)),
    st.tuples(st.just("outage"), st.integers(2, 9)),
    st.tuples(st.just("late"), st.integers(1, 50)),
    st.tuples(st.sampled_from(["pause", "resume", "run"]), st.none()),
    st.tuples(st.just("update"), st.sampled_from(EDITS)),
    st.tuples(st.just("by hand"), st.sampled_from(BY_HAND)),
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
        case "run":
            with suppress(TaskExists):
                schedules.run_now("s")
        case "update":
            schedules.update("s", **value)
        case "by hand":
            world.put(**{**world.row("s"), **value})
        case "backfill":
            now = world.clock()
            list(schedules.backfill("s", start=now - timedelta(minutes=value), end=now))


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
        reported = [run for run in reported if run.status != "unknown" or run.occurrence_at >= notes[0].first]
    assert [run for run in reported if run.status not in ("completed", "missed")] == []
    assert all((run.task_id is None) == (run.status == "missed") == (run.reason is not None) for run in reported)
    assert len({(run.occurrence_at, run.run_now) for run in reported}) == len(reported)
    rows = [row for row in world.store.scan(open_only=False).rows if row.get("scheduleId") == "s" != row["taskId"]]
    assert {run.task_id for run in reported if run.task_id} == {row["taskId"] for row in rows}
    assert {row["status"] for row in rows} <= {"completed"}
