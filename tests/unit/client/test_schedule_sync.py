"""Schedules that a deployment declares: created, changed and removed as it says, and no one else's touched."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from tests.builders import InProcess
from tests.unit.client.support import before_deletes

from dynatick import AsyncTaskClient, CompleteLater, InvalidInput, StoreError, TaskClient, declared_schedules, task
from dynatick.domain.conditional_update import ConditionalUpdate, Lost
from dynatick.store.memory import MemoryStore

MORNING = "cron(0 6 * * ? *)"


@dataclass
class Digest:
    user: str


@task("digest", retry_policy={"maximumRetryAttempts": 2}, subject=lambda digest: f"user:{digest.user}")
def digest(digest: Digest) -> None: ...


def declared(schedule_id: str = "nightly", **values: object) -> dict[str, object]:
    row = {"taskId": schedule_id, "scheduleExpression": MORNING, "action": "log", **values}
    return {name: value for name, value in row.items() if value is not None}


class World(InProcess):
    @property
    def client(self) -> TaskClient:
        return TaskClient(self.store, clock=self.clock)

    def sync(self, *rows: dict[str, object], owner: str = "mine", prune: bool = True, dry_run: bool = False) -> Any:
        """What was done, by id."""
        changes = self.client.schedules.sync(rows, owner=owner, prune=prune, dry_run=dry_run)
        return {one.schedule_id: str(one.result) for one in changes}

    def ids(self) -> list[str]:
        return [one.schedule_id for one in self.client.schedules.list().schedules]


@pytest.fixture
def world() -> World:
    world = World()
    world.tick()
    return world


def test_a_declared_schedule_is_created_changed_and_removed(world: World) -> None:
    assert world.sync(declared(payload={"n": 1})) == {"nightly": "create"}
    made = world.client.schedules.get("nightly")
    assert (made.owner, made.expression, made.state, made.payload) == ("mine", MORNING, "ENABLED", {"n": 1})
    assert world.sync(declared(payload={"n": 1})) == {"nightly": "unchanged"}
    assert world.client.schedules.get("nightly").version == made.version
    (changed,) = world.client.schedules.sync(
        [declared(scheduleExpression="rate(1 hour)", payload={"n": 2}, catchUp="all")], owner="mine"
    )
    assert changed.to_row() == {
        "taskId": "nightly",
        "result": "change",
        "reason": "its expression is 'cron(0 6 * * ? *)', not 'rate(1 hour)', its catch_up is 'latest', not 'all', "
        "its payload differs",
    }
    now = world.client.schedules.get("nightly")
    assert (now.expression, now.payload, now.catch_up, now.owner) == ("rate(1 hour)", {"n": 2}, "all", "mine")
    assert world.sync(prune=False) == {"nightly": "keep"}
    assert world.ids() == ["nightly"]
    assert world.sync() == {"nightly": "remove"}
    assert world.ids() == []
    assert world.sync() == {}


def test_a_dry_run_says_the_same_and_writes_nothing(world: World) -> None:
    world.sync(declared("a"), declared("b"))
    before = world.row("a"), world.row("b")
    rows = declared("a", overlap="allow"), declared("c")
    expected = {"a": "change", "b": "remove", "c": "create"}
    assert world.sync(*rows, dry_run=True) == expected
    assert (world.row("a"), world.row("b")) == before and world.ids() == ["a", "b"]
    assert world.sync(*rows) == expected


def test_what_others_inserted_is_untouched_and_named(world: World) -> None:
    schedules = world.client.schedules
    schedules.insert("by-hand", "rate(1 hour)", action="log")
    world.client.insert("task", delay_seconds=3600, action="log")
    world.sync(declared("theirs"), owner="other")
    ids = ("by-hand", "task", "theirs")
    before = [world.row(one) for one in ids]
    changes = schedules.sync([declared(one) for one in ids], owner="mine", prune=True)
    assert [(one.schedule_id, str(one.result), one.reason.split(";")[0]) for one in changes] == [
        ("by-hand", "conflict", "it was inserted by hand, and no deployment declares it"),
        ("task", "conflict", "a task has this id"),
        ("theirs", "conflict", "it belongs to 'other'"),
    ]
    assert world.sync() == {}, "none of them is removed either"
    assert [world.row(one) for one in ids] == before


def test_a_rate_that_is_declared_again_later_is_unchanged(world: World) -> None:
    world.sync(declared(scheduleExpression="rate(1 hour)"))
    world.next_tick(7)
    assert world.sync(declared(scheduleExpression="rate(1 hour)")) == {"nightly": "unchanged"}


def test_a_pause_outlasts_deployments(world: World) -> None:
    world.sync(declared())
    world.client.schedules.pause("nightly", "an incident")
    assert world.sync(declared()) == {"nightly": "unchanged"}
    assert world.sync(declared(overlap="allow")) == {"nightly": "change"}
    assert world.client.schedules.get("nightly").state == "DISABLED"


def test_before_the_first_tick_it_is_listed_as_its_owners() -> None:
    world = World()
    assert world.sync(declared()) == {"nightly": "create"}
    assert world.sync(declared()) == {"nightly": "unchanged"}
    assert world.sync(declared(scheduleExpression="rate(1 hour)")) == {"nightly": "change"}
    assert world.sync() == {"nightly": "remove"}


def test_one_that_has_ended_is_unchanged_until_it_is_declared_otherwise(world: World) -> None:
    once = "at(2026-12-31T12:02:00)"
    world.sync(declared(scheduleExpression=once))
    world.next_tick(3)
    world.next_tick(1)
    assert world.client.schedules.get("nightly").state == "COMPLETED"
    assert world.sync(declared(scheduleExpression=once)) == {"nightly": "unchanged"}
    before = world.row("nightly")
    assert world.sync(declared(scheduleExpression=once, payload={"n": 1})) == {"nightly": "over"}
    assert world.row("nightly") == before
    world.next_tick(60 * 24 * 3)
    assert world.sync(declared()) == {"nightly": "change"}
    begun = world.client.schedules.get("nightly")
    assert begun.state == "ENABLED"
    assert begun.next_occurrence_at is not None and begun.next_occurrence_at > world.clock()


def test_one_whose_time_has_passed_is_left_alone_and_named_where_it_is_not_there(world: World) -> None:
    rows = declared("a", scheduleExpression="at(2026-12-31T11:00:00)"), declared("b", endDate="2026-12-31T12:00:00Z")
    assert world.sync(*rows, declared("c")) == {"a": "over", "b": "over", "c": "create"}
    assert world.ids() == ["c"]
    changes = world.client.schedules.sync(rows, owner="mine", dry_run=True)
    assert [one.reason.split(",")[0] for one in changes[:2]] == [
        "it never runs after 2026-12-31T12:00:00Z (UTC)",
        "it never runs: its next run",
    ]
    with pytest.raises(InvalidInput, match=r"schedules\.a\.catchUp"):
        world.sync({**rows[0], "catchUp": "sometimes"})
    world.client.schedules.insert("b", "rate(1 hour)", action="log")
    assert world.sync(*rows) == {"a": "over", "b": "conflict", "c": "remove"}


AT_TWO = "at(2026-12-31T12:02:00)"


def test_the_end_of_a_schedule_delays_no_deployment(world: World) -> None:
    """It waits within its window, or was paused before its time, or its last occurrence is awaited."""
    run = "awaited#1#2026-12-31T12:02:00Z"
    world.actions.behaviour[run] = lambda task, context: CompleteLater(within=timedelta(hours=2))
    rows = [
        declared("awaited", scheduleExpression=AT_TWO, expectedWithinSeconds=3600),
        declared("paused", scheduleExpression=AT_TWO),
        declared("waits", scheduleExpression=AT_TWO, flexibleTimeWindow=1440),
    ]
    world.sync(*rows)
    world.client.schedules.pause("paused")
    world.next_tick(3)
    states = [world.client.schedules.get(one).state for one in ("awaited", "paused", "waits")]
    assert states == ["ENABLED", "DISABLED", "ENABLED"]
    assert world.sync(*rows) == {"awaited": "unchanged", "paused": "unchanged", "waits": "unchanged"}
    changed = [{**row, "payload": {"n": 1}} for row in rows]
    assert world.sync(*changed) == {"awaited": "change", "paused": "change", "waits": "change"}
    assert world.client.schedules.get("waits").payload == {"n": 1}
    world.next_tick(60 * 24)
    assert world.row("waits")["lastOccurrenceAt"] == "2026-12-31T12:02:00Z"


def test_one_that_goes_on_can_not_be_declared_to_have_ended(world: World) -> None:
    world.sync(declared())
    with pytest.raises(InvalidInput, match=r"schedules\.nightly\.endDate: .* it never runs: its next run"):
        world.sync(declared("another"), declared(endDate="2026-12-31T12:00:00Z"))
    assert world.ids() == ["nightly"]


def test_a_subject_can_not_be_changed(world: World) -> None:
    world.sync(declared(subject="user:ada"))
    (change,) = world.client.schedules.sync([declared(subject="user:bob")], owner="mine")
    assert change.result == "conflict"
    assert change.reason.startswith("its subject is 'user:ada', not 'user:bob', which can't be changed")


@pytest.mark.parametrize(
    ("rows", "owner", "message"),
    [
        ([declared(catchUp="sometimes")], "mine", "schedules.nightly.catchUp: 'sometimes' is not accepted; expected"),
        ([declared(scheduleExpression="daily")], "mine", "schedules.nightly.scheduleExpression: 'daily' is not"),
        ([declared(action="unknown")], "mine", "schedules.nightly.action: 'unknown' is not accepted; expected"),
        (
            [declared(every="1h")],
            "mine",
            "schedules.nightly.every: '1h' is not accepted; expected any of action, catch",
        ),
        ([declared(), declared()], "mine", "taskId: 'nightly' is not accepted; expected each id once"),
        ([declared("")], "mine", "taskId: '' is not accepted"),
        (["nightly"], "mine", "declared: 'nightly' is not accepted; expected maps under the table's names"),
        ([], "", "owner: '' is not accepted; expected the name of a deployment"),
        ([], "x" * 129, "expected the name of a deployment, of at most 128 characters"),
    ],
)
def test_a_declaration_that_is_wrong_is_refused_before_anything_is_written(
    world: World, rows: Any, owner: str, message: str
) -> None:
    world.actions.names = lambda: ["log"]  # type: ignore[method-assign]
    world.next_tick()
    with pytest.raises(InvalidInput, match=re.escape(message)):
        world.client.schedules.sync([declared("first"), *rows], owner=owner)
    assert world.ids() == []


def test_another_request_in_between_is_decided_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.sync(declared("a"), declared("b"))
    schedules = world.client.schedules

    def taken() -> None:
        schedules.delete("b")
        schedules.insert("b", "rate(1 hour)", action="log")

    before_deletes(world, monkeypatch, taken)
    assert world.sync(declared("a")) == {"a": "unchanged"}
    assert world.client.schedules.get("b").owner is None, "another one has taken its place"


class Interfering(MemoryStore):
    """Others write just before the next change, or its answer is lost."""

    first: Callable[[], object] | None = None
    loses = False

    def write(self, change: ConditionalUpdate) -> Any:
        first, self.first = self.first, None
        if first is not None:
            first()
        answer = super().write(change)
        return Lost(self.get(change.task_id)) if self.loses else answer

    def delete(self, task_id: str, conditions: Any = ()) -> bool:
        return super().delete(task_id, conditions) and not self.loses


def test_a_change_meets_another_owner_and_leaves_it_alone(world: World) -> None:
    world.store = store = Interfering()
    world.tick()
    world.sync(declared())

    def taken() -> None:
        store.put({**world.row("nightly"), "scheduleOwner": "other"})

    store.first = taken
    assert world.sync(declared(overlap="allow")) == {"nightly": "conflict"}
    assert (world.row("nightly")["scheduleOwner"], world.row("nightly").get("overlap")) == ("other", None)


def test_an_effect_whose_answer_was_lost_is_recognised(world: World) -> None:
    world.store = store = Interfering()
    world.tick()
    world.sync(declared("a"), declared("b"))
    store.loses = True
    assert world.sync(declared("a", overlap="allow")) == {"a": "change", "b": "remove"}
    assert world.ids() == ["a"]


def test_a_table_that_others_change_all_the_time_is_an_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.sync(declared())
    monkeypatch.setattr(type(world.store), "delete", lambda self, task_id, conditions=(): False)
    with pytest.raises(StoreError, match="cannot sync 'nightly': other requests changed it 20 times"):
        world.sync()


def test_functions_declare_and_a_module_has_what_they_declared(world: World) -> None:
    module = ModuleType("handlers")
    vars(module).update(digest=digest, alias=digest)
    digest.declare_schedule(MORNING, Digest("ada"), schedule_id="ada", timezone="Europe/Berlin", overlap="allow")
    digest.declare_schedule("rate(1 hour)", Digest("bob"), schedule_id="bob", start_date="2027-01-01T00:00:00Z")
    rows = declared_schedules(module)
    assert rows[0] == {
        "taskId": "ada", "scheduleExpression": MORNING, "scheduleExpressionTimezone": "Europe/Berlin",
        "overlap": "allow", "action": "digest", "payload": {"user": "ada"}, "subject": "user:ada",
        "retryPolicy": digest._retry_policy.to_row(),  # type: ignore[union-attr]
    }  # fmt: skip
    assert (rows[1]["taskId"], rows[1]["startDate"]) == ("bob", "2027-01-01T00:00:00Z")
    world.actions.names = lambda: ["digest"]  # type: ignore[method-assign]
    world.next_tick()
    done = asyncio.run(AsyncTaskClient(world.client).schedules.sync(rows, owner="mine"))
    assert {one.schedule_id: str(one.result) for one in done} == {"ada": "create", "bob": "create"}
    digest.declare_schedule(MORNING, {"to": "ada"}, schedule_id="wrong")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"schedules\.wrong\.payload"):
        declared_schedules(module)
    digest._declared.pop()
    digest.declare_schedule(MORNING, Digest("ada"), schedule_id="late", start_date="tomorrow")
    with pytest.raises(InvalidInput, match=r"schedules\.late\.startDate: 'tomorrow' is not accepted"):
        declared_schedules(module)
    digest._declared.clear()
