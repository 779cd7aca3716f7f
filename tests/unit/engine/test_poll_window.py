"""Which buckets a pass polls, and through where they are drained."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from tests.builders import NOON
from tests.unit.engine.support import NOON_MINUTE, rules, world

from dynatick.domain.buckets import Grid
from dynatick.engine.cursor import Cursor
from dynatick.engine.poll_window import Window

FINAL = timedelta(seconds=124)  # L and the margin


def cursor(closed: int, drained: int, *, polled: int | None = None, checkpoint: int | None = None) -> Cursor:
    """In minutes after noon."""
    return Cursor(
        shard=0,
        closed_through=NOON_MINUTE + closed,
        drained_through=NOON_MINUTE + drained,
        polled_through=NOON_MINUTE + (closed if polled is None else polled),
        checkpoint=NOON_MINUTE + (closed if checkpoint is None else checkpoint),
        checkpoint_at=NOON,
    )


def window(found: Cursor, *, tick_minutes: int = 1, closed_at: datetime = NOON) -> Window:
    return Window(found, rules(grid=Grid(tick_minutes=tick_minutes)), closed_at=closed_at)


def minutes(found: Window, now: datetime) -> list[int]:
    return [minute - NOON_MINUTE for minute in found.minutes_to_poll(now)]


LATER = NOON + FINAL

DUE = [
    # the cursor (closed, drained, polled, checkpoint), now, the grid; which minutes are polled
    ("nothing is closed that is not drained", cursor(0, 0), NOON, 1, []),
    ("all that were not polled yet", cursor(5, 0, polled=0, checkpoint=0), NOON, 1, [1, 2, 3, 4, 5]),
    ("after an outage", cursor(100, 0, polled=0, checkpoint=0), NOON, 1, list(range(1, 101))),
    ("the newest two ticks", cursor(5, 0, polled=4, checkpoint=3), NOON, 1, [4, 5]),
    ("the newest two ticks of five minutes", cursor(20, 0, polled=15, checkpoint=15), NOON, 5, list(range(11, 21))),
    ("what was not polled in full", cursor(5, 0, polled=2, checkpoint=3), NOON, 1, [3, 4, 5]),
    ("all, once polls are final", cursor(5, 0, polled=4, checkpoint=3), LATER, 1, [1, 2, 3, 4, 5]),
    ("not yet ripe", cursor(5, 0, polled=4, checkpoint=3), LATER - timedelta(milliseconds=1), 1, [4, 5]),
    ("after a checkpoint that is not drained", cursor(20, 0, polled=19, checkpoint=3), LATER, 1, list(range(1, 21))),
    ("what lies after a checkpoint not yet ripe", cursor(20, 0, polled=19, checkpoint=3), NOON, 1, list(range(4, 21))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "found", "now", "n", "due"), DUE, ids=[name for name, *_ in DUE])
def test_which_buckets_are_polled(name: str, found: Cursor, now: datetime, n: int, due: list[int]) -> None:
    assert minutes(window(found, tick_minutes=n), now) == due


def poll(
    found: Window, minute: int, at: datetime, *, complete: bool = True, contended: int = 0, in_flight: int = 0
) -> None:
    found.begin_poll(NOON_MINUTE + minute, at)
    if complete:
        found.complete_poll(NOON_MINUTE + minute)
    found.add_in_flight(NOON_MINUTE + minute, in_flight + contended)
    for _ in range(contended):
        found.end_in_flight(NOON_MINUTE + minute, is_open=True)


def test_the_drained_watermark_follows_final_polls_that_left_nothing() -> None:
    found = window(cursor(5, 0, checkpoint=3))
    for minute in range(1, 6):
        poll(found, minute, LATER)
    assert found.new_drained_through() == NOON_MINUTE + 3, "through the checkpoint, and no further"


@pytest.mark.parametrize(
    "flaw", [None, {"at": LATER - timedelta(milliseconds=1)}, {"complete": False}, {"contended": 1}, {"in_flight": 1}]
)
def test_the_drained_watermark_stops_at_the_first_bucket_that_was_not_polled_or_has_a_flaw(
    flaw: dict[str, object] | None,
) -> None:
    found = window(cursor(5, 0, checkpoint=5))
    for minute in (1, 2, 4, 5):
        poll(found, minute, LATER)
    if flaw is not None:
        poll(found, 3, **({"at": LATER} | flaw))
    assert found.new_drained_through() == NOON_MINUTE + 2


def test_another_poll_keeps_only_what_is_in_flight() -> None:
    found = window(cursor(5, 0, checkpoint=5))
    poll(found, 1, LATER, contended=3, in_flight=2)
    found.begin_poll(NOON_MINUTE + 1, LATER + timedelta(seconds=1))
    again = found.polls[NOON_MINUTE + 1]
    assert (again.complete, again.contended, again.in_flight) == (False, 0, 2)


def test_the_end_write_sets_a_new_checkpoint_once_the_old_one_is_drained() -> None:
    closed_at = NOON + timedelta(minutes=5)
    found = window(cursor(5, 0, polled=2, checkpoint=3), closed_at=closed_at)
    for minute in range(1, 6):
        poll(found, minute, LATER)
    end = found.final_cursor()
    assert (end.drained_through, end.polled_through) == (NOON_MINUTE + 3, NOON_MINUTE + 5)
    assert (end.checkpoint, end.checkpoint_at, end.lease) == (NOON_MINUTE + 5, closed_at, None)


def test_the_end_write_keeps_the_checkpoint_until_it_is_drained() -> None:
    found = window(cursor(5, 0, polled=2, checkpoint=3))
    for minute in range(1, 6):
        poll(found, minute, LATER, contended=minute == 3)
    end = found.final_cursor()
    assert (end.drained_through, end.checkpoint, end.checkpoint_at) == (NOON_MINUTE + 2, NOON_MINUTE + 3, NOON)


# -- over many ticks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "reads"), [(1, 8), (2, 10), (5, 12)])
def test_an_idle_tick_costs_little(n: int, reads: int) -> None:
    """The budget is 8 read calls and 2 writes a shard at N = 1 (design §12)."""
    w = world(rules=rules(grid=Grid(tick_minutes=n)))
    for _ in range(20):
        w.rigged.forget()
        w.next_tick(n)
        assert len(w.rigged.polls) + len(w.rigged.reads) <= reads
        assert len(w.rigged.writes) == 2
