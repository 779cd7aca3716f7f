"""The remaining time, the rate limits of actions, and memory limit how many tasks a pass begins. None waits for ever,
none is lost, and none loses an attempt."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pytest
from tests.builders import NOON
from tests.unit.engine.support import (
    PacedClock,
    World,
    bucket_at,
    fails,
    ids,
    is_claim,
    is_record,
    passed,
    reports,
    rules,
    takes,
    world,
)

from dynatick.actions.dead_letter import message_of
from dynatick.actions.rate_limit import RateLimits
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.lifecycle import RELEASED
from dynatick.domain.row import Due
from dynatick.domain.task import LargeRow, Row, Task
from dynatick.engine import invocation, polling
from dynatick.engine.invocation import Budget, max_timeout_seconds
from dynatick.engine.orders import WakeUp, WorkOrder
from dynatick.engine.ports import ActionContext
from dynatick.errors import RateLimited
from dynatick.store import memory
from dynatick.store.codec import decode
from dynatick.store.large import LargeItem

# -- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("life", "claiming", "waiting", "longest_timeout"),
    [(900, 880, 897, 892), (120, 100, 117, 112), (80, 60, 77, 72), (60, 45, 57, 52), (30, 22.5, 28.5, 25),
     (20, 15, 19, 17), (1, 0.75, 0.95, 0), (0, 0, 0, 0), (-5, -5, -5, -5)],
)  # fmt: skip
def test_how_an_invocation_spends_its_time(life: float, claiming: float, waiting: float, longest_timeout: int) -> None:
    budget = Budget.until(NOON + timedelta(seconds=life), NOON)
    ends = (budget.stop_claiming, budget.stop_waiting, budget.hard_end)
    assert ends == tuple(NOON + timedelta(seconds=one) for one in (claiming, waiting, life))
    assert max_timeout_seconds(timedelta(seconds=life)) == longest_timeout


def world_with_one_thread(*, life: float = 120, known: bool = True, **settings: object) -> World:
    """``known``: the configured longest timeout is that of invocations of this ``life``."""
    maximum = max_timeout_seconds(timedelta(seconds=life)) if known else None
    one_thread = rules(threads=1, max_timeout_seconds=maximum, **settings)
    return world(clock=PacedClock(), rules=one_thread, life=timedelta(seconds=life))


def insert(w: World, *task_ids: str, seconds: float, at: int = 1, **more: object) -> list[float]:
    """Tasks that take so long by the clock. Returns how many seconds were left when each began."""
    w.insert(*task_ids, at=bucket_at(at), **more)
    left, work = list[float](), takes(w, seconds=seconds)

    def run(task: Task, context: ActionContext) -> None:
        left.append((context.deadline - w.clock()).total_seconds())
        work(task, context)

    w.behave(run, *task_ids)
    return left


@pytest.mark.parametrize("declared_by", ["task", "handler"])
def test_a_task_is_not_begun_with_less_time_left_than_it_takes(declared_by: str) -> None:
    w = world_with_one_thread()
    insert(w, *ids(7, "a"), seconds=10)
    left = insert(w, "long", seconds=60, **({"timeoutSeconds": Decimal(60)} if declared_by == "task" else {}))
    if declared_by == "handler":
        w.actions.timeouts["long"] = 60
    first, second = reports(w.next_tick())
    assert (first.completed, first.released, first.continued) == (7, 1, True)
    assert (second.completed, second.continuation) == (1, 1)
    assert left[0] > 110, "it was the first of a new invocation"
    w.assert_each_ran_once(*ids(7, "a"), "long")


def test_a_pass_that_meets_many_long_tasks_leaves_those_behind_unclaimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "MAX_CLAIMS", 1)  # so that the first of them all is the first to begin
    w = world_with_one_thread(max_continuations=0)
    insert(w, "first", seconds=60)
    insert(w, *ids(1000, "long"), seconds=60, timeoutSeconds=Decimal(60))
    (report,) = reports(w.next_tick())
    assert (report.completed, report.claimed - report.released) == (1, 1)
    assert report.claimed < 300, "not a claim and a release for each of the thousand"


def test_a_long_task_that_does_not_fit_makes_no_chain_of_invocations() -> None:
    """Invocations are shorter than is known: it waits, is tried at each tick, and delays no other."""
    w = world_with_one_thread(life=60, known=False)
    insert(w, "long", seconds=100, timeoutSeconds=Decimal(100))
    insert(w, "a", seconds=1, at=2)
    insert(w, "b", seconds=1, at=3)
    done = reports(w.next_tick(3))
    w.assert_each_ran_once("a", "b")
    assert all(report.completed for report in done[:-1]), "none went on that had done nothing"
    assert not done[-1].continued
    for _ in range(3):
        assert len(reports(w.next_tick())) == 1
    assert (w.actions.times("long"), w.row("long")["attempt"]) == (0, 0)
    assert w.cursor().drained_through < bucket_at(1).minute, "its bucket is not passed"


def test_a_task_whose_process_died_and_that_does_not_fit_makes_no_chain_of_invocations() -> None:
    w = world_with_one_thread(life=60, known=False)
    insert(w, "long", seconds=100, timeoutSeconds=Decimal(100))
    w.claim("long", until=NOON + timedelta(seconds=30))
    for minutes in (3, 1, 1, 1):
        _, recovery = w.next_tick(minutes)  # which does not continue
        assert recovery.recovered is not None
        assert recovery.recovered.recovered == 0
    assert (w.actions.times("long"), w.row("long")["attempt"]) == (0, 1)
    assert w.cursor().drained_through < bucket_at(1).minute


def test_an_attempt_that_takes_longer_than_its_timeout_is_logged_and_counted_and_not_interrupted(
    logged: list[logging.LogRecord],
) -> None:
    w = world_with_one_thread()
    insert(w, "long", seconds=31, timeoutSeconds=Decimal(30), payload={"secret": "xyzzy"})
    insert(w, "quick", seconds=1, timeoutSeconds=Decimal(30))
    report = passed(w.next_tick())
    assert (report.completed, report.overran) == (2, 1)
    w.assert_each_ran_once("long", "quick")
    (record,) = logged
    said = vars(record)
    assert (said["action"], said["task_id"], said["attempt"], said["run"]) == ("attempt_overran", "long", 1, 1)
    assert (said["handler"], said["timeout_seconds"]) == ("log", 30)
    assert 31 <= said["seconds"] < 60
    assert "xyzzy" not in str(said)


@pytest.mark.parametrize(
    ("own", "overran"), [({"timeoutSeconds": Decimal(30)}, 1), ({}, 0)], ids=["longer than declared", "undeclared"]
)
def test_an_attempt_that_still_runs_at_the_end_is_logged_once_if_it_takes_longer_than_its_timeout(
    own: dict[str, object], overran: int, logged: list[logging.LogRecord]
) -> None:
    w, go, ended = world_with_one_thread(), threading.Event(), threading.Event()

    def hangs(task: Task, context: ActionContext) -> None:
        w.clock.forward(seconds=120)
        assert go.wait(30)
        ended.set()

    w.insert("hangs", **own)
    w.behave(hangs, "hangs")
    report = passed(w.next_tick())
    assert (report.unfinished, report.overran) == (1, overran)
    assert [vars(record)["task_id"] for record in logged] == ["hangs"] * overran
    go.set()
    assert ended.wait(60)


# -- rate limits -----------------------------------------------------------------------------------------------------


def limited(limit: str, horizon: float = 60.0, **settings: object) -> World:
    """A world with the rate limit of an action. ``horizon``: short where a test is about turns beyond it, for turns
    within are waited for.

    The pool really waits until a task's turn; when it hands the task on, so much time has passed by the clock too.
    """
    w = world(**settings)
    rate_limits, run = RateLimits([limit], clock=w.clock, horizon=horizon), w.actions.run
    turns: dict[str, datetime] = {}

    def paced(task: Task, context: ActionContext) -> object:
        w.clock.to(turns.pop(str(task.lease), w.clock()))
        try:
            rate_limits.acquire(task, task.action)
        except RateLimited as early:
            turns[str(task.lease)] = w.clock() + timedelta(seconds=early.seconds + 0.001)  # no wait ends early
            raise
        return run(task, context)

    w.actions.run, w.actions.names = paced, lambda: ["log", "slow"]  # type: ignore[method-assign]
    return w


def test_tasks_wait_for_their_rate_limit_within_a_pass_and_delay_no_others() -> None:
    w = limited("slow=2/s", rules=rules(threads=2))
    w.insert(*ids(6, "a"), action="slow")
    w.insert(*ids(150, "b"), action="log")
    report = passed(w.next_tick())
    w.assert_each_ran_once(*ids(6, "a"), *ids(150, "b"))
    assert w.ran[-1].startswith("a")
    assert (report.completed, report.released, report.retried) == (156, 0, 0)


def test_tasks_that_still_wait_for_their_rate_limit_when_time_runs_out_are_released() -> None:
    w = limited("log=10/s", life=timedelta(seconds=3))
    w.insert(*ids(45))
    done = w.next_tick()
    assert passed(done).released > 0
    assert len(done) > 1, "it went on at once"
    w.ticks(3)
    w.assert_each_ran_once(*ids(45))


def test_a_task_whose_rate_limit_is_far_off_goes_to_a_later_tick() -> None:
    w = limited("log=2/m", horizon=0.5)
    w.insert(*ids(7))
    report = passed(w.next_tick())
    assert (report.completed, report.released, report.retried) == (1, 6, 0)
    waiting = w.open_rows().values()
    assert max(str(row["taskDateTime"]) for row in waiting) >= str(bucket_at(3)), "spread over the ticks to come"
    assert {(row["status"], row["attempt"]) for row in waiting} == {("scheduled", 0)}
    w.ticks(8)
    w.assert_each_ran_once(*ids(7))
    assert not any("attempts" in w.row(task_id) for task_id in ids(7)), "no attempt was lost"


# -- rows whose payloads wait undecoded, for memory ------------------------------------------------------------------


PAYLOAD = {"to": "ada", "values": [1, {"a": []}]}


@pytest.fixture
def payloads_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(item: Mapping[str, Mapping[str, Any]]) -> Row:
        large = {name: orjson.dumps(item[name]) for name in ("payload", "mine") if name in item}
        small = {name: dict(value) for name, value in item.items() if name not in large}
        return decode(LargeItem(small, large) if large else item)

    monkeypatch.setattr(memory, "decode", kept)


@pytest.mark.usefixtures("payloads_are_large")
def test_an_action_gets_all_of_its_row_be_it_raw_or_reclaimed_or_an_occurrence_and_so_does_its_dead_letter() -> None:
    w, occurrences = world(), [f"s#1#2026-12-31T12:0{n}:00Z" for n in (1, 2)]
    seen: list[tuple[str, object, object]] = []
    noted = ("crashed", "raw", "t", *occurrences)
    w.behave(lambda task, context: seen.append((task.task_id, task.payload, task.attributes)), *noted)
    w.insert("crashed", "t", payload=PAYLOAD, mine=[1, 2])
    w.insert("fails", payload=PAYLOAD, retryPolicy={"maximumRetryAttempts": 0})
    w.behave(fails, "fails")
    w.put(taskId="raw", payload=PAYLOAD)
    w.put(taskId="s", scheduleExpression="rate(1 minute)", payload=PAYLOAD, mine=[3], endDate="2026-12-31T12:03:00Z")
    assert isinstance(w.row("s"), LargeRow)
    w.claim("crashed", until=w.clock())
    w.until_drained()
    of_row, of_schedule = {"mine": [1, 2]}, {"mine": [3]}
    assert sorted(seen) == [
        ("crashed", PAYLOAD, of_row), ("raw", PAYLOAD, {}), *((i, PAYLOAD, of_schedule) for i in occurrences),
        ("t", PAYLOAD, of_row),
    ]  # fmt: skip
    assert [w.outcome(task_id) for task_id in ("crashed", "raw", "t", "fails")] == ["completed"] * 3 + ["failed"]
    assert (w.row("t")["payload"], w.row(occurrences[0])["payload"]) == (PAYLOAD, PAYLOAD)
    assert [orjson.loads(message_of(letter))["payload"] for letter in w.dead_letters.letters] == [PAYLOAD]


@pytest.mark.usefixtures("payloads_are_large")
@pytest.mark.parametrize("maximum", [1, 10**9])
def test_what_waits_in_memory_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch, maximum: int) -> None:
    """Beyond the bound nothing is claimed until something was recorded; claims that are under way may pass it."""
    enough_in_flight = (2 if maximum == 1 else 4) * invocation.BATCH
    monkeypatch.setattr(invocation, "MAX_LARGE_IN_FLIGHT", maximum)
    w = world(rules=rules(threads=2))
    w.insert(*ids(150), payload=PAYLOAD)
    claimed, recorded = set[str](), set[str]()  # a claim may be tried again, and fail
    peak, enough = [0], threading.Event()

    def count(change: ConditionalUpdate) -> None:
        if is_claim(change):
            claimed.add(change.task_id)
        elif is_record(change):
            recorded.add(change.task_id)
        peak[0] = max(peak[0], len(claimed) - len(recorded))
        if peak[0] >= enough_in_flight:
            enough.set()

    def waits(task: Task, context: ActionContext) -> None:
        assert enough.wait(60)

    w.behave(waits, *ids(150))
    w.rigged.before_write = count
    assert passed(w.next_tick()).completed == 150
    assert peak[0] == enough_in_flight


# -- near the end, what has not begun is released while there is time to -----------------------------------------------

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
