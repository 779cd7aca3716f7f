"""A tick reaches all shards: through a tree of invocations, of which each serves many idle shards at once. What that
writes and polls, which shards get a pass of their own, and what faults do (protocol 3, 4, 14, 16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.builders import NOON
from tests.unit.engine.support import NOON_MINUTE, Dies, World, bucket_at, raises_for, rules, world

from dynatick import MemoryStore, TaskClient
from dynatick.client.operations import IdleTicks
from dynatick.domain.buckets import Bucket, Grid, instant_of
from dynatick.engine.cursor import (
    GROUP,
    Cursor,
    IdleRecord,
    Window,
    acquire_shard,
    cursor_id,
    group_of,
    idle_record_id,
    read_cursor,
    read_cursors,
    save,
    save_tick,
)
from dynatick.engine.orders import WorkOrder
from dynatick.engine.ports import Page
from dynatick.engine.processor import Invoked, NotStarted
from dynatick.engine.shards import (
    CLOSE_EVERY,
    MAX_CHILDREN,
    MAX_POLLS,
    groups,
    idle_cursor,
    minutes_to_poll,
    portions,
    split,
)
from dynatick.errors import NoAnswer

# -- the tree --------------------------------------------------------------------------------------------------------


@given(st.integers(1, 5000), st.randoms(use_true_random=False), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_each_shard_is_served_once_whatever_fails_to_start(shards_ever: int, dice: Random, failing: float) -> None:
    """A parent serves what a child that can't be started would have served, group by group."""
    served: Counter[int] = Counter()

    def start(ranges: list[range]) -> None:
        for shards in ranges:
            if dice.random() < failing:
                served.update(shard for group in groups(shards) for shard in group)
            else:
                own, others = split(shards)
                served.update(own)
                start(others)

    start(portions(groups(range(1, shards_ever))))
    assert served == Counter(range(1, shards_ever))


@given(st.integers(1, 5000))
@example(1_000)
def test_no_node_starts_more_than_a_few_or_serves_more_than_a_group(shards_ever: int) -> None:
    """It starts them at once, and so a thousand shards are reached in two steps. If one node started all, the last
    would begin after half a minute."""
    level, depth = portions(groups(range(1, shards_ever))), 1
    assert len(level) <= MAX_CHILDREN
    while level:
        nodes = [split(shards) for shards in level]
        for own, others in nodes:
            assert len(others) <= MAX_CHILDREN
            assert 0 < len(own) <= GROUP
            assert len({group_of(shard) for shard in own}) == 1, "one record for all of them"
        assert depth <= 2 or shards_ever > 1_000
        level, depth = [shards for _, others in nodes for shards in others], depth + 1


@pytest.mark.parametrize(
    ("number", "started"),
    [(2, [{"shard": 1, "continuation": 0}]), (64, [{"shards": [1, 63]}]),
     (256, [{"shards": [1, 63]}, {"shards": [64, 127]}, {"shards": [128, 191]}, {"shards": [192, 255]}])],
)  # fmt: skip
def test_a_tick_starts_a_pass_for_a_second_shard_and_an_invocation_a_group_for_more(
    number: int, started: list[dict[str, object]]
) -> None:
    w = world(rules=rules(grid=Grid(shard_count=number)))
    assert w.handle({"time": "2026-12-31T12:00:00Z"}).shards == number
    events = [{"dynatick": {"tick": "2026-12-31#12:00", **order}} for order in started]
    assert sorted(w.started, key=str) == sorted(events, key=str)


def crowd(shards: int, *due: int) -> World:
    """A world of ``shards`` with a task in each of ``due`` at the next tick, and nothing to do for three ticks
    before."""
    w = world(rules=rules(grid=Grid(shard_count=shards), in_one_thread=True))
    w.ticks(3)
    for shard in due:
        w.insert(f"t{shard}", at=bucket_at(4, shard))
    return w


def test_shards_whose_invocation_cannot_be_started_are_named_and_served_by_the_parent() -> None:
    w = crowd(130, 3, 129)
    w.refused = lambda order: "shards" in order
    first, *_ = w.next_tick()
    problem = "cannot invoke: the table is not there"
    assert first.not_started == [NotStarted(problem, one) for one in (range(1, 64), range(64, 128), range(128, 130))]
    assert [group.shards for group in first.groups] == [one.shards for one in first.not_started]
    assert w.outcome("t3") == w.outcome("t129") == "completed", "in passes of their own, which could be started"


