"""Workers: ranges of a large bucket that a pass hands out (protocol 17)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from tests.builders import NOON
from tests.unit.engine.support import World, bucket_at, fails, ids, is_claim, is_cursor, is_record, passed, rules

from dynatick.domain.task import Task
from dynatick.engine import division, hand_out
from dynatick.engine.cursor import acquire_shard, save
from dynatick.engine.installation_settings import pause
from dynatick.engine.ports import ActionContext
from dynatick.engine.processor import Invoked
from dynatick.engine.report import PassReport
from dynatick.engine.work_order import WorkOrder
from dynatick.errors import StoreError

QUICK = timedelta(seconds=0.1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds in a pass takes a fraction of it here."""
    for module in (division, hand_out):
        for name in ("SOON", "MIN_WORK"):
            monkeypatch.setattr(module, name, QUICK)
    monkeypatch.setattr(division, "START", timedelta(seconds=1))
    monkeypatch.setattr(division, "_MIN_MEASURED", QUICK)
    for name in ("_FIRST_PROBE", "_PROBE_INTERVAL"):
        monkeypatch.setattr(hand_out, name, QUICK)


@dataclass
class WorldWithWorkers(World):
    """A world whose workers run beside the pass that started them, each in a process of its own."""

    workers: list[Mapping[str, object]] = field(default_factory=list)  # that were asked for
    worked: list[PassReport] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)
    starts: Callable[[int], bool] = lambda number: True  # whether the worker of this number does

    def invoke(self, event: Mapping[str, object]) -> None:
        if "work" not in event["dynatick"]:  # type: ignore[operator]
            super().invoke(event)
            return
        self.workers.append(event)
        if self.starts(len(self.workers)):
            self.threads.append(threading.Thread(target=self._work, args=(event,)))
            self.threads[-1].start()

    def _work(self, event: Mapping[str, object]) -> None:
        report = self.handle(event).worked
        assert report is not None
        self.worked.append(report)

    def run_started(self) -> list[Invoked]:
        done = super().run_started()
        for thread in self.threads:
            thread.join()
        return done


def slow(task: Task, context: ActionContext) -> None:
    time.sleep(0.004)


def world_with(number: int = 500, **more: object) -> WorldWithWorkers:
    """A world at noon, with tasks in the next bucket that take a while."""
    settings = {"threads": 1, "max_workers": 3, **more}
    made = WorldWithWorkers(rules=rules(**settings))
    made.tick()
    made.insert(*ids(number))
    for task_id in ids(number):
        made.actions.behaviour[task_id] = slow
    made.rigged.forget()
    return made


def an_order(after: str | None = None, through: str = "t9", *, minutes: float = 5) -> WorkOrder:
    """For the tasks behind ``after``, until so many minutes after noon."""
    return WorkOrder(bucket=bucket_at(1), after=after, through=through, until=NOON + timedelta(minutes=minutes))


def hand_to(w: WorldWithWorkers, *orders: WorkOrder) -> None:
    """As a pass that died has left it on the cursor row."""
    before = w.cursor()
    assert save(w.store, before, replace(before, handed_out=orders)) is not None


def hold_shard(w: WorldWithWorkers) -> None:
    """It is the tick: another process has closed the bucket and leased the shard."""
    acquire_shard(w.store, 0, bucket_at(1).minute, token="other", now=NOON + timedelta(seconds=1))
    w.clock.to(NOON + timedelta(minutes=1))


def work(w: WorldWithWorkers, order: WorkOrder) -> PassReport:
    """The invocation of a worker."""
    report = w.handle(order.to_event()).worked
    assert report is not None
    return report


def ran_once(w: WorldWithWorkers, number: int = 500) -> bool:
    return Counter(task_id for task_id, _, _ in w.actions.ran) == Counter(ids(number))


def claims(w: WorldWithWorkers) -> Counter[str]:
    return Counter(change.task_id for change in w.rigged.writes if is_claim(change))


def test_a_pass_that_finds_more_than_it_can_run_soon_shares_it_with_workers() -> None:
    w = world_with()
    report = passed(w.next_tick())
    assert len(w.workers) == report.workers == 3
    assert sum(worked.completed for worked in w.worked) == report.handed_to_workers > 200
    assert report.completed + report.handed_to_workers == 500
    assert ran_once(w)
    assert set(claims(w).values()) == {1}, "what is handed out is claimed by its worker alone"
    assert w.cursor().handed_out == ()
    w.until_drained()


@pytest.mark.parametrize(
    ("number", "max_workers"), [(100, 0), (20, 3)], ids=["there are no workers", "it can run all of it soon"]
)
def test_a_pass_runs_everything_itself_if(number: int, max_workers: int) -> None:
    w = world_with(number, max_workers=max_workers)
    report = passed(w.next_tick())
    assert (report.workers, w.workers) == (0, [])
    assert ran_once(w, number)


