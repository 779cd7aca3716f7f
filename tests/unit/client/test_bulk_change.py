"""Retrying and cancelling by filter: who is meant, what each is reported, and another client who is faster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta

import pytest
from tests.builders import NOON, FakeClock, scheduled_row
from tests.unit.client.support import client_of, world_of
from tests.unit.engine.support import World

from dynatick import MemoryStore, PermanentError, TaskClient
from dynatick.client import Changed, ChangeUnknown, ManyResult, Skipped, WouldChange
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import ConditionalUpdate, Result
from dynatick.domain.lifecycle import claim
from dynatick.domain.normalise import Defaults
from dynatick.domain.task import Row
from dynatick.engine.installation_settings import publish_settings
from dynatick.errors import StoreError

BUCKET = "2026-12-31#12:01"
MOVE = ConditionalUpdate(task_id="a", set={"taskDateTime": "2026-12-31#12:00"})


def fail_with(text: str) -> Callable[..., object]:
    def fail(*_: object) -> object:
        raise PermanentError(text)

    return fail


@pytest.fixture
def world() -> World:
    """At 12:01, with tasks that failed at that tick, and others beside them."""
    world = world_of(shard_count=2)
    client = client_of(world)
    for name, error in {"a": "SMTP: refused", "b": "smtp: timed out", "c": "no such user"}.items():
        world.actions.behaviour[name] = fail_with(error)
        client.insert(name, delay_seconds=1, action="log" if name != "b" else None)
    client.insert("fine", delay_seconds=1)
    world.next_tick()
    client.insert("off", delay_seconds=3600)
    client.cancel("off")
    return world


def ids(results: object, kind: type[ManyResult]) -> list[str]:
    found = list(results)  # type: ignore[call-overload]
    assert {type(result) for result in found} <= {kind}
    return sorted(result.task_id for result in found)


@pytest.mark.parametrize(
    ("filters", "meant"),
    [
        ({}, ["a", "b", "c"]), ({"error": "SMTP"}, ["a", "b"]), ({"error": lambda error: error.islower()}, ["b", "c"]),
        ({"error": "nothing of the kind"}, []), ({"action": "log"}, ["a", "b", "c"]), ({"action": "webhook"}, []),
        ({"status": "cancelled"}, []),
    ],
)  # fmt: skip
def test_filters(world: World, client: TaskClient, filters: dict[str, str], meant: list[str]) -> None:
    before = {name: world.row(name) for name in "abc"}
    assert ids(client.redrive_many(BUCKET, **filters, dry_run=True), WouldChange) == meant  # type: ignore[arg-type]
    assert {name: world.row(name) for name in "abc"} == before, "a dry run writes nothing"
    assert ids(client.redrive_many(BUCKET, **filters), Changed) == meant  # type: ignore[arg-type]
    assert [(world.row(name)["status"], world.row(name)["run"]) for name in meant] == [("scheduled", 2)] * len(meant)
    assert [name for name in "abc" if world.outcome(name) is None] == meant
    assert list(client.redrive_many(BUCKET, **filters)) == []  # type: ignore[arg-type]


def test_all_that_wait_are_cancelled(world: World, client: TaskClient) -> None:
    for n in range(3):
        client.insert(f"t{n}", task_date_time="2026-12-31#13:00")
    world.rigged.put({"taskId": "raw", "taskDateTime": "2026-12-31#13:00", "action": "log"})
    world.rigged.put(scheduled_row("busy", Bucket.parse("2026-12-31#13:00"), status="running", lease="x", attempt=1))
    assert ids(client.cancel_many("2026-12-31#13:00", dry_run=True), WouldChange) == ["raw", "t0", "t1", "t2"]
    assert ids(client.cancel_many("2026-12-31#13:00", action="webhook"), Changed) == []
    assert ids(client.cancel_many("2026-12-31#13:00"), Changed) == ["raw", "t0", "t1", "t2"]
    assert {world.outcome(name) for name in ("t0", "t1", "t2", "raw")} == {"cancelled"}
    assert world.row("busy")["status"] == "running"
    assert list(client.cancel_many("2026-12-31#13:00")) == []


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (lambda client, world: client.redrive("a"), "it is scheduled now"),
        (lambda client, world: client.store.delete("a"), "it was deleted"),
        (lambda client, world: client.store.write(MOVE), "it is in another bucket now, 2026-12-31#12:00"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_another_client_was_faster_than_the_list(
    world: World, client: TaskClient, other: Callable[..., object], reason: str, dry_run: bool
) -> None:
    """The index shows what was; the row is what counts."""
    poll = world.store.query_bucket

    def stale(*args: object, **given: object) -> object:
        page = poll(*args, **given)  # type: ignore[arg-type]
        if any(entry.task_id == "a" for entry in page.entries):
            world.store.query_bucket = poll  # type: ignore[method-assign]
            other(client, world)
        return page

    world.store.query_bucket = stale  # type: ignore[method-assign, assignment]
    results = {result.task_id: result for result in client.redrive_many(BUCKET, dry_run=dry_run)}
    assert results["a"] == Skipped("a", reason)
    assert {type(results[name]) for name in "bc"} == {WouldChange if dry_run else Changed}


def test_a_task_that_fails_once_more_meanwhile_is_not_retried_without_end(world: World, client: TaskClient) -> None:
    """A range may reach into the future, where what was redriven fails again while the list goes on."""
    world.next_tick(20)
    results = client.redrive_many(start=NOON, end=NOON + timedelta(minutes=60))
    first = next(results)
    assert isinstance(first, Changed)
    world.next_tick()
    world.next_tick()
    rest = list(results)
    (again,) = [result for result in rest if result.task_id == first.task_id]
    assert again == Skipped(first.task_id, "it is failed again, since this call began")
    assert world.row(first.task_id)["run"] == 2


class Batches(MemoryStore):
    """Notes the calls, and lets others in before the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.single: list[str] = []
        self.read: list[list[str]] = []
        self.before: Callable[[], object] | None = None
        self.unanswered = False
        self.then_unreadable = self.unreadable = False
        self._batching = threading.local()

    def write(self, change: ConditionalUpdate) -> Result:
        if not getattr(self._batching, "on", False):
            self.single.append(change.task_id)
        return super().write(change)

    def write_many(self, changes: Sequence[ConditionalUpdate]) -> Sequence[Result]:
        if self.before is not None and any(change.task_id == "t001" for change in changes):
            self.before()
        self.batches.append(len(changes))
        self._batching.on = True
        results = super().write_many(changes)
        self._batching.on = False
        if self.unanswered:
            self.unreadable = self.then_unreadable
            raise StoreError("no answer")
        return results

    def get_many(
        self, task_ids: Iterable[str], *, consistent: bool = True, only: Collection[str] = ()
    ) -> Mapping[str, Row]:
        ids = list(task_ids)
        self.read.append(ids)
        if self.unreadable:
            raise StoreError("cannot read rows")
        return super().get_many(ids, consistent=consistent, only=only)


