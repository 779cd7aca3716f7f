"""Expired leases: recoveries reclaim them apart from other tasks, whatever the backlog (protocol 10, 17)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal

import pytest
from tests.builders import NOON
from tests.unit.engine.support import PacedClock, World, bucket_at, cannot, ids, passed, raises, rules, takes, world

from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.batches import BATCH_ACTION
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import ConditionalUpdate, Lost
from dynatick.domain.lifecycle import RELEASED
from dynatick.domain.packs import Span
from dynatick.domain.task import Row, Task
from dynatick.engine.claims import LeaseExpired
from dynatick.engine.orders import MAX_ORDER_BYTES, RecoveryOrder, parse_event
from dynatick.engine.ports import ActionContext
from dynatick.engine.recovery import (
    MAX_ALONE,
    MAX_RECOVERIES,
    MAX_TOGETHER,
    ExpiredLeases,
    in_one_chain,
    orders_for,
    plan_recovery,
)
from dynatick.errors import PermanentError, StoreError
from dynatick.store.codec import item_bytes


def crashed(w: World, *task_ids: str, minute: int = 1, **more: object) -> None:
    """Tasks whose process died: their lease has expired by the next tick."""
    w.insert(*task_ids, at=bucket_at(minute), **more)
    w.claim(*task_ids, until=NOON + timedelta(seconds=10))


def test_a_continuation_polls_anew_if_its_event_could_not_hold_the_ids_that_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dynatick.engine.polling.MAX_CLAIMS", 1)  # else tasks of the second claim may begin first
    w = world(clock=PacedClock(), rules=rules(threads=1))
    leased = [f" {n:03d}" + "\x01" * 1000 for n in range(25)]
    w.insert(*leased, *ids(300), at=bucket_at(1))
    w.claim(*leased, until=NOON + timedelta(minutes=5))
    w.behave(takes(w, seconds=3), *ids(300))
    w.first_pass()
    (continuation,) = w.started
    assert len(json.dumps(continuation)) < 1000


def world_with_recovery(*task_ids: str, **settings: object) -> tuple[World, RecoveryOrder]:
    """A world whose pass has found crashed tasks; the order of the recovery that it started, which has not begun."""
    w = world(**settings)
    crashed(w, *task_ids)
    w.first_pass()
    (order,) = recoveries(w)
    w.started.clear()
    return w, order


def world_with_an_endless_lease(task_id: str = "t", **settings: object) -> World:
    """A task has a lease that no process can hold: ticks defer it, again and again."""
    w = world(**settings)
    w.insert(task_id, at=bucket_at(1))
    w.claim(task_id, until=NOON + timedelta(days=400))
    return w


def recoveries(w: World) -> list[RecoveryOrder]:
    orders = [parse_event(event, w.clock()) for event in w.started]
    return [order for order in orders if isinstance(order, RecoveryOrder)]


def expired(number: int, action: str = "a", **more: bool) -> list[tuple[object, LeaseExpired]]:
    return [(bucket_at(1), LeaseExpired(task_id, action, **more)) for task_id in ids(number, action)]


def test_orders_are_of_one_action_apart_from_last_attempts_and_bounded_in_number_and_in_bytes() -> None:
    def ordered(entries: list[tuple[object, LeaseExpired]]) -> list[tuple[str, ...]]:
        return [order.task_ids for order in orders_for(entries)]  # type: ignore[arg-type]

    mixed = [*expired(3), *expired(2, "b"), *expired(4, "a-last", is_last=True)]
    assert [sorted(one) for one in ordered(mixed[::-1])] == [ids(3, "a"), ids(2, "b"), ids(4, "a-last")]
    assert [len(one) for one in ordered(expired(MAX_TOGETHER + 1))] == [MAX_TOGETHER, 1]
    assert [len(one) for one in ordered(expired(MAX_ALONE + 1, is_last=True))] == [MAX_ALONE, 1]
    assert [len(one) for one in ordered([*expired(MAX_ALONE + 1, is_overdue=True), *expired(2)])] == [2, MAX_ALONE + 1]
    long = [(bucket_at(1), LeaseExpired(f"{n:04d}" * 256, "a")) for n in range(100)]
    assert [len(one) for one in ordered(long)] == [97, 3]
    assert [task_id for one in ordered(long) for task_id in one] == [one.task_id for _, one in long]
    for letters in ("\x01" * 1020, "😀" * 255):  # of which an event's JSON has more bytes than UTF-8
        unusual = [(bucket_at(1), LeaseExpired(f"{n:04d}{letters}", "a")) for n in range(100)]
        assert all(len(json.dumps(order.to_event())) <= 1.1 * MAX_ORDER_BYTES for order in orders_for(unusual))
        assert sorted(task_id for one in ordered(unusual) for task_id in one) == [one.task_id for _, one in unusual]


def test_orders_of_an_action_with_a_rate_limit_follow_each_other_as_far_as_an_event_holds_them() -> None:
    order = in_one_chain([*expired(MAX_TOGETHER + 1), *expired(1, "a-last", is_last=True)], NOON)  # type: ignore[list-item]
    assert [len(one.task_ids) for one in (order, *order.then)] == [MAX_TOGETHER, 1, 1]
    long = [(bucket_at(n), LeaseExpired(f"{n:04d}" * 250, "a")) for n in range(200)]
    order = in_one_chain(long, NOON)
    assert len(order.then) == MAX_ORDER_BYTES // 1002 - 1
    following = order.next(())
    assert following is not None
    assert (following.task_ids, following.until, following.continuation) == (order.then[0].task_ids, NOON, 1)
    assert following.then == order.then[1:]


LIMITED = frozenset({"slow"})


def test_of_an_action_with_a_rate_limit_one_recovery_runs_at_a_time() -> None:
    """A limit holds in one process: as many recoveries as for other actions would multiply it."""
    w = world(rules=rules(limited_actions=LIMITED))
    crashed(w, *ids(MAX_TOGETHER + 20, "s"), action="slow")
    crashed(w, *ids(3, "z"), action="slow", minute=2)
    crashed(w, *ids(MAX_TOGETHER + 20, "t"))
    w.first_pass(2)
    assert len([order for order in recoveries(w) if order.until is None]) > 1, "of the others, several"
    (limited,) = [order for order in recoveries(w) if order.until is not None]
    assert [len(order.task_ids) for order in (limited, *limited.then)] == [MAX_TOGETHER, 20, 3]
    at_once: list[int] = []
    while w.started:
        at_once.append(sum("until" in event["dynatick"]["recover"] for event in w.started))  # type: ignore[index]
        w.handle(w.started.pop(0))
    assert max(at_once) == 1
    assert len(w.ran) == len(set(w.ran)) == 2 * (MAX_TOGETHER + 20) + 3


def test_such_a_recovery_ends_when_the_next_tick_may_start_another() -> None:
    w = world(clock=PacedClock(), rules=rules(limited_actions=LIMITED, threads=1))
    crashed(w, *ids(3, "z"), action="slow")
    crashed(w, *ids(10, "s"), action="slow", minute=2)
    w.first_pass(2)
    w.behave(takes(w, seconds=40), *ids(3, "z"))
    (order,) = recoveries(w)
    w.started.clear()
    report = w.handle(order.to_event()).recovered
    assert report is not None
    assert (report.completed, report.released, report.continued, w.started) == (2, 1, False, [])
    w.actions.behaviour = {}
    w.next_tick()
    assert sorted(w.ran) == sorted([*ids(10, "s"), *ids(3, "z")])


def test_if_it_cannot_be_started_the_pass_runs_all_that_was_to_follow_too() -> None:
    w = world(rules=rules(limited_actions=LIMITED))
    crashed(w, "s", action="slow")
    crashed(w, "z", action="slow", minute=2)
    w.refused = lambda order: "recover" in order
    w.first_pass(2)
    assert sorted(w.ran) == ["s", "z"]


def test_what_is_found_expired_later_in_a_pass_waits_for_the_next_one(w: World) -> None:
    started: list[RecoveryOrder] = []

    def start(orders: Sequence[RecoveryOrder], then: Callable[[int], None]) -> None:
        started.extend(orders)
        then(len(orders))

    found = ExpiredLeases(w.first_pass(), start, NOON, LIMITED)
    for task_id in ("a", "b"):
        found.add(bucket_at(1), LeaseExpired(task_id, "slow"))
        found.add(bucket_at(1), LeaseExpired(f"other-{task_id}", "quick"))
        found.start_recoveries()
    assert [order.task_ids for order in started] == [("other-a",), ("a",), ("other-b",)]


# -- handing out -----------------------------------------------------------------------------------------------------


def test_what_a_pass_leaves_behind_is_tried_again_by_its_continuation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A continuation goes on where the last one stopped: what had a lease then would wait for the end of the chain."""
    monkeypatch.setattr("dynatick.engine.polling.MAX_CLAIMS", 1)  # else tasks of the second claim may begin first
    monkeypatch.setattr("dynatick.engine.polling.SWEEP_INTERVAL", timedelta(hours=1))  # it would find it too, later
    w = world(clock=PacedClock(), rules=rules(threads=1))
    w.insert("a-slow", *ids(300), at=bucket_at(1))  # more than both together can do: neither polls the bucket anew
    w.claim("a-slow", until=NOON + timedelta(minutes=2))  # its process dies
    w.behave(takes(w, seconds=3), *ids(300))
    w.first_pass()
    w.clock.to(NOON + timedelta(minutes=2, seconds=10))
    (continuation,) = w.started
    w.started.clear()
    assert continuation["dynatick"]["resume"]["after"] > "a-slow"  # type: ignore[index]
    w.handle(continuation)
    assert [order.task_ids for order in recoveries(w)] == [("a-slow",)]


