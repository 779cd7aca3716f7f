"""The records of changes of many tasks: each interface's change has one, whatever comes of the change or the record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.client.support import client_of, fail, is_record, with_failures
from tests.unit.engine.support import World

from dynatick import StoreError, TaskClient
from dynatick.actions.testing import MemoryDeadLetterQueue
from dynatick.client.change_records import new_record
from dynatick.client.failures import fingerprint_of, has_fingerprint
from dynatick.client.operations import ChangeView
from dynatick.domain.packs import Span, body_id
from dynatick.errors import BatchNotFound, TransitionRefused

BUCKET = "2026-12-31#12:01"
RANGE = {"from": "2026-12-31T11:02:00Z", "to": "2026-12-31T12:02:00Z"}


@pytest.fixture
def world() -> World:
    """An installation at 12:01:00.2, in which the tasks a, b and c have failed, and w waits."""
    world = with_failures(MemoryDeadLetterQueue(), subject="s")
    client_of(world).insert("w", delay_seconds=600, subject="s")
    return world


@pytest.fixture
def client(world: World) -> TaskClient:
    return client_of(world, dead_letter_queue=world.dead_letters)


def unreachable(_: str) -> None:
    raise StoreError("no route")


def records(client: TaskClient) -> list[ChangeView]:
    return client.operations.changes.list()


CHANGES: Mapping[str, tuple[Callable[[TaskClient], Iterator[Any]], Mapping[str, str], int]] = {
    "redrive": (
        lambda client: client.redrive_many(last="1h", error="broke", set_fields={"to": "secret@example.com"}),
        {**RANGE, "status": "failed", "error": "broke", "set": "another one"}, 3,
    ),
    "cancel": (lambda client: client.cancel_many(subject="s", prefix="w"), {"subject": "s", "prefix": "w"}, 1),
    "delete": (lambda client: client.delete_many(BUCKET, limit=2), {"bucket": BUCKET, "limit": "2"}, 2),
    "run": (lambda client: client.run_now_many(subject="s"), {"subject": "s"}, 1),
    "reschedule": (
        lambda client: client.reschedule_many(subject="s", shift=timedelta(hours=1)),
        {"subject": "s", "by": "1:00:00"}, 1,
    ),
    "redrive dead letters": (lambda client: client.dead_letters.redrive(error="broke"), {"error": "broke"}, 3),
    "purge dead letters": (lambda client: client.dead_letters.purge(action="log"), {"action": "log"}, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_by_a_program_has_a_record(client: TaskClient, world: World, name: str) -> None:
    change, given, number = CHANGES[name]
    list(change(client))
    (record,) = records(client)
    assert (record.change, record.by, record.interface, record.state) == (name, "program", "Python", "done")
    assert (record.given, record.changed, record.skipped, record.unanswered) == (given, number, 0, 0)
    found = client.operations.changes.get(record.change_id)
    assert found is not None
    assert (found.runs is not None and found.runs.waiting == 3) is name.startswith("redrive")
    assert "secret" not in str(world.row(f"_dynatick#change#{record.change_id}"))


def test_changes_are_listed_as_they_were_before_an_instant(client: TaskClient, world: World) -> None:
    list(client.cancel_many(subject="s"))
    (cancelled,) = records(client)
    world.clock.forward(minutes=1)
    list(client.restore_many(subject="s"))
    changes = client.operations.changes
    latest, _ = changes.list()
    assert changes.list(until=latest.at) == [cancelled]
    assert changes.list(until=latest.at + timedelta(milliseconds=1), limit=1) == [latest]
    assert changes.list(until=cancelled.at) == changes.list(until=world.clock() - timedelta(days=40)) == []


def test_changes_of_any_length_of_time_are_listed(client: TaskClient) -> None:
    list(client.redrive_many(BUCKET))
    assert client.operations.changes.list(last=timedelta.max) == records(client)


@pytest.mark.parametrize("wrong", ["", "a" * 3000, "\udcff"], ids=["empty", "long", "no UTF-8"])
def test_an_id_that_no_key_of_the_table_can_be_is_that_of_no_change(
    client: TaskClient, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setattr(client.store, "get", unreachable)
    assert client.operations.changes.get(wrong) is None
    assert client.operations.changes.abort(wrong) is None


def test_a_cancellation_that_is_taken_back_has_a_record_for_each_change(client: TaskClient) -> None:
    list(client.cancel_many(subject="s"))
    list(client.restore_many(subject="s"))
    assert {one.change: one.changed for one in records(client)} == {"restore": 1, "cancel": 1}


def test_a_record_names_the_group_of_failures_and_that_a_function_has_decided(client: TaskClient) -> None:
    (error,) = {one.error for one in client.iter_history(last="1h", status="failed")}
    list(client.redrive_many(BUCKET, error=has_fingerprint(fingerprint_of(error)), limit=1))
    (record,) = records(client)
    assert record.given["fingerprint"] == fingerprint_of(error)
    list(client.redrive_many(BUCKET, error=lambda text: "broke" in text))
    assert "by a function" in {one.given.get("error") for one in records(client)}


def test_a_dry_run_and_a_change_that_finds_no_task_write_nothing(client: TaskClient, world: World) -> None:
    before = len(world.rigged.writes)
    for found in (
        client.redrive_many(last="1h", dry_run=True), client.delete_many(subject="s", dry_run=True),
        client.dead_letters.redrive(dry_run=True), client.dead_letters.purge(dry_run=True),
    ):  # fmt: skip
        assert list(found)  # type: ignore[call-overload]
    for none in (
        client.cancel_many(last="1h", prefix="none"), client.delete_many(subject="none"),
        client.dead_letters.purge(obsolete=True),
    ):  # fmt: skip
        assert not list(none)  # type: ignore[call-overload]
    assert (records(client), len(world.rigged.writes)) == ([], before)


def test_the_schedules_of_a_subject_are_counted_with_its_tasks(client: TaskClient) -> None:
    client.schedules.insert("daily", "rate(1 day)", action="log", subject="s")
    list(client.delete_many(subject="s", limit=3))
    assert [(one.change, one.changed) for one in records(client)] == [("delete", 3)]


def test_a_record_is_written_before_the_first_task_and_says_what_broke_off(client: TaskClient, world: World) -> None:
    seen: list[tuple[str, int]] = []
    world.rigged.before_write = lambda change: seen.extend((one.state, one.changed) for one in records(client)[:1])
    with pytest.raises(KeyboardInterrupt):
        for _ in client.redrive_many(BUCKET):
            raise KeyboardInterrupt
    assert ("running", 0) in seen
    assert [(one.state, one.changed, one.problem) for one in records(client)] == [("aborted", 3, None)]


def test_a_record_has_what_was_changed_before_a_chunk_broke_off(client: TaskClient, world: World) -> None:
    client.insert_many({"taskId": f"n-{n:03}", "taskDateTime": "2026-12-31#13:00"} for n in range(200))

    def interrupt(change: object) -> None:
        if getattr(change, "task_id", None) == "n-175":
            raise KeyboardInterrupt

    world.rigged.before_write = interrupt
    with pytest.raises(KeyboardInterrupt):
        list(client.cancel_many("2026-12-31#13:00"))
    world.rigged.clear_faults()
    cancelled = [one.task_id for one in client.iter_history("2026-12-31#13:00", status="cancelled")]
    assert sorted(cancelled) == [f"n-{n:03}" for n in range(175)]
    assert [(one.state, one.changed) for one in records(client)] == [("aborted", 175)]


def test_a_change_that_is_stopped_is_aborted_and_one_that_fails_says_why(client: TaskClient, world: World) -> None:
    asked = iter([False, True])
    list(client.redrive_many(BUCKET, stop=lambda: next(asked)))
    assert [(one.state, one.changed) for one in records(client)] == [("aborted", 3)]
    client.insert_many({"taskId": f"n-{n:04}", "taskDateTime": "2026-12-31#13:00"} for n in range(201))
    world.clock.forward(seconds=1)
    polls = iter(range(9))

    def refuse(_: object) -> None:
        if next(polls):
            raise StoreError("no route")

    world.rigged.before_poll = refuse
    with pytest.raises(StoreError, match="no route"):
        list(client.cancel_many(start="2026-12-31T13:00:00Z", end="2026-12-31T13:02:00Z"))
    world.rigged.clear_faults()
    (latest, _) = records(client)
    assert (latest.change, latest.state, latest.problem, latest.changed) == ("cancel", "failed", "no route", 201)


@pytest.mark.parametrize("at", ["begin", "end"])
def test_a_record_that_can_not_be_written_stops_no_change_and_is_logged(
    client: TaskClient, world: World, caplog: pytest.LogCaptureFixture, at: str
) -> None:
    world.rigged.throttled = lambda change: is_record(change) and ("finishedAt" in change.set) is (at == "end")
    with caplog.at_level(logging.WARNING, "dynatick.client"):
        results = list(client.redrive_many(BUCKET))
    world.rigged.clear_faults()
    assert sorted(one.task_id for one in results) == ["a", "b", "c"]
    assert {client.get(name).run for name in "abc"} == {2}
    assert [record.action for record in caplog.records] == ["change_not_recorded"]  # type: ignore[attr-defined]
    assert [(one.state, one.changed) for one in records(client)] == [("done", 3) if at == "begin" else ("running", 0)]


def test_a_change_that_goes_on_is_to_end_once_somebody_asks_for_it(client: TaskClient, world: World) -> None:
    changes = client.operations.changes
    with new_record(client, "cancel", {"subject": "s"}, can_abort=True) as record:
        assert changes.abort(record.change_id, by="eve") is None, "it has not begun"
        assert not record.is_to_end()
        record.begin()
        assert not record.is_to_end()
        asked = changes.abort(record.change_id, by="ada")
        assert asked is not None and (asked.abort_by, asked.state) == ("ada", "running")
        writes = len(world.rigged.writes)
        assert changes.abort(record.change_id, by="bob") == asked, "the first one has"
        assert len(world.rigged.writes) == writes
        world.rigged.before_read = unreachable
        assert not record.is_to_end(), "it is not known"
        world.rigged.clear_faults()
        assert record.is_to_end()
        record.is_aborted = True
    ended = changes.get(record.change_id)
    assert ended is not None and (ended.state, ended.abort_by) == ("aborted", "ada")


@pytest.mark.parametrize(
    ("can_abort", "has_ended", "why"),
    [
        (True, True, "it is done; possible only while it is running"),
        (False, False, "it is not one that looks whether it is to end; end it where it was begun"),
    ],
)
def test_a_change_that_would_not_end_is_not_asked_to(
    client: TaskClient, can_abort: bool, has_ended: bool, why: str
) -> None:
    record = new_record(client, "cancel", {"subject": "s"}, can_abort=can_abort)
    record.begin()
    if has_ended:
        record.end()
    before = records(client)
    with pytest.raises(TransitionRefused, match=f"cannot abort change '{record.change_id}': {why}"):
        client.operations.changes.abort(record.change_id, by="ada")
    assert records(client) == before
    assert client.operations.changes.abort("none", by="ada") is None


def test_a_program_can_say_who_it_is(client: TaskClient) -> None:
    client.caller = lambda: None
    list(client.cancel_many(subject="s"))
    client.caller = "billing"
    list(client.restore_many(subject="s"))
    assert {one.change: one.by for one in records(client)} == {"cancel": None, "restore": "billing"}


def test_a_change_of_a_batch_has_a_record_that_counts_its_members(client: TaskClient, world: World) -> None:
    batches = client.batches
    batches.insert([{}] * 600, batch_id="news", action="log", delay=timedelta(minutes=5))
    batches.reschedule("news", due_at="2026-12-31T12:02:00Z")
    world.actions.behaviour["news/000000003"] = fail
    world.ticks(2)
    world.clock.forward(seconds=1)
    batches.redrive("news")
    world.clock.forward(seconds=1)
    batches.insert([{}] * 4, batch_id="later", action="log", delay=timedelta(hours=1))
    batches.cancel("later")
    batches.cancel("later")
    with pytest.raises(TransitionRefused):
        batches.reschedule("later", delay=timedelta(hours=2))
    with pytest.raises(BatchNotFound):
        batches.cancel("none")
    assert [(one.change, one.given, one.changed, one.state) for one in records(client)] == [
        ("cancel batch", {"batch": "later"}, 4, "done"),
        ("redrive batch", {"batch": "news"}, 1, "done"),
        ("reschedule batch", {"batch": "news", "at": "2026-12-31T12:02:00Z"}, 600, "done"),
    ], "what changes no member has none"
    assert all(one.by == "program" for one in records(client))


def test_the_members_of_a_batch_that_were_redriven_are_followed(client: TaskClient, world: World) -> None:
    """Those with rows of their own, as all that fail by themselves have; a pack that failed as a whole is not."""
    world.actions.behaviour |= dict.fromkeys(("news/000000001", "news/000000002", "news/000000003"), fail)
    client.batches.insert([{"n": n} for n in range(1000)], batch_id="news", action="log")
    world.store.delete(body_id(Span(500, 500).pack_id("news")))
    world.ticks(3)
    world.clock.forward(seconds=1)
    assert client.batches.redrive("news").redriven == 503
    del world.actions.behaviour["news/000000001"], world.actions.behaviour["news/000000002"]
    (record,) = records(client)

    def runs() -> tuple[str, int]:
        found = client.operations.changes.get(record.change_id)
        assert found is not None
        return str(found.runs), found.not_followed

    assert runs() == ("0 completed, 3 waiting", 500)
    world.ticks(4)
    assert runs() == ("2 completed, 1 failed again", 500)


def test_a_batch_whose_change_breaks_off_is_recorded_with_what_was_changed(client: TaskClient, world: World) -> None:
    client.batches.insert([{}] * 40_000, batch_id="news", action="log", delay=timedelta(hours=1))
    world.rigged.throttled = lambda change: change.task_id == Span(39_500, 500).pack_id("news")
    with pytest.raises(StoreError):
        client.batches.cancel("news")
    world.rigged.clear_faults()
    (record,) = records(client)
    assert record.state == "failed" and 500 <= record.changed < 40_000 and record.changed % 500 == 0
    assert record.problem is not None