def test_a_busy_shard_whose_pass_cannot_be_started_is_drained_after_the_idle_ones_were_polled() -> None:
    w = crowd(10, 3, 7)
    w.refused = lambda order: "shard" in order
    _, group = w.next_tick()
    assert [one.shards for one in group.not_started] == [range(3, 4), range(7, 8)]
    assert [(report.shard, report.completed) for report in group.passed_too] == [(3, 1), (7, 1)]
    assert (group.groups[0].idle, group.groups[0].busy, group.left) == (7, [3, 7], [])


@pytest.mark.parametrize(("of_group", "left"), [(True, [7]), (False, list(range(1, 10)))])
def test_what_an_invocation_has_no_time_for_the_next_tick_serves(of_group: bool, left: list[int]) -> None:
    """A group's, or the tick's own: no other invocation can be started for the shards."""
    w = crowd(10, 3 if of_group else 0, 7)
    w.refused = lambda order: not of_group or "shard" in order
    w.behave(lambda task, context: w.clock.forward(seconds=101) and None, "t0", "t3")
    done = w.next_tick()[-1]
    assert (done.left, w.outcome("t7")) == (left, None)
    w.next_tick(3)
    w.assert_each_ran_once("t3" if of_group else "t0", "t7")


# -- what an idle shard costs ----------------------------------------------------------------------------------------

SHARDS = 8


def idle_world(*, settled: int = 12) -> World:
    """An installation of several shards in which nothing has been due for a while."""
    w = world(rules=rules(grid=Grid(shard_count=SHARDS), in_one_thread=True))
    w.ticks(settled)
    w.rigged.forget()
    return w


@pytest.fixture
def w() -> World:
    return idle_world()