def test_a_pass_starts_a_bounded_number_of_recoveries_and_the_next_tick_goes_on(w: World) -> None:
    number = MAX_TOGETHER * MAX_RECOVERIES + 30
    crashed(w, *ids(number))
    w.next_tick()
    assert len(w.actions.ran) == MAX_TOGETHER * MAX_RECOVERIES
    w.next_tick()
    assert sorted(w.actions.ran) == [(task_id, 1, 2) for task_id in ids(number)]


def test_if_no_recovery_can_be_started_they_run_at_the_end_of_the_pass_one_at_a_time(w: World) -> None:
    crashed(w, *ids(4, "s"))
    w.insert(*ids(30), at=bucket_at(1))
    w.refused = lambda order: "recover" in order
    (done,) = w.next_tick()
    assert done.passed is not None
    assert (done.passed.recovered, done.passed.completed) == (4, 34)
    assert w.ran[-4:] == ids(4, "s")
    assert len(done.not_started) == 1, "it is tried once"


@pytest.mark.parametrize("can_be_started", [True, False])
def test_what_reclaims_and_runs_out_of_time_continues_at_once(can_be_started: bool) -> None:
    """A recovery; or a pass that can only reclaim, for no recovery can be started. The next tick is an hour away."""
    w = World(clock=PacedClock(), rules=rules(grid=Grid(tick_minutes=60), threads=1))
    w.tick()
    crashed(w, *ids(12), minute=60)
    w.behave(takes(w, seconds=20), *ids(12))
    w.refused = lambda order: "recover" in order and not can_be_started
    w.next_tick(60)
    assert {w.outcome(task_id) for task_id in ids(12)} == {"completed"}
    assert sorted(w.actions.ran) == [(task_id, 1, 2) for task_id in ids(12)]


