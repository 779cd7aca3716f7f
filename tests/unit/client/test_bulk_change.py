"""Redriving, cancelling and rescheduling by filter: which tasks, the result of each, and another client is faster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from threading import Event

import pytest
from tests.builders import NOON, FakeClock, scheduled_row
from tests.unit.client.support import client_of, is_record, world_of
from tests.unit.engine.support import RiggedStore, World, bucket_at, raises_for

from dynatick import MemoryStore, PermanentError, TaskClient
from dynatick.client import Changed, ChangeUnknown, ManyResult, Skipped, WouldChange
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate, Result
from dynatick.domain.lifecycle import claim
from dynatick.domain.task import Row
from dynatick.engine.ports import Entry

MINUTE = timedelta(minutes=1)
BUCKET, LATER = "2026-12-31#12:01", "2026-12-31#13:00"
MOVE = ConditionalUpdate(task_id="a", set={"taskDateTime": "2026-12-31#12:00"})


def fail_with(error: str) -> object:
    raise PermanentError(error)


@pytest.fixture
def world() -> World:
    """An installation at 12:01, with tasks that failed at that tick, and others beside them."""
    world = world_of(shard_count=2)
    client = client_of(world)
    for name, error in {"a": "SMTP: refused", "b": "smtp: timed out", "c": "no such user"}.items():
        world.actions.behaviour[name] = lambda *_, error=error: fail_with(error)
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


def test_a_change_that_is_stopped_ends_after_the_tasks_that_are_being_changed(client: TaskClient) -> None:
    client.insert_many({"taskId": f"n-{n:03}", "taskDateTime": LATER} for n in range(450))
    stopped = Event()
    found: list[str] = []
    for result in client.cancel_many(start=NOON, end=NOON + timedelta(hours=2), stop=stopped.is_set):
        found.append(result.task_id)
        stopped.set()
    changed = [one.task_id for one in client.iter_history(LATER, status="cancelled", prefix="n-")]
    assert sorted(found) == changed and 0 < len(found) <= 200
    assert list(client.cancel_many(LATER, stop=lambda: True)) == []
    assert len(list(client.delete_many(LATER, dry_run=True, stop=lambda: False))) == 450
    assert list(client.delete_many(LATER, stop=lambda: True)) == []


@pytest.mark.parametrize(
    ("filters", "meant"),
    [
        ({}, ["a", "b", "c"]), ({"error": "SMTP"}, ["a", "b"]), ({"error": lambda error: error.islower()}, ["b", "c"]),
        ({"error": "nothing of the kind"}, []), ({"action": "log"}, ["a", "b", "c"]), ({"action": "webhook"}, []),
    ],
)  # fmt: skip
def test_filters(world: World, client: TaskClient, filters: dict[str, str], meant: list[str]) -> None:
    assert ids(client.redrive_many(BUCKET, **filters, dry_run=True), WouldChange) == meant  # type: ignore[arg-type]
    assert ids(client.redrive_many(BUCKET, **filters), Changed) == meant  # type: ignore[arg-type]
    assert [(world.row(name)["status"], world.row(name)["run"]) for name in meant] == [("scheduled", 2)] * len(meant)
    assert [name for name in "abc" if world.outcome(name) is None] == meant
    assert list(client.redrive_many(BUCKET, **filters)) == []  # type: ignore[arg-type]


def test_all_that_wait_are_cancelled_up_to_a_limit_for_all_shards(world: World, client: TaskClient) -> None:
    for n in range(30):
        client.insert(f"t{n:02}", task_date_time=LATER)
    world.rigged.put({"taskId": "raw", "taskDateTime": LATER, "action": "log"})
    world.rigged.put(scheduled_row("busy", Bucket.parse(LATER), status="running", lease="x", attempt=1))
    waiting = ["raw", *(f"t{n:02}" for n in range(30))]
    assert ids(client.cancel_many(LATER, dry_run=True), WouldChange) == waiting
    assert len(ids(client.cancel_many(LATER, limit=12), Changed)) == 12
    assert len(ids(client.cancel_many(start=NOON, end=NOON + timedelta(hours=2), limit=12), Changed)) == 12
    assert len(ids(client.cancel_many(LATER, limit=12), Changed)) == 31 - 24
    assert {world.outcome(name) for name in waiting} == {"cancelled"}
    assert world.row("busy")["status"] == "running"
    assert list(client.cancel_many(LATER)) == []


@pytest.mark.parametrize("dry_run", [True, False])
def test_those_that_are_skipped_do_not_count_for_the_limit(world: World, client: TaskClient, dry_run: bool) -> None:
    """Else a call that is repeated would never come past them."""
    for n in range(3):
        world.rigged.put(scheduled_row(f"a{n}", Bucket.parse(LATER), status="running", lease="x", attempt=1))
        client.insert(f"b{n}", task_date_time=LATER)
    results = list(client.delete_many(LATER, dry_run=dry_run, limit=2))
    skipped = {one.task_id for one in results if isinstance(one, Skipped)}
    assert skipped <= {"a0", "a1", "a2"}
    assert len(results) - len(skipped) == 2
    assert all(isinstance(one, WouldChange if dry_run else Changed) for one in results if one.task_id not in skipped)


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

    def is_listed(entry: Entry) -> bool:
        if entry.task_id == "a":
            world.rigged.hidden = lambda entry: False
            other(client, world)
        return False

    world.rigged.hidden = is_listed
    results = {result.task_id: result for result in client.redrive_many(BUCKET, dry_run=dry_run)}
    assert results["a"] == Skipped("a", reason)
    assert {type(results[name]) for name in "bc"} == {WouldChange if dry_run else Changed}


def test_a_task_that_fails_once_more_meanwhile_is_not_retried_without_end(world: World, client: TaskClient) -> None:
    """A range may reach into the future, where what was redriven fails again while the list goes on."""
    world.next_tick(20)
    results = client.redrive_many(start=NOON, end=NOON + timedelta(minutes=60))
    first = next(results)
    world.ticks(2)
    rest = list(results)
    (again,) = [result for result in rest if result.task_id == first.task_id]
    assert again == Skipped(first.task_id, "it is failed again, since this call began")
    assert world.row(first.task_id)["run"] == 2


class Batches(RiggedStore):
    """Notes the sizes of batches, and the rows that are read."""

    def forget(self) -> None:
        super().forget()
        self.batches: list[int] = []
        self.read: list[list[str]] = []

    def write_many(self, changes: Sequence[ConditionalUpdate]) -> Sequence[Result]:
        results = super().write_many(changes)
        self.batches.append(len(changes))
        return results

    def get_many(
        self, task_ids: Iterable[str], *, consistent: bool = True, only: Collection[str] = ()
    ) -> Mapping[str, Row]:
        self.read.append(list(task_ids))
        return super().get_many(self.read[-1], consistent=consistent, only=only)

    def written_alone(self) -> int:
        return len(self.written()) - sum(self.batches)

    def written(self) -> list[ConditionalUpdate]:
        """Without those of the records of changes."""
        return [change for change in self.writes if not is_record(change)]


def waiting(number: int) -> tuple[TaskClient, Batches]:
    """A client at noon, and its table, of a given number of tasks that wait for 13:00."""
    world = World(store=(store := Batches()))
    world.tick()
    client = client_of(world)
    for n in range(number):
        client.insert(f"t{n:03}", task_date_time=LATER, action="log")
    store.forget()
    return client, store


def test_many_are_written_25_at_a_time() -> None:
    client, store = waiting(412)
    results = list(client.cancel_many(LATER))
    assert [result.task_id for result in results] == [f"t{n:03}" for n in range(412)]
    assert all(isinstance(result, Changed) and result.task == client.get(result.task_id) for result in results)
    assert (sum(store.batches), max(store.batches)) == (412, 25)
    assert len(store.batches) == 16 + 6, "the last twelve are spread over the threads"
    assert store.written_alone() == 0
    read = sorted(task_id for some in store.read for task_id in some)
    assert read == [f"t{n:03}" for n in range(412)], "the page's rows, and nothing after a write that succeeded"
    assert ids(client.restore_many(LATER, prefix="t1"), Changed) == [f"t{n:03}" for n in range(100, 200)]
    assert {client.get(f"t{n}").bucket for n in range(100, 200)} == {LATER}
    assert ids(client.run_now_many(LATER, status="cancelled", limit=7), Changed) == [f"t{n:03}" for n in range(7)]
    assert {client.get(f"t{n:03}").run for n in range(7)} == {2}


def test_what_waits_is_run_at_the_next_tick_and_no_second_time() -> None:
    client, _ = waiting(30)
    around = {"start": NOON, "end": NOON + timedelta(hours=2)}
    first = ids(client.run_now_many(**around, limit=12), Changed)  # type: ignore[arg-type]
    assert (len(first), {client.get(task_id).bucket for task_id in first}) == (12, {"2026-12-31#12:01"})
    assert len(ids(client.run_now_many(**around), Changed)) == 18  # type: ignore[arg-type]
    assert list(client.run_now_many(**around)) == []  # type: ignore[arg-type]
    assert list(client.run_now_many(**around, status="failed")) == []  # type: ignore[arg-type]


def test_others_who_are_faster_than_a_batch() -> None:
    client, store = waiting(50)
    clock = FakeClock(NOON + timedelta(minutes=1))
    another = TaskClient(store, clock=clock)

    def others(changes: Sequence[ConditionalUpdate]) -> None:
        if all(change.task_id != "t001" for change in changes):
            return
        lease = {"token": "k", "lease_until": clock() + timedelta(minutes=2), "now": clock()}
        MemoryStore.write(store, claim("t001", Bucket.parse(LATER), **lease))  # type: ignore[arg-type]
        store.delete("t002")
        another.cancel("t003")
        another.update("t004", payload={"n": 1})
        MemoryStore.write(store, ConditionalUpdate(task_id="t005", set={"lease": "of an earlier run"}))
        store.read.clear()

    store.batch_fails = others
    results = {result.task_id: result for result in client.cancel_many(LATER)}
    assert list(results) == [f"t{n:03}" for n in range(50)]
    skipped = {task_id: result.reason for task_id, result in results.items() if isinstance(result, Skipped)}
    assert skipped == {"t001": "it is running now", "t002": "it was deleted", "t003": "it is cancelled now"}
    changed = [task_id for task_id, result in results.items() if isinstance(result, Changed)]
    assert len(changed) + len(skipped) == 50
    assert client.get("t001").status == "running"
    assert store.peek("t002") is None, "a write never brings back what was deleted"
    assert str(client.get("t003").row["finishedAt"]) > "2026-12-31T12:01", "as the other one left it"
    assert client.get("t004").payload == {"n": 1}
    assert {client.get(task_id).status for task_id in changed} == {"cancelled"}
    assert store.written_alone() == 2 + 1, "by the other client, and t005 once more: it waits still"
    assert store.read == [], "what the rows are instead came with the answers"


@pytest.mark.parametrize("readable", [True, False])
def test_a_batch_whose_answer_got_lost(readable: bool) -> None:
    client, store = waiting(30)

    def lost(changes: Sequence[ConditionalUpdate]) -> object:
        if not readable:
            store.before_read = raises_for(*(f"t{n:03}" for n in range(30)))
        return MemoryStore.write_many(store, changes)

    store.batch_fails = lost
    found = list(client.cancel_many(LATER))
    assert {type(result) for result in found} == {Changed if readable else ChangeUnknown}, "as the rows show it"
    assert all("cannot write" in str(result.error) for result in found if isinstance(result, ChangeUnknown))
    assert (len(found), len(store.written())) == (30, 30)


def test_a_batch_that_was_not_applied() -> None:
    client, store = waiting(30)
    store.batch_fails = lambda changes: any(change.task_id == "t007" for change in changes)
    results = list(client.cancel_many(LATER))
    unchanged = {result.task_id: str(result.error) for result in results if isinstance(result, ChangeUnknown)}
    assert unchanged["t007"] == "cannot change 't007': cannot write: the table is not there"
    assert 0 < len(unchanged) <= 25
    assert {result.task_id for result in results if isinstance(result, Changed)}.isdisjoint(unchanged)
    assert {task_id for task_id in unchanged if client.get(task_id).status != "scheduled"} == set()


RANGE = {"start": "2026-12-31T12:00:00Z", "end": "2026-12-31T14:00:00Z"}
MINUTES = (5, 6, 30, 35, 59, 65, 90)


@pytest.fixture(params=[1, 3])
def hours(request: pytest.FixtureRequest) -> World:
    """Three tasks at each of several minutes after noon, and one that has ended."""
    world = world_of(shard_count=request.param)
    client = client_of(world)
    for minute in MINUTES:
        for n in range(3):
            client.insert(f"t{minute:02d}-{n}", due_at=NOON + timedelta(minutes=minute))
    client.insert("ended", due_at=NOON + timedelta(minutes=30))
    client.cancel("ended")
    return world


def due(client: TaskClient) -> dict[str, float]:
    """Minutes after noon, by id."""
    found = {f"t{minute:02d}-{n}": client.get(f"t{minute:02d}-{n}").due_at for minute in MINUTES for n in range(3)}
    return {task_id: (at - NOON).total_seconds() / 60 for task_id, at in found.items() if at is not None}


@pytest.mark.parametrize("minutes", [1, 30, -3, -32])
def test_each_is_shifted_once(hours: World, minutes: int) -> None:
    client = client_of(hours)
    results = list(client.reschedule_many(**RANGE, shift=timedelta(minutes=minutes)))
    assert {type(one) for one in results} == {Changed}
    assert len(results) == len({one.task_id for one in results}) == 3 * len(MINUTES)
    passed = [m for m in MINUTES if m + minutes <= 0]
    assert due(client).items() >= {(f"t{m:02d}-{n}", m + minutes) for m in {*MINUTES} - {*passed} for n in range(3)}
    for one in results:
        assert isinstance(one, Changed) and one.task == client.get(one.task_id)
        due_at = NOON if int(one.task_id[1:3]) in passed else one.task.due_at  # those go to the next tick
        assert one.task.bucket == str(hours.rules.grid.bucket_of(one.task_id, max(due_at, NOON + MINUTE)))  # type: ignore[type-var]
    assert client.get("ended").status == "cancelled"


def test_a_shift_counts_from_the_time_that_a_task_waits_for(hours: World) -> None:
    client = client_of(hours)
    hours.store.create(scheduled_row("within a tick", bucket_at(7), dueAt="2026-12-31T12:06:10Z"))
    retried = {"nextAttemptAt": "2026-12-31T12:39:30Z", "attempt": 2}
    hours.store.create(scheduled_row("retry", bucket_at(40), dueAt="2026-12-31T11:50:00Z", **retried))
    moved_to = {"movedTo": str(bucket_at(40))}  # its action is paused
    hours.store.create(scheduled_row("moved", bucket_at(40), dueAt="2026-12-31T12:02:00Z", **moved_to))
    for task_id, seconds, due_at, bucket, attempt in (
        ("within a tick", 20, "12:06:30", "12:07", 0),
        ("retry", 600, "12:49:30", "12:50", 2),
        ("moved", 600, "12:12:00", "12:12", 0),
    ):
        (_,) = client.reschedule_many(**RANGE, prefix=task_id, shift=timedelta(seconds=seconds))
        moved = hours.row(task_id)
        assert (moved["dueAt"], moved["attempt"]) == (f"2026-12-31T{due_at}Z", attempt)
        assert str(moved["taskDateTime"])[:16] == f"2026-12-31#{bucket}"


def test_a_task_that_a_shift_puts_before_its_bucket_is_shifted_once(hours: World) -> None:
    """It was inserted when ticks came every hour: its bucket is read first, and its new one later."""
    hours.store.create(scheduled_row("hourly", bucket_at(60), dueAt="2026-12-31T12:10:00Z"))
    results = list(client_of(hours).reschedule_many(**RANGE, shift=7 * MINUTE))
    assert [one.task_id for one in results].count("hourly") == 1
    row = hours.row("hourly")
    assert (row["dueAt"], str(row["taskDateTime"])[:16]) == ("2026-12-31T12:17:00Z", "2026-12-31#12:17")


@pytest.mark.parametrize("minute", [30, 200])
def test_all_get_one_time_once_and_a_delay_counts_from_one_instant(hours: World, minute: int) -> None:
    client, to = client_of(hours), NOON + timedelta(minutes=minute)
    results = list(client.reschedule_many(**RANGE, due_at=to))
    meant = [m for m in MINUTES if m != minute]  # the others are there already
    assert sorted(one.task_id for one in results) == [f"t{m:02d}-{n}" for m in meant for n in range(3)]
    assert set(due(client).values()) == {minute}
    assert list(client.reschedule_many(**RANGE, due_at=to)) == []
    later = {"start": NOON, "end": NOON + timedelta(hours=4)}
    list(client.reschedule_many(**later, delay_seconds=600))
    assert len(set(due(client).values())) == 1 and minute not in due(client).values()
    list(client.reschedule_many(**later, due_at=NOON - timedelta(days=1)))  # it has passed: the next tick
    assert {Bucket.parse(client.get(f"t05-{n}").bucket).minute for n in range(3)} == {bucket_at(1).minute}


def test_a_dry_run_a_limit_and_a_time_beyond_the_last(hours: World) -> None:
    client = client_of(hours)
    before = due(client)
    assert len(ids(client.reschedule_many(**RANGE, prefix="t30-", shift=60 * MINUTE, dry_run=True), WouldChange)) == 3
    never = list(client.reschedule_many(**RANGE, prefix="t30-", shift=timedelta(days=3_000_000)))
    assert {type(one) for one in never} == {Skipped}
    assert "expected a time between 1970 and 9998" in str(never[0])
    assert due(client) == before
    assert len(list(client.reschedule_many(**RANGE, shift=60 * MINUTE, limit=4))) == 4
    assert {m for m in due(client).values() if m > 100} == {125, 150}  # the latest first
