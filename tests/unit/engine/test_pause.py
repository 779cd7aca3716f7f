"""A pause: nothing is run while it is in force, and nothing is lost by it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.builders import NOON
from tests.unit.engine.support import (
    Once,
    PacedClock,
    RiggedStore,
    World,
    bucket_at,
    ids,
    is_claim,
    is_cursor,
    of,
    passed,
    takes,
    world,
)
from tests.unit.engine.test_wake_ups import world as second_world

from dynatick import TaskClient
from dynatick.domain.buckets import Grid
from dynatick.domain.pause import Pause
from dynatick.engine.installation_settings import SETTINGS_ID, pause, publish_settings, read_settings, resume
from dynatick.engine.rules import Rules
from dynatick.errors import ConfigurationError, StoreError
from dynatick.store.memory import MemoryStore


def paused(w: World, reason: str | None = "a bad deployment") -> Pause:
    return pause(w.store, now=w.clock(), by="ada", reason=reason)


def test_while_paused_no_tick_polls_and_afterwards_all_runs_that_was_due() -> None:
    w = world(rules=Rules(grid=Grid(shard_count=4)))
    w.insert("a", at=bucket_at(1))
    w.insert("b", at=bucket_at(3))
    paused(w)
    w.rigged.forget()
    for _ in range(5):
        (done,) = w.next_tick()  # which starts no other shards
        assert (done.paused, done.passed) == (True, None)
        assert done.paused_tick is not None
    assert (w.actions.ran, w.rigged.polls) == ([], [])
    assert not any(is_cursor(change) for change in w.rigged.writes)
    resume(w.store, now=w.clock())
    w.next_tick()
    assert {task_id for task_id, _, _ in w.actions.ran} == {"a", "b"}
    assert {w.outcome("a"), w.outcome("b")} == {"completed"}


def test_a_pass_at_work_stops_soon_and_loses_nothing() -> None:
    w = world(clock=PacedClock(), rules=Rules(threads=1))
    w.insert(*ids(120))
    w.actions.behaviour = dict.fromkeys(ids(120), takes(w, seconds=1))
    w.rigged.meanwhile(is_claim, lambda: paused(w))
    report = passed(w.next_tick())
    assert report.paused
    assert not report.continued
    assert 0 < len(w.actions.ran) < 60, "it reads the pause when it renews its lease, after ten seconds"
    assert {row["attempt"] for row in w.open_rows().values()} == {0}, "what had not begun is released"
    w.actions.behaviour = {}
    w.next_tick()
    assert len(w.actions.ran) < 60
    resume(w.store, now=w.clock())
    w.ticks(3)
    assert sorted(task_id for task_id, _, _ in w.actions.ran) == ids(120), "each once"


def test_recoveries_obey_it() -> None:
    w = world()
    w.insert("lost")
    w.clock.to(NOON + timedelta(minutes=1))
    w.claim("lost", until=w.clock() + timedelta(seconds=1))
    paused(w)
    event = {"dynatick": {"recover": {"bucket": str(bucket_at(1)), "taskIds": ["lost"]}}}
    w.clock.forward(minutes=2)
    assert w.handle(event).paused
    assert w.actions.ran == []
    resume(w.store, now=w.clock())
    w.ticks(2)
    assert [task_id for task_id, _, _ in w.actions.ran] == ["lost"]


def test_wake_ups_obey_it_and_the_tick_after_it_runs_their_tasks() -> None:
    w = second_world()
    w.insert_due("soon", 150)
    w.inserted("soon")
    w.next_tick()  # plans it, if the scheduler has not
    paused(w)
    messages = [(event, at) for event, at in w.queue.take() if "soon" in str(event)]
    assert messages
    w.clock.to(NOON + timedelta(seconds=90))  # a process knows the settings for a minute
    assert all(done.paused for done in w.deliver(*messages))
    w.next_tick()
    assert w.actions.ran == []
    resume(w.store, now=w.clock())
    w.next_tick()
    assert [task_id for task_id, _, _ in w.actions.ran] == ["soon"]


# -- the settings row --------------------------------------------------------------------------------------------------


def test_pausing_twice_keeps_the_first_and_resuming_twice_does_nothing() -> None:
    w = world()
    first = paused(w)
    assert first == Pause(since=first.since, by="ada", reason="a bad deployment")
    w.clock.forward(minutes=1)
    assert pause(w.store, now=w.clock(), by="bob", reason=None) == first
    assert of(read_settings(w.store)).pause == first
    ended = of(resume(w.store, now=w.clock()))
    assert replace(ended, until=None) == first
    assert resume(w.store, now=w.clock()) is None
    found = of(read_settings(w.store))
    assert (found.pause, found.pauses) == (None, (ended,))


def test_a_pause_is_not_undone_by_functions_that_publish_their_settings() -> None:
    w = world()
    read = Once(lambda change: change.task_id == SETTINGS_ID)
    w.rigged.before_write = lambda change: read(change) and paused(w) and None
    w.reconfigure(tick_minutes=5)
    publish_settings(w.store, w.rules.grid, now=w.clock())
    found = of(read_settings(w.store))
    assert (found.grid.tick_minutes, found.pause is not None) == (5, True)
    w.reconfigure(tick_minutes=1)
    publish_settings(w.store, w.rules.grid, now=w.clock())
    assert of(read_settings(w.store)).pause is not None


def test_before_the_first_tick_there_is_nothing_to_pause() -> None:
    with pytest.raises(ConfigurationError, match="no tick has come yet"):
        pause(MemoryStore(), now=NOON, by=None, reason=None)
    with pytest.raises(ConfigurationError, match="no tick has come yet"):
        resume(MemoryStore(), now=NOON)


@pytest.mark.parametrize("written", [{}, "yes", {"since": "yesterday"}, True])
def test_whatever_stands_there_pauses(written: object) -> None:
    w = world()
    w.store.put({**w.row(SETTINGS_ID), "paused": written})
    (done,) = w.next_tick()
    assert done.paused
    assert of(read_settings(w.store)).pause == Pause(since=None)
    assert of(resume(w.store, now=w.clock())).since is None
    assert not w.next_tick()[0].paused


def test_a_pause_without_an_answer_is_no_success() -> None:
    store = RiggedStore()
    publish_settings(store, Grid(), now=NOON)
    store.unanswered = lambda change: True
    with pytest.raises(StoreError, match="not known"):
        pause(store, now=NOON, by=None, reason=None)


# -- what monitors say -------------------------------------------------------------------------------------------------


def test_a_pause_is_named_and_no_fault() -> None:
    w = world()
    client = TaskClient(w.store, clock=w.clock)
    assert client.health().pause is None
    client.pause(reason="maintenance", by="ada")
    w.clock.forward(hours=3)
    health = client.health()
    assert (health.is_healthy, health.missing_ticks) == (True, 0)
    assert health.pause is not None
    assert health.to_row()["paused"] == {**health.pause.to_row(), "by": "ada", "reason": "maintenance"}
    assert client.doctor().found == 0
    client.resume()
    assert [str(finding.kind) for finding in client.health().findings] == ["cursor-behind"]


def test_ticks_of_a_pause_are_not_missing() -> None:
    w = world()
    client = TaskClient(w.store, clock=w.clock)
    w.insert("first", at=bucket_at(3))
    w.insert("second", at=bucket_at(8))
    w.ticks(3)
    w.clock.forward(seconds=30)
    client.pause()
    w.ticks(4)
    w.clock.forward(seconds=30)
    client.resume()
    w.ticks(2)
    w.clock.forward(minutes=5)
    w.insert("last", at=bucket_at(16))
    w.next_tick(2)
    shown = [(row["kind"], row.get("since"), row.get("ticks")) for row in (one.to_row() for one in client.ticks())]
    assert ("paused", "2026-12-31#12:04", 4) in shown
    assert ("missed", "2026-12-31#12:10", 6) in shown
    assert client.doctor().missed_ticks == 6
