"""Near the end of an invocation: what it has claimed and not begun, it releases while there is time to."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta

from tests.builders import NOON
from tests.unit.engine.support import World, bucket_at, ids, rules, world

from dynatick.domain.lifecycle import RELEASED
from dynatick.domain.row import Due
from dynatick.domain.task import Task
from dynatick.engine.orders import WakeUp, WorkOrder
from dynatick.engine.ports import ActionContext

TASKS = ids(10)
AT = bucket_at(1)


def with_a_slow_task(seconds: float, released: Sequence[str], **settings: object) -> World:
    """A world at 12:01 whose first task takes so long, and until these are released. An invocation has 120 s."""
    w = world(rules=rules(**settings))
    w.insert(*TASKS[1:], at=AT, action="other")
    w.insert(TASKS[0], at=AT)
    w.clock.to(AT.instant)

    def takes(task: Task, context: ActionContext) -> None:
        w.clock.forward(seconds=seconds)
        for _ in range(30_000):
            if all(w.row(task_id).get("leaseUntil") == RELEASED for task_id in released):
                return
            threading.Event().wait(0.001)  # wait: between two looks at the condition
        raise AssertionError("they were not released")

    w.behave(takes, TASKS[0])
    return w


def test_a_worker_begins_nothing_more_once_it_has_to_stop_claiming() -> None:
    """A task that begins later might be cut off."""
    w = with_a_slow_task(105, TASKS[1:], threads=1, max_workers=1)
    order = WorkOrder(bucket=AT, after=None, through="z", until=NOON + timedelta(minutes=9))
    report = w.handle(order.to_event()).worked
    assert report is not None
    assert (report.completed, report.released, w.ran) == (1, 9, TASKS[:1])


def test_a_wake_up_releases_what_it_cannot_begin_though_another_task_runs_to_the_last() -> None:
    """A task whose action has a rate limit is the shard's holder's to run."""
    w = with_a_slow_task(117, TASKS[1:], limited_actions=frozenset({"other"}))
    wake_up = WakeUp(bucket=AT, due=tuple(Due(AT.instant, task_id) for task_id in TASKS))
    report = w.handle(wake_up.to_event()).woken
    assert report is not None
    assert (report.completed, report.released, w.ran) == (1, 9, TASKS[:1])
