"""Tasks in each state, and others who are faster."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from tests.builders import NOON, InProcess
from tests.unit.engine.support import RiggedStore

from dynatick import PermanentError, RetryableError, TaskClient
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate, Result
from dynatick.domain.lifecycle import claim


def fail(*_: object) -> object:
    raise PermanentError("it broke")


def fail_for_now(*_: object) -> object:
    raise RetryableError("later", retry_after=3600)


def started(world: InProcess, task_id: str) -> Result:
    """As a tick claims the task that it finds in its bucket."""
    bucket = Bucket.parse(world.row(task_id)["taskDateTime"])
    return world.store.write(claim(task_id, bucket, token="t", lease_until=NOON + timedelta(days=1), now=world.clock()))


def each_state() -> InProcess:
    """At 12:01:00.2, with a task in each state, named after it."""
    world = InProcess(store=RiggedStore())
    client = TaskClient(world.store, clock=world.clock)
    world.actions.behaviour |= {"failed": fail, "waits-for-its-retry": fail_for_now}
    world.tick()
    for name in ("completed", "failed", "waits-for-its-retry"):
        client.insert(name, delay_seconds=1)
    world.next_tick()
    client.insert("cancelled", delay_seconds=3600)
    client.cancel("cancelled")
    client.insert("scheduled", delay_seconds=3600)
    client.insert("running", task_date_time="2026-12-31#13:00")
    started(world, "running")
    client.insert("unscheduled")
    return world


def rigged(world: InProcess) -> RiggedStore:
    assert isinstance(world.store, RiggedStore)
    return world.store


def be_first(world: InProcess, does: Callable[[], object]) -> None:
    """Does something between the next read and the write after it, once."""
    store = rigged(world)

    def before(_: ConditionalUpdate) -> None:
        store.before_write = None
        does()

    store.before_write = before
