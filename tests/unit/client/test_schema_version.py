"""A client and an installation whose rows have another version don't meet: nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest
from tests.builders import NOON, InProcess

from dynatick import ConfigurationError, InvalidInput, StoreError, TaskClient
from dynatick.engine.installation_settings import SETTINGS_ID

LATER = NOON + timedelta(hours=1)
BUCKET = "2026-12-31#13:00"


@pytest.fixture
def world() -> InProcess:
    """An installation with a task and a schedule."""
    world = InProcess()
    world.tick()
    client = TaskClient(world.store, clock=world.clock)
    client.insert("one", due_at=LATER, action="log")
    client.insert("ended", due_at=LATER, action="log")
    client.cancel("ended")
    client.schedules.insert("hourly", "cron(0 * * * ? *)", action="log")
    return world


def of_version(world: InProcess, version: object) -> TaskClient:
    """A new client of an installation with this version; None: without one."""
    row = dict(world.row(SETTINGS_ID))
    row.pop("schemaVersion", None)
    world.store.delete(SETTINGS_ID)
    world.store.create(row if version is None else {**row, "schemaVersion": version})
    return TaskClient(world.store, clock=world.clock)


Operation = Callable[[TaskClient], object]
WRITES: dict[str, Operation] = {
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
    "redrive": lambda client: client.redrive("ended"),
    "run_now": lambda client: client.run_now("one"),
    "cancel_many": lambda client: list(client.cancel_many(BUCKET)),
    "redrive_many": lambda client: list(client.redrive_many(BUCKET, status="cancelled")),
    "reschedule_many": lambda client: list(client.reschedule_many(BUCKET, shift=timedelta(hours=1))),
    "doctor": lambda client: client.doctor(repair=True),
    "schedules.insert": lambda client: client.schedules.insert("x", "rate(1 hour)", action="log"),
    "schedules.update": lambda client: client.schedules.update("hourly", payload={"n": 1}),
    "schedules.pause": lambda client: client.schedules.pause("hourly"),
    "schedules.resume": lambda client: client.schedules.resume("hourly"),
    "schedules.delete": lambda client: client.schedules.delete("hourly"),
    "schedules.run_now": lambda client: client.schedules.run_now("hourly"),
    "schedules.backfill": lambda client: list(client.schedules.backfill("hourly", start=NOON, end=NOON)),
}
READS: dict[str, Operation] = {
    "history": lambda client: client.history(BUCKET),
    "bucket_counts": lambda client: list(client.bucket_counts(BUCKET)),
    "export": lambda client: list(client.export(BUCKET)),
    "ticks": lambda client: client.ticks(),
    "health": lambda client: client.health(),
    "settings": lambda client: client.settings(),
    "schedules.get": lambda client: client.schedules.get("hourly"),
}


@pytest.mark.parametrize("does", [*WRITES.values(), *READS.values()], ids=[*WRITES, *READS])
def test_an_operation_on_another_version_is_refused_and_writes_nothing(world: InProcess, does: Operation) -> None:
    client = of_version(world, Decimal(2))
    before = {one.task_id: one for one in [client.get("one"), client.get("ended"), client.get("hourly")]}
    with pytest.raises(ConfigurationError) as refused:
        does(client)
    assert str(refused.value) == (
        "schemaVersion: the installation has rows of version 2, and this Dynatick is for version 1; "
        "use the newer Dynatick that the installation was deployed from"
    )
    assert {task_id: client.get(task_id) for task_id in before} == before
    assert client.store.get("x") is None


@pytest.mark.parametrize("does", [*WRITES.values(), *READS.values()], ids=[*WRITES, *READS])
def test_every_operation_accepts_its_own_version(world: InProcess, does: Operation) -> None:
    does(of_version(world, Decimal(1)))


def test_an_older_installation_is_to_be_deployed_anew(world: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    client = of_version(world, None)
    monkeypatch.setattr("dynatick.engine.installation_settings.SCHEMA_VERSION", 2)
    with pytest.raises(ConfigurationError) as refused:
        client.cancel("one")
    assert str(refused.value) == (
        "schemaVersion: the installation has rows of version 1, and this Dynatick is for version 2; "
        "deploy this Dynatick, or use the older one that the installation was deployed from"
    )


@pytest.mark.parametrize("version", ["2", Decimal(-1), Decimal("1.5"), True, [1]])
def test_a_malformed_version_is_an_error_of_the_table(world: InProcess, version: object) -> None:
    with pytest.raises(StoreError, match="schemaVersion") as refused:
        of_version(world, version).cancel("one")
    assert isinstance(refused.value.__cause__, InvalidInput)
