"""A counter is declared once, and all that speaks of passes has it from there. The record of a bucket counts what has
left it: by the engine, by the client, in any order, and never twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest
from tests.builders import NOON
from tests.unit.client.support import client_of, fail, fail_for_now
from tests.unit.engine.support import NOON_MINUTE, Once, RiggedStore, World, bucket_at, raises, world

from dynatick import Reschedule, StoreError, TaskClient
from dynatick.actions.testing import MemoryDeadLetterQueue
from dynatick.client.operations import TickView
from dynatick.domain.action_counts import ActionCounts, CountsByAction
from dynatick.domain.buckets import Bucket
from dynatick.domain.view import members
from dynatick.engine.counts import (
    COUNTERS,
    PassReport,
    Recorded,
    RecordResult,
    bucket_record_id,
    count_departures,
    read_departures,
    tick_record_id,
)
from dynatick.engine.drain import _save_report
from dynatick.store.codec import item_bytes
from dynatick.store.memory import MemoryStore

NUMBERS = {counter.name: n for n, counter in enumerate(COUNTERS, 1)}


def test_each_counter_is_in_the_tick_record_the_view_and_the_form_of_the_http_api() -> None:
    report = PassReport(tick=NOON_MINUTE, shard=0, continuation=0, started_at=NOON, **NUMBERS)  # type: ignore[arg-type]
    w = world()
    w.tick()
    w.store.create({"taskId": tick_record_id(NOON_MINUTE, 0, 0), **report.to_row()})
    (view,) = [entry for entry in client_of(w).operations.ticks() if isinstance(entry, TickView)]
    shown = view.to_row()
    described = {member.name: member.description for member in members(TickView)}
    for counter in COUNTERS:
        expected = NUMBERS[counter.name] + (NUMBERS["rejected"] if counter.name == "failed" else 0)
        assert report.to_row()[counter.attribute] == getattr(view, counter.name) == expected
        assert shown[counter.attribute] == expected
        assert described[counter.attribute] == counter.meaning


def test_each_result_of_an_attempt_has_a_counter() -> None:
    report = PassReport(tick=NOON_MINUTE, shard=0, continuation=0, started_at=NOON)
    for result in RecordResult:
        report.count(result)
        report.count(result)
    assert {name: number for name, number in report.by_name().items() if number} == {
        result.value: 2 for result in RecordResult
    }


# -- by action -------------------------------------------------------------------------------------------------------


def by_action(row: object) -> dict[str, object]:
    assert isinstance(row, dict)
    return CountsByAction.from_value(row.get("byAction")).to_value()


def test_a_tick_record_counts_by_action_what_its_pass_ran() -> None:
    w = world()
    w.insert("done", "again", "bad", at=bucket_at(1), action="mail")
    w.insert("other", at=bucket_at(1), action="log")
    w.actions.behaviour |= {"again": fail_for_now, "bad": fail}
    w.next_tick()
    took = {"0": 1}
    assert by_action(w.store.get(tick_record_id(NOON_MINUTE + 1, 0, 0))) == {
        "mail": {"completed": 1, "failed": 1, "retried": 1, "late": {"16": 3}, "took": {"0": 3}},
        "log": {"completed": 1, "late": {"16": 1}, "took": took},
    }
    assert by_action(w.store.get(bucket_record_id(BUCKET))) == {}, "it is counted once"


def test_a_tick_that_is_sent_twice_has_the_counts_of_both_passes() -> None:
    store = RiggedStore()
    services = SimpleNamespace(store=store, clock=lambda: NOON)
    for token in ("first", "second"):
        report = PassReport.of(BUCKET, NOON, recorded=Recorded.BY_TICK)
        report.count(RecordResult.COMPLETED, "mail")
        store.unanswered = Once(lambda change: True)  # the answer is lost
        _save_report(services, report, token)  # type: ignore[arg-type]
    row = store.get(tick_record_id(BUCKET.minute, 0, 0))
    assert row is not None
    assert (by_action(row), row["completed"]) == ({"mail": {"completed": 2}}, 2)


def test_a_recovery_counts_in_the_record_of_its_bucket() -> None:
    w = world()
    w.insert("crashed", at=bucket_at(1), action="mail")
    w.claim("crashed", until=NOON + timedelta(seconds=10))
    w.next_tick()
    assert by_action(w.store.get(bucket_record_id(BUCKET)))["mail"] == {"completed": 1, "took": {"0": 1}}
    assert w.outcome("crashed") == "completed"


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (Recorded.BY_TICK, {}),
        (Recorded.ALL_BY_BUCKET, {"a": {"completed": 1}, "b": {"retried": 1}}),
        (Recorded.FAILURES_BY_BUCKET, {"b": {"retried": 1}}),
    ],
)
def test_what_a_bucket_is_to_count_by_action(recorded: Recorded, expected: object) -> None:
    report = PassReport.of(BUCKET, NOON, recorded=recorded)
    report.count(RecordResult.COMPLETED, "a")
    report.count(RecordResult.RETRIED, "b")
    report.count(RecordResult.RELEASED, "c")
    assert report.without_record.to_value() == expected


def test_a_bucket_adds_up_by_action_and_a_write_whose_answer_was_lost_is_not_repeated() -> None:
    store = RiggedStore()
    for token in ("first", "second"):
        store.unanswered = Once(lambda change: True)
        counts = CountsByAction({"a": ActionCounts(completed=2)})
        count_departures(store, {}, by_action={BUCKET: counts}, token=token, now=NOON, retention_days=30)
    assert by_action(store.get(bucket_record_id(BUCKET))) == {"a": {"completed": 4}}
    count(store, 3, "third")
    assert by_action(store.get(bucket_record_id(BUCKET))) == {"a": {"completed": 4}}
    assert read_departures(store, [BUCKET]) == {"retried": 3}


def test_a_usual_tick_record_is_smaller_than_a_write_unit_and_one_of_many_actions_is_bounded() -> None:
    def record(actions: int, tasks: int) -> int:
        report = PassReport.of(BUCKET, NOON, recorded=Recorded.BY_TICK)
        report.end(NOON)
        for n in range(actions * tasks):
            counts = report.by_action.of(f"send-reminder-{n % actions}")
            counts.completed += 1
            counts.late.add(40 + n % 300)
            counts.took.add(20 + n % 500)
            report.due += 1
            report.claimed += 1
            report.completed += 1
        key = tick_record_id(BUCKET.minute, 0, 0)
        return item_bytes({"taskId": key, **report.to_row(), "writtenBy": "x" * 36, "expiresAt": 1_800_000_000})

    assert record(3, 100) <= 1024
    assert record(40, 1000) <= 6 * 1024


# -- the record of a bucket ------------------------------------------------------------------------------------------


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
    """The first, which creates the record, takes effect or not, and so does the one that updates it."""
    store = RiggedStore()
    for number, token in ((2, "first"), (3, "second")):
        lost = Once(lambda change: True)
        setattr(store, "unanswered" if writes else "throttled", lost)
        count(store, number, token)
        assert lost.done
    assert read_departures(store, [BUCKET]) == {"retried": 5}


def test_a_record_that_a_person_has_changed_or_whose_table_does_not_answer() -> None:
    store = RiggedStore()
    store.put({"taskId": bucket_record_id(BUCKET), "retried": "many", "version": True, "moved": 4})
    count(store, 1)
    assert read_departures(store, [BUCKET]) == {"retried": 1, "moved": 4}
    store.throttled = lambda change: True
    with pytest.raises(StoreError, match="cannot count what left _dynatick#bucket#2026-12-31#12:01"):
        count(store, token="another")


# -- who counts what has left ----------------------------------------------------------------------------------------


@pytest.fixture
def w() -> World:
    return world(dead_letters=MemoryDeadLetterQueue())


@pytest.fixture
def client(w: World) -> TaskClient:
    assert isinstance(w.dead_letters, MemoryDeadLetterQueue)
    return TaskClient(w.store, clock=w.clock, dead_letter_queue=w.dead_letters)


def insert_due(client: TaskClient, *task_ids: str) -> None:
    for task_id in task_ids:
        client.insert(task_id, delay_seconds=1)


def counted(client: TaskClient, bucket: str = B) -> tuple[dict[str, int], dict[str, int], int, int]:
    """Returns how many are there, have left, ran, and failed."""
    (counts,) = client.bucket_counts(bucket)
    return dict(counts.counts), dict(counts.left), counts.ran, counts.failed


def test_retries_and_further_turns_have_left_and_a_task_that_runs_once_writes_no_record(
    w: World, client: TaskClient
) -> None:
    w.actions.behaviour["failed"] = fail
    insert_due(client, "failed")
    w.next_tick()
    assert counted(client) == ({"failed": 1}, {}, 1, 1)
    assert w.store.get(bucket_record_id(BUCKET)) is None
    w.actions.behaviour |= {"r1": fail_for_now, "r2": fail_for_now, "turn": raises(Reschedule(after=3600))}
    insert_due(client, "r1", "r2", "turn", "fine")
    w.next_tick()
    assert counted(client, "2026-12-31#12:02") == ({"completed": 1}, {"retried": 2, "rescheduled": 1}, 4, 2)
    w.clock.forward(hours=1)
    w.actions.behaviour.clear()
    w.next_tick()
    assert counted(client, "2026-12-31#12:02") == ({"completed": 1}, {"retried": 2, "rescheduled": 1}, 4, 2)
    assert w.outcome("r1") == "completed"


@pytest.mark.parametrize(
    "redrive",
    [lambda client: client.redrive("a"), lambda client: client.run_now("a"),
     lambda client: (list(client.redrive_many(B, dry_run=True)), list(client.redrive_many(B))),
     lambda client: (list(client.dead_letters.redrive(dry_run=True)), list(client.dead_letters.redrive()))],
    ids=["redrive", "run_now", "redrive_many", "dead_letters"],
)  # fmt: skip
def test_redrives_are_counted_whichever_way(
    w: World, client: TaskClient, redrive: Callable[[TaskClient], object]
) -> None:
    w.actions.behaviour["a"] = fail
    insert_due(client, "a", "b")
    w.next_tick()
    redrive(client)
    assert counted(client) == ({"completed": 1}, {"redrivenFailed": 1}, 2, 1)
    w.next_tick()
    assert counted(client, "2026-12-31#12:02") == ({"failed": 1}, {}, 1, 1)


def test_every_task_may_have_left(w: World, client: TaskClient) -> None:
    insert_due(client, "a")
    w.next_tick()
    client.run_now("a")
    assert counted(client) == ({}, {"redrivenCompleted": 1}, 1, 0)
    assert list(client.bucket_counts(start="2026-12-31T12:01:00Z", end="2026-12-31T12:02:00Z")) == []


def test_what_was_cancelled_and_is_restored_leaves_a_bucket_only_if_that_has_passed(
    w: World, client: TaskClient
) -> None:
    insert_due(client, "a", "b")
    client.cancel("a")
    client.cancel("b")
    client.restore("a")
    assert counted(client) == ({"cancelled": 1, "scheduled": 1}, {}, 0, 0)
    w.clock.forward(minutes=3)
    client.restore("b")
    assert counted(client) == ({"scheduled": 1}, {"redrivenCancelled": 1}, 0, 0)


def test_what_waited_in_a_past_bucket_and_was_moved(w: World, client: TaskClient) -> None:
    insert_due(client, "a", "b")
    w.clock.forward(minutes=3)  # and no tick came
    client.reschedule("a", delay_seconds=3600)
    assert len(list(client.reschedule_many(B, delay_seconds=3600))) == 1
    assert counted(client) == ({}, {"moved": 2}, 0, 0)


def test_a_record_that_can_not_be_written_keeps_no_task_from_moving(
    w: World, client: TaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    w.rigged.throttled = lambda change: change.task_id == bucket_record_id(BUCKET)
    w.actions.behaviour |= {"a": fail_for_now, "b": fail}
    insert_due(client, "a", "b")
    w.next_tick()
    client.redrive("b")
    assert (w.row("a")["status"], w.row("b")["run"]) == ("scheduled", 2)
    assert [one.action for one in caplog.records if hasattr(one, "action")] == ["departures_uncounted"] * 2
