"""A pass over one shard: what it spends its time on, what it leaves, what it reports, and what faults do to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.engine.support import (
    NOON_MINUTE,
    Dies,
    Once,
    PacedClock,
    World,
    bucket_at,
    cannot,
    fails,
    ids,
    is_claim,
    is_cursor,
    is_record,
    passed,
    raises_for,
    rules,
    takes,
    world,
)

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.lifecycle import RELEASED
from dynatick.domain.task import Task
from dynatick.engine.counts import PassReport
from dynatick.engine.cursor import ShardLease
from dynatick.engine.invocation import Execution
from dynatick.engine.ports import ActionContext
from dynatick.errors import StoreError
from dynatick.store import memory
from dynatick.store.memory import MemoryStore

# -- time ------------------------------------------------------------------------------------------------------------


def test_a_continuation_begins_where_the_last_one_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket of a million would be read from its beginning in every continuation, for released tasks too."""
    monkeypatch.setattr(memory, "PAGE", 50)
    w = world(clock=PacedClock(), rules=rules(threads=1))
    w.insert(*ids(400))
    w.behave(takes(w, seconds=0.4), *ids(400))
    report = w.first_pass()
    assert report.released > 0
    assert report.resume is not None
    assert report.resume.minute == NOON_MINUTE + 1
    first = min(task_id for task_id in ids(400) if not w.outcome(task_id))
    assert f"t{int(first[1:]) - 26:04d}" <= str(report.resume.after) < first
    w.rigged.forget()
    w.handle(w.started.pop(0))
    assert next(after for bucket, after in w.rigged.pages if bucket == bucket_at(1)) == report.resume.after
    w.run_started()
    w.assert_each_ran_once(*ids(400))


@pytest.mark.parametrize("schedule", [False, True], ids=["a task", "a schedule"])
def test_a_bucket_is_not_drained_while_something_in_it_is_still_being_claimed(w: World, schedule: bool) -> None:
    """Its result is not known: here time is up first, and then the claim is refused."""
    row = {"scheduleExpression": "at(2026-12-31T12:01:00)"} if schedule else {}
    w.put(taskId="a", **row)
    minute, shown, over = NOON_MINUTE + 1, threading.Event(), threading.Event()
    w.rigged.hidden = lambda entry: not shown.is_set()  # the index lags
    while w.cursor().checkpoint < minute:
        w.next_tick()
    w.clock.to(w.cursor().checkpoint_at + w.rules.index_settled_after + timedelta(seconds=1))
    shown.set()

    def hangs(task_id: str) -> None:
        if task_id == "a":
            w.clock.forward(seconds=120)
            assert over.wait(30)
            raise cannot("read")

    w.rigged.before_read = hangs
    w.rigged.before_write = lambda change: hangs(change.task_id)
    report = passed(w.tick())
    over.set()
    assert (report.unfinished, w.cursor().drained_through) == (1, minute - 1)
    w.rigged.clear_faults()
    w.ticks(3)
    assert len(w.actions.ran) == 1


@pytest.mark.parametrize("number", [30, 60, 200])
def test_what_has_ended_when_the_time_is_up_is_recorded(w: World, number: int) -> None:
    """It was done; forgotten, it would be done again. Here the table is slow, and answers in the last seconds."""
    w.insert(*ids(number))
    with w.rigged.meanwhile(is_record, lambda: w.clock.to(NOON + timedelta(minutes=1, seconds=117.2))):
        first = passed(w.next_tick())
    # How many had begun by then is the threads' affair; the others are released.
    assert first.claimed == first.completed + first.released
    assert first.completed > 0
    assert first.unfinished == 0
    w.assert_each_ran_once(*ids(number))


