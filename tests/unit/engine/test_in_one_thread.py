"""Rules.in_one_thread: the same passes, in the caller's thread, one thing after another."""

from __future__ import annotations

import threading

from tests.unit.engine.support import ids, passed, rules, world

from dynatick.domain.task import Task
from dynatick.engine.io_pool import IoPool
from dynatick.engine.ports import ActionContext

IN_ONE_THREAD = rules(in_one_thread=True)


def test_a_pass_starts_no_thread_and_runs_tasks_in_order_of_their_ids() -> None:
    w, seen = world(rules=IN_ONE_THREAD), list[tuple[str, int]]()

    def noted(task: Task, context: ActionContext) -> None:
        seen.append((task.task_id, threading.get_ident()))

    names = ids(130)
    w.actions.behaviour = dict.fromkeys(names, noted)
    w.insert(*reversed(names))
    before = set(threading.enumerate())  # those of earlier tests may end meanwhile
    report = passed(w.next_tick())
    assert report.completed == 130
    assert set(threading.enumerate()) <= before
    assert seen == [(name, threading.get_ident()) for name in names]


def test_the_io_pool_reports_a_job_before_submit_returns() -> None:
    done: list[int] = []
    pool = IoPool(min_threads=1, max_threads=1, max_wait_seconds=0, name="t", report=lambda event: event(),
                  in_one_thread=True)  # fmt: skip
    for n in range(3):
        pool.submit(lambda n=n: lambda: done.append(n))  # type: ignore[misc]
        assert done == list(range(n + 1))
        pool.grow()
    pool.close()
    assert pool.running == 0
