"""Tasks in each state, and others who are faster."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.builders import NOON, InProcess
from tests.unit.engine.support import World, world

from dynatick import CompleteLater, PermanentError, RetryableError, TaskClient
from dynatick.actions.testing import MemoryDeadLetterQueue
from dynatick.client import TaskView
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import Condition, ConditionalUpdate, Result
from dynatick.domain.lifecycle import claim, release_claim
from dynatick.engine.rules import Rules

# What a user asks of a task.
WISHES: dict[str, Callable[[TaskClient, str], TaskView]] = {
    "change": lambda client, task_id: client.update(task_id, payload={"n": 1}),
    "cancel": lambda client, task_id: client.cancel(task_id),
    "reschedule": lambda client, task_id: client.reschedule(task_id, due_at="2026-12-31T14:00:00Z"),
    "redrive": lambda client, task_id: client.redrive(task_id),
    "restore": lambda client, task_id: client.restore(task_id),
    "run": lambda client, task_id: client.run_now(task_id),
}


def world_of(tick_minutes: int = 1, shard_count: int = 1, **rules: Any) -> World:
    """Scheduler and processor with this grid, after the first tick."""
    return world(rules=Rules(grid=Grid(tick_minutes=tick_minutes, shard_count=shard_count), **rules))


def client_of(world: InProcess, **options: Any) -> TaskClient:
    return TaskClient(world.store, clock=world.clock, **options)


def fail(*_: object) -> object:
    raise PermanentError("it broke")


def fail_for_now(*_: object) -> object:
    raise RetryableError("later", retry_after=3600)


def started(world: InProcess, task_id: str) -> Result:
    """Claims a task in its bucket, which a tick does."""
    bucket = Bucket.parse(world.row(task_id)["taskDateTime"])
    return world.store.write(claim(task_id, bucket, token="t", lease_until=NOON + timedelta(days=1), now=world.clock()))


def released(world: InProcess, task_id: str) -> None:
    """Claims a task in its bucket and releases it, as a pass does that has no time for it."""
    started(world, task_id)
    change = release_claim(world.row(task_id), "t")
    assert change is not None
    world.store.write(change)


def each_state() -> World:
    """An installation at 12:01:00.2, with a task in each state, named after it."""
    world = world_of()
    client = client_of(world)
    world.actions.behaviour |= {"failed": fail, "waits-for-its-retry": fail_for_now}
    world.actions.behaviour["waiting"] = lambda *_: CompleteLater(timedelta(hours=8))
    for name in ("completed", "failed", "waits-for-its-retry", "waiting"):
        client.insert(name, delay_seconds=1)
    world.next_tick()
    client.insert("cancelled", delay_seconds=3600)
    client.cancel("cancelled")
    client.insert("scheduled", delay_seconds=3600)
    client.insert("running", task_date_time="2026-12-31#13:00")
    started(world, "running")
    client.insert("unscheduled")
    return world


def with_failures(queue: MemoryDeadLetterQueue, **given: Any) -> World:
    """An installation at 12:01:00.2, in which the tasks a, b and c have failed. ``given``: more arguments of them."""
    world = World(dead_letters=queue)
    world.tick()
    for name in "abc":
        world.actions.behaviour[name] = fail
        client_of(world).insert(name, delay_seconds=1, **given)
    world.next_tick()
    return world


def page(name: str) -> str:
    """The text of a how-to page."""
    return (Path(__file__).parents[3] / "docs" / "how-to" / name).read_text(encoding="utf-8")


def examples(text: str) -> list[str]:
    """The examples in Python of a page."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def be_first(world: World, does: Callable[[], object]) -> AbstractContextManager[None]:
    """Does something between the next read and the write after it, which must come, and is none of a record."""
    return world.rigged.meanwhile(lambda change: not is_record(change), does)


def is_record(change: ConditionalUpdate) -> bool:
    """Whether a write is one of the record of a change of many tasks."""
    return change.task_id.startswith("_dynatick#change#")


def before_deletes(world: InProcess, patch: pytest.MonkeyPatch, *others: Callable[[], object]) -> None:
    """Does one of these before each delete, until they are done."""
    delete, left = world.store.delete, list(others)

    def late(task_id: str, conditions: Sequence[Condition] = ()) -> bool:
        if left:
            left.pop(0)()
        return delete(task_id, conditions)

    patch.setattr(world.store, "delete", late)
