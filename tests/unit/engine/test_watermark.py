"""The cursor of a shard: who acquires and saves it, which buckets are polled, and what holds the drained watermark back
(protocol 3, 4, 16)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from tests.builders import NOON
from tests.unit.domain.support import refusal
from tests.unit.engine.support import (
    NOON_MINUTE,
    RiggedStore,
    World,
    bucket_at,
    cursor_at,
    is_cursor,
    is_record,
    of,
    raises_for,
    rules,
)

from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.task import is_own_row
from dynatick.engine.claims import Ineligible
from dynatick.engine.cursor import (
    MAX_IN_TURN,
    Cursor,
    Segment,
    ShardLease,
    Window,
    acquire_shard,
    cursor_id,
    read_cursor,
    save,
)
from dynatick.engine.orders import Resume, WorkOrder
from dynatick.engine.rules import SHARD_LEASE
from dynatick.engine.schedules import Made, Recurring
from dynatick.errors import StoreError

FULL = Cursor(
    shard=3,
    closed_through=NOON_MINUTE,
    drained_through=NOON_MINUTE - 5,
    polled_through=NOON_MINUTE - 1,
    checkpoint=NOON_MINUTE - 2,
    checkpoint_at=datetime(2026, 12, 31, 11, 58, 0, 250_000, tzinfo=UTC),
    lease="token",
    lease_until=NOON + SHARD_LEASE,
    version=7,
    idle_since="2026-12-31#11:50",
    idle_ticks=8,
    last_tick="2026-12-31#11:58",
)

FREE = replace(FULL, lease=None, lease_until=None)

MINE = replace(FREE, closed_through=NOON_MINUTE + 1, lease="mine", lease_until=NOON + SHARD_LEASE, version=8)


def stored(cursor: Cursor) -> RiggedStore:
    store = RiggedStore()
    store.put({"taskId": cursor_id(cursor.shard), **cursor.to_row()})
    return store


# -- the row ---------------------------------------------------------------------------------------------------------


def test_a_cursor_is_read_as_it_was_written_and_by_people() -> None:
    bare = replace(FREE, idle_since=None, idle_ticks=0, last_tick=None)
    assert [read_cursor(stored(one), 3, NOON) for one in (FULL, bare)] == [FULL, bare]
    row = FULL.to_row()
    read = tuple(row[name] for name in ("closedThrough", "drainedThrough", "checkpoint", "status", "outcome"))
    assert read == ("2026-12-31#12:00", "2026-12-31#11:55", "2026-12-31#11:58", "cursor", "none")
    assert is_own_row(cursor_id(3))


@pytest.mark.parametrize(
    "malformed",
    [{"closedThrough": None}, {"drainedThrough": "soon"}, {"checkpointAt": "soon"}, {"version": "7"},
     {"checkpoint": None}],
)  # fmt: skip
def test_the_error_for_a_malformed_cursor_names_its_attribute(malformed: dict[str, object]) -> None:
    store = RiggedStore()
    store.put({"taskId": cursor_id(3), **FULL.to_row(), **malformed})
    assert refusal(read_cursor, store, 3, NOON)[0] in malformed


@pytest.mark.parametrize(
    ("second", "last"),
    [
        (30, NOON_MINUTE),  # in the middle of a minute: that minute is closed, for its tick is past
        (2, NOON_MINUTE),
        (1.9, NOON_MINUTE - 1),  # just begun: another host's clock may still be in the minute before
        (0, NOON_MINUTE - 1),
    ],
)
def test_a_missing_cursor_is_created_with_the_last_minute_closed_and_drained(second: float, last: int) -> None:
    store, now = RiggedStore(), NOON + timedelta(seconds=second)
    cursor = read_cursor(store, 5, now)
    assert cursor == Cursor(
        shard=5, closed_through=last, drained_through=last, polled_through=last, checkpoint=last, checkpoint_at=now
    )
    assert read_cursor(store, 5, now + timedelta(hours=1)) == cursor


def test_rule_14_a_cursor_is_put_only_if_there_is_none() -> None:
    """Overwritten by a process that found none before, the watermark would jump over buckets that were never polled."""
    store = RiggedStore()
    create = store.create
    store.create = lambda row: create({**row, **FREE.to_row()}) and create(row)  # another is first
    assert read_cursor(store, 3, NOON) == FREE
    store.create = lambda row: False
    with pytest.raises(StoreError, match="the cursor of shard 0 appeared and vanished"):
        read_cursor(store, 0, NOON)


# -- acquiring and saving --------------------------------------------------------------------------------------------


def test_rule_16_a_save_loses_to_an_earlier_one_and_sets_no_watermark_back() -> None:
    """Without the version in its condition, a process that was frozen would set both watermarks back."""
    store = stored(FULL)
    saved = save(
        store, FULL, replace(FULL, lease=None, closed_through=0, drained_through=0, polled_through=0), writer="w"
    )
    assert saved == replace(FULL, lease=None, version=8)
    assert save(store, FULL, replace(FULL, closed_through=NOON_MINUTE + 9), writer="v") is None
    assert read_cursor(store, 3, NOON) == saved
    store.throttled = is_cursor
    with pytest.raises(StoreError, match="cannot write the cursor of shard 3: ThrottlingError"):
        save(store, saved, saved, writer="w")


def acquire(store: RiggedStore, tick: int = NOON_MINUTE + 1, *, seconds: float = 0) -> Cursor | None:
    """Seconds after noon."""
    return acquire_shard(store, 3, tick, token="mine", now=NOON + timedelta(seconds=seconds)).cursor


def test_rule_01_acquiring_a_shard_closes_its_buckets_even_while_another_process_has_its_lease() -> None:
    """Did it leave closing to the holder, the watermark would lag behind the ticks while the holder works."""
    free, leased = stored(FREE), stored(FULL)
    assert acquire(free) == read_cursor(free, 3, NOON) == MINE
    assert acquire(leased) is None
    assert read_cursor(leased, 3, NOON) == replace(FULL, closed_through=NOON_MINUTE + 1, version=8)
    leased.forget()
    assert acquire(leased) is None
    assert leased.writes == [], "it is closed already"


@pytest.mark.parametrize(("seconds", "taken"), [(30, False), (34, False), (34.1, True), (3600, True)])
def test_a_process_that_has_gone_silent_loses_the_shard(seconds: float, taken: bool) -> None:
    assert (acquire(stored(FULL), seconds=seconds) is not None) is taken


@pytest.mark.parametrize(
    ("before", "by_then", "acquired"),
    [
        (FREE, replace(FREE, closed_through=NOON_MINUTE + 9, version=8), replace(MINE, closed_through=NOON_MINUTE + 9)),
        (FULL, replace(FREE, version=8), MINE),  # its holder ends meanwhile
    ],
)
def test_a_lost_race_for_the_shard_is_run_again(before: Cursor, by_then: Cursor, acquired: Cursor) -> None:
    store = stored(before)
    with store.meanwhile(is_cursor, lambda: store.put({"taskId": cursor_id(3), **by_then.to_row()})):
        assert acquire(store) == replace(acquired, version=9)


def test_a_race_that_never_ends_is_a_fault() -> None:
    store, versions = stored(FREE), count(8)
    store.before_write = lambda change: store.put({**of(store.peek(change.task_id)), "version": next(versions)})
    with pytest.raises(StoreError, match="cannot acquire shard 3: _dynatick#cursor#3 was changed by others 10 times"):
        acquire(store)


def test_a_shard_whose_acquisition_got_no_answer_is_acquired() -> None:
    """The SDK sends a request again whose answer was lost; the second then meets what the first has written.

    Taken for another's, the shard would stand still until its own lease is over.
    """
    store = stored(FREE)
    write = store.write
    with store.meanwhile(is_cursor, lambda: write(store.writes[-1])):
        assert acquire(store) == MINE


def test_a_save_that_the_sdk_has_sent_again_recognises_its_own_effect_by_the_writer_and_no_other() -> None:
    """Another that writes the same values at the same version is not taken for it: its pass would go on beside it."""
    again = stored(FULL)
    write = again.write
    ended = replace(FULL, lease=None, lease_until=None)
    with again.meanwhile(is_cursor, lambda: write(again.writes[-1])):
        assert save(again, FULL, ended, writer="mine") == replace(ended, version=8)
    others = stored(FULL)
    with others.meanwhile(is_cursor, lambda: save(others, FULL, ended, writer="another's")):
        assert save(others, FULL, ended, writer="mine") is None


# -- which buckets are polled ----------------------------------------------------------------------------------------


def window(found: Cursor, *, tick_minutes: int = 1, closed_at: datetime = NOON) -> Window:
    return Window(found, rules(grid=Grid(tick_minutes=tick_minutes)), closed_at=closed_at)


LATER = NOON + timedelta(seconds=124)  # L and the margin

DUE = [
    # the cursor (closed, drained, polled, checkpoint), now, the grid; which minutes are polled
    ("nothing is closed that is not drained", cursor_at(0, 0), NOON, 1, []),
    ("all that were not polled yet", cursor_at(5, 0, polled=0, checkpoint=0), NOON, 1, [1, 2, 3, 4, 5]),
    ("after an outage", cursor_at(100, 0, polled=0, checkpoint=0), NOON, 1, list(range(1, 101))),
    ("the newest two ticks", cursor_at(5, 0, polled=4, checkpoint=3), NOON, 1, [4, 5]),
    ("the newest two ticks of five minutes", cursor_at(20, 0, polled=15, checkpoint=15), NOON, 5, list(range(11, 21))),
    ("what was not polled in full", cursor_at(5, 0, polled=2, checkpoint=3), NOON, 1, [3, 4, 5]),
    ("all, once polls are final", cursor_at(5, 0, polled=4, checkpoint=3), LATER, 1, [1, 2, 3, 4, 5]),
    ("not yet ripe", cursor_at(5, 0, polled=4, checkpoint=3), LATER - timedelta(milliseconds=1), 1, [4, 5]),
    ("after a checkpoint that is not drained", cursor_at(20, 0, polled=19, checkpoint=3), LATER, 1, [*range(1, 21)]),
    ("what lies after a checkpoint not yet ripe", cursor_at(20, 0, polled=19, checkpoint=3), NOON, 1, [*range(4, 21)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "found", "now", "n", "due"), DUE, ids=[name for name, *_ in DUE])
def test_which_buckets_are_polled(name: str, found: Cursor, now: datetime, n: int, due: list[int]) -> None:
    polled = window(found, tick_minutes=n).minutes_to_poll(now)
    assert [minute - NOON_MINUTE for minute in polled] == due


def poll(
    found: Window, minute: int, at: datetime, *, complete: bool = True, contended: int = 0, in_flight: int = 0
) -> None:
    found.begin_poll(NOON_MINUTE + minute, at)
    if complete:
        found.complete_poll(NOON_MINUTE + minute)
    found.add_in_flight(NOON_MINUTE + minute, in_flight + contended)
    for _ in range(contended):
        found.end_in_flight(NOON_MINUTE + minute, is_open=True)


@pytest.mark.parametrize(
    "flaw",
    [None, "not polled", {"at": LATER - timedelta(milliseconds=1)}, {"complete": False}, {"contended": 1},
     {"in_flight": 1}],
)  # fmt: skip
def test_the_end_write_drains_through_final_polls_that_left_nothing_and_then_sets_a_new_checkpoint(
    flaw: dict[str, Any] | str | None,
) -> None:
    closed_at = NOON + timedelta(minutes=5)
    found = window(cursor_at(6, 0, polled=2, checkpoint=4), closed_at=closed_at)
    for minute in range(1, 7):
        if minute != 3 or flaw is None:
            poll(found, minute, LATER)
        elif isinstance(flaw, dict):
            poll(found, minute, **{"at": LATER, **flaw})
    end = found.final_cursor()
    if flaw is None:
        assert (end.drained_through, end.polled_through) == (NOON_MINUTE + 4, NOON_MINUTE + 6), "the checkpoint"
        assert (end.checkpoint, end.checkpoint_at, end.lease) == (NOON_MINUTE + 6, closed_at, None)
    else:
        assert (end.drained_through, end.checkpoint, end.checkpoint_at) == (NOON_MINUTE + 2, NOON_MINUTE + 4, NOON)


def test_another_poll_keeps_only_what_is_in_flight() -> None:
    found = window(cursor_at(5, 0, checkpoint=5))
    poll(found, 1, LATER, contended=3, in_flight=2)
    found.begin_poll(NOON_MINUTE + 1, LATER + timedelta(seconds=1))
    again = found.polls[NOON_MINUTE + 1]
    assert (again.complete, again.contended, again.in_flight) == (False, 0, 2)


# -- what holds the drained watermark back ---------------------------------------------------------------------------


def test_an_attempt_that_was_not_recorded_holds_the_watermark(w: World) -> None:
    """Time is up, and no other poll of this pass meets its row: only the attempt itself can hold its bucket."""
    w.insert("t", at=bucket_at(1))
    w.rigged.hidden = lambda entry: minute_of(w.clock()) < NOON_MINUTE + 6  # so that the first poll is final
    w.ticks(5)
    w.rigged.throttled = is_record
    with w.rigged.meanwhile(is_record, lambda: w.clock.forward(seconds=102)):
        assert w.first_pass(6).unrecorded == 1
    assert w.cursor().drained_through < bucket_at(1).minute
    w.rigged.clear_faults()
    w.ticks(12)
    assert w.outcome("t") == "completed"


def test_what_could_not_be_claimed_for_a_fault_holds_the_watermark(w: World) -> None:
    w.insert("t", at=bucket_at(1))
    w.rigged.throttled, w.rigged.before_read = lambda change: change.task_id == "t", raises_for("t")
    for _ in range(12):
        with suppress(StoreError):
            w.next_tick()
    w.rigged.clear_faults()
    w.ticks(6)
    assert w.outcome("t") == "completed"


def test_the_time_of_a_poll_is_read_before_its_query(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that comes in during the query may be missing in its answer."""
    asked, began = dict[int, datetime](), dict[int, datetime]()
    begin = Window.begin_poll

    def noted(self: Window, minute: int, at: datetime) -> None:
        began.setdefault(minute, at)
        begin(self, minute, at)

    w.rigged.before_poll = lambda bucket: asked.setdefault(bucket.minute, w.clock()) and w.clock.forward(seconds=5)
    monkeypatch.setattr(Window, "begin_poll", noted)
    w.next_tick()
    assert began
    assert all(began[minute] <= asked[minute] for minute in began)