def test_what_is_overdue_at_its_last_attempt_shares_recoveries_with_its_like(w: World) -> None:
    number = MAX_ALONE * MAX_RECOVERIES + 1
    retries = {"maximumRetryAttempts": Decimal(1)}
    w.insert(*ids(number), at=bucket_at(1), retryPolicy=retries)
    w.claim(*ids(number), until=NOON + timedelta(seconds=10))
    for task_id in ids(number):
        w.rigged.put({**w.row(task_id), "status": "waiting", "completeBy": "2026-12-31T12:00:10Z"})
    crashed(w, "killer")
    w.first_pass()
    assert sorted(recoveries(w)[0].task_ids) == ["killer"]
    w.run_started()
    assert sorted(w.actions.ran) == sorted([("killer", 1, 2), *((task_id, 1, 2) for task_id in ids(number))])


# -- a recovery ------------------------------------------------------------------------------------------------------


def test_one_that_was_released_meanwhile_has_not_died(w: World) -> None:
    """A recovery before this one has claimed it, and ran out of time."""
    crashed(w, "t")
    w.rigged.put({**w.row("t"), "attempt": Decimal(0), "leaseUntil": RELEASED})
    w.handle(RecoveryOrder(bucket=bucket_at(1), task_ids=("t",)).to_event())
    assert w.actions.ran == [("t", 1, 1)]
    assert "attempts" not in w.row("t")


