"""What must hold the drained watermark back, and what the position of a final poll is measured from (protocol 3, 4).

Each of these fails for a guard that was taken out (tests/mutations.py) when everything else passes.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.builders import NOON
from tests.unit.engine.support import NOON_MINUTE, World, bucket_at, is_record, raises_for, world

from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.task import Task
from dynatick.engine.claims import Ineligible
from dynatick.engine.cursor import acquire_shard, save
from dynatick.engine.execution import Execution
from dynatick.engine.poll_window import Window
from dynatick.engine.ports import ActionContext
from dynatick.engine.record import RecordResult
from dynatick.engine.recurring import Made, Recurring
from dynatick.engine.shard_lease import ShardLease
from dynatick.errors import StoreError


def ticks(w: World, number: int) -> None:
    """Ticks, whether or not they raise."""
    for _ in range(number):
        try:
            w.next_tick()
        except StoreError:
            continue


def test_an_attempt_whose_record_fails_after_the_last_poll_holds_the_watermark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No other poll of this pass meets its row: only the attempt itself can hold its bucket."""
    w = world()
    w.insert("t", at=bucket_at(1))
    w.insert("u", at=bucket_at(2))
    w.rigged.hidden = lambda entry: minute_of(w.clock()) < NOON_MINUTE + 6  # so that the first poll is final
    w.rigged.throttled = lambda change: is_record(change) and change.task_id == "t"
    polled_again, may_end, unrecorded = threading.Event(), threading.Event(), threading.Event()
    began: list[int] = []
    begin, count = Window.begin_poll, Execution.count

    def noted_begin(self: Window, minute: int, at: datetime) -> None:
        began.append(minute)
        begin(self, minute, at)
        if began.count(bucket_at(1).minute) == 2:
            polled_again.set()

    def noted_count(self: Execution, *results: RecordResult) -> None:
        count(self, *results)
        if RecordResult.UNRECORDED in results:
            unrecorded.set()

    def slow(task: Task, context: ActionContext) -> None:
        w.clock.forward(seconds=2)  # longer than a round waits for it
        assert may_end.wait(30)

    def second_poll(bucket: Bucket) -> None:
        if w.actions.times("t") and w.rigged.polls.count(bucket_at(2)) == 2 and bucket == bucket_at(2):
            assert polled_again.wait(30)
            may_end.set()
            assert unrecorded.wait(30)

    w.actions.behaviour["t"] = slow
    monkeypatch.setattr(Window, "begin_poll", noted_begin)
    monkeypatch.setattr(Execution, "count", noted_count)
    ticks(w, 5)
    w.rigged.forget()
    began.clear()
    w.rigged.before_poll = second_poll
    ticks(w, 1)
    assert unrecorded.is_set()
    assert w.cursor().drained_through < bucket_at(1).minute
    w.rigged.throttled = lambda change: False
    w.rigged.before_poll = None
    may_end.set()
    ticks(w, 12)
    assert w.outcome("t") == "completed"


def test_what_could_not_be_claimed_for_a_fault_holds_the_watermark() -> None:
    w = world()
    w.insert("t", at=bucket_at(1))
    w.rigged.throttled = lambda change: change.task_id == "t"
    w.rigged.before_read = raises_for("t")
    ticks(w, 12)
    w.rigged.throttled = lambda change: False
    w.rigged.before_read = None
    ticks(w, 6)
    assert w.outcome("t") == "completed"


def test_the_time_of_a_poll_is_read_before_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that comes in during the query may be missing in its answer."""
    w = world()
    asked: dict[int, datetime] = {}
    began: dict[int, datetime] = {}

    def slow(bucket: Bucket) -> None:
        asked.setdefault(bucket.minute, w.clock())
        w.clock.forward(seconds=5)

    begin = Window.begin_poll

    def noted(self: Window, minute: int, at: datetime) -> None:
        began.setdefault(minute, at)
        begin(self, minute, at)

    w.rigged.before_poll = slow
    monkeypatch.setattr(Window, "begin_poll", noted)
    w.next_tick()
    assert began
    assert all(began[minute] <= asked[minute] for minute in began)


def window_of(w: World, **changes: Any) -> Window:
    """Of a pass that begins now; ``changes`` of its cursor."""
    taken = acquire_shard(w.store, 0, minute_of(w.clock()), token="mine", now=w.clock()).cursor
    assert taken is not None
    if changes:
        taken = save(w.store, taken, replace(taken, **changes))
        assert taken is not None
    return Window(taken, w.rules, closed_at=w.clock())


def test_when_another_tick_has_closed_more_the_checkpoint_is_measured_anew() -> None:
    """Buckets that it closed were open until then: a poll that is measured from before would not be final."""
    w = world()
    w.clock.forward(minutes=1)
    window = window_of(w)
    shard = ShardLease(w.store, w.clock, window, "mine")
    w.clock.forward(seconds=20)
    assert acquire_shard(w.store, 0, NOON_MINUTE + 2, token="another's", now=w.clock()).cursor is None
    closed = w.clock()
    assert not shard.release(lambda cursor: cursor)
    assert window.cursor.closed_through == NOON_MINUTE + 2
    assert window.closed_at >= closed


def test_occurrences_of_a_pass_raise_the_checkpoint() -> None:
    """It has written them into closed buckets: only later polls can be final for those."""
    w = world()
    w.clock.forward(minutes=1)
    window = window_of(w)
    written = w.clock() + timedelta(seconds=30)
    window.wrote_occurrence(window.cursor.checkpoint, written)
    assert window.progress().checkpoint_at == written
    assert window.final_cursor().checkpoint_at == written


def test_open_until_is_kept_while_occurrences_are_being_written() -> None:
    until = NOON + timedelta(minutes=5)
    window = window_of(world())
    window.cursor = replace(window.cursor, open_until=until)
    window.opened, window.writing = True, 1
    assert window.final_cursor().open_until == until
    window.writing = 0
    assert window.final_cursor().open_until is None


@pytest.mark.parametrize("minutes", [5, 20])
def test_open_until_is_never_earlier_than_another_pass_has_set_it(minutes: int) -> None:
    """That one may have been killed: what it wrote may still have to show up in the index."""
    w = world()
    until, others = NOON + timedelta(minutes=minutes), NOON + timedelta(minutes=10)
    shard = ShardLease(w.store, w.clock, window_of(w, open_until=others), "mine")
    assert shard.keep_open(until)
    assert w.cursor().open_until == max(until, others)
    assert shard.release(lambda cursor: cursor)
    assert w.cursor().open_until == others


def test_a_schedule_that_is_due_at_every_tick_does_not_keep_the_watermark_from_advancing() -> None:
    """Its occurrences lie after the buckets that are waiting for their final poll."""
    w = world()
    w.put(taskId="s", scheduleExpression="rate(1 minute)")
    w.ticks(8)
    assert len(w.actions.ran) == 8
    assert w.cursor().drained_through >= bucket_at(1).minute


def test_occurrences_that_another_process_runs_hold_the_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    w = world()
    w.put(taskId="s", scheduleExpression="rate(1 minute)")
    minute = Bucket.parse(w.row("s")["taskDateTime"]).minute

    def elsewhere(self: Recurring, entries: list[object], **_: object) -> list[Made]:
        return [Made(verdict=Ineligible(), elsewhere=[minute]) for _ in entries]

    monkeypatch.setattr(Recurring, "make_occurrences", elsewhere)
    w.ticks(8)
    assert w.cursor().drained_through < minute