def test_what_a_worker_leaves_undone_the_pass_runs_when_the_order_is_over() -> None:
    w = world_with()
    w.starts = lambda number: number != 2
    report = passed(w.next_tick())
    assert ran_once(w), "one worker never started"
    assert report.completed > 500 - report.handed_to_workers
    w.until_drained()


def test_a_pass_that_dies_leaves_its_ranges_to_their_workers_until_the_orders_are_over() -> None:
    w = world_with(50)
    hand_to(w, an_order("t0009", "t0039", minutes=1 + 1.5 / 60))
    w.next_tick()
    polled_early = {change.task_id for change in w.rigged.writes[:40] if is_claim(change)}
    assert polled_early & set(ids(50)[10:40]) == set(), "the first claims leave the range alone"
    assert ran_once(w, 50), "and when the order is over, the pass runs what is left"


def test_a_bucket_with_a_range_that_is_handed_out_is_not_drained() -> None:
    w = world_with(50, in_one_thread=True)  # such a pass doesn't wait for workers
    order = an_order("t0009", "t0039", minutes=14)
    hand_to(w, order)
    w.ticks(8)
    assert {task_id for task_id, _, _ in w.actions.ran} == {*ids(50)[:10], *ids(50)[40:]}
    assert w.cursor().drained_through == bucket_at(0).minute
    assert w.cursor().handed_out == (order,)
    w.next_tick(8)
    assert ran_once(w, 50)
    w.until_drained()


def test_ranges_of_earlier_ticks_count_against_max_workers() -> None:
    w = world_with()
    hand_to(w, *(replace(an_order("a", f"b{n}", minutes=1 + 2 / 60), bucket=bucket_at(0)) for n in range(2)))
    w.first_pass()
    w.run_started()
    listed = [
        len(change.set["handedOut"])  # type: ignore[arg-type]
        for change in w.rigged.writes
        if is_cursor(change) and isinstance(change.set.get("handedOut"), list)
    ]
    assert max(listed) == 3
    assert ran_once(w)


def test_a_worker_that_cannot_be_started_changes_nothing() -> None:
    w = world_with(300)

    def refuse(event: Mapping[str, object]) -> None:
        raise StoreError("no more processes")

    w.invoke = refuse  # type: ignore[method-assign]
    w.clock.to(NOON + timedelta(minutes=1))
    invoked = w.handle({"time": "2026-12-31T12:01:00Z"})
    assert {one.problem for one in invoked.not_started} == {"no more processes"}
    assert invoked.passed is not None
    assert (invoked.passed.completed, invoked.passed.handed_to_workers) == (300, 0)


def test_a_worker_that_starts_late_does_nothing() -> None:
    w = world_with(60)
    hold_shard(w)
    w.clock.to(NOON + timedelta(minutes=2, seconds=1))
    worked = work(w, an_order("t0009", "t0039", minutes=2))
    assert (worked.claimed, w.actions.ran) == (0, [])


def test_a_worker_claims_nothing_once_its_order_is_over() -> None:
    w = world_with(400)
    hold_shard(w)
    until = w.clock() + timedelta(seconds=20)
    w.actions.behaviour["t0003"] = lambda task, context: w.clock.forward(seconds=20) and None
    worked = work(w, replace(an_order(), until=until))
    assert 0 < worked.completed == worked.claimed < 400
    assert {w.row(task_id)["status"] for task_id in ids(400)} == {"completed", "scheduled"}


def test_a_worker_moves_a_retry_into_a_bucket_that_is_still_open() -> None:
    """It holds no cursor: a tick may have closed the bucket before the write."""
    w = world_with(1)
    hold_shard(w)
    w.life = timedelta(minutes=14)
    w.actions.behaviour["t0000"] = fails
    first = w.rigged.meanwhile(
        lambda change: is_record(change) and change.set["status"] == "scheduled", lambda: w.first_pass(7)
    )
    work(w, an_order())
    assert first.done
    assert str(w.row("t0000")["taskDateTime"]) > "2026-12-31#12:07"
    w.actions.behaviour.clear()
    w.ticks(2)
    assert w.outcome("t0000") == "completed"


def test_a_worker_leaves_schedules_and_limited_tasks_to_the_holder() -> None:
    w = world_with(30, limited_actions=frozenset({"slow"}))
    w.insert("t0010a", action="slow")
    w.put(taskId="t0011a", scheduleExpression="rate(1 minute)", action="log")
    hold_shard(w)
    work(w, an_order())
    assert ran_once(w, 30)
    w.next_tick(2)
    assert "t0010a" in {task_id for task_id, _, _ in w.actions.ran}


def test_a_worker_stops_when_everything_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynatick.engine.worker.PAUSE_CHECK", timedelta())
    w = world_with(400)
    hold_shard(w)
    w.actions.behaviour["t0003"] = lambda task, context: str(pause(w.store, now=w.clock(), by="me", reason=None))
    worked = work(w, an_order())
    assert worked.paused
    assert 4 <= worked.completed < 400
    assert w.handle(an_order().to_event()).paused