def minute(w: World) -> int:
    return int((w.clock() - NOON).total_seconds() // 60)


def before_closing(ticks: int = 1) -> World:
    """An idle world whose next tick (or the one a given number of ticks later) writes the cursors."""
    w = idle_world()
    while NOON_MINUTE + minute(w) + ticks - w.cursor(4).closed_through < CLOSE_EVERY:
        w.next_tick()
    return w


def insert_for_next_tick(w: World, shard: int, task_id: str = "t") -> int:
    """Returns the minute of its bucket."""
    w.insert(task_id, at=bucket_at(minute(w) + 1, shard))
    return minute(w) + 1


def assert_serves(w: World, shard: int, task_id: str = "t") -> None:
    insert_for_next_tick(w, shard, task_id)
    w.next_tick()
    assert w.outcome(task_id) == "completed"


def order_at(minutes: int) -> dict[str, dict[str, object]]:
    """Returns the order for all shards that a tick doesn't serve itself."""
    return {"dynatick": {"tick": str(bucket_at(minutes)), "shards": [1, SHARDS - 1]}}


def group_report(done: list[Invoked]) -> Invoked:
    (found,) = [one for one in done if one.groups]
    return found


def test_the_newest_bucket_of_every_shard_is_polled_before_any_older_one_and_a_busy_one_starts_at_once() -> None:
    w = idle_world()
    w.next_tick()
    now = insert_for_next_tick(w, 2)
    events: list[object] = []
    w.rigged.before_poll = lambda bucket: events.append((bucket.minute - NOON_MINUTE - now, bucket.shard))
    invoke = w.invoke

    def noted(event: Mapping[str, Any]) -> None:
        events.append(f"pass of {event['dynatick']['shard']}")
        invoke(event)

    w.invoke = noted  # type: ignore[method-assign]
    w.clock.to(NOON + timedelta(minutes=now))
    done = w.handle(order_at(now))
    assert events[:4] == [(0, 1), (0, 2), "pass of 2", (0, 3)]
    older = [one for one in events if isinstance(one, tuple) and one[0] < 0]
    assert older and events.index(older[0]) == SHARDS, "when all have had the first"
    assert 2 not in [shard for _, shard in older]
    assert done.groups[0].busy == [2]
    w.run_started()
    assert w.outcome("t") == "completed"


def test_a_shard_that_had_work_at_its_last_tick_is_not_polled_first(w: World) -> None:
    assert_serves(w, 2)
    done = w.next_tick()
    assert group_report(done).groups[0].busy == [2]
    assert [one.passed.shard for one in done if one.passed] == [0, 2]
    done = w.next_tick()
    assert group_report(done).groups[0].busy == [], "that pass found nothing"


# -- what is due in an idle shard ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ticks", range(1, 2 * CLOSE_EVERY + 1))
@pytest.mark.parametrize("behind", [0, 1, 3, 9])
def test_a_task_put_into_a_bucket_whose_tick_is_over_runs_at_the_next_one(ticks: int, behind: int) -> None:
    """A task in a closed bucket is moved; one in a bucket that is not closed is polled again."""
    w = idle_world(settled=12 + ticks)
    w.insert("t", at=bucket_at(minute(w) - behind, 4))
    w.next_tick()
    assert w.outcome("t") == "completed"


def test_a_task_put_into_the_newest_bucket_between_its_poll_and_its_closing_runs_at_the_next_tick() -> None:
    w = before_closing()
    inserts = partial(w.insert, "t", at=bucket_at(minute(w) + 1, 4))
    with w.rigged.meanwhile(lambda change: change.task_id == cursor_id(4), inserts):
        w.next_tick()
    assert w.outcome("t") is None
    assert w.row("t")["taskDateTime"] == str(bucket_at(minute(w), 4)), "the scheduler saw it before it was closed"
    w.next_tick()
    assert w.outcome("t") == "completed"


def test_a_shard_of_which_workers_have_a_part_gets_a_pass(w: World) -> None:
    cursor = w.cursor(4)
    bucket, until = Bucket(cursor.closed_through, 4), w.clock() + timedelta(minutes=9)
    order = WorkOrder(bucket=bucket, after=None, through="m", until=until)
    assert save(w.store, cursor, replace(cursor, handed_out=(order,)), writer="w") is not None
    assert group_report(w.next_tick()).groups[0].busy == [4]
    assert w.cursor(4).drained_through < order.bucket.minute


def test_a_shard_that_a_killed_pass_left_open_gets_a_pass(w: World) -> None:
    """It may still write occurrences into closed buckets."""
    cursor = w.cursor(4)
    opened = replace(cursor, open_until=w.clock() + timedelta(minutes=9))
    assert save(w.store, cursor, opened, writer="killed") is not None
    assert group_report(w.next_tick()).groups[0].busy == [4]


def test_a_shard_whose_lease_another_process_has_is_left_to_a_pass(w: World) -> None:
    cursor = w.cursor(4)
    leased = replace(cursor, lease="another's", lease_until=w.clock() + timedelta(minutes=9))
    assert save(w.store, cursor, leased, writer="another's") is not None
    assert group_report(w.next_tick()).groups[0].busy == [4]


def test_idle_shards_with_more_buckets_to_poll_than_one_invocation_polls_get_passes(w: World) -> None:
    group = group_report(w.next_tick(MAX_POLLS + CLOSE_EVERY + 1)).groups[0]
    assert (group.idle, group.busy) == (0, list(range(1, SHARDS)))


# -- the rules -------------------------------------------------------------------------------------------------------


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 300), st.booleans())
def test_rules_03_and_04_only_what_was_read_as_closed_and_is_old_enough_is_drained_or_a_checkpoint(
    drained: int, checkpoint: int, closed: int, behind: int, seconds: int, final: bool
) -> None:
    """Everything that the write drains had its final poll, and no checkpoint is what the write itself closes."""
    start = NOON_MINUTE
    cursor = Cursor(
        shard=3, drained_through=start, checkpoint=start + drained, checkpoint_at=NOON,
        closed_through=start + drained + checkpoint, polled_through=start + min(closed, drained + checkpoint),
        idle_since="2026-12-31#11:00", idle_ticks=1, last_tick="2026-12-31#11:00",
    )  # fmt: skip
    now = NOON + timedelta(seconds=seconds)
    tick = cursor.closed_through + behind
    window = Window(cursor, rules(), closed_at=now)
    is_final = final and now >= window.final_from
    polled = minutes_to_poll(cursor, tick, rules(), is_final=is_final)
    assert len(polled) == len(set(polled))
    assert set(range(cursor.closed_through + 1, tick + 1)) <= set(polled), "what is not closed"
    assert set(range(cursor.polled_through + 1, tick + 1)) <= set(polled), "what was not found empty"
    for one in polled:
        window.begin_poll(one, now)
        window.complete_poll(one)
    new, _ = idle_cursor(window, IdleRecord(group=0), tick, 0)
    if new.drained_through > cursor.drained_through:
        assert now >= NOON + rules().index_settled_after
        assert new.drained_through <= cursor.checkpoint
        assert set(range(cursor.drained_through + 1, new.drained_through + 1)) <= set(polled)
    if new.checkpoint != cursor.checkpoint:
        assert (new.checkpoint, new.checkpoint_at) == (cursor.closed_through, now)
        assert new.drained_through >= cursor.checkpoint
    assert (new.closed_through, new.polled_through, new.lease) == (tick, tick, None)


