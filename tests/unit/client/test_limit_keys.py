"""Tasks and schedules with a limit key, as they are inserted: in the shard of their key, wherever they come from."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from tests.builders import InProcess
from tests.unit.client.support import client_of, examples, fail, fail_for_now, page, world_of
from tests.unit.engine.support import World

from dynatick import (
    BatchDiffers,
    CompleteLater,
    ConfigurationError,
    HandlerContext,
    InvalidInput,
    NewTask,
    Refused,
    ScheduleDiffers,
    TaskClient,
    task,
    use_client,
)
from dynatick.domain.buckets import Bucket
from dynatick.domain.completion import completion_token
from dynatick.domain.limit_keys import check_limit_key, parse_limits
from dynatick.domain.normalise import Defaults
from dynatick.engine.rules import Rules
from dynatick.engine.settings import publish_settings
from dynatick.testing import VirtualInstallation

KEY = "customer:4711"
HOUR = timedelta(hours=1)
UNKNOWN = "limitKey: 'tenant:1' is not accepted; expected a class of the parameter KeyLimits: the classes are customer"
LIMITS = Defaults(key_limits=parse_limits(["customer=1"]))


@pytest.fixture
def world() -> World:
    world = world_of(shard_count=16, defaults=LIMITS)
    world.tick()
    return world


@dataclass
class Account:
    customer: int


@task("log", limit_key=lambda account: f"customer:{account.customer}")
def sync_account(account: Account) -> None: ...


@task("log", limit_key=KEY)
def fixed(account: Account) -> None: ...


def bucket_of(world: World, task_id: str) -> Bucket:
    return Bucket.parse(world.row(task_id)["taskDateTime"])


def is_in_its_shard(world: World, task_id: str, key: str = KEY) -> bool:
    row = world.row(task_id)
    return row["limitKey"] == key and bucket_of(world, task_id).shard == world.rules.grid.shard_of(key)


# -- every way of insertion --------------------------------------------------------------------------------------------

AT = {"dueAt": "2026-12-31T13:00:00Z", "action": "log"}
INSERTS: dict[str, Callable[[World, TaskClient, str], object]] = {
    "at a time": lambda world, client, one: client.insert(one, due_at=AT["dueAt"], limit_key=KEY),
    "after a delay": lambda world, client, one: client.insert(one, delay_seconds=90, limit_key=KEY),
    "in a bucket": lambda world, client, one: client.insert(one, task_date_time="2026-12-31#13:00", limit_key=KEY),
    "in a bucket of another shard": lambda world, client, one: client.insert(
        one, task_date_time=f"2026-12-31#13:00#{(world.rules.grid.shard_of(KEY) + 1) % 15 + 1}", limit_key=KEY
    ),
    "a time that has passed": lambda world, client, one: client.insert(one, due_at="2026-12-31T11:00Z", limit_key=KEY),
    "as a NewTask": lambda world, client, one: client.insert_task(
        NewTask(task_id=one, delay_seconds=90, limit_key=KEY)
    ),
    "many": lambda world, client, one: client.insert_many([{"taskId": one, "limitKey": KEY, **AT}]),
    "without a time": lambda world, client, one: (client.insert(one, limit_key=KEY), world.put(**world.row(one))),
    "as a raw row": lambda world, client, one: world.put(taskId=one, limitKey=KEY, **AT),
    "as a raw row without a time": lambda world, client, one: world.put(taskId=one, limitKey=KEY, action="log"),
    "as a raw row in a bucket": lambda world, client, one: world.put(
        taskId=one, limitKey=KEY, taskDateTime="2026-12-31#13:00"
    ),
    "by transaction": lambda world, client, one: world.store.create(
        client.transact_put(NewTask(task_id=one, delay_seconds=90, limit_key=KEY))["Put"]["Item"]
    ),
    "by a function": lambda world, client, one: sync_account.schedule(Account(4711), delay=HOUR, task_id=one),
    "by a transaction of a function": lambda world, client, one: world.store.create(
        sync_account.transact_put(Account(4711), delay=HOUR, task_id=one)["Put"]["Item"]
    ),
    "as a follow-up": lambda world, client, one: (
        sync_account.insert_follow_up(Account(4711), task_id=one, of="a"),
        world.put(**world.row(one)),
    ),
    "to be replaced": lambda world, client, one: client.insert(
        one, delay_seconds=90, limit_key=KEY, if_exists="replace"
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", INSERTS)
def test_an_inserted_task_lies_in_the_shard_of_its_key(world: World, client: TaskClient, way: str) -> None:
    with use_client(client):
        for n in range(3):  # whose own ids are in three shards
            INSERTS[way](world, client, f"task-{n}")
            assert is_in_its_shard(world, f"task-{n}")
            assert client.get(f"task-{n}").limit_key == KEY
            assert client.get(f"task-{n}").to_row()["limitKey"] == KEY


# -- every later move --------------------------------------------------------------------------------------------------

MOVES: dict[str, Callable[[World, TaskClient], object]] = {
    "rescheduled": lambda world, client: client.reschedule("waits", due_at="2026-12-31T14:00:00Z"),
    "rescheduled to a bucket": lambda world, client: client.reschedule("waits", task_date_time="2026-12-31#14:00"),
    "shifted": lambda world, client: [
        *client.reschedule_many(start="2026-12-31T12:30Z", end="2026-12-31T15:00Z", shift=HOUR)
    ],
    "replaced": lambda world, client: client.insert("waits", delay_seconds=60, limit_key=KEY, if_exists="replace"),
    "postponed": lambda world, client: client.insert(
        "waits", delay_seconds=9000, limit_key=KEY, if_exists="postpone", until=2 * HOUR
    ),
    "run now": lambda world, client: client.run_now("waits"),
    "run again": lambda world, client: client.run_now("completes"),
    "retried": lambda world, client: None,
    "redriven": lambda world, client: client.redrive("fails"),
    "restored": lambda world, client: (client.cancel("waits"), client.restore("waits")),
    "begun again": lambda world, client: client.insert(
        "completes", delay_seconds=7200, limit_key=KEY, if_exists="replace"
    ),
    "awaited": lambda world, client: None,
    "kept alive": lambda world, client: client.heartbeat(world.completion_token),  # type: ignore[attr-defined]
    "completed by token": lambda world, client: client.complete(world.completion_token),  # type: ignore[attr-defined]
    "failed by token": lambda world, client: client.fail(world.completion_token, "no"),  # type: ignore[attr-defined]
    "retried by token": lambda world, client: client.fail(
        world.completion_token, "no", retry=True  # type: ignore[attr-defined]
    ),
}  # fmt: skip


@pytest.mark.parametrize("move", MOVES)
def test_it_stays_in_the_shard_of_its_key_whatever_becomes_of_it(move: str) -> None:
    world = world_of(shard_count=16, defaults=Defaults(key_limits=parse_limits(["customer=9"])))
    world.tick()
    client = client_of(world)

    def completes_later(task: Any, context: Any) -> CompleteLater:
        world.completion_token = completion_token(task.lease, task.task_id)  # type: ignore[attr-defined]
        return CompleteLater(timedelta(hours=8), heartbeat=timedelta(minutes=10))

    world.actions.behaviour |= {"fails": fail, "retries": fail_for_now, "is-awaited": completes_later}
    names = ("completes", "fails", "retries", "is-awaited")
    for name in names:
        client.insert(name, delay_seconds=1, limit_key=KEY)
    client.insert("waits", due_at="2026-12-31T13:00:00Z", limit_key=KEY)
    world.next_tick()
    assert [str(client.get(one).status) for one in names] == ["completed", "failed", "scheduled", "waiting"]
    MOVES[move](world, client)
    for task_id in (*names, "waits"):
        assert is_in_its_shard(world, task_id)


def test_a_raw_row_moves_with_the_number_of_shards(world: World) -> None:
    client_of(world).insert("a", delay_seconds=3600, limit_key=KEY)
    world.reconfigure(shard_count=3)
    world.next_tick()
    client_of(world).reschedule("a", delay_seconds=60)
    assert is_in_its_shard(world, "a")


# -- refusals ----------------------------------------------------------------------------------------------------------

REFUSED: dict[str, Callable[[TaskClient], object]] = {
    "insert": lambda client: client.insert("a", delay_seconds=60, limit_key="tenant:1"),
    "insert without a time": lambda client: client.insert("a", limit_key="tenant:1"),
    "insert_task": lambda client: client.insert_task(NewTask(task_id="a", limit_key="tenant:1")),
    "transact_put": lambda client: client.transact_put({"taskId": "a", "limitKey": "tenant:1"}),
    "schedule": lambda client: sync_account.schedule(Account(1), limit_key="tenant:1"),
    "every": lambda client: sync_account.every("rate(1 day)", Account(1), limit_key="tenant:1", schedule_id="a"),
    "schedules.insert": lambda client: client.schedules.insert("a", "rate(1 day)", limit_key="tenant:1"),
    "schedules.update": lambda client: client.schedules.update("daily", limit_key="tenant:1"),
    "then": lambda client: client.batches.insert(
        [{}], batch_id="b", action="log", then={"action": "log", "limitKey": "tenant:1"}
    ),
    "kept": lambda client: client.insert("there", limit_key="tenant:1", if_exists="keep"),
}


@pytest.mark.parametrize("way", REFUSED)
def test_an_unknown_class_is_refused_with_the_known_ones(world: World, client: TaskClient, way: str) -> None:
    with use_client(client):
        client.insert("there", delay_seconds=60)
        client.schedules.insert("daily", "rate(1 day)")
        before = world.row("daily")
        with pytest.raises(InvalidInput, match=re.escape(UNKNOWN)):
            REFUSED[way](client)
        assert world.store.get("a") is None and world.row("daily") == before


def test_of_many_tasks_only_the_wrong_one_is_refused(world: World) -> None:
    results = [*client_of(world).insert_lazily([{"taskId": "a", "limitKey": "tenant:1"}, {"taskId": "b", **AT}])]
    assert isinstance(results[0], Refused) and UNKNOWN in str(results[0].error)
    assert (world.store.get("a"), world.row("b")["status"]) == (None, "scheduled")


def test_a_raw_row_with_an_unknown_class_fails_with_the_reason(world: World) -> None:
    row = world.put(taskId="a", dueAt="2026-12-31T13:00:00Z", limitKey="tenant:1")
    assert (row["status"], row["error"]) == ("failed", UNKNOWN)
    daily = world.put(taskId="daily", scheduleExpression="rate(1 day)", limitKey="tenant:1")
    assert (daily["scheduleState"], daily["error"]) == ("FAILED", UNKNOWN)


def test_before_the_classes_are_known_any_is_taken() -> None:
    client = client_of(InProcess())
    assert client.insert("before the first tick", delay_seconds=60, limit_key="tenant:1").status == "unscheduled"
    client = client_of(world_of(shard_count=16))  # an earlier version has published no classes
    assert client.insert("of an earlier version", delay_seconds=60, limit_key="tenant:1").status == "scheduled"


def test_a_class_that_was_added_a_moment_ago_is_known(world: World, client: TaskClient) -> None:
    client.insert("a", delay_seconds=60, limit_key=KEY)
    both = Defaults(key_limits=parse_limits(["customer=1", "tenant=2"]))
    publish_settings(world.store, world.rules.grid, now=world.clock(), defaults=both)
    assert client.insert("b", delay_seconds=60, limit_key="tenant:1").limit_key == "tenant:1"


@pytest.mark.parametrize("mode", ["replace", "postpone"])
@pytest.mark.parametrize("key", [None, "customer:2"])
def test_an_insert_can_not_change_the_key(world: World, client: TaskClient, mode: str, key: str | None) -> None:
    client.insert("a", delay_seconds=1, limit_key=KEY)
    expected = f"limitKey: {key!r} is not accepted; expected '{KEY}', as the task has; choose another id"
    if mode == "replace":
        with pytest.raises(InvalidInput, match=re.escape(expected)):
            client.insert("a", delay_seconds=90, limit_key=key, if_exists=mode)
    world.next_tick()
    with pytest.raises(InvalidInput, match=re.escape(expected)):  # as another run
        client.insert("a", delay_seconds=90, limit_key=key, if_exists=mode)
    assert client.get("a").limit_key == KEY


def test_a_batch_has_one_key_and_its_packs_lie_in_the_shard_of_it(world: World, client: TaskClient) -> None:
    with use_client(client):
        for batch_id, insert in {
            "plain": lambda: client.batches.insert([{}], batch_id="plain", action="log", limit_key=KEY),
            "fixed": lambda: fixed.schedule_batch([Account(1)], batch_id="fixed"),
            "given": lambda: sync_account.schedule_batch([Account(1)], batch_id="given", limit_key=KEY),
        }.items():
            insert()
            key = client.batches.get(batch_id).limit_key
            pack_id, member_id = f"{batch_id}/000000000-000000000", f"{batch_id}/000000000"
            assert world.row(pack_id)["limitKey"] == key == client.get(member_id).limit_key
            assert key == KEY
            assert is_in_its_shard(world, pack_id)
            assert "limitKey" not in world.row(batch_id)
        client.batches.reschedule("plain", delay=HOUR)
        client.reschedule("given/000000000", delay_seconds=3600)
        for moved in ("plain/000000000-000000000", "given/000000000"):
            assert is_in_its_shard(world, moved)
            assert world.row(moved)["limitKey"] == KEY
        with pytest.raises(BatchDiffers, match="ofMembers"):
            client.batches.insert([{}], batch_id="plain", action="log", limit_key="customer:2", delay=HOUR)


def test_a_key_that_no_batch_can_have_is_refused(world: World, client: TaskClient) -> None:
    with use_client(client):
        with pytest.raises(InvalidInput, match=r"^limitKey: .*, that of log.*give limit_key=: all members"):
            sync_account.schedule_batch([Account(1)], batch_id="b")
        with pytest.raises(InvalidInput, match="it has an argument of its own"):
            client.batches.insert([{}], batch_id="b", action="log", attributes={"limitKey": KEY})
        with pytest.raises(InvalidInput, match=r"^limitKey: 'tenant:1' .*the classes are"):
            client.batches.insert([{}], batch_id="b", action="log", limit_key="tenant:1")
        for empty in ("", "customer:"):
            with pytest.raises(InvalidInput, match=r"^limitKey: "):
                fixed.schedule_batch([Account(1)], batch_id="b", limit_key=empty)
    assert world.store.get("b") is None


def test_what_follows_a_batch_has_its_own_key(world: World, client: TaskClient) -> None:
    after = sync_account.after(Account(4711))
    assert after["limitKey"] == KEY
    client.batches.insert([{}], batch_id="b", action="log", then=after)
    assert client.batches.get("b").limit_key is None
    world.ticks(2)
    world.put(**world.row("b/then"))
    assert is_in_its_shard(world, "b/then")


# -- functions ---------------------------------------------------------------------------------------------------------


def test_a_key_is_derived_from_each_payload_and_one_of_the_call_wins(world: World, client: TaskClient) -> None:
    with use_client(client):
        assert sync_account.schedule(Account(7), delay=HOUR).limit_key == "customer:7"
        assert sync_account.schedule(Account(7), delay=HOUR, limit_key=KEY).limit_key == KEY
        assert fixed.schedule(Account(7), delay=HOUR).limit_key == KEY
        assert sync_account.every("rate(1 day)", Account(7), schedule_id="s7").limit_key == "customer:7"
        assert sync_account.every("rate(1 day)", Account(8), schedule_id="s8", limit_key=KEY).limit_key == KEY
        assert sync_account.schedule_many([Account(7), Account(8)], due_at=AT["dueAt"]).inserted == 2
        assert {one.limit_key for one in client.history("2026-12-31#13:00#" + str(
            world.rules.grid.shard_of("customer:8"))).entries} >= {"customer:8"}  # fmt: skip


def test_a_function_may_leave_some_without_a_key(world: World, client: TaskClient) -> None:
    @task("log", limit_key=lambda account: f"customer:{account.customer}" if account.customer else None)
    def some(account: Account) -> None: ...

    with use_client(client):
        assert some.schedule(Account(0), delay=HOUR).limit_key is None
        assert some.schedule(Account(1), delay=HOUR).limit_key == "customer:1"


def test_a_wrong_text_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ConfigurationError, match="handler x: limitKey: 'customer' is not accepted; expected a class"):
        task("x", limit_key="customer")


@task("first")
def first(payload: dict[str, object], context: HandlerContext) -> str | None:
    context.schedule(second, Account(7), name="own")
    context.schedule(second, Account(7), name="given", limit_key="customer:8")
    return context.limit_key


@task("second", limit_key=lambda account: f"customer:{account.customer}")
def second(account: Account, context: HandlerContext) -> str | None:
    return context.limit_key


def test_follow_ups_and_handlers_know_their_keys() -> None:
    handlers = ModuleType("handlers")
    handlers.first, handlers.second = first, second  # type: ignore[attr-defined]
    with VirtualInstallation(handlers, key_limits="customer=1,tenant=3:10/s", shard_count=4) as virtual:
        first.schedule({}, limit_key="tenant:1")
        virtual.advance(minutes=5)
        assert [one.result for one in virtual.executed_of(first)] == ["tenant:1"]
        assert sorted(str(one.result) for one in virtual.executed_of(second)) == ["customer:7", "customer:8"]
        with pytest.raises(InvalidInput, match="the classes are customer, tenant"):
            first.schedule({}, limit_key="host:1")
    with pytest.raises(ConfigurationError, match="KeyLimits: 'customer' is not a limit"):
        VirtualInstallation(None, key_limits="customer")


# -- schedules ---------------------------------------------------------------------------------------------------------


def test_another_key_moves_a_schedule_to_another_shard(world: World, client: TaskClient) -> None:
    client.schedules.insert("daily", "rate(1 day)", limit_key=KEY)
    assert is_in_its_shard(world, "daily")
    before = bucket_of(world, "daily")
    other = next(f"customer:{n}" for n in range(99) if world.rules.grid.shard_of(f"customer:{n}") != before.shard)
    moved = client.schedules.update("daily", limit_key=other)
    assert moved.limit_key == other
    assert bucket_of(world, "daily").minute == before.minute
    assert is_in_its_shard(world, "daily", other)
    assert client.schedules.update("daily", limit_key=None).limit_key is None
    assert "limitKey" not in world.row("daily")
    edited = world.put(**world.row("daily"), limitKey=KEY)  # by hand
    assert edited["limitKey"] == KEY and is_in_its_shard(world, "daily")


def test_its_occurrences_have_its_key(world: World, client: TaskClient) -> None:
    client.schedules.insert("often", "rate(1 minute)", limit_key=KEY)
    extra = client.schedules.run_now("often")
    assert (extra.limit_key, is_in_its_shard(world, extra.task_id)) == (KEY, True)
    world.ticks(3)
    client.schedules.update("often", limit_key="customer:2")
    world.ticks(2)
    made = [one.task_id for one in client.schedules.history("often") if one.task_id]
    keys = [world.row(one)["limitKey"] for one in made]
    assert keys.count(KEY) >= 2 and keys[-1] == "customer:2"
    assert all(is_in_its_shard(world, one, str(world.row(one)["limitKey"])) for one in made)
    assert all(world.row(one).get("outcome") == "completed" for one in made[:-1])


def test_a_backfill_has_its_key(world: World, client: TaskClient) -> None:
    client.schedules.insert("hourly", "rate(1 hour)", start_date="2026-12-31T03:00:00Z", limit_key=KEY, catch_up="none")
    world.ticks(2)
    made = [*client.schedules.backfill("hourly", start="2026-12-31T04:00:00Z", end="2026-12-31T08:00:00Z")]
    assert len(made) == 5
    assert all(is_in_its_shard(world, one.task_id) for one in made)


def test_a_schedule_whose_class_is_removed_goes_on_without_limit(world: World, client: TaskClient) -> None:
    client.schedules.insert("often", "rate(1 minute)", limit_key=KEY)
    world.rules = Rules(grid=world.rules.grid, defaults=Defaults(key_limits={}))
    before = world.row("often")
    world.ticks(2)
    world.stream(world.row("often"), before)
    assert client.schedules.get("often").state == "ENABLED"
    assert client.schedules.pause("often").state == "DISABLED"
    made = [one.task_id for one in client.schedules.history("often") if one.task_id]
    assert made and all(world.row(one)["outcome"] == "completed" for one in made)


def test_a_declared_key_is_changed_by_a_sync(world: World, client: TaskClient) -> None:

    @task("log", limit_key=lambda account: f"customer:{account.customer}")
    def declaring(account: Account) -> None: ...

    declaring.declare_schedule("rate(1 day)", Account(7), schedule_id="daily")
    (row,) = declaring.declared()
    assert row["limitKey"] == "customer:7"
    client.schedules.sync([row], owner="mine")
    (change,) = client.schedules.sync([{**row, "limitKey": KEY}], owner="mine")
    assert change.reason == f"its limit_key is 'customer:7', not '{KEY}'"
    assert is_in_its_shard(world, "daily")
    with pytest.raises(InvalidInput, match=r"schedules\.daily\.limitKey: 'tenant:1' is not accepted"):
        client.schedules.sync([{**row, "limitKey": "tenant:1"}], owner="mine")


def test_a_deployment_declares_a_key_whose_class_it_brings(world: World) -> None:
    """Its processor publishes the class a moment later."""
    daily = {"taskId": "daily", "scheduleExpression": "rate(1 day)", "action": "log", "limitKey": "tenant:1"}
    (change,) = client_of(world, check_actions=False).schedules.sync([daily], owner="mine")
    assert (str(change.result), world.row("daily")["limitKey"]) == ("create", "tenant:1")


def test_another_key_makes_a_schedule_of_a_function_differ(world: World, client: TaskClient) -> None:
    with use_client(client):
        fixed.every("rate(1 day)", Account(1), schedule_id="daily")
        with pytest.raises(ScheduleDiffers, match="limit_key"):
            fixed.every("rate(1 day)", Account(1), schedule_id="daily", limit_key="customer:2")
        changed = fixed.every(
            "rate(1 day)", Account(1), schedule_id="daily", limit_key="customer:2", if_exists="replace"
        )
        assert changed.limit_key == "customer:2"
        assert is_in_its_shard(world, "daily", "customer:2")


# -- docs --------------------------------------------------------------------------------------------------------------


def test_the_examples_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    text = page("limits-by-key.md")
    handlers = ModuleType("handlers")
    monkeypatch.setitem(sys.modules, "handlers", handlers)
    for example in examples(text):
        exec(example, vars(handlers))
    handlers.test_accounts_are_synced()
    (written,) = re.findall(r'^KeyLimits = "(.*)"$', text, re.MULTILINE)
    limits = parse_limits(written.split(","))
    (error,) = re.findall(r"^limitKey: .*$", text, re.MULTILINE)
    with pytest.raises(InvalidInput, match=re.escape(error)):
        check_limit_key("tenant:1", limits)
    called = re.search(r"`(sync_account\.schedule\(.*\))`", text)
    assert called is not None
    with VirtualInstallation("handlers", key_limits=written):
        assert eval(called[1], vars(handlers)).limit_key == "customer:of-a-group"
