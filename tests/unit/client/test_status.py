"""What `status` says of an installation."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.builders import NOON
from tests.unit.client.support import client_of, world_of
from tests.unit.engine.support import World, fails, ids

from dynatick import TaskClient
from dynatick.client import status as status_module
from dynatick.domain.buckets import Grid
from dynatick.domain.task import Task
from dynatick.engine.installation_settings import publish_settings
from dynatick.engine.ports import ActionContext
from dynatick.store.memory import MemoryStore

ONCE = {"maximumRetryAttempts": 0}


def test_what_ran_what_failed_and_what_waits(world: World, client: TaskClient) -> None:

    def no_mailbox(task: Task, context: ActionContext) -> None:
        raise LookupError("no such mailbox")

    world.actions.behaviour = {"bad-0": fails, "bad-1": fails, "worse": no_mailbox}
    for task_id in (*ids(5), "bad-0", "bad-1", "worse", "never"):
        client.insert(task_id, due_at=NOON + timedelta(seconds=30), retry_policy=ONCE)
    client.cancel("never")
    client.insert("soon", due_at=NOON + timedelta(hours=23))
    client.insert("later", due_at=NOON + timedelta(hours=26))
    world.next_tick()
    client.insert("due", due_at=world.clock())
    world.clock.forward(seconds=90)
    found = client.status()
    assert (found.state, found.completed, found.failed, found.cancelled) == ("running", 5, 3, 1)
    assert (found.waiting, found.due_now, found.running) == (1, 1, 0)
    assert found.oldest_due == NOON + timedelta(minutes=2)
    assert found.next_tick == NOON + timedelta(minutes=3)
    assert found.until - found.since == timedelta(hours=48)
    assert set(found.lateness) == {"p50", "p99", "max"}
    frequent, other = found.failures
    assert (frequent.action, frequent.error, frequent.count) == ("log", "ValueError: no", 2)
    assert frequent.task_id in ("bad-0", "bad-1")
    assert (other.error, other.count, other.task_id) == ("LookupError: no such mailbox", 1, "worse")
    assert other.first == other.last == client.get("worse").finished_at


def test_states(world: World, client: TaskClient) -> None:
    assert client.status().state == "running"
    publish_settings(world.store, Grid(), now=NOON, processor_problem="no handlers")
    assert (client.status().state, client.status().processor_problem) == ("failing", "no handlers")
    world.next_tick()
    client.pause()
    assert client.status().state == "paused"
    client.resume()
    world.clock.forward(minutes=30)
    assert client.status().state == "stopped"
    assert TaskClient(MemoryStore()).status().state == "stopped", "no tick has come yet"


def test_tasks_that_run_are_counted(world: World, client: TaskClient) -> None:
    client.insert("t", due_at=NOON + timedelta(seconds=30))
    seen: list[tuple[int, int | None]] = []
    world.actions.behaviour["t"] = lambda task, context: seen.append((client.status().due_now, client.status().running))
    world.next_tick()
    assert seen == [(1, 1)]


def test_it_reads_no_more_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_module, "MAX_POLLS", 1000)
    world = world_of(shard_count=2)
    world.tick()
    world.rigged.forget()
    found = client_of(world).status()
    assert len(world.rigged.polls) <= 1000
    assert found.until - found.since == timedelta(hours=8), "four hours each way"
    monkeypatch.setattr(status_module, "MAX_ENTRIES", 3)
    world.insert(*ids(5))
    world.next_tick()
    found = client_of(world).status()
    assert (found.completed, found.until - found.since) == (5, timedelta(hours=5)), "one hour of the past was enough"