def test_a_task_that_kills_its_process_costs_those_reclaimed_beside_it_no_last_attempt(w: World) -> None:
    tasks = ["killer", *ids(5)]
    crashed(w, *tasks, retryPolicy={"maximumRetryAttempts": Decimal(2)})
    w.first_pass()
    (together,) = recoveries(w)
    w.started.clear()
    for task_id in together.task_ids:  # the recovery claims them all, and dies
        row = w.row(task_id)
        w.rigged.put({**row, "attempt": Decimal(2), "lease": "dead", "leaseUntil": "2026-12-31T12:01:30Z"})
    w.first_pass(2)
    assert w.actions.ran == [], "none runs among others at its last attempt"
    assert sorted(task_id for order in recoveries(w) for task_id in order.task_ids) == sorted(tasks)
    running: list[str] = []
    w.behave(lambda task, context: running.extend(str(row["leaseUntil"]) for row in w.open_rows().values()), *tasks)
    w.run_started()
    assert sum(until > "2026-12-31T12:02" for until in running) == 6, "itself, and no other"


def test_a_recovery_that_comes_twice_or_late_does_nothing_twice() -> None:
    w, order = world_with_recovery(*ids(3))
    for _ in range(3):
        w.handle(order.to_event())
    assert sorted(w.actions.ran) == [(task_id, 1, 2) for task_id in ids(3)]


def test_a_task_that_another_process_reclaims_first_is_left_to_it() -> None:
    w, order = world_with_recovery("t")
    taken = {**w.row("t"), "lease": "another's", "leaseUntil": "2026-12-31T12:09:00Z"}
    with w.rigged.meanwhile(lambda change: change.task_id == "t", lambda: w.rigged.put(taken)):
        w.handle(order.to_event())
    assert (w.actions.ran, w.row("t")) == ([], taken)


def test_a_recovery_moves_a_retry_into_a_bucket_that_is_still_open() -> None:
    w, order = world_with_recovery("t")
    w.assert_a_retry_goes_to_an_open_bucket("t", lambda: w.handle(order.to_event()))


def test_a_fault_in_the_middle_is_raised_once_what_is_in_flight_is_recorded() -> None:
    """Raised at once, it would end the process with the tasks that were reclaimed before, and cost each an attempt."""
    w, order = world_with_recovery(*ids(40))
    begun, together = threading.Event(), order.task_ids[:25]

    def waits(task: Task, context: ActionContext) -> None:
        begun.set()
        time.sleep(0.05)  # wait: the task is in flight while a read fails

    def unreadable(task_id: str) -> None:
        if task_id == order.task_ids[-1]:
            assert begun.wait(60)
            raise cannot("read")

    w.behave(waits, *together)
    w.rigged.before_read = unreadable
    processor = w.processor
    with pytest.raises(StoreError):
        processor.handle(order.to_event(), hard_end=w.clock() + w.life)
    assert processor.running == 0
    assert {w.rigged.peek(task_id)["outcome"] for task_id in together} == {"completed"}  # type: ignore[index]


