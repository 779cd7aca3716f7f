"""Two processes drain one shard at the same time, in threads: every attempt of every task is made once.

The contract suite has the plain case over every store; here tasks fail and come again, ticks go on, and neither knows
of the other.
"""

from __future__ import annotations

import threading
from collections import Counter
from decimal import Decimal

import pytest
from tests.unit.engine.support import World, bucket_at, world

from dynatick.domain.task import Task
from dynatick.engine.cursor import Cursor
from dynatick.engine.ports import ActionContext

TASKS = [f"t{n:03d}" for n in range(120)]


def both_at_once(w: World, drainers: int) -> None:
    begin = threading.Barrier(drainers)
    faults: list[BaseException] = []

    def drain() -> None:
        try:
            begin.wait(10)
            w.tick()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=drain) for _ in range(drainers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert faults == []


@pytest.mark.parametrize("drainers", [2, 4])
@pytest.mark.parametrize("lease", [True, False])
def test_each_attempt_is_made_once(drainers: int, lease: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the shard lease one does the work; without it all do, and only the claims keep them apart (rules 9, 16)."""
    if not lease:
        monkeypatch.setattr(Cursor, "is_leased", lambda self, now: False)
    w = world()
    fails = {task_id: n % 3 for n, task_id in enumerate(TASKS)}  # how often
    for n, task_id in enumerate(TASKS):
        w.insert(task_id, at=bucket_at(1 + n % 2), retryPolicy={"minBackoffSeconds": Decimal(0)})

    def sometimes(task: Task, context: ActionContext) -> None:
        if context.attempt <= fails[task.task_id]:
            raise ValueError("not yet")

    w.actions.behaviour = dict.fromkeys(TASKS, sometimes)
    for _ in range(7):
        w.clock.forward(minutes=1)
        both_at_once(w, drainers)
    assert Counter(w.actions.ran) == {(i, 1, attempt): 1 for i in TASKS for attempt in range(1, fails[i] + 2)}
    assert {w.outcome(task_id) for task_id in TASKS} == {"completed"}
    w.until_drained()


def test_expired_leases_are_reclaimed_by_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cursor, "is_leased", lambda self, now: False)
    w = world()
    crashed = TASKS[:20]
    w.insert(*crashed, at=bucket_at(1))
    w.claim(*crashed, until=bucket_at(1).instant)
    for _ in range(4):
        w.clock.forward(minutes=1)
        both_at_once(w, 3)
    assert Counter(w.actions.ran) == {(task_id, 1, 2): 1 for task_id in crashed}
    assert {w.outcome(task_id) for task_id in crashed} == {"completed"}
