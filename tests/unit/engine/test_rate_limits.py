"""Tasks that come faster than their action may be used: they wait without a thread, or for a later tick; none is lost,
and none loses an attempt."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from tests.builders import FakeActions
from tests.unit.engine.support import World, bucket_at, ids, passed, rules, world

from dynatick.actions.rate_limit import RateLimits
from dynatick.domain.buckets import Bucket
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext, Clock


class Paced(FakeActions):
    """Actions under limits; ``began``: when each task was let through."""

    def __init__(self, *limits: str, clock: Clock, horizon: float = 60.0) -> None:
        super().__init__()
        self.began: dict[str, datetime] = {}
        self._limits = RateLimits(limits, clock=clock, horizon=horizon)
        self._clock = clock

    def names(self) -> list[str]:
        return ["log", "slow"]

    def run(self, task: Task, context: ActionContext) -> object:
        self._limits.acquire(task, task.action)
        self.began[task.task_id] = self._clock()
        return super().run(task, context)


def a_world(*limits: str, horizon: float = 60.0, **settings: object) -> tuple[World, Paced]:
    """``horizon``: short where a test is about turns beyond it, for turns within are waited for."""
    w = world(**settings)
    actions = Paced(*limits, clock=w.clock, horizon=horizon)
    w.actions = actions
    return w, actions


def assert_each_ran_once(w: World, actions: Paced, *wanted: str) -> None:
    assert Counter(task_id for task_id, _, _ in actions.ran) == Counter(wanted)
    for task_id in wanted:
        row = w.row(task_id)
        assert row["outcome"] == "completed"
        assert row["attempt"] == 1, "no attempt was lost"
        assert "attempts" not in row


def test_tasks_wait_for_their_rate_limit_within_a_pass() -> None:
    w, actions = a_world("log=50/s")
    w.insert(*ids(90))
    report = passed(w.next_tick())
    assert_each_ran_once(w, actions, *ids(90))
    began = sorted(actions.began.values())
    for first, later in zip(began, began[55:], strict=False):
        assert later - first >= timedelta(seconds=0.08), "55 in less than a tenth of a second"
    assert began[-1] - began[0] >= timedelta(seconds=0.7)
    assert (report.completed, report.released, report.retried) == (90, 0, 0)


def test_tasks_that_wait_for_a_rate_limit_delay_no_others() -> None:
    w, actions = a_world("slow=2/s", rules=rules(threads=2))
    w.insert(*ids(6, "a"), action="slow")
    w.insert(*ids(150, "b"), action="log")
    w.next_tick()
    assert_each_ran_once(w, actions, *ids(6, "a"), *ids(150, "b"))
    assert max(actions.began[task_id] for task_id in ids(150, "b")) < actions.began["a0005"]


def test_time_that_runs_out_gives_back_those_that_wait() -> None:
    w, actions = a_world("log=10/s", life=timedelta(seconds=3))
    w.insert(*ids(45))
    done = w.next_tick()
    assert passed(done).released > 0
    assert len(done) > 1, "it went on at once"
    for _ in range(3):
        w.next_tick()
    assert_each_ran_once(w, actions, *ids(45))


def test_a_task_whose_rate_limit_is_far_off_goes_to_a_later_tick() -> None:
    w, actions = a_world("log=2/m", horizon=0.5)
    w.insert(*ids(7))
    report = passed(w.next_tick())
    assert (report.completed, report.released, report.retried) == (1, 6, 0)
    waiting = {task_id: Bucket.parse(row["taskDateTime"]) for task_id, row in w.open_rows().items()}
    minutes = sorted(bucket.minute - bucket_at(0).minute for bucket in waiting.values())
    assert minutes[-1] >= 3, f"they are spread over the ticks to come: {minutes}"
    assert {(w.row(i)["status"], w.row(i)["attempt"]) for i in waiting} == {("scheduled", 0)}
    w.ticks(8)
    assert_each_ran_once(w, actions, *ids(7))