def test_what_was_lost_too_long_after_its_first_attempt_fails_and_how_late_it_is_found_does_not_count() -> None:
    w = world()
    crashed(w, "t", retryPolicy={"maximumEventAgeInSeconds": Decimal(60)})
    first = {"run": Decimal(1), "attempt": Decimal(1), "startedAt": "2026-12-31T11:59:00Z"}
    crashed(w, "late", retryPolicy={"maximumEventAgeInSeconds": Decimal(60)})
    w.rigged.put({**w.row("late"), "attempt": Decimal(2), "attempts": [first]})
    batch, released = {"action": BATCH_ACTION, "firstStartedAt": "2026-11-30T12:00:00Z"}, {"leaseUntil": RELEASED}
    for kind in (batch, released):
        row = {**w.row("t"), **kind}
        plan = plan_recovery(row, bucket_at(1), token="mine", lease_until=NOON, now=NOON + timedelta(minutes=5))
        assert isinstance(plan, ConditionalUpdate)
    w.clock.forward(days=2)
    w.next_tick()
    assert w.actions.ran == [("t", 1, 2)]
    assert (w.outcome("late"), w.row("late")["error"]) == (
        "failed",
        "its process died, or did not finish in time, and 60 s (maximumEventAgeInSeconds) after the first attempt "
        "are over",
    )


RUNNING = {
    "taskId": "t", "status": "running", "taskDateTime": str(bucket_at(1)), "action": "log", "attempt": Decimal(1),
    "run": Decimal(1), "dueAt": "2026-12-31T12:01:00Z", "lease": "x", "leaseUntil": "2026-12-31T12:01:00Z",
}  # fmt: skip


@pytest.mark.parametrize(
    ("since", "planned"),
    [({}, True),
     ({"taskDateTime": str(bucket_at(9))}, False),  # deferred: its turn comes there
     ({"status": "scheduled"}, False), ({"outcome": "completed"}, False),
     ({"leaseUntil": "2026-12-31T12:04:57Z"}, False), (None, False)],
)  # fmt: skip
def test_what_has_changed_since_a_recovery_was_started_is_left_alone(
    since: dict[str, object] | None, planned: bool
) -> None:
    row = None if since is None else RUNNING | since
    now = NOON + timedelta(minutes=5)
    plan = plan_recovery(row, bucket_at(1), token="mine", lease_until=now + timedelta(minutes=2), now=now)
    assert (plan is not None) == planned


# -- rows that can't be finished -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "error"),
    [({"leaseUntil": RELEASED, "attempt": "2"}, "attempt: '2' is not accepted"),
     ({"payload": "not a map", "retryPolicy": "x", "attempt": "x"}, ""),
     ({"payload": {"k": ""}}, "")],
    ids=["released", "malformed", "the note of its lost attempt does not fit"],
)  # fmt: skip
def test_a_row_whose_lease_is_over_and_that_cannot_be_reclaimed_fails(edit: Row, error: str) -> None:
    """Left as it is it would hold its bucket back for ever."""
    w = world()
    crashed(w, "t")
    row = w.row("t") | edit
    if edit.get("payload") == {"k": ""}:
        row["payload"] = {"k": "x" * (400 * 1024 - item_bytes(row) - 20)}
    w.rigged.put(row)
    w.ticks(2)
    assert (w.ran, w.outcome("t"), str(w.row("t")["error"]).startswith(error)) == ([], "failed", True)
    assert len(w.dead_letters.letters) == 1
    w.until_drained()


@pytest.mark.parametrize("kind", ["permanent error", "attempts used up", "malformed"])
def test_a_row_that_cannot_be_finished_costs_later_ticks_nothing(kind: str) -> None:
    """The dead-letter queue refuses for three hours: each tick polls as many buckets as before."""
    w = world(dead_letters=MemoryDeadLetters(refuse=lambda letter: True))
    if kind == "malformed":
        w.rigged.put({"taskId": "t", "taskDateTime": str(bucket_at(1)), "action": 7})
    else:
        left = 3 if kind == "permanent error" else 0
        w.insert("t", at=bucket_at(1), retryPolicy={"maximumRetryAttempts": Decimal(left)})
        w.behave(raises(PermanentError("no")), "t")
        if kind == "attempts used up":
            w.claim("t", until=NOON + timedelta(seconds=10))
    polls: list[int] = []
    for _ in range(180):
        w.rigged.forget()
        w.next_tick()
        polls.append(len(w.rigged.polls))
    assert w.outcome("t") is None
    assert max(polls[30:]) <= max(polls[:10]) <= 8
    assert sum(polls[-60:]) <= 60 * 4
    assert w.actions.times("t") == (kind == "permanent error"), "what was decided is not executed again"
    w.dead_letters = MemoryDeadLetters()
    w.ticks(70)
    assert w.outcome("t") == "failed"
    assert len(w.dead_letters.letters) == 1