def test_rule_14_a_shard_without_a_cursor_gets_a_pass_that_creates_it(w: World) -> None:
    w.reconfigure(shard_count=SHARDS + 2)
    w.rules = replace(w.rules, in_one_thread=True)
    done = w.next_tick()
    assert group_report(done).groups[0].busy == [SHARDS, SHARDS + 1]
    assert w.cursor(SHARDS + 1).closed_through == NOON_MINUTE + minute(w)


def test_rule_16_whoever_has_written_a_cursor_meanwhile_serves_its_shard() -> None:
    w = before_closing()
    w.insert("t", at=bucket_at(minute(w) + 5, 4))
    with w.rigged.meanwhile(
        lambda change: change.task_id == cursor_id(4),
        lambda: acquire_shard(w.store, 4, NOON_MINUTE + minute(w), token="other", now=w.clock()),
    ):
        done = w.next_tick()
    assert w.cursor(4).lease == "other", "the idle write was refused"
    assert group_report(done).fault is None
    w.ticks(6)
    assert w.outcome("t") == "completed"


# -- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(0, 4 * SHARDS, 3))
def test_the_next_tick_serves_the_shards_of_an_invocation_that_dies_half_way(at: int) -> None:
    w = before_closing()  # that tick polls and writes most
    now = minute(w) + 1
    for shard in (3, 6):
        insert_for_next_tick(w, shard, f"t{shard}")
    calls = count()
    w.clock.to(NOON + timedelta(minutes=now))
    w.rigged.before_poll = w.rigged.before_write = lambda _: next(calls) < at or w.rigged.die()
    with suppress(Dies):
        w.handle(order_at(now))
    w.rigged.clear_faults()
    w.started.clear()  # those that it started die, too
    w.next_tick()
    assert (w.outcome("t3"), w.outcome("t6")) == ("completed", "completed")
    assert_serves(w, 1, "later")


def test_what_is_wrong_with_one_shard_holds_up_no_other(w: World) -> None:
    insert_for_next_tick(w, 5)
    w.rigged.before_poll = lambda bucket: raises_for(2)(bucket.shard)
    group = group_report(w.next_tick())
    assert str(group.fault) == "cannot read: the table is not there"
    assert (group.groups[0].idle, group.groups[0].busy) == (SHARDS - 3, [5])
    assert w.outcome("t") == "completed"
    before = w.cursor(2)
    w.rigged.clear_faults()
    w.next_tick()
    assert w.cursor(2).served_through >= before.served_through


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_cursor_write_without_an_answer_is_a_fault_unless_it_took_effect(w: World, took_effect: bool) -> None:
    setattr(w.rigged, "unanswered" if took_effect else "throttled", lambda change: change.task_id == cursor_id(3))
    groups = [group_report(w.next_tick()) for _ in range(CLOSE_EVERY)]
    assert [str(group.fault) for group in groups if group.fault] == (
        [] if took_effect else ["cannot write the cursor of shard 3: ThrottlingError: slow down"]
    )
    assert sum(group.groups[0].written for group in groups) == SHARDS - 1 - (not took_effect)
    w.rigged.clear_faults()
    assert_serves(w, 3)


def test_two_ticks_that_overlap_run_each_task_once_and_count_a_tick_once() -> None:
    w, written = before_closing(2), (idle_record_id(0), cursor_id(4))
    for task_id in ("a", "b", "c"):  # at ticks that note the record, and one that writes the cursors
        order = order_at(insert_for_next_tick(w, 6, task_id))
        before = idle_ticks(w, 4)
        with w.rigged.meanwhile(lambda change: change.task_id in written, partial(w.handle, order)):
            w.next_tick()
        assert idle_ticks(w, 4) == before + 1
        assert w.actions.times(task_id) == 1


