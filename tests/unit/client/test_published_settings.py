"""The settings row as the client uses it: grid, actions, types of payloads, the longest timeout, the rows' version."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial

import pytest
from tests.builders import NOON, InProcess, scheduled_row
from tests.unit.client.support import client_of
from tests.unit.engine.support import World

from dynatick import ConfigurationError, InvalidInput, Refused, StoreError, TaskClient
from dynatick.domain.buckets import Bucket
from dynatick.engine.settings import SETTINGS_ID, publish_settings

LATER = NOON + timedelta(hours=1)
BUCKET = "2026-12-31#13:00"
Operation = Callable[[TaskClient], object]


def publish(world: InProcess, *required: str, **settings: object) -> None:
    """Publishes settings with the type of the action ``mail``: a map with these texts."""
    fields = {"type": "object", "properties": {name: {"type": "string"} for name in required}, "required": required}
    publish_settings(
        world.store,
        world.rules.grid,
        now=world.clock(),
        payload_schemas={"mail": json.dumps(fields)} if required else {},
        **({"actions": ["log", "mail"]} | settings),  # type: ignore[arg-type]
    )


def reads(world: World) -> int:
    return world.rigged.reads.count(SETTINGS_ID)


def test_the_settings_are_read_once_a_minute_and_a_malformed_row_is_reported(world: World, client: TaskClient) -> None:
    world.clock.forward(seconds=20)
    client.insert("a", due_at="2026-12-31T13:01:00Z")
    world.reconfigure(tick_minutes=30)
    world.next_tick()
    client.insert("b", due_at="2026-12-31T13:01:00Z")
    world.clock.forward(seconds=61)
    client.insert("c", due_at="2026-12-31T13:01:00Z")
    assert [client.get(i).bucket for i in "abc"] == ["2026-12-31#13:01", "2026-12-31#13:01", "2026-12-31#13:30"]
    world.rigged.put({"taskId": SETTINGS_ID, "tickMinutes": 7, "shardCount": 1, "shardsEver": 1})
    world.clock.forward(seconds=61)
    with pytest.raises(StoreError, match="settings row cannot be understood: tickMinutes: 7 is not accepted"):
        client.insert("d", delay_seconds=90)


def test_an_unknown_action_is_refused_after_the_settings_have_been_read_again() -> None:
    world = InProcess()
    client = client_of(world)
    assert client.insert("early", action="mail").status == "unscheduled", "before the first tick none is known"
    world.next_tick()
    with pytest.raises(InvalidInput) as refused:
        client.insert("late", action="mail")
    assert str(refused.value) == "action: 'mail' is not accepted; expected one of log"
    assert client_of(world, check_actions=False).insert("unchecked", action="mail").action == "mail"
    world.clock.forward(seconds=2)
    publish(world)
    assert client.insert("new", delay_seconds=90, action="mail").action == "mail"


def test_a_type_of_payload_that_has_changed_is_read_again_before_a_refusal(world: World, client: TaskClient) -> None:
    publish(world, "to")
    client.insert("a", action="mail", payload={"to": "ann"})
    publish(world, "address")
    client.insert("b", action="mail", payload={"address": "ann"})
    publish(world)
    world.clock.forward(seconds=2)
    client.insert("c", action="mail", payload={})
    publish(world, "to")
    world.clock.forward(seconds=60)
    with pytest.raises(InvalidInput, match=r"payload\.to"):
        client.insert("d", action="mail", payload={})


def test_checking_payloads_reads_the_settings_again_once_a_second_at_most(world: World, client: TaskClient) -> None:
    publish(world, "to")
    before = reads(world)
    for n in range(10):
        client.insert(f"t{n}", delay_seconds=5, action="mail", payload={"to": "ann"})
    assert reads(world) == before + 1
    refused = client.insert_lazily({"taskId": f"u{n}", "action": "mail"} for n in range(100))
    assert {type(one) for one in refused} == {Refused}
    after = reads(world)
    assert before + 1 < after <= before + 11
    client_of(world, check_actions=False).insert("unchecked", action="mail", payload={})
    assert reads(world) == after + 1, "for the version of the rows"


def test_a_schedule_whose_payload_does_not_fit_any_more_can_be_changed(world: World, client: TaskClient) -> None:
    publish(world)
    client.schedules.insert("s", "rate(1 hour)", action="mail", payload={})
    publish(world, "to")
    world.clock.forward(minutes=2)
    client.schedules.pause("s")
    client.schedules.update("s", expression="rate(2 hours)")
    with pytest.raises(InvalidInput, match=r"payload\.to"):
        client.schedules.update("s", payload={"text": "x"})


def test_a_timeout_that_no_attempt_can_take_is_refused_by_the_latest_settings(world: World, client: TaskClient) -> None:
    assert client.insert("unknown", timeout_seconds=900).row["timeoutSeconds"] == 900, "no limit is known"
    client.schedules.insert("there", "rate(1 hour)")
    publish(world, max_timeout_seconds=112)
    world.clock.forward(minutes=2)
    ways = (
        partial(client.insert, "t", delay_seconds=60), partial(client.schedules.insert, "s", "rate(1 hour)"),
        partial(client.schedules.update, "there"),
    )  # fmt: skip
    for way in ways:
        with pytest.raises(InvalidInput, match=r"112, as long as .* \(the parameter ProcessorTimeoutSec") as error:
            way(timeout_seconds=113)
        assert error.value.field == "timeoutSeconds"
    assert world.store.get("t") is world.store.get("s") is None
    world.clock.forward(seconds=2)
    for way in ways:
        way(timeout_seconds=112)
    publish(world, max_timeout_seconds=300)
    assert client.insert("b", timeout_seconds=300).row["timeoutSeconds"] == 300


@pytest.fixture
def versioned(world: World, client: TaskClient) -> World:
    """An installation with tasks and a schedule."""
    client.insert("one", due_at=LATER, action="log")
    client.insert("ended", due_at=LATER, action="log")
    client.cancel("ended")
    world.rigged.put(scheduled_row("broken", Bucket.parse(BUCKET), status="failed", outcome="failed"))
    client.schedules.insert("hourly", "cron(0 * * * ? *)", action="log")
    return world


def of_version(world: World, version: object) -> TaskClient:
    """A new client of an installation with this version."""
    world.rigged.put({**world.row(SETTINGS_ID), "schemaVersion": version})
    return client_of(world)


OPERATIONS: dict[str, Operation] = {
    "insert": lambda client: client.insert("x", due_at=LATER, action="log"),
    "insert untimed": lambda client: client.insert("x", action="log"),
    "insert without checks": lambda client: TaskClient(client.store, check_actions=False).insert("x", action="log"),
    "insert_many": lambda client: client.insert_many([{"taskId": "x", "action": "log"}]),
    "insert_rows": lambda client: list(client.insert_rows([{"taskId": "x", "scheduleExpression": "rate(1 hour)"}])),
    "cancel": lambda client: client.cancel("one"),
    "delete": lambda client: client.delete("one"),
    "reschedule": lambda client: client.reschedule("one", due_at=LATER),
    "update": lambda client: client.update("one", payload={"n": 1}),
    "update without checks": lambda client: TaskClient(client.store, check_actions=False).update("one", payload={}),
    "redrive": lambda client: client.redrive("broken"),
    "restore": lambda client: client.restore("ended"),
    "run_now": lambda client: client.run_now("one"),
    "cancel_many": lambda client: list(client.cancel_many(BUCKET)),
    "redrive_many": lambda client: list(client.redrive_many(BUCKET)),
    "restore_many": lambda client: list(client.restore_many(BUCKET)),
    "run_now_many": lambda client: list(client.run_now_many(BUCKET)),
    "reschedule_many": lambda client: list(client.reschedule_many(BUCKET, shift=timedelta(hours=1))),
    "doctor": lambda client: client.operations.doctor(repair=True),
    "schedules.insert": lambda client: client.schedules.insert("x", "rate(1 hour)", action="log"),
    "schedules.update": lambda client: client.schedules.update("hourly", payload={"n": 1}),
    "schedules.pause": lambda client: client.schedules.pause("hourly"),
    "schedules.resume": lambda client: client.schedules.resume("hourly"),
    "schedules.delete": lambda client: client.schedules.delete("hourly"),
    "schedules.run_now": lambda client: client.schedules.run_now("hourly"),
    "schedules.backfill": lambda client: list(client.schedules.backfill("hourly", start=NOON, end=NOON)),
    "history": lambda client: client.history(BUCKET),
    "bucket_counts": lambda client: list(client.bucket_counts(BUCKET)),
    "export": lambda client: list(client.export(BUCKET)),
    "ticks": lambda client: client.operations.ticks(),
    "health": lambda client: client.operations.health(),
    "settings": lambda client: client.settings(),
    "schedules.get": lambda client: client.schedules.get("hourly"),
}


@pytest.mark.parametrize("does", OPERATIONS.values(), ids=OPERATIONS)
def test_operations_on_rows_of_another_version_are_refused_and_write_nothing(versioned: World, does: Operation) -> None:
    client = of_version(versioned, Decimal(2))
    before = versioned.open_rows()
    with pytest.raises(ConfigurationError) as refused:
        does(client)
    assert str(refused.value) == (
        "schemaVersion: the installation has rows of version 2, and this Dynatick is for version 1; "
        "use the newer Dynatick that the installation was deployed from"
    )
    assert versioned.open_rows() == before
    does(of_version(versioned, Decimal(1)))


@pytest.mark.parametrize("version", ["2", Decimal(-1), Decimal("1.5"), True, [1]])
def test_a_malformed_version_is_an_error_of_the_table(versioned: World, version: object) -> None:
    with pytest.raises(StoreError, match="schemaVersion") as refused:
        of_version(versioned, version).cancel("one")
    assert isinstance(refused.value.__cause__, InvalidInput)