@pytest.mark.parametrize("in_the_last_seconds", [False, True])
def test_tasks_claimed_without_time_to_begin_them_are_released(
    w: World, in_the_last_seconds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim took long. Begun now, a task would be cut off in the middle, and lose an attempt; kept until the last
    seconds, it would wait for the end of its lease as well."""
    w.insert(*ids(10))
    last_seconds, finish = threading.Event(), Execution.finish

    def noted(self: Execution) -> None:
        last_seconds.set()
        finish(self)

    def takes_long() -> None:
        w.clock.to(NOON + timedelta(minutes=1, seconds=117.2 if in_the_last_seconds else 102))
        assert not in_the_last_seconds or last_seconds.wait(30)

    monkeypatch.setattr(Execution, "finish", noted)
    with w.rigged.meanwhile(is_claim, takes_long):
        report = w.first_pass()
    assert (report.claimed, report.released, report.completed, report.unfinished) == (10, 10, 0, 0)
    assert w.actions.ran == []
    w.ticks(3)
    w.assert_each_ran_once(*ids(10))


def test_nothing_is_waited_for_until_the_process_is_killed(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came too late is released after the last wait."""
    ends: list[datetime] = []
    wait = Execution.wait

    def noted(self: Execution, *, until: Callable[[], bool], end: datetime | None = None) -> None:
        ends.append(self.budget.stop_waiting if end is None else end)
        wait(self, until=until, end=end)

    monkeypatch.setattr(Execution, "wait", noted)
    hard_end = NOON + timedelta(minutes=3)
    w.clock.to(NOON + timedelta(minutes=1))
    w.processor.handle({"time": "2026-12-31T12:01:00Z"}, hard_end=hard_end)
    assert max(ends) == hard_end - timedelta(seconds=0.5)


# -- polls that look final and are not -------------------------------------------------------------------------------


def test_the_watermark_waits_for_entries_before_the_position_of_a_continuation(w: World) -> None:
    """The tick's poll of 12:01 is final, and the first that shows the task which lies there."""
    w.rigged.create(scheduled_row("late", bucket_at(1)))
    w.rigged.hidden = lambda entry: True
    w.ticks(5)
    assert w.cursor().checkpoint >= bucket_at(1).minute
    w.rigged.clear_faults()
    w.clock.to(NOON + timedelta(minutes=6))
    resume = {"bucket": str(bucket_at(1)), "after": "m"}
    w.handle({"dynatick": {"tick": str(bucket_at(6)), "shard": 0, "continuation": 1, "resume": resume}})
    assert w.outcome("late") is None
    assert w.cursor().drained_through < bucket_at(1).minute
    w.ticks(3)
    w.assert_each_ran_once("late")


def test_the_watermark_waits_for_released_tasks(w: World) -> None:
    """A batch is claimed that there is no time for; then the pass is cut short, and writes its end."""
    for n, task_id in enumerate(ids(26)):
        w.rigged.create(scheduled_row(task_id, bucket_at(1 if n < 25 else 2)))
    w.rigged.hidden = lambda entry: True
    w.ticks(5)
    w.rigged.clear_faults()
    w.actions.timeouts = dict.fromkeys(ids(26), 118)
    assert passed(w.next_tick()).released >= 25
    assert w.ran == []
    assert w.cursor().drained_through < bucket_at(1).minute
    w.actions.timeouts.clear()
    w.ticks(3)
    w.assert_each_ran_once(*ids(26))


# -- other ticks, and what is in flight ------------------------------------------------------------------------------


def test_a_pass_does_the_work_of_a_tick_that_comes_meanwhile(w: World) -> None:
    w.insert("first", at=bucket_at(1))
    w.insert("second", at=bucket_at(2))
    other: list[PassReport] = []

    def is_overtaken(task: Task, context: ActionContext) -> None:
        w.clock.forward(seconds=20)
        other.append(passed(w.tick(at=bucket_at(2).instant)))

    w.clock.to(NOON + timedelta(minutes=1, seconds=45))
    w.actions.behaviour["first"] = is_overtaken
    report = passed(w.tick())
    assert [o.leased_elsewhere for o in other] == [True]
    assert (report.tick, report.closed_through, report.completed) == (NOON_MINUTE + 1, NOON_MINUTE + 2, 2)
    w.assert_each_ran_once("first", "second")


def test_a_row_in_the_place_of_one_in_flight_is_claimed_beside_it(w: World) -> None:
    """It lies in another bucket, which this pass polls while the first one still runs."""
    w.insert("t", *ids(24, "u"), at=bucket_at(1))  # a whole batch, which is claimed before later buckets are polled
    begun, replaced_begun, met, replaced = threading.Event(), threading.Event(), list[bool](), threading.Event()

    def waits(task: Task, context: ActionContext) -> None:
        if context.run == 2:
            replaced_begun.set()
        else:
            begun.set()
            met.append(replaced_begun.wait(60))

    def changes(bucket: Bucket) -> None:
        if bucket == bucket_at(9) and not replaced.is_set():  # once: a later poll may find it claimed
            replaced.set()
            assert begun.wait(30)
            w.rigged.put(scheduled_row("t", bucket_at(9), run=2, createdAt="2026-12-31T12:05:00Z"))

    w.actions.behaviour["t"] = waits
    w.rigged.before_poll = changes
    w.clock.forward(minutes=9, seconds=1)
    report = passed(w.tick())
    # Superseded if the second has ended when the first is to be recorded; if it runs, that is known later.
    assert (met, report.superseded + report.unrecorded) == ([True], 1)
    assert w.outcome("t") == "completed"


def test_a_pass_starts_no_thread_and_runs_tasks_in_order_of_their_ids() -> None:
    w, seen = world(rules=rules(in_one_thread=True)), list[tuple[str, int]]()

    names = ids(130)
    w.behave(lambda task, context: seen.append((task.task_id, threading.get_ident())), *names)
    w.insert(*reversed(names))
    before = set(threading.enumerate())  # those of earlier tests may end meanwhile
    report = passed(w.next_tick())
    assert report.completed == 130
    assert set(threading.enumerate()) <= before
    assert seen == [(name, threading.get_ident()) for name in names]


# -- what is reported ------------------------------------------------------------------------------------------------


def test_the_figures_of_a_pass(w: World) -> None:
    w.insert("done", "again", "crashed")
    w.insert("failed", retryPolicy={"maximumRetryAttempts": Decimal(0)})
    w.claim("crashed", until=NOON + timedelta(seconds=30))
    w.rigged.put({"taskId": "bad", "taskDateTime": str(bucket_at(1)), "action": Decimal(7)})
    w.actions.behaviour = {"again": fails, "failed": fails}
    w.clock.to(NOON + timedelta(minutes=1, seconds=7))
    report, recovery = (invoked.passed or invoked.recovered for invoked in w.tick())
    assert report is not None
    assert recovery is not None
    assert (report.tick, report.shard, report.continuation) == (NOON_MINUTE + 1, 0, 0)
    assert (report.claimed, report.completed, report.retried, report.failed) == (3, 1, 1, 1)
    assert (report.expired, report.rejected, report.unfinished) == (1, 1, 0)
    assert (recovery.recovered, recovery.completed, recovery.tick) == (1, 1, NOON_MINUTE + 1)
    assert report.due >= 5
    assert report.lateness.count == 3, "of first attempts"
    assert 7000 <= report.lateness.max < 8000
    assert (report.closed_through, report.drained_through) == (NOON_MINUTE + 1, NOON_MINUTE - 1)
    assert report.finished_at is not None
    assert report.finished_at >= report.started_at
    row = w.row("_dynatick#tick#2026-12-31#12:01#0#0")
    assert (row["completed"], row["failed"], row["retried"], row["expired"]) == (1, 2, 1, 1)
    assert (row["status"], row["outcome"], row["tick"]) == ("tick", "none", "2026-12-31#12:01")
    assert row["expiresAt"] == int((report.finished_at + timedelta(days=7)).timestamp())


def test_an_idle_tick_that_fires_twice_is_counted_once_and_writes_no_record(w: World) -> None:
    w.tick()
    w.ticks(4)
    assert (w.cursor().idle_ticks, w.cursor().idle_since) == (5, "2026-12-31#12:00")
    assert [i for i in w.rigged._items if i.startswith("_dynatick#tick")] == []


# -- faults ----------------------------------------------------------------------------------------------------------


FAULTS: dict[str, dict[str, Callable[[Any], object]]] = {
    "poll": {"before_poll": raises_for(bucket_at(4))},
    "bug": {"before_poll": raises_for(bucket_at(4), error=KeyError("a bug"))},
    "claim": {
        "batch_fails": lambda changes: any(is_claim(one) and one.task_id > "t0060" for one in changes),
        "before_read": raises_for(*ids(120)),
    },
    "end write": {"throttled": lambda change: is_cursor(change) and change.set["lease"] is None},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_middle_is_raised_once_everything_in_flight_is_recorded(w: World, fault: str) -> None:
    for n, task_id in enumerate(ids(120)):
        w.insert(task_id, at=bucket_at(1 + n // 30))
    for name, goes_wrong in FAULTS[fault].items():
        setattr(w.rigged, name, goes_wrong)
    with pytest.raises((StoreError, KeyError)):
        w.next_tick(6)
    w.rigged.clear_faults()
    executed = {*w.ran}
    assert {task_id for task_id in ids(120) if w.outcome(task_id) == "completed"} == executed
    assert executed or fault == "claim"  # what was claimed and not begun when a claim fails may have been released
    w.clock.forward(seconds=40)
    w.ticks(8)
    w.assert_each_ran_once(*ids(120))


def lease_end(change: ConditionalUpdate) -> str:
    """Until when a write of the cursor acquires or renews the shard lease; "released", if it releases it."""
    return str(change.set["leaseUntil"] or "released") if is_cursor(change) else ""


CURSOR_WRITES: dict[str, Callable[[ConditionalUpdate], bool]] = {
    "closing": lambda change: lease_end(change) == "2026-12-31T12:01:30Z",
    "renewal": lambda change: "2026-12-31T12:01:30Z" < lease_end(change) < "released",
    "end": lambda change: lease_end(change) == "released",
}


@pytest.mark.parametrize("answer", ["lost", "lost, and sent again"])
@pytest.mark.parametrize("write", CURSOR_WRITES)
def test_a_pass_that_is_cut_short_is_continued_though_the_answer_of_a_cursor_write_is(answer: str, write: str) -> None:
    """The write took effect. A pass that took it for another's would leave what it had no time for to the next tick,
    perhaps an hour later."""
    w = world(clock=PacedClock(), rules=rules(threads=1))
    w.insert(*ids(400))
    w.behave(takes(w, seconds=0.4), *ids(400))
    lost = Once(CURSOR_WRITES[write])
    if answer == "lost":
        w.rigged.unanswered = lost
    else:
        w.rigged.before_write = lambda change: lost(change) and MemoryStore.write(w.rigged, change)
    report = w.first_pass()
    assert lost.done
    assert report.continued
    assert 0 < report.completed < 400
    w.run_started()
    w.assert_each_ran_once(*ids(400))


def test_a_release_that_cannot_be_written_costs_no_attempt_and_does_not_forget_what_is_running() -> None:
    clock = PacedClock()
    w = world(clock=clock, rules=rules(threads=2))
    w.insert(*ids(20), retryPolicy={"maximumRetryAttempts": 0})
    begun = threading.Event()

    def is_release(changes: Sequence[ConditionalUpdate]) -> bool:
        found = any(change.set.get("leaseUntil") == RELEASED for change in changes)
        if found:
            begun.set()
        return found

    def until_released(task: Task, context: ActionContext) -> None:
        clock.to(NOON + timedelta(minutes=1, seconds=101))
        clock.step = timedelta(milliseconds=10)  # the pass may wait for these tasks before it looks how late it is
        assert begun.wait(30)
        clock.step = timedelta()

    w.behave(until_released, *ids(20))
    w.rigged.batch_fails = is_release
    report = w.first_pass()
    executed = {*w.ran}
    assert executed
    assert {task_id for task_id in ids(20) if w.outcome(task_id) == "completed"} == executed
    assert report.released == 0
    w.rigged.clear_faults()
    assert sum(done.released or 0 for done in w.run_started()) == 20 - len(executed), "by an invocation of its own"
    w.ticks(2)
    w.assert_each_ran_once(*ids(20))


def test_a_batch_of_records_that_fails_is_written_one_by_one(w: World) -> None:
    w.insert(*ids(100))
    broken = Once(is_record)
    w.rigged.batch_fails = lambda changes: any(broken(change) for change in changes)
    w.next_tick()
    assert broken.done
    w.assert_each_ran_once(*ids(100))


def test_a_bug_in_one_batch_of_records_costs_no_other(w: World) -> None:
    w.insert(*ids(100))
    broken = Once(is_record)

    def fails(changes: Sequence[ConditionalUpdate]) -> bool:
        if any(broken(change) for change in changes):
            raise KeyError("a bug")
        return False

    w.rigged.batch_fails = fails
    with pytest.raises(KeyError, match="a bug"):
        w.next_tick()
    unrecorded = len(w.actions.ran) - sum(1 for task_id in ids(100) if w.outcome(task_id))
    assert 0 < unrecorded <= 25
    w.life = timedelta(seconds=60)
    w.ticks(8)
    assert {w.outcome(task_id) for task_id in ids(100)} == {"completed"}
    assert len(w.ran) == 100 + unrecorded, "executed again, with the same key"


def test_what_was_polled_is_kept_when_the_process_dies(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    w.rigged.before_poll = lambda bucket: w.clock.forward(seconds=0.1)
    w.clock.to(NOON + timedelta(days=1))
    renew = ShardLease.renew

    def dies(self: ShardLease) -> None:
        renew(self)
        if len(w.rigged.polls) > 600:
            raise Dies

    with monkeypatch.context() as patch, pytest.raises(Dies):
        patch.setattr(ShardLease, "renew", dies)
        w.tick()
    cursor = w.cursor()
    assert cursor.polled_through > NOON_MINUTE + 300
    w.rigged.forget()
    w.clock.forward(minutes=1)
    w.tick()
    assert min(bucket.minute for bucket in w.rigged.polls) > cursor.polled_through - 1