def waiting(number: int) -> tuple[TaskClient, Batches]:
    """A client at noon, and its table, of so many tasks that wait for 13:00."""
    store = Batches()
    publish_settings(store, Grid(), now=NOON, actions=("log",), defaults=Defaults())
    client = TaskClient(store, clock=FakeClock())
    for n in range(number):
        client.insert(f"t{n:03}", task_date_time="2026-12-31#13:00", action="log")
    store.single.clear()
    return client, store


def test_many_are_written_25_at_a_time() -> None:
    client, batches = waiting(412)
    results = list(client.cancel_many("2026-12-31#13:00"))
    assert [result.task_id for result in results] == [f"t{n:03}" for n in range(412)]
    assert all(isinstance(result, Changed) and result.task == client.get(result.task_id) for result in results)
    assert (sum(batches.batches), max(batches.batches)) == (412, 25)
    assert len(batches.batches) == 16 + 6, "the last twelve are spread over the threads"
    assert batches.single == []
    assert len(batches.read) == 1, "the page's rows, and nothing after a write that succeeded"
    assert ids(client.redrive_many("2026-12-31#13:00", status="cancelled"), Changed) == [f"t{n:03}" for n in range(412)]


def test_others_who_are_faster_than_a_batch() -> None:
    client, batches = waiting(50)
    clock = FakeClock(NOON + timedelta(minutes=1))
    another = TaskClient(batches, clock=clock)
    bucket = Bucket.parse("2026-12-31#13:00")
    cancelled: dict[str, object] = {}

    def others() -> None:
        batches.write(claim("t001", bucket, token="k", lease_until=clock() + timedelta(minutes=2), now=clock()))
        batches.delete("t002")
        another.cancel("t003")
        another.update("t004", payload={"n": 1})
        batches.write(ConditionalUpdate(task_id="t005", set={"lease": "of an earlier run"}))
        cancelled.update(batches.get("t003") or {})
        batches.single.clear()
        batches.read.clear()

    batches.before = others
    results = {result.task_id: result for result in client.cancel_many("2026-12-31#13:00")}
    assert list(results) == [f"t{n:03}" for n in range(50)]
    skipped = {task_id: result.reason for task_id, result in results.items() if isinstance(result, Skipped)}
    assert skipped == {"t001": "it is running now", "t002": "it was deleted", "t003": "it is cancelled now"}
    changed = [task_id for task_id, result in results.items() if isinstance(result, Changed)]
    assert len(changed) + len(skipped) == 50
    assert client.get("t001").status == "running"
    assert batches.get("t002") is None, "a write never brings back what was deleted"
    assert batches.get("t003") == cancelled, "as the other one left it"
    assert client.get("t004").payload == {"n": 1}
    assert {client.get(task_id).status for task_id in changed} == {"cancelled"}
    assert batches.single == ["t005"], "it waits still: once more, by itself"
    assert batches.read == [["t001", "t002", "t003", "t005"]], "only those, together"


@pytest.mark.parametrize("readable", [True, False])
def test_a_batch_whose_answer_got_lost(readable: bool) -> None:
    client, batches = waiting(30)
    batches.unanswered, batches.then_unreadable = True, not readable
    found = list(client.cancel_many("2026-12-31#13:00"))
    assert {type(result) for result in found} == {Changed if readable else ChangeUnknown}, "as the rows show it"
    assert all("cannot read rows" in str(result.error) for result in found if isinstance(result, ChangeUnknown))
    assert (len(found), batches.single) == (30, [])


def test_a_batch_that_was_not_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    client, batches = waiting(30)

    def fails(changes: Sequence[ConditionalUpdate]) -> Sequence[Result]:
        if any(change.task_id == "t007" for change in changes):
            raise StoreError("throttled")
        return MemoryStore.write_many(batches, changes)

    monkeypatch.setattr(batches, "write_many", fails)
    results = list(client.cancel_many("2026-12-31#13:00"))
    unchanged = {result.task_id: str(result.error) for result in results if isinstance(result, ChangeUnknown)}
    assert unchanged["t007"] == "cannot change 't007': throttled"
    assert 0 < len(unchanged) <= 25
    assert {result.task_id for result in results if isinstance(result, Changed)}.isdisjoint(unchanged)
    assert {task_id for task_id in unchanged if client.get(task_id).status != "scheduled"} == set()