@pytest.mark.parametrize("task_id", ["t", Span(0, 2).pack_id("t")])
def test_a_row_with_a_lease_that_no_process_can_hold_is_deferred_longer_each_time(task_id: str) -> None:
    """If its id is that of a pack, it is read last in its bucket."""
    w = world_with_an_endless_lease(task_id)
    buckets = set()
    for _ in range(150):
        w.next_tick()
        buckets.add(w.row(task_id)["taskDateTime"])
    assert w.cursor().drained_through >= bucket_at(140).minute
    assert 4 <= len(buckets) <= 8, buckets


def ticks_until(w: World, holds: Callable[[], bool]) -> None:
    for _ in range(12):
        w.next_tick()
        if holds():
            return
    raise AssertionError("not within twelve ticks")


def test_a_row_with_a_value_that_no_condition_can_compare_is_deferred() -> None:
    w = world()
    crashed(w, "t")
    write = w.rigged.write
    w.rigged.write = lambda change: Lost() if "attempt" in change.set else write(change)  # type: ignore[method-assign]
    ticks_until(w, lambda: "movedTo" in w.row("t"))
    assert (w.row("t")["deferrals"], w.ran) == (1, [])


def test_a_row_that_a_recovery_defers_into_a_bucket_that_has_closed_goes_to_the_next_open_one() -> None:
    w, order = world_with_recovery("t")
    write = w.rigged.write_many
    w.rigged.write_many = lambda changes: [  # type: ignore[method-assign]
        Lost() if "attempt" in change.set else write([change])[0] for change in changes
    ]

    with w.rigged.meanwhile(lambda change: "deferrals" in change.set, lambda: w.is_frozen(minutes=10)):
        w.handle(order.to_event())
    assert Bucket.parse(w.row("t")["taskDateTime"]).minute > w.cursor().closed_through


def test_a_row_is_deferred_until_after_the_end_of_the_process_that_moves_it() -> None:
    """Before that it could be frozen with the move, which then comes into a bucket that has been drained."""
    w = world_with_an_endless_lease(life=timedelta(minutes=15))
    ticks_until(w, lambda: "movedTo" in w.row("t"))
    assert Bucket.parse(w.row("t")["taskDateTime"]).instant > w.clock() + timedelta(minutes=14)


def test_a_row_deferred_into_a_bucket_that_has_closed_goes_to_the_next_open_one() -> None:
    w = world_with_an_endless_lease()

    with w.rigged.meanwhile(lambda change: "deferrals" in change.set, lambda: w.is_frozen(minutes=10)):
        ticks_until(w, lambda: "movedTo" in w.row("t"))
    deferred = next(change for change in w.rigged.writes if "deferrals" in change.set)
    assert Bucket.parse(deferred.set["taskDateTime"]).minute <= w.cursor().closed_through
    assert Bucket.parse(w.row("t")["taskDateTime"]).minute > w.cursor().closed_through


def test_a_row_that_was_repaired_since_its_poll_is_not_deferred() -> None:
    w = world_with_an_endless_lease()
    coordinator, repaired = threading.get_ident(), threading.Event()

    def repairs(task_id: str) -> None:
        if task_id == "t" and threading.get_ident() == coordinator and not repaired.is_set():
            repaired.set()
            w.rigged.put({**w.row("t"), "leaseUntil": "2026-12-31T12:00:00Z"})

    w.rigged.before_read = repairs
    ticks_until(w, repaired.is_set)
    w.next_tick()
    assert w.outcome("t") == "completed"
    assert "deferrals" not in w.row("t")


def test_a_pass_defers_a_bounded_number_of_rows_and_later_ones_the_rest() -> None:
    """Each costs three calls, just before the pass has to end."""
    w = world(life=timedelta(seconds=30))
    w.insert(*ids(450), at=bucket_at(1))
    w.claim(*ids(450), until=NOON + timedelta(days=400))
    deferred: list[int] = []
    while sum(deferred) < 450:
        deferred.append(passed(w.next_tick()).deferred)
        assert len(deferred) < 12
    assert [number for number in deferred if number] == [200, 200, 50]
