"""The cursor of a shard: created, read, taken, saved."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.builders import NOON
from tests.unit.domain.support import refusal
from tests.unit.engine.support import NOON_MINUTE, Once, RiggedStore, is_cursor, of

from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.task import is_own_row
from dynatick.engine.cursor import Cursor, acquire_shard, cursor_id, read_cursor, save
from dynatick.engine.rules import SHARD_LEASE
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


def test_a_cursor_is_read_as_it_was_written() -> None:
    assert read_cursor(stored(FULL), 3, NOON) == FULL
    bare = replace(FREE, idle_since=None, idle_ticks=0, last_tick=None)
    assert read_cursor(stored(bare), 3, NOON) == bare


def test_a_cursor_can_be_read_by_people() -> None:
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


# -- creation --------------------------------------------------------------------------------------------------------


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


def test_a_cursor_that_appears_and_vanishes_is_a_fault() -> None:
    store = RiggedStore()
    store.create = lambda row: False
    with pytest.raises(StoreError, match="the cursor of shard 0 appeared and vanished"):
        read_cursor(store, 0, NOON)


# -- saving ----------------------------------------------------------------------------------------------------------


def test_a_save_raises_the_version_and_loses_to_an_earlier_one() -> None:
    store = stored(FULL)
    saved = save(store, FULL, replace(FULL, lease=None))
    assert saved is not None
    assert (saved.version, saved.lease) == (8, None)
    assert save(store, FULL, replace(FULL, closed_through=NOON_MINUTE + 9)) is None
    assert read_cursor(store, 3, NOON) == saved


def test_a_save_without_an_answer_is_a_fault() -> None:
    store = stored(FULL)
    store.throttled = is_cursor
    with pytest.raises(StoreError, match="cannot write the cursor of shard 3: ThrottlingError"):
        save(store, FULL, FULL)


# -- taking ----------------------------------------------------------------------------------------------------------


def acquire(store: RiggedStore, tick: int = NOON_MINUTE + 1, *, seconds: float = 0) -> Cursor | None:
    """So many seconds after noon."""
    return acquire_shard(store, 3, tick, token="mine", now=NOON + timedelta(seconds=seconds)).cursor


def test_acquiring_a_shard_closes_its_buckets() -> None:
    store = stored(FREE)
    assert acquire(store) == read_cursor(store, 3, NOON) == MINE


def test_a_shard_that_another_process_has_leased_is_closed_all_the_same() -> None:
    store = stored(FULL)
    assert acquire(store) is None
    assert read_cursor(store, 3, NOON) == replace(FULL, closed_through=NOON_MINUTE + 1, version=8)


def test_a_leased_shard_that_is_closed_already_costs_no_write() -> None:
    store = stored(FULL)
    assert acquire(store, NOON_MINUTE) is None
    assert store.writes == []


@pytest.mark.parametrize(("seconds", "taken"), [(30, False), (34, False), (34.1, True), (3600, True)])
def test_a_process_that_has_gone_silent_loses_the_shard(seconds: float, taken: bool) -> None:
    assert (acquire(stored(FULL), seconds=seconds) is not None) is taken


def test_a_lost_race_for_the_shard_is_run_again() -> None:
    store = stored(FREE)
    further = replace(FREE, closed_through=NOON_MINUTE + 9, version=8)
    store.meanwhile(is_cursor, lambda: store.put({"taskId": cursor_id(3), **further.to_row()}))
    assert acquire(store) == replace(MINE, closed_through=NOON_MINUTE + 9, version=9)


def test_a_race_that_never_ends_is_a_fault() -> None:
    store = stored(FREE)

    def another_is_always_first(change: ConditionalUpdate) -> None:
        row = of(store.peek(cursor_id(3)))
        store.put({**row, "version": int(str(row["version"])) + 1})

    store.before_write = another_is_always_first
    with pytest.raises(StoreError, match="cannot acquire shard 3: its cursor was changed by others 10 times"):
        acquire(store)


def test_a_shard_whose_acquisition_got_no_answer_is_acquired() -> None:
    """The SDK sends a request again whose answer was lost; the second then meets what the first has written.

    Taken for another's, the shard would stand still until its own lease is over.
    """
    store = stored(FREE)
    write = store.write
    first = Once(is_cursor)

    def sent_twice(change: ConditionalUpdate) -> object:
        if first(change):
            write(change)
        return write(change)

    store.write = sent_twice
    assert acquire(store) == MINE


def test_closing_a_leased_shard_may_race_with_its_holder() -> None:
    """The holder ends meanwhile: then the shard is free, and taken."""
    store = stored(FULL)
    free = replace(FREE, version=8)
    store.meanwhile(is_cursor, lambda: store.put({"taskId": cursor_id(3), **free.to_row()}))
    assert acquire(store) == replace(MINE, version=9)
