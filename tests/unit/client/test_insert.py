"""Inserts, with a time and without; many at a time: results in order, memory bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from enum import Enum, StrEnum

import pytest
from tests.builders import NOON, InProcess, scheduled_row
from tests.unit.client.support import client_of, world_of

from dynatick import MemoryStore, RetryPolicy, TaskClient, TaskExists
from dynatick.client import Exists, Inserted, InsertUnknown, NewTask, NoneInserted, Refused
from dynatick.client.insertion import BATCH, THREADS
from dynatick.client.new_task import Time
from dynatick.domain.buckets import Bucket
from dynatick.domain.row import RowView
from dynatick.domain.task import Row, is_own_row
from dynatick.engine.ports import StoreFailure
from dynatick.errors import InvalidInput, ItemTooLarge, StoreError

WHEN = "2026-12-31T12:30:00Z"
HALF_PAST = Bucket.parse("2026-12-31#12:30")


@pytest.mark.parametrize(
    ("time", "bucket", "due"),
    [
        *((time, "2026-12-31#12:30", "2026-12-31T12:30:00Z")
          for time in (HALF_PAST, str(HALF_PAST), HALF_PAST.instant, HALF_PAST.instant.timestamp(), WHEN)),
        ("2026-12-31T12:31:00Z", "2026-12-31#12:35", "2026-12-31T12:31:00Z"),
        (Decimal(int(NOON.timestamp())) + Decimal("60.5"), "2026-12-31#12:05", "2026-12-31T12:01:00.500Z"),
        # past, and the current minute: the next tick
        ("2026-12-31T11:00:00Z", "2026-12-31#12:05", "2026-12-31T11:00:00Z"),
        ("2026-12-31#12:00", "2026-12-31#12:05", "2026-12-31T12:00:00Z"),
    ],
)  # fmt: skip
def test_a_task_with_a_time_is_written_complete(time: Time, bucket: str, due: str) -> None:
    world = world_of(tick_minutes=5)
    world.clock.forward(seconds=20)
    view = client_of(world).insert("x", due_at=time)
    row = dict(world.row("x"))
    assert (row.pop("taskDateTime"), row.pop("dueAt")) == (bucket, due)
    assert str(row.pop("createdAt")).startswith("2026-12-31T12:00:20")
    assert row == {"taskId": "x", "action": "log", "status": "scheduled", "attempt": 0, "run": 1}
    assert (view.status, view.bucket) == ("scheduled", bucket)


def test_a_task_means_the_same_however_it_came_in() -> None:
    world = world_of(tick_minutes=5, shard_count=4)
    # A raw row has no number there: DynamoDB refuses one as the key of an index.
    for n, (time, raw) in enumerate([
        ("2026-12-31T12:31:20Z", "2026-12-31T12:31:20Z"), ("2026-12-31#12:31#2", "2026-12-31#12:31#2"),
        (1_800_000_000, "2027-01-15T08:00:00Z"),
    ]):  # fmt: skip
        normalised = dict(world.put(taskId=f"t{n}", taskDateTime=raw))
        world.store.delete(f"t{n}")
        client_of(world).insert(f"t{n}", task_date_time=time)
        written = dict(world.row(f"t{n}"))
        assert written.pop("createdAt") and normalised.pop("createdAt")
        assert written == normalised


def test_epoch_seconds_are_written_as_text_also_before_the_settings_are_known() -> None:
    """Then the row is completed by the scheduler; a number as the key of an index, DynamoDB refuses."""
    store = MemoryStore()
    TaskClient(store, clock=lambda: NOON).insert("x", task_date_time=1_800_000_000)
    row = store.get("x")
    assert row is not None and row["taskDateTime"] == "2027-01-15T08:00:00Z" and "status" not in row


def test_what_is_given_is_in_the_row(client: TaskClient) -> None:
    payload = {"url": "https://example.com", "ratio": 0.1, "list": [1, None, True], "raw": b"\x00", "tags": {"a", "b"}}
    view = client.insert(
        "x", delay_seconds=90, payload=payload, retry_policy=RetryPolicy(maximum_retry_attempts=1),
        attributes={"tenant": "t1", "größe": 3},
    )  # fmt: skip
    payload["url"] = "changed later"
    shown = client.get("x")
    assert shown.payload == {**payload, "url": "https://example.com"}
    assert shown.attributes == {"tenant": "t1", "größe": 3}
    assert shown.row["retryPolicy"] == {
        "maximumRetryAttempts": 1, "maximumEventAgeInSeconds": 86400, "minBackoffSeconds": 5, "maxBackoffSeconds": 3600,
    }  # fmt: skip
    assert (shown.bucket, shown.row["delaySeconds"]) == ("2026-12-31#12:02", 90)
    assert view.to_row() == shown.to_row()


class Field(StrEnum):
    TO = "to"


class Own(str, Enum):  # noqa: UP042 - as before Python 3.11: its str() is not its value
    TENANT = "tenant"


def test_names_may_be_members_of_an_enum_of_texts(client: TaskClient) -> None:
    client.insert("x", due_at=WHEN, payload={"mail": {Field.TO: "ada"}, Own.TENANT: 1}, attributes={Own.TENANT: "t1"})
    shown = client.get("x")
    assert (shown.payload, shown.attributes) == ({"mail": {"to": "ada"}, "tenant": 1}, {"tenant": "t1"})


def test_a_subject_is_one_text_that_stays(client: TaskClient) -> None:
    longest = "kunde:" + "ä" * 125
    assert client.insert("x", delay_seconds=90, subject=longest).subject == longest
    assert client.get("x").attributes == {}
    for wrong, expected in (
        ("", "a text that is not empty"), (4711, "a text that is not empty"), (longest + "1", "at most 256 bytes"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=expected) as refused:
            client.insert("y", delay_seconds=90, subject=wrong)  # type: ignore[arg-type]
        assert refused.value.field == "subject"
    (counted,) = client.insert_lazily([{"taskId": "y", "delaySeconds": 90, "subject": "order:1"}])
    assert isinstance(counted, Inserted)
    client.reschedule("y", delay_seconds=30)
    client.cancel("y")
    assert client.get("y").subject == "order:1"


def test_a_raw_row_with_a_wrong_subject_is_malformed_and_an_older_one_runs() -> None:
    world = InProcess()
    row = world.put(taskId="long", dueAt="2026-12-31T12:01:00Z", subject="x" * 257)
    assert (row["status"], str(row["error"])[:8]) == ("failed", "subject:")
    world.store.create(scheduled_row("older", Bucket.parse("2026-12-31#12:01"), subject="x" * 257))
    world.ticks(2)
    assert world.row("older")["status"] == "completed"


def test_the_scheduler_completes_a_row_that_the_client_can_not() -> None:
    world = InProcess()
    client = client_of(world)
    for ticks, task_id, row, bucket in (
        (0, "before a tick", {"dueAt": "2026-12-31T13:07:00+01:00", "action": "log"}, "2026-12-31#12:07"),
        (1, "without a time", {"payload": {"n": 1}}, "2026-12-31#12:02"),
    ):
        world.ticks(ticks)
        assert client.insert_many([{"taskId": task_id} | row]).inserted == 1
        view = client.get(task_id)
        assert (view.status, view.bucket) == ("unscheduled", None)
        assert world.row(task_id) == {"taskId": task_id, "insertToken": world.row(task_id)["insertToken"]} | row
        world.stream(world.row(task_id))
        assert client.get(task_id).bucket == bucket


def test_it_inserts_before_it_returns_and_counts(world: InProcess, client: TaskClient) -> None:
    client.insert("there", due_at=WHEN)
    many = [{"taskId": "a", "dueAt": WHEN}, {"taskId": "there", "dueAt": WHEN}, {"taskId": "bad", "due_at": WHEN}]
    counts = client.insert_many(iter(many))
    assert world.row("a")["status"] == "scheduled"
    assert (counts.inserted, counts.exists, counts.refused, counts.unknown) == (1, 1, 1, 0)
    assert not counts.all_in
    assert str(counts) == "1 inserted, 1 exists, 1 refused"
    (problem,) = counts.problems
    assert isinstance(problem, Refused)
    assert (problem.position, problem.task_id, problem.error.field) == (2, "bad", "due_at")
    again = client.insert_many([many[0]])
    assert (again.inserted, again.exists, again.all_in) == (0, 1, True), "to have it already is no error"


def test_to_have_none_of_them_in_is_an_error(client: TaskClient) -> None:
    with pytest.raises(
        NoneInserted, match=r"no task was inserted: 5,000 refused; position 0: due_at: .*dueAt"
    ) as refused:
        client.insert_many({"taskId": f"t{n}", "due_at": WHEN} for n in range(5000))
    assert refused.value.counts.refused == 5000
    assert len(refused.value.counts.problems) == 1000
    nothing = client.insert_many([])
    assert (nothing.all_in, str(nothing)) == (True, "no tasks")


def test_each_task_has_its_result_in_order(client: TaskClient) -> None:
    client.insert("there", due_at=WHEN)
    rest = [("there", WHEN), ("bad", "x"), ("raw", None), ("a", WHEN), ("bad", WHEN), ("raw", None)]
    tasks = [{"taskId": "a", "dueAt": WHEN}, NewTask(task_id="b", due_at=WHEN)]
    results = list(client.insert_lazily(tasks + [{"taskId": task_id, "dueAt": time} for task_id, time in rest]))
    bad = results.pop(3)
    assert isinstance(bad, Refused) and bad.task_id == "bad"
    assert results == [
        Inserted(0, "a"), Inserted(1, "b"), Exists(2, "there"),
        Inserted(4, "raw"), Exists(5, "a"), Inserted(6, "bad"), Exists(7, "raw"),
    ]  # fmt: skip


@pytest.mark.parametrize("number", [0, 1, 24, 25, 26, 1000])
def test_any_number_of_them(world: InProcess, client: TaskClient, number: int) -> None:
    tasks = ({"taskId": f"t{n}", **({"dueAt": WHEN} if n % 3 else {})} for n in range(number))
    results = client.insert_lazily(tasks)
    assert world.store.get("t0") is None, "nothing before it is asked for"
    assert list(results) == [Inserted(n, f"t{n}") for n in range(number)]
    assert sum(1 for n in range(number) if world.store.get(f"t{n}")) == number


def test_tasks_are_read_as_they_are_inserted(client: TaskClient) -> None:
    """A map may be used again by the caller, whose own error comes through."""
    read = 0

    def tasks(number: int) -> Iterator[dict[str, object]]:
        nonlocal read
        task: dict[str, object] = {"dueAt": WHEN, "payload": {}}
        for read in range(number):
            task["taskId"] = f"t{read}"
            yield task
            task["payload"]["n"] = read + 1  # type: ignore[index]
        raise RuntimeError("the file broke off")

    results = client.insert_lazily(tasks(100_000))
    for n in range(1000):
        assert next(results) == Inserted(n, f"t{n}")
        assert read - n <= BATCH * (2 * THREADS + 2)
    results.close()  # type: ignore[attr-defined]
    assert [client.get(f"t{n}").payload.get("n", 0) for n in range(1000)] == [*range(1000)]
    with pytest.raises(RuntimeError, match="the file broke off"):
        list(client.insert_lazily(tasks(1)))


class Faulty(MemoryStore):
    """Fails for some ids, in each way that a store can."""

    def create(self, row: Row) -> bool:
        if row["taskId"] == "raw-away":
            raise StoreError("throttled")
        if row["taskId"] == "raw-large":
            raise ItemTooLarge("too large")
        return super().create(row)

    def create_many(self, rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        if any(row["taskId"] == "break" for row in rows):
            raise StoreError("the table is away")
        failing = {"away": StoreFailure("throttled"), "large": StoreFailure("too large", too_large=True)}
        return [failing.get(str(row["taskId"])) or self.create(row) for row in rows]


def test_a_failure_of_the_table_is_reported_for_each_task() -> None:
    world = InProcess(store=Faulty())
    world.tick()
    client = client_of(world)
    ids = ["raw-away", "raw-large", "away", "large", "a", "raw"]
    tasks = [{"taskId": i} if i.startswith("raw") else {"taskId": i, "dueAt": WHEN} for i in ids]
    results = list(client.insert_lazily(tasks))
    assert [type(one.error) if isinstance(one, InsertUnknown) else type(one) for one in results] == [
        StoreError, ItemTooLarge, StoreError, ItemTooLarge, Inserted, Inserted,
    ]  # fmt: skip
    broken = list(client.insert_lazily([{"taskId": "break", "dueAt": WHEN}, {"taskId": "b", "dueAt": WHEN}]))
    assert all(isinstance(result, InsertUnknown) for result in broken)


class BrokenOff(MemoryStore):
    """The connection breaks at the first try of each insert. ``meanwhile``: what happens after that one took effect,
    until the SDK tries again."""

    meanwhile: Callable[[Row], object] = staticmethod(lambda row: None)

    def create(self, row: Row) -> bool:
        is_new = super().create(row)
        if is_own_row(RowView(row).task_id):
            return is_new
        if is_new:
            self.meanwhile(row)
        raise StoreError("sent more than once")


def test_an_insert_that_breaks_off_is_not_taken_for_anothers_task() -> None:
    store = BrokenOff()
    world = InProcess(store=store)
    client = client_of(world)
    task = {"action": "log", "payload": {"p": 0.1}}
    world.put(taskId="by hand", **task)
    assert client.insert("x", **task)  # type: ignore[arg-type]
    world.stream(world.row("x"))
    world.ticks(2)
    for task_id in ("x", "by hand"):
        with pytest.raises(TaskExists):
            client.insert(task_id, **task)  # type: ignore[arg-type]
        assert list(client.insert_lazily([{"taskId": task_id, **task}])) == [Exists(0, task_id)]


def test_an_insert_that_breaks_off_is_recognised_after_its_task_has_run() -> None:
    store = BrokenOff()
    world = InProcess(store=store)

    def run(row: Row) -> None:
        world.stream(row)
        world.ticks(2)

    store.meanwhile = run
    assert client_of(world).insert("x", action="log", payload={"p": 0.1}).effect == "created"
    assert world.outcome("x") == "completed"