def idle_ticks(w: World, shard: int) -> int:
    cursor = read_cursors(w.store, range(shard, shard + 1))[shard]
    assert isinstance(cursor, Cursor)
    return cursor.idle_ticks


def test_a_page_that_is_not_the_last_makes_its_shard_a_busy_one(w: World) -> None:
    """An invocation for many shards reads one page of a bucket: whether more is open there, a pass finds out."""
    query = w.rigged.query_bucket
    w.rigged.query_bucket = lambda bucket, **more: (  # type: ignore[method-assign]
        Page([], "t") if bucket.shard == 2 and more.get("after") is None else query(bucket, **more)
    )
    assert group_report(w.next_tick()).groups[0].busy == [2]


def test_a_shard_that_is_not_polled_in_time_gets_a_pass_which_keeps_its_progress(w: World) -> None:
    """Left in its group, the shard would be polled from the beginning at each tick, and take longer each time."""
    now = insert_for_next_tick(w, 7)
    w.rigged.before_poll = lambda bucket: w.clock.forward(seconds=30)
    w.clock.to(NOON + timedelta(minutes=now))
    done = w.handle(order_at(now))
    w.rigged.clear_faults()
    assert [bucket.shard for bucket in w.rigged.polls] == [1, 2, 3, 4]
    assert (done.groups[0].busy, done.left) == ([1, 2, 3, 4, 5, 6, 7], []), "the last three were not polled at all"
    w.run_started()
    assert w.outcome("t") == "completed"
    assert w.cursor(7).closed_through == NOON_MINUTE + now


# -- what operators read ---------------------------------------------------------------------------------------------


def test_every_idle_tick_is_counted_whether_the_cursor_was_written_or_not() -> None:
    w = idle_world(settled=0)
    client = TaskClient(w.store, clock=w.clock)
    for ticks in range(2, 3 * CLOSE_EVERY):
        w.next_tick()
        idle = [entry for entry in client.operations.ticks() if isinstance(entry, IdleTicks)]
        last = instant_of(NOON_MINUTE + minute(w)).strftime("%H:%M")
        assert [(one.shard, one.since[-5:], one.until[-5:], one.ticks) for one in idle] == [
            (shard, "12:00", last, ticks) for shard in range(SHARDS)
        ]


@pytest.mark.parametrize("served", ["soon", [{"tick": "noon"}, 7], [{"tick": "2026-12-31#12:00", "notIdle": "x"}]])
def test_an_idle_record_that_was_changed_by_hand_breaks_nothing(w: World, served: object) -> None:
    w.rigged.put({"taskId": idle_record_id(0), "served": served, "version": "x"})
    w.ticks(CLOSE_EVERY)
    TaskClient(w.store, clock=w.clock).operations.ticks()
    assert_serves(w, 3)


def test_the_record_keeps_the_latest_ticks_in_order() -> None:
    store = MemoryStore()
    for tick in (5, 3, 4, 5, 9, 8, 7, 6):
        row = store.get(idle_record_id(0))
        save_tick(store, IdleRecord.from_row(0, row), NOON_MINUTE + tick, [tick, 1])
    found = IdleRecord.from_row(0, store.get(idle_record_id(0)))
    assert [one.tick - NOON_MINUTE for one in found.served] == [4, 5, 6, 7, 8, 9]
    assert found.served[-1].not_idle == {1, 9}
    assert read_cursor(store, 0, NOON).idle_ticks == 0


def test_after_a_call_without_an_answer_no_other_invocation_is_started() -> None:
    """One silence is enough: each takes seconds. The shards are served here."""
    w = world(rules=rules(grid=Grid(shard_count=3)))
    calls: list[object] = []

    def silent(order: object) -> bool:
        calls.append(order)
        raise NoAnswer("no answer")

    w.refused = silent
    for shard in range(3):
        w.insert(f"t{shard}", at=bucket_at(1, shard))
    (done,) = w.next_tick()
    assert len(calls) == 1
    assert [one.problem for one in done.not_started] == ["no answer", *["an earlier call had no answer"] * 2]
    w.assert_each_ran_once("t0", "t1", "t2")
