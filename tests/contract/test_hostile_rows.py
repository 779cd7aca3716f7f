"""Failure mode 22, rows: any row that the table accepts passes scheduler, claim and record, or fails alone."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import pytest
from tests.builders import InProcess, key_of, scheduled_row

from dynatick.client import TaskClient
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Written
from dynatick.domain.lifecycle import RELEASED
from dynatick.domain.task import Row, Task
from dynatick.engine.cursor import Cursor, cursor_id
from dynatick.engine.ports import Store
from dynatick.store.codec import MAX_DEPTH, MAX_NAME_BYTES


def nested(depth: int) -> object:
    value: object = "x"
    for n in range(depth):
        value = [value] if n % 2 else {"a.b": value}
    return value


NAMES = [
    "#x",
    ":v",
    "?",
    "a.b",
    "a[0].b",
    "x = :x AND attribute_exists(y)",
    "x' : ? } ; DELETE FROM tasks WHERE '1'='1",
]
NAMES += [" ", "a\nb", "\u200b\u202e", "select", "Status", 'it\'s "quoted" `so`', "n" * MAX_NAME_BYTES]

PAYLOADS: Mapping[str, object] = {
    "many elements": {"list": list(range(2_000))},
    "as deep as may be": {"deep": nested(MAX_DEPTH - 1)},
    "binary": {"b": bytes(range(256)), "set": {b"\x00", b"\xff"}},
    "the largest numbers": {"n": Decimal("9.9999999999999999999999999999999999999E+125"), "m": Decimal("1E-130")},
    "hostile text": {"t": '\x00\x1b[2J\r\n{"level":"ERROR"}', "u": "☃\u202e" * 1000},
    "hostile names": {name: {name: 1} for name in NAMES if len(name) < 100},
}

IDS = ["a\x00\x07\x1b[2J\n\tb", '{"taskId": "other"}', 'it\'s "x" ; DROP', "2026-12-31#12:00", "\u202egnp.exe"]
IDS += ["_dynatick", "#a = :b", "é" * 512]  # almost ours, an expression, as long as may be


@pytest.fixture
def world(store: Store) -> InProcess:
    world = InProcess(store=store)
    world.tick()
    return world


def bucket_in(world: InProcess, minutes: int = 1) -> Bucket:
    return Bucket(minute_of(world.clock()) + minutes)


def put(world: InProcess, row: Row) -> None:
    """Puts a row, and delivers its stream record."""
    assert world.store.create(row)
    assert world.stream(world.row(str(row["taskId"]))).failed == []


ROWS: Mapping[str, list[Row]] = {
    "names": [{"taskId": f"t{n}", name: "the user's own", "payload": {"n": 1}} for n, name in enumerate(NAMES)],
    "payloads": [{"taskId": name, "payload": payload} for name, payload in PAYLOADS.items()],
    "ids": [{"taskId": task_id} for task_id in IDS],
}


@pytest.mark.parametrize("of", ROWS)
def test_rows_with_anything_in_them_run_beside_a_valid_one_and_stay_unchanged(world: InProcess, of: str) -> None:
    rows = {str(row["taskId"]): row for row in ROWS[of]}
    assert len(rows) == len(ROWS[of])
    tasks: list[Task] = []
    for task_id, row in rows.items():
        world.actions.behaviour[task_id] = lambda task, context: tasks.append(task)
        put(world, row)
    put(world, {"taskId": "healthy"})
    world.next_tick()
    assert world.outcome("healthy") == "completed"
    assert sorted(task.task_id for task in tasks) == sorted(rows), "each runs once"
    for task in tasks:
        row, ended = rows[task.task_id], world.row(task.task_id)
        assert (ended["outcome"], ended["attempt"]) == ("completed", 1), row
        assert {name: ended[name] for name in row} == row
        assert (task.payload, task.idempotency_key) == (row.get("payload", {}), key_of(ended))
        assert task.attributes == {name: value for name, value in row.items() if name not in ("taskId", "payload")}


def test_a_batch_accepts_rows_with_names_longer_than_a_statement(world: InProcess) -> None:
    """A PartiQL statement's text contains the attributes' names, and has at most 8,192 bytes."""
    bucket = bucket_in(world)
    rows = [scheduled_row(f"t{n:02d}", bucket, **({"n" * 9000: 1} if n == 7 else {})) for n in range(25)]
    assert list(world.store.create_many(rows)) == [True] * 25
    assert list(world.store.create_many(rows)) == [False] * 25
    world.next_tick()
    assert {world.outcome(str(row["taskId"])) for row in rows} == {"completed"}


OURS: Mapping[str, Row] = {
    "a cursor of a shard that is not": {"taskId": "_dynatick#cursor#77", "status": "scheduled", "attempt": 0},
    "a task in our name": {"taskId": "_dynatick#task"},
    "one that waits": {"taskId": "_dynatick#task", "status": "scheduled", "attempt": 0, "run": 1},
    "one that runs": {"taskId": "_dynatick#task", "status": "running", "attempt": 1, "lease": "x"},
}


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("name", OURS)
def test_a_row_with_a_reserved_id_never_runs_and_holds_nothing_back(world: InProcess, name: str, timed: bool) -> None:
    bucket = bucket_in(world)
    row = {**OURS[name], **({"taskDateTime": str(bucket)} if timed else {})}
    put(world, row)
    put(world, {"taskId": "healthy"})
    world.ticks(9)
    assert world.outcome("healthy") == "completed"
    assert world.actions.times(str(row["taskId"])) == 0
    assert Cursor.from_row(0, world.row(cursor_id(0))).drained_through > bucket.minute
    world.handle({"dynatick": {"reconcile": True}})
    assert world.row(str(row["taskId"])) == row, "no function changes it"


@pytest.mark.parametrize("status", ["body", "bucket", "change", "cursor", "reconcile", "settings", "tick"])
def test_a_task_with_the_status_of_an_own_row_fails_with_the_reason(world: InProcess, status: str) -> None:
    """The stream filter drops it, so the tick or the reconcile finds it."""
    bucket = bucket_in(world)
    assert world.store.create({"taskId": "timed", "status": status, "taskDateTime": str(bucket)})
    assert world.store.create({"taskId": "untimed", "status": status, "outcome": None})
    world.next_tick()
    world.handle({"dynatick": {"reconcile": True}})
    for task_id in ("timed", "untimed"):
        row = world.row(task_id)
        assert row["outcome"] == "failed"
        assert row["error"] == f"status: '{status}' is not accepted; leave it out: it is set by Dynatick"
    assert sorted(str(letter.row["taskId"]) for letter in world.dead_letters.letters) == ["timed", "untimed"]


NULLS: Mapping[str, dict[str, object]] = {
    "an unscheduled one": {},
    "one that waits": {"status": "scheduled", "attempt": 0},
    "one that waits, and may expire": {"status": "scheduled", "attempt": 0, "expiresAt": 4102444800},
    "one whose lease has expired": {"status": "running", "attempt": 1, "leaseUntil": "2020-01-01T00:00:00Z"},
    "one that runs, and may expire": {"status": "running", "attempt": 1, "expiresAt": 4102444800},
    "one that was released": {"status": "running", "attempt": 0, "leaseUntil": RELEASED, "lease": "x"},
    "one that is in no bucket": {"status": "scheduled", "attempt": 0, "taskDateTime": "2026-12-31T12:00:00Z"},
}


@pytest.mark.parametrize("seen", [True, False], ids=["the scheduler sees it", "a tick sees it first"])
@pytest.mark.parametrize("name", NULLS)
def test_an_outcome_that_is_null_counts_as_missing(world: InProcess, name: str, seen: bool) -> None:
    bucket = bucket_in(world)
    row = {"taskId": "x", "action": "log", "taskDateTime": str(bucket), "outcome": None, **NULLS[name]}
    assert world.store.create(row)
    if seen:
        assert world.stream(world.row("x")).failed == []
    world.ticks(2)
    world.handle({"dynatick": {"reconcile": True}})
    world.ticks(2)
    assert world.outcome("x") == "completed"
    assert world.actions.times("x") == 1


def test_a_task_whose_outcome_is_null_can_be_cancelled_rescheduled_and_retried(world: InProcess) -> None:
    """If the attempts were counted anew, a poison task would get further ones."""
    client = TaskClient(world.store, clock=world.clock)
    bucket = bucket_in(world, minutes=5)
    for task_id in ("off", "later", "again"):
        assert world.store.create(scheduled_row(task_id, bucket, outcome=None, attempt=2))
    assert client.cancel("off").status == "cancelled"
    client.reschedule("later", task_date_time=bucket_in(world, minutes=6))
    assert "outcome" not in world.row("later")
    assert [view.task_id for view in client.history(bucket_in(world, minutes=6)).entries] == ["later"]
    assert world.stream(world.row("again")).failed == []
    assert (world.row("again")["attempt"], "outcome" in world.row("again")) == (2, False)


@pytest.mark.parametrize("task_id", ["", "é" * 1500, cursor_id(0), ["x"]], ids=["empty", "too long", "own", "no text"])
def test_a_schedule_whose_latest_task_is_malformed_holds_up_no_other(world: InProcess, task_id: object) -> None:
    """The latest tasks of several schedules are read in one request."""
    for schedule_id in ("malformed", "healthy"):
        put(world, {"taskId": schedule_id, "scheduleExpression": "rate(1 minute)"})
    world.next_tick()
    assert isinstance(world.store.write(ConditionalUpdate(task_id="malformed", set={"lastTaskId": task_id})), Written)
    world.next_tick()
    for schedule_id in ("malformed", "healthy"):
        assert world.outcome(f"{schedule_id}#1#2026-12-31T12:02:00Z") == "completed"
