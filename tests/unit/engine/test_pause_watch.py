"""Everything is paused while invocations work: ten seconds later none of them begins a task."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from tests.builders import NOON, InProcess
from tests.unit.engine.support import NOON_MINUTE, PacedClock, World, bucket_at, cannot, ids, takes, world

from dynatick.actions.rate_limit import RateLimitedAction, RateLimits
from dynatick.actions.registry import Registry
from dynatick.domain.lifecycle import RELEASED
from dynatick.domain.row import Due
from dynatick.domain.task import Task
from dynatick.engine.counts import PassReport
from dynatick.engine.invocation import PAUSE_CHECK, PauseWatch
from dynatick.engine.orders import Order, PassOrder, RecoveryOrder, WakeUp, WorkOrder
from dynatick.engine.ports import ActionContext
from dynatick.engine.processor import Invoked, Processor
from dynatick.engine.rules import Rules
from dynatick.engine.settings import SETTINGS_ID, pause, read_pauses, resume
from dynatick.errors import StoreError

TASKS = ids(20)
SECONDS = 30
AT = bucket_at(1)


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(SECONDS * 1000):
        if condition():
            return
        threading.Event().wait(0.001)  # wait: between two looks at the condition
    raise AssertionError("it did not come to that")


def is_released(w: InProcess, task_id: str) -> bool:
    return w.row(task_id).get("leaseUntil") == RELEASED


def pause_now(w: World) -> None:
    pause(w.store, now=w.clock(), by="ada", reason="a bad deployment")


def handle(w: World, order: Order) -> tuple[Processor, Callable[[], Invoked]]:
    processor = w.processor
    return processor, lambda: processor.handle(order.to_event(), hard_end=w.clock() + w.life)  # type: ignore[union-attr]


def report_of(done: Invoked) -> PassReport:
    report = done.passed or done.recovered or done.woken or done.worked
    assert report is not None
    return report


ORDERS = [
    PassOrder(tick=NOON_MINUTE + 1),
    RecoveryOrder(bucket=AT, task_ids=tuple(TASKS)),
    WorkOrder(bucket=AT, after=None, through="z", until=NOON + timedelta(minutes=9)),
]


def with_tasks(order: Order, w: World) -> World:
    w.insert(*TASKS)
    if isinstance(order, RecoveryOrder):
        w.claim(*TASKS, until=NOON + timedelta(seconds=10))
    w.clock.to(NOON + timedelta(minutes=1, milliseconds=200))
    return w


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_what_is_claimed_and_not_begun_is_released_while_others_run(order: Order) -> None:
    clock = PacedClock()
    w = with_tasks(order, world(clock=clock, rules=Rules(threads=1)))

    def pauses(task: Task, context: ActionContext) -> None:
        if isinstance(order, PassOrder):
            clock.step = timedelta(milliseconds=10)  # so that the pass waits no longer for this task, and polls again
            wait_until(lambda: w.cursor().lease is None)  # it has done its end write
            clock.step = timedelta()
        pause_now(w)
        w.clock.forward(seconds=PAUSE_CHECK.total_seconds() + 0.1)
        wait_until(lambda: all(is_released(w, task_id) for task_id in TASKS[1:]))

    w.behave(pauses, TASKS[0])
    report = report_of(w.handle(order.to_event()))
    assert (report.paused, report.completed, report.released, report.continued) == (True, 1, 19, False)
    assert w.ran == TASKS[:1]
    assert {row["attempt"] for row in w.open_rows().values()} == {int(isinstance(order, RecoveryOrder))}
    w.started.clear()
    resume(w.store, now=w.clock())
    w.ticks(2)
    assert sorted(w.ran) == TASKS


def test_a_wake_up_claims_nothing_more() -> None:
    w = with_tasks(PassOrder(tick=0), world(rules=Rules(threads=1)))
    processor, run = handle(w, WakeUp(bucket=AT, due=tuple(Due(AT.instant, task_id) for task_id in TASKS)))

    def pauses(task: Task, context: ActionContext) -> None:
        pause_now(w)
        w.clock.forward(seconds=PAUSE_CHECK.total_seconds() + 0.1)
        wait_until(lambda: processor.executions[-1].report.paused)

    w.behave(pauses, *TASKS)
    report = report_of(run())
    assert (report.paused, report.claimed, w.ran) == (True, 1, TASKS[:1])


def test_a_wake_up_or_a_worker_knows_of_a_pause_that_a_process_has_not_read(w: World) -> None:
    """A process keeps the settings for its next invocations, but not longer than ``PAUSE_CHECK``."""
    with_tasks(ORDERS[0], w)
    wake_up = WakeUp(bucket=AT, due=(Due(AT.instant, TASKS[0]),))
    work = WorkOrder(bucket=AT, after=None, through=TASKS[1], until=NOON + timedelta(minutes=9))
    processor = w.processor
    processor.handle(wake_up.to_event(), hard_end=w.clock() + w.life)
    pause_now(w)
    w.clock.forward(seconds=PAUSE_CHECK.total_seconds() + 0.1)
    for order in (wake_up, work):
        assert processor.handle(order.to_event(), hard_end=w.clock() + w.life).paused
    assert w.ran == TASKS[:1]


def test_what_waits_for_a_rate_limit_is_released_at_once() -> None:
    w = with_tasks(ORDERS[0], world(rules=Rules(threads=4, limited_actions=frozenset({"log"}))))
    processor, run = handle(w, ORDERS[0])
    running = w.actions
    actions = Registry()
    limits = RateLimits(["log=1/m"], clock=w.clock, horizon=3600.0)
    actions.add("log", RateLimitedAction("log", running, limits))
    object.__setattr__(processor, "actions", actions)

    def pauses(task: Task, context: ActionContext) -> None:
        wait_until(lambda: processor.executions[-1].task_pool.rate_limited == len(TASKS) - 1)
        pause_now(w)
        w.clock.forward(seconds=PAUSE_CHECK.total_seconds() + 0.1)
        wait_until(lambda: sum(is_released(w, task_id) for task_id in TASKS) == len(TASKS) - 1)

    w.behave(pauses, *TASKS)
    report = report_of(run())
    assert (report.completed, report.released) == (1, len(TASKS) - 1)


def test_in_one_thread_too_nothing_begins_ten_seconds_later() -> None:
    w = with_tasks(ORDERS[0], world(rules=Rules(in_one_thread=True)))
    began: list[datetime] = []

    def takes_three_seconds(task: Task, context: ActionContext) -> None:
        began.append(w.clock())
        if len(began) == 2:
            pause_now(w)
        w.clock.forward(seconds=3)

    w.behave(takes_three_seconds, *TASKS)
    report = report_of(w.handle(ORDERS[0].to_event()))
    assert report.paused
    assert all(at < began[1] + timedelta(seconds=10) for at in began)
    assert report.completed == len(began) < 6


def test_a_short_invocation_reads_the_settings_once_and_a_long_one_every_five_seconds(
    watches: list[PauseWatch],
) -> None:
    w = with_tasks(ORDERS[0], world(clock=PacedClock(), rules=Rules(threads=1)))
    w.insert("later", at=bucket_at(9))
    began = w.clock()
    w.behave(takes(w, seconds=4.5), TASKS[0])
    w.rigged.forget()
    w.handle(PassOrder(tick=NOON_MINUTE + 1).to_event())
    assert w.rigged.reads.count(SETTINGS_ID) == 1, w.clock() - began
    w.clock.to(NOON + timedelta(minutes=9, milliseconds=200))
    w.insert(*ids(10, "long"), at=bucket_at(9))

    def takes_two_seconds(task: Task, context: ActionContext) -> None:
        takes(w, seconds=2)(task, context)
        wait_until(lambda: not watches[-1]._reading.locked())

    w.behave(takes_two_seconds, *ids(10, "long"))
    w.rigged.forget()
    report = report_of(w.handle(PassOrder(tick=NOON_MINUTE + 9).to_event()))
    assert report.completed == 11
    assert 2 <= w.rigged.reads.count(SETTINGS_ID) <= 5, "20 seconds"


def test_a_read_without_an_answer_holds_up_nothing() -> None:
    w = with_tasks(ORDERS[0], world(rules=Rules(threads=1)))
    asked, answer = threading.Event(), threading.Event()

    def silent(task_id: str) -> None:
        if task_id == SETTINGS_ID and threading.current_thread().name == "dynatick-pause":
            asked.set()
            answer.wait(SECONDS)

    w.rigged.before_read = silent
    w.behave(lambda task, context: str(w.clock.forward(seconds=2)), *TASKS[:4])
    w.behave(lambda task, context: asked.wait(SECONDS), TASKS[4])
    try:
        assert report_of(w.handle(ORDERS[0].to_event())).completed == len(TASKS)
        assert asked.is_set()
    finally:
        answer.set()


def test_a_read_that_fails_is_raised_once_what_runs_is_recorded() -> None:
    w = with_tasks(ORDERS[0], world(rules=Rules(threads=1)))
    processor, run = handle(w, ORDERS[0])

    def fails(task_id: str) -> None:
        if task_id == SETTINGS_ID and threading.current_thread().name == "dynatick-pause":
            raise cannot("read")

    def waits(task: Task, context: ActionContext) -> None:
        w.clock.forward(seconds=PAUSE_CHECK.total_seconds() + 0.1)
        wait_until(lambda: processor.executions[-1].fault is not None)

    w.rigged.before_read = fails
    w.behave(waits, TASKS[0])
    with pytest.raises(StoreError, match="cannot read"):
        run()
    assert w.outcome(TASKS[0]) == "completed"


def test_an_invocation_that_was_paused_stays_so_though_the_pause_ends(w: World) -> None:
    """It has released what it had claimed, and the next tick begins anew."""
    watch = PauseWatch(w.store, w.clock, known_at=w.clock(), in_one_thread=True)
    for ends in (pause_now, lambda w: resume(w.store, now=w.clock())):
        ends(w)
        w.clock.forward(seconds=PAUSE_CHECK.total_seconds() + 0.1)
        assert watch.is_paused()
    assert read_pauses(w.store) == (None, {})
