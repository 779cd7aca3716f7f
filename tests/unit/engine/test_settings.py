"""The settings row: what is agreed between everybody who touches the table, and whether everything is paused."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import NOON, scheduled_row
from tests.unit.domain.support import refusal
from tests.unit.engine.support import (
    NOON_MINUTE,
    PacedClock,
    RiggedStore,
    World,
    bucket_at,
    ids,
    is_claim,
    of,
    passed,
    rules,
    takes,
    world,
)

from dynatick import TaskClient
from dynatick.client.ticks import MissedTicks
from dynatick.domain.buckets import Grid
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.normalise import Defaults
from dynatick.domain.pause import Pause
from dynatick.domain.row import Due
from dynatick.engine import settings
from dynatick.engine.cursor import cursor_id
from dynatick.engine.orders import Order, PassOrder, RecoveryOrder, ShardsOrder, WakeUp, WorkOrder
from dynatick.engine.rules import Rules
from dynatick.engine.settings import (
    MAX_PAUSES_KEPT,
    SETTINGS_ID,
    pause,
    publish_settings,
    read_settings,
    resume,
)
from dynatick.errors import ConfigurationError, StoreError
from dynatick.store.memory import MemoryStore


def published(grid: Grid | None = None, **known: Any) -> RiggedStore:
    store = RiggedStore()
    publish_settings(store, grid or Grid(), now=NOON, **known)
    store.forget()
    return store


@given(st.lists(st.integers(1, 256), min_size=1, max_size=8))
def test_the_number_of_shards_ever_used_only_grows(counts: list[int]) -> None:
    store = MemoryStore()
    for number, count in enumerate(counts, 1):
        found = publish_settings(store, Grid(shard_count=count), now=NOON)
        assert (found.grid.shard_count, found.shards_ever) == (count, max(counts[:number]))
        assert read_settings(store) == found


def test_cursors_of_new_shards_are_there_before_the_settings_name_the_shards() -> None:
    """Between the two a process may die."""

    def cursors() -> list[bool]:
        return [store.peek(cursor_id(shard)) is not None for shard in range(4)]

    store, met = RiggedStore(), list[list[bool]]()
    for count in (1, 3, 2):
        with store.meanwhile(lambda change: change.task_id == SETTINGS_ID, lambda: met.append(cursors())):
            publish_settings(store, Grid(shard_count=count), now=NOON)
    assert met == [[True, False, False, False], [True, True, True, False], [True, True, True, False]]
    store.forget()
    publish_settings(store, Grid(shard_count=2), now=NOON)
    assert store.reads == [SETTINGS_ID], "what is published costs one read"


def test_what_is_inserted_into_new_shards_is_found_by_the_ticks_alone_however_late_the_first_comes() -> None:
    """The process that published the shards has died, and the stream is silent."""
    grid = Grid(shard_count=3)
    w = World(rules=rules(grid=grid))
    publish_settings(w.store, grid, now=w.clock())
    for shard in range(3):
        assert w.store.create(scheduled_row(f"t{shard}", bucket_at(2, shard)))
    w.next_tick(9)
    assert {w.outcome(f"t{shard}") for shard in range(3)} == {"completed"}


SCHEMAS = {"mail": '{"type":"object","properties":{"to":{"type":"string"}},"required":["to"]}'}


def test_who_does_not_know_the_actions_and_their_schemas_leaves_them_and_what_is_published_costs_one_read() -> None:
    """The scheduler knows the grid and the defaults, and not what the processor can run."""
    store = published(actions=["log", "mail"], defaults=Defaults(), payload_schemas=SCHEMAS)
    found = publish_settings(store, Grid(tick_minutes=5), now=NOON, defaults=Defaults(action="mail", retention_days=7))
    assert (found.actions, found.default_action, found.retention_days) == (("log", "mail"), "mail", 7)
    found = publish_settings(store, Grid(tick_minutes=5), now=NOON, actions=["log"])
    assert (found.actions, found.default_action, found.retention_days) == (("log",), "mail", 7)
    assert found.payload_schemas == SCHEMAS
    assert read_settings(store) == found
    store.forget()
    publish_settings(store, Grid(tick_minutes=5), now=NOON, actions=["log"], payload_schemas=SCHEMAS)
    assert (store.reads, store.writes) == ([SETTINGS_ID], [])


@pytest.mark.parametrize("is_first", [False, True])
def test_a_race_is_run_again_and_loses_nothing(is_first: bool) -> None:
    store = RiggedStore() if is_first else published(Grid(shard_count=2))
    another = partial(publish_settings, store, Grid(shard_count=9), now=NOON, actions=["mail"])
    with store.meanwhile(lambda change: change.task_id == SETTINGS_ID, another):
        found = publish_settings(store, Grid(shard_count=3), now=NOON)
    assert (found.grid.shard_count, found.shards_ever, found.actions) == (3, 9, ("mail",))
    store.throttled = lambda change: True
    with pytest.raises(StoreError, match="cannot publish the settings"):
        publish_settings(store, Grid(shard_count=4), now=NOON)


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
    monkeypatch.setattr(settings, "SCHEMA_VERSION", 2)
    found = publish_settings(store, Grid(), now=NOON, actions=["log"])
    assert of(store.peek(SETTINGS_ID))["schemaVersion"] == 2
    assert read_settings(store) == found
    monkeypatch.undo()
    store.forget()
    with pytest.raises(ConfigurationError, match="rows of version 2, and this Dynatick is for version 1"):
        publish_settings(store, Grid(tick_minutes=5), now=NOON, actions=["mail"])
    with pytest.raises(ConfigurationError, match="rows of version 2"):
        pause(store, now=NOON, by="ada", reason=None)
    assert store.writes == []


@pytest.mark.parametrize("malformed", [{"tickMinutes": "5"}, {"tickMinutes": Decimal(7)}, {"shardsEver": None}])
def test_the_error_for_a_malformed_row_names_its_attribute(malformed: dict[str, object]) -> None:
    store = RiggedStore()
    row = {"taskId": SETTINGS_ID, "tickMinutes": Decimal(5), "shardCount": Decimal(2), "shardsEver": Decimal(4)}
    store.put(row | malformed)
    assert refusal(read_settings, store)[0] in malformed


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


# -- a pause of everything -------------------------------------------------------------------------------------------


def paused(w: World, reason: str | None = "a bad deployment") -> Pause:
    return pause(w.store, now=w.clock(), by="ada", reason=reason)


ORDERS = [
    PassOrder(tick=NOON_MINUTE + 1), ShardsOrder(NOON_MINUTE + 1, range(1, 4)),
    WakeUp(bucket=bucket_at(1), due=(Due(bucket_at(1).instant, "a"),)),
    WorkOrder(bucket=bucket_at(1), after=None, through="z", until=NOON + timedelta(minutes=9)),
    RecoveryOrder(bucket=bucket_at(1), task_ids=("crashed",)),
]  # fmt: skip


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_while_paused_no_invocation_polls_or_claims_and_afterwards_all_runs_that_was_due(order: Order) -> None:
    w = world(rules=Rules(grid=Grid(shard_count=4)))
    w.insert("a", "crashed", at=bucket_at(1))
    w.claim("crashed", until=NOON + timedelta(seconds=10))
    w.insert("b", at=bucket_at(3))
    paused(w)
    w.clock.forward(minutes=1)
    w.rigged.forget()
    done = w.handle(order.to_event())
    assert (done.paused, w.started, w.rigged.polls, w.ran) == (True, [], [], [])
    assert (done.paused_tick is not None) == isinstance(order, PassOrder | ShardsOrder)
    assert {change.task_id for change in w.rigged.writes} <= {SETTINGS_ID}
    w.ticks(3)
    resume(w.store, now=w.clock())
    w.next_tick()
    assert sorted(w.ran) == ["a", "b", "crashed"]


def test_a_pass_at_work_stops_soon_and_loses_nothing() -> None:
    w = world(clock=PacedClock(), rules=Rules(threads=1))
    w.insert(*ids(120))
    w.behave(takes(w, seconds=1), *ids(120))
    with w.rigged.meanwhile(is_claim, lambda: paused(w)):
        report = passed(w.next_tick())
    assert (report.paused, report.continued) == (True, False)
    assert 0 < len(w.ran) < 60, "it reads the pause after five seconds"
    assert {row["attempt"] for row in w.open_rows().values()} == {0}, "what had not begun is released"
    w.actions.behaviour = {}
    w.next_tick()
    assert len(w.ran) < 60
    resume(w.store, now=w.clock())
    w.ticks(3)
    w.assert_each_ran_once(*ids(120))


def test_of_two_that_pause_or_resume_at_once_neither_undoes_what_the_other_has_done(w: World) -> None:
    def is_of_pause(change: ConditionalUpdate) -> bool:
        return change.task_id == SETTINGS_ID

    def resume_and_pause_again() -> None:
        resume(w.store, now=NOON + timedelta(seconds=1))
        pause(w.store, now=NOON + timedelta(seconds=2), by="cyd", reason=None)

    with w.rigged.meanwhile(is_of_pause, lambda: pause(w.store, now=NOON, by="bob", reason="first")):
        assert (paused(w).by, of(read_settings(w.store)).pause.by) == ("bob", "bob")
    with w.rigged.meanwhile(is_of_pause, resume_and_pause_again):
        ended = resume(w.store, now=NOON + timedelta(seconds=3))
    assert ended is not None and ended.by == "cyd"
    found = of(read_settings(w.store))
    assert (found.pause, [one.by for one in found.pauses]) == (None, ["bob", "cyd"])


def test_the_last_pauses_are_kept(w: World) -> None:
    for number in range(MAX_PAUSES_KEPT + 2):
        pause(w.store, now=NOON, by=str(number), reason=None)
        resume(w.store, now=NOON)
    assert [one.by for one in of(read_settings(w.store)).pauses] == [str(n) for n in range(2, MAX_PAUSES_KEPT + 2)]


def test_a_pause_is_not_undone_by_functions_that_publish_their_settings(w: World) -> None:
    w.reconfigure(tick_minutes=5)
    with w.rigged.meanwhile(lambda change: change.task_id == SETTINGS_ID, lambda: paused(w)):
        publish_settings(w.store, w.rules.grid, now=w.clock())
    found = of(read_settings(w.store))
    assert (found.grid.tick_minutes, found.pause is not None) == (5, True)
    w.reconfigure(tick_minutes=1)
    publish_settings(w.store, w.rules.grid, now=w.clock())
    assert of(read_settings(w.store)).pause is not None


def test_a_pause_before_the_first_tick_or_that_is_refused_is_no_success() -> None:
    store = RiggedStore()
    for fails in (lambda: pause(store, now=NOON, by=None, reason=None), lambda: resume(store, now=NOON)):
        with pytest.raises(ConfigurationError, match="no tick has come yet"):
            fails()
    publish_settings(store, Grid(), now=NOON)
    store.throttled = lambda change: True
    with pytest.raises(StoreError, match="not known"):
        pause(store, now=NOON, by=None, reason=None)


@pytest.mark.parametrize("written", [{}, "yes", {"since": "yesterday"}, True])
def test_whatever_stands_there_pauses(w: World, written: object) -> None:
    w.store.put({**w.row(SETTINGS_ID), "paused": written})
    (done,) = w.next_tick()
    assert done.paused
    assert of(read_settings(w.store)).pause == Pause(since=None)
    assert of(resume(w.store, now=w.clock())).since is None
    assert not w.next_tick()[0].paused


def test_ticks_of_a_pause_are_not_missing(w: World) -> None:
    client = TaskClient(w.store, clock=w.clock)
    w.insert("first", at=bucket_at(3))
    w.insert("second", at=bucket_at(8))
    w.ticks(3)
    client.operations.pause()
    w.ticks(4)
    w.clock.forward(seconds=30)
    assert (client.operations.health().missing_ticks, client.operations.doctor().found) == (0, 0)
    client.operations.resume()
    w.ticks(2)
    w.clock.forward(minutes=5)
    w.insert("last", at=bucket_at(16))
    w.next_tick(2)
    shown = [
        (row["kind"], row.get("since"), row.get("ticks")) for row in (one.to_row() for one in client.operations.ticks())
    ]
    assert ("paused", "2026-12-31#12:04", 4) in shown
    assert ("missed", "2026-12-31#12:10", 6) in shown
    assert client.operations.doctor().missed_ticks == 6


@pytest.mark.parametrize("missing", [0, 2])
def test_ticks_of_a_smaller_interval_are_missing_only_since_it_holds(missing: int) -> None:
    w = world(rules=Rules(grid=Grid(tick_minutes=5)))
    client = TaskClient(w.store, clock=w.clock)
    for n in range(4):
        w.insert(str(n), at=bucket_at(5 * n + 5))
        w.next_tick(5)
    w.reconfigure(tick_minutes=1)
    w.next_tick(1)
    w.insert("last", at=bucket_at(22 + missing))
    w.next_tick(1 + missing)
    w.clock.forward(seconds=30)
    assert of(read_settings(w.store)).tick_minutes_since == NOON + timedelta(minutes=21, milliseconds=200)
    assert client.operations.doctor().missed_ticks == missing
    missed = [one for one in client.operations.ticks() if isinstance(one, MissedTicks)]
    assert [(one.since, one.ticks) for one in missed] == ([("2026-12-31#12:22", 2)] if missing else [])
    w.store.put({**w.row(SETTINGS_ID), "tickMinutesSince": "yesterday"})
    assert of(read_settings(w.store)).tick_minutes_since is None