def test_what_waits_for_turns_is_counted_once_however_often_its_bucket_is_polled() -> None:
    """Else a long pass would soon keep no more ids, and put nothing off at the final poll."""
    found, minute = window(cursor_at(6, 0, polled=2, checkpoint=4)), NOON_MINUTE + 1
    for _ in range(5):
        poll(found, 1, LATER)
        for n in range(MAX_IN_TURN // 4):
            found.add_contended(minute, in_turn=f"t{n}")
    assert [(of, len(ids)) for of, ids in found.take_in_turn()] == [(minute, MAX_IN_TURN // 4)]


def window_of(w: World, **changes: Any) -> Window:
    """Returns the window of a pass that begins now; ``changes`` of its cursor."""
    taken = acquire_shard(w.store, 0, minute_of(w.clock()), token="mine", now=w.clock()).cursor
    assert taken is not None
    if changes:
        taken = save(w.store, taken, replace(taken, **changes), writer="mine")
        assert taken is not None
    return Window(taken, w.rules, closed_at=w.clock())


def test_when_another_tick_has_closed_more_the_checkpoint_is_measured_anew(w: World) -> None:
    """Buckets that it closed were open until then: a poll that is measured from before would not be final."""
    w.clock.forward(minutes=1)
    window = window_of(w)
    shard = ShardLease(w.store, w.clock, window, "mine")
    w.clock.forward(seconds=20)
    assert acquire_shard(w.store, 0, NOON_MINUTE + 2, token="another's", now=w.clock()).cursor is None
    closed = w.clock()
    assert not shard.release(lambda cursor: cursor)
    assert window.cursor.closed_through == NOON_MINUTE + 2
    assert window.closed_at >= closed


def test_occurrences_of_a_pass_raise_the_checkpoint_and_keep_the_shard_open_while_they_are_written(w: World) -> None:
    """It writes them into closed buckets: only later polls can be final for those."""
    w.clock.forward(minutes=1)
    window, until = window_of(w), NOON + timedelta(minutes=5)
    written = w.clock() + timedelta(seconds=30)
    window.wrote_occurrence(window.cursor.checkpoint, written)
    assert window.progress().checkpoint_at == window.final_cursor().checkpoint_at == written
    window.cursor = replace(window.cursor, open_until=until)
    window.opened, window.writing = True, 1
    assert window.final_cursor().open_until == until
    window.writing = 0
    assert window.final_cursor().open_until is None


@pytest.mark.parametrize("minutes", [5, 20])
def test_open_until_is_never_earlier_than_another_pass_has_set_it(w: World, minutes: int) -> None:
    """That one may have been killed: what it wrote may still have to show up in the index."""
    until, others = NOON + timedelta(minutes=minutes), NOON + timedelta(minutes=10)
    shard = ShardLease(w.store, w.clock, window_of(w, open_until=others), "mine")
    assert shard.keep_open(until)
    assert w.cursor().open_until == max(until, others)
    assert shard.release(lambda cursor: cursor)
    assert w.cursor().open_until == others


def test_a_schedule_that_is_due_at_every_tick_does_not_keep_the_watermark_from_advancing(w: World) -> None:
    """Its occurrences lie after the buckets that are waiting for their final poll."""
    w.put(taskId="s", scheduleExpression="rate(1 minute)")
    w.ticks(8)
    assert len(w.actions.ran) == 8
    assert w.cursor().drained_through >= bucket_at(1).minute


def test_occurrences_that_another_process_runs_hold_the_watermark(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    w.put(taskId="s", scheduleExpression="rate(1 minute)")
    minute = Bucket.parse(w.row("s")["taskDateTime"]).minute

    def elsewhere(self: Recurring, entries: list[object], **_: object) -> list[Made]:
        return [Made(verdict=Ineligible(), elsewhere=[minute]) for _ in entries]

    monkeypatch.setattr(Recurring, "make_occurrences", elsewhere)
    w.ticks(8)
    assert w.cursor().drained_through < minute


# -- ranges that are left to workers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranges", "position", "polled"),
    [
        ([("b", "d")], None, [(None, "b"), ("d", None)]),
        ([("b", "d")], "c", [("d", None)]),
        ([("b", "d")], "m", [("m", None)]),  # a continuation polls nothing again that lies before its position
        ([("b", "m"), ("c", "d")], None, [(None, "b"), ("m", None)]),  # a range within another: written by hand
        ([("p", "q"), (None, "d")], "b", [("d", "p"), ("q", None)]),
    ],
)
def test_a_pass_polls_what_no_worker_has_and_what_lies_behind_its_position(
    ranges: list[tuple[str | None, str]], position: str | None, polled: list[tuple[str | None, str | None]]
) -> None:
    window = Window(cursor_at(1, 0), rules(), closed_at=NOON)
    minute = NOON_MINUTE + 1
    window.handed_out = [
        WorkOrder(bucket=bucket_at(1), after=after, through=through, until=NOON) for after, through in ranges
    ]
    resume = None if position is None else Resume(minute, position)
    assert list(window.segments([minute], resume)) == [Segment(minute, *part) for part in polled]


def test_a_part_of_what_is_read_again_is_not_the_rest_of_its_bucket() -> None:
    rest = Segment(1, after="c", of_packs=True, is_rest=True)
    assert rest.is_whole
    parts = [part.within(rest) for part in (Segment(1, None, "f"), Segment(1, "h"), Segment(1), Segment(1, None, "b"))]
    assert [part and part.is_whole for part in parts] == [False, False, True, None]
