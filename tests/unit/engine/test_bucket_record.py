"""The record of a bucket counts what has left it: by the engine, by the client, in any order, and never twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from tests.builders import NOON, InProcess
from tests.unit.client.support import fail
from tests.unit.engine.support import Once, RiggedStore

from dynatick import Reschedule, RetryableError, StoreError, TaskClient
from dynatick.actions.testing import MemoryDeadLetterQueue
from dynatick.domain.buckets import Bucket
from dynatick.domain.task import Row
from dynatick.engine.bucket_record import bucket_record_id, count_departures, read_departures
from dynatick.engine.ports import StoreFailure
from dynatick.store.memory import MemoryStore

B, LATER = "2026-12-31#12:01", "2026-12-31#13:00"
BUCKET = Bucket.parse(B)


def count(store: MemoryStore, number: int = 1, token: str = "t", name: str = "retried") -> None:
    count_departures(store, {BUCKET: {name: number}}, token=token, now=NOON, retention_days=30)


def test_the_record_of_a_bucket() -> None:
    store = MemoryStore()
    count(store, 3, "first")
    count(store, 2, "second", "redrivenFailed")
    assert store.get(bucket_record_id(BUCKET)) == {
        "taskId": "_dynatick#bucket#2026-12-31#12:01", "status": "bucket", "outcome": "none", "retried": 3,
        "redrivenFailed": 2, "version": 2, "writtenBy": "second",
        "expiresAt": int((NOON + timedelta(days=30)).timestamp()),
    }  # fmt: skip
    assert read_departures(store, [BUCKET, Bucket.parse(LATER)]) == {"retried": 3, "redrivenFailed": 2}


@pytest.mark.parametrize("writes", [True, False])
def test_a_write_whose_answer_was_lost_is_not_repeated(writes: bool) -> None:
    """The first of each kind takes effect or not, and the second write too."""
    store, first, second = RiggedStore(), Once(lambda change: True), Once(lambda change: True)
    create = store.create_many

    def no_answer(rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        store.create_many = create  # type: ignore[method-assign]
        if writes:
            create(rows)
        return [StoreFailure("no answer")]

    store.create_many = no_answer  # type: ignore[method-assign]
    setattr(store, "unanswered" if writes else "throttled", lambda change: first(change) or second(change))
    count(store, 2, "first")
    count(store, 3, "second")
    assert first.done
    assert read_departures(store, [BUCKET]) == {"retried": 5}


def refuses(rows: Sequence[object]) -> Sequence[bool | StoreFailure]:
    return [StoreFailure("throttled")] * len(rows)


def test_a_record_that_a_person_has_changed_or_whose_table_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    store.put({"taskId": bucket_record_id(BUCKET), "retried": "many", "version": True, "moved": 4})
    count(store, 1)
    assert read_departures(store, [BUCKET]) == {"retried": 1, "moved": 4}
    empty = MemoryStore()
    monkeypatch.setattr(empty, "create_many", refuses)
    with pytest.raises(StoreError, match="cannot count what left _dynatick#bucket#2026-12-31#12:01"):
        count(empty)


# --- Who counts -------------------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> InProcess:
    world = InProcess(dead_letters=MemoryDeadLetterQueue())
    world.tick()
    return world


@pytest.fixture
def client(world: InProcess) -> TaskClient:
    assert isinstance(world.dead_letters, MemoryDeadLetterQueue)
    return TaskClient(world.store, clock=world.clock, dead_letter_queue=world.dead_letters)


def insert_due(client: TaskClient, *task_ids: str) -> None:
    for task_id in task_ids:
        client.insert(task_id, delay_seconds=1)


def fail_for_now(*_: object) -> object:
    raise RetryableError("later", retry_after=3600)


def poll_again(*_: object) -> object:
    raise Reschedule(after=3600)


def counted(client: TaskClient, bucket: str = B) -> tuple[dict[str, int], dict[str, int], int, int]:
    """Returns how many are there, have left, ran, and failed."""
    (counts,) = client.bucket_counts(bucket)
    return dict(counts.counts), dict(counts.left), counts.ran, counts.failed


def test_retries_and_further_turns_have_left_and_a_task_that_runs_once_writes_no_record(
    world: InProcess, client: TaskClient
) -> None:
    world.actions.behaviour["failed"] = fail
    insert_due(client, "failed")
    world.next_tick()
    assert counted(client) == ({"failed": 1}, {}, 1, 1)
    assert world.store.get(bucket_record_id(BUCKET)) is None
    world.actions.behaviour |= {"r1": fail_for_now, "r2": fail_for_now, "turn": poll_again}
    insert_due(client, "r1", "r2", "turn", "fine")
    world.next_tick()
    assert counted(client, "2026-12-31#12:02") == ({"completed": 1}, {"retried": 2, "rescheduled": 1}, 4, 2)
    world.clock.forward(hours=1)
    world.actions.behaviour.clear()
    world.next_tick()
    assert counted(client, "2026-12-31#12:02") == ({"completed": 1}, {"retried": 2, "rescheduled": 1}, 4, 2)
    assert world.outcome("r1") == "completed"


@pytest.mark.parametrize(
    "redrive",
    [lambda client: client.redrive("a"), lambda client: client.run_now("a"),
     lambda client: (list(client.redrive_many(B, dry_run=True)), list(client.redrive_many(B))),
     lambda client: (list(client.dead_letters.redrive(dry_run=True)), list(client.dead_letters.redrive()))],
    ids=["redrive", "run_now", "redrive_many", "dead_letters"],
)  # fmt: skip
def test_redrives_are_counted_whichever_way(
    world: InProcess, client: TaskClient, redrive: Callable[[TaskClient], object]
) -> None:
    world.actions.behaviour["a"] = fail
    insert_due(client, "a", "b")
    world.next_tick()
    redrive(client)
    assert counted(client) == ({"completed": 1}, {"redrivenFailed": 1}, 2, 1)
    world.next_tick()
    assert counted(client, "2026-12-31#12:02") == ({"failed": 1}, {}, 1, 1)


def test_every_task_may_have_left_and_the_record_is_no_task(world: InProcess, client: TaskClient) -> None:
    insert_due(client, "a")
    world.next_tick()
    client.run_now("a")
    assert counted(client) == ({}, {"redrivenCompleted": 1}, 1, 0)
    assert list(client.bucket_counts(start="2026-12-31T12:01:00Z", end="2026-12-31T12:02:00Z")) == []
    assert client.doctor().findings == ()
    world.stream(world.row(bucket_record_id(BUCKET)))
    assert world.row(bucket_record_id(BUCKET))["status"] == "bucket"


def test_what_waited_in_a_past_bucket_and_was_moved(world: InProcess, client: TaskClient) -> None:
    insert_due(client, "a", "b")
    world.clock.forward(minutes=3)  # and no tick came
    client.reschedule("a", delay_seconds=3600)
    assert len(list(client.reschedule_many(B, delay_seconds=3600))) == 1
    assert counted(client) == ({}, {"moved": 2}, 0, 0)


def test_a_record_that_can_not_be_written_keeps_no_task_from_moving(
    world: InProcess, client: TaskClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.store, "create_many", refuses)
    world.actions.behaviour |= {"a": fail_for_now, "b": fail}
    insert_due(client, "a", "b")
    world.next_tick()
    client.redrive("b")
    assert (world.row("a")["status"], world.row("b")["run"]) == ("scheduled", 2)
    assert [one.action for one in caplog.records if hasattr(one, "action")] == ["departures_uncounted"] * 2
