"""The settings row: what is agreed between everybody who touches the table."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import NOON
from tests.unit.domain.support import refusal
from tests.unit.engine.support import RiggedStore, of

from dynatick.domain.buckets import Grid
from dynatick.domain.normalise import Defaults
from dynatick.engine import installation_settings
from dynatick.engine.installation_settings import SETTINGS_ID, InstallationSettings, publish_settings, read_settings
from dynatick.errors import ConfigurationError, StoreError
from dynatick.store.memory import MemoryStore


def published(grid: Grid | None = None, **known: Any) -> RiggedStore:
    """A table whose settings have been published."""
    store = RiggedStore()
    publish_settings(store, grid or Grid(), now=NOON, **known)
    store.forget()
    return store


def test_the_first_to_come_writes_it() -> None:
    store, grid = RiggedStore(), Grid(tick_minutes=5, shard_count=3)
    assert read_settings(store) is None
    found = publish_settings(store, grid, now=NOON, actions=["log", "mail"], defaults=Defaults())
    assert found == InstallationSettings(
        grid=grid, shards_ever=3, actions=("log", "mail"), default_action="log", retention_days=30
    )
    assert read_settings(store) == found
    row = of(store.peek(SETTINGS_ID))
    assert (row["status"], row["outcome"], row["updatedAt"]) == ("settings", "none", "2026-12-31T12:00:00Z")


def test_what_is_published_already_costs_one_read() -> None:
    store = published(actions=["log"], defaults=Defaults())
    publish_settings(store, Grid(), now=NOON, actions=["log"], defaults=Defaults())
    assert (store.reads, store.writes) == ([SETTINGS_ID], [])


@given(st.lists(st.integers(1, 256), min_size=1, max_size=8))
def test_the_number_of_shards_ever_used_only_grows(counts: list[int]) -> None:
    store = MemoryStore()
    for number, count in enumerate(counts, 1):
        found = publish_settings(store, Grid(shard_count=count), now=NOON)
        assert (found.grid.shard_count, found.shards_ever) == (count, max(counts[:number]))
        assert read_settings(store) == found


def test_who_does_not_know_the_actions_leaves_them() -> None:
    """The scheduler knows the grid and the defaults, and not what the processor can run."""
    store = published(actions=["log", "mail"], defaults=Defaults())
    found = publish_settings(store, Grid(tick_minutes=5), now=NOON, defaults=Defaults(action="mail", retention_days=7))
    assert (found.actions, found.default_action, found.retention_days) == (("log", "mail"), "mail", 7)
    found = publish_settings(store, Grid(tick_minutes=5), now=NOON, actions=["log"])
    assert (found.actions, found.default_action, found.retention_days) == (("log",), "mail", 7)


def test_a_race_is_run_again_and_loses_nothing() -> None:
    store = published(Grid(shard_count=2))
    store.meanwhile(
        lambda change: change.task_id == SETTINGS_ID,
        lambda: publish_settings(store, Grid(shard_count=9), now=NOON, actions=["mail"]),
    )
    found = publish_settings(store, Grid(shard_count=3), now=NOON)
    assert (found.grid.shard_count, found.shards_ever, found.actions) == (3, 9, ("mail",))


def test_a_race_for_the_first_row_is_run_again_too() -> None:
    store = RiggedStore()
    create = store.create

    def another_is_first(row: dict[str, object]) -> bool:
        store.create = create
        publish_settings(store, Grid(shard_count=9), now=NOON)
        return create(row)

    store.create = another_is_first
    assert publish_settings(store, Grid(shard_count=3), now=NOON).shards_ever == 9


def test_a_race_that_never_ends_is_a_fault() -> None:
    store = published(Grid(shard_count=2))
    store.throttled = lambda change: True
    with pytest.raises(StoreError, match="cannot publish the settings"):
        publish_settings(store, Grid(shard_count=3), now=NOON)


def test_a_row_without_a_version_is_of_version_1_and_is_not_written_for_that() -> None:
    store = published(actions=["log"], defaults=Defaults())
    row = dict(of(store.peek(SETTINGS_ID)))
    assert row.pop("schemaVersion") == 1
    store.put(row)
    publish_settings(store, Grid(), now=NOON, actions=["log"], defaults=Defaults())
    assert store.writes == []
    publish_settings(store, Grid(tick_minutes=5), now=NOON)
    assert of(store.peek(SETTINGS_ID))["schemaVersion"] == 1


def test_newer_functions_raise_the_version_and_older_ones_then_write_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = published(actions=["log"])
    monkeypatch.setattr(installation_settings, "SCHEMA_VERSION", 2)
    found = publish_settings(store, Grid(), now=NOON, actions=["log"])
    assert of(store.peek(SETTINGS_ID))["schemaVersion"] == 2
    assert read_settings(store) == found
    monkeypatch.undo()
    store.forget()
    with pytest.raises(ConfigurationError, match="rows of version 2, and this Dynatick is for version 1"):
        publish_settings(store, Grid(tick_minutes=5), now=NOON, actions=["mail"])
    assert store.writes == []


@pytest.mark.parametrize("malformed", [{"tickMinutes": "5"}, {"tickMinutes": Decimal(7)}, {"shardsEver": None}])
def test_the_error_for_a_malformed_row_names_its_attribute(malformed: dict[str, object]) -> None:
    store = RiggedStore()
    row = {"taskId": SETTINGS_ID, "tickMinutes": Decimal(5), "shardCount": Decimal(2), "shardsEver": Decimal(4)}
    store.put(row | malformed)
    assert refusal(read_settings, store)[0] in malformed


SCHEMAS = {"mail": '{"type":"object","properties":{"to":{"type":"string"}},"required":["to"]}'}


def test_the_scheduler_keeps_the_payload_schemas() -> None:
    store = published(actions=["mail"], payload_schemas=SCHEMAS)
    found = publish_settings(store, Grid(tick_minutes=5), now=NOON, defaults=Defaults())
    assert found.payload_schemas == SCHEMAS
    assert read_settings(store) == found
    store.forget()
    publish_settings(store, Grid(tick_minutes=5), now=NOON, payload_schemas=SCHEMAS)
    assert store.writes == []


@pytest.mark.parametrize(
    "wrong", [{"payloadSchemaForm": Decimal(2)}, {"payloadSchemas": "text"}, {"payloadSchemas": None}]
)
def test_schemas_of_another_form_are_none(wrong: dict[str, object]) -> None:
    store = published(payload_schemas=SCHEMAS)
    store.put(dict(of(store.peek(SETTINGS_ID))) | wrong)
    found = read_settings(store)
    assert found is not None and found.payload_schemas == {}
    store.forget()
    publish_settings(store, Grid(), now=NOON)
    assert store.writes == [], "a newer one's are left alone"
