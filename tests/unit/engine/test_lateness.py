"""How late tasks began: what it is measured from, and what the row keeps of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.engine.support import World, bucket_at, fails, world

from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.task import Task
from dynatick.engine.lateness import lateness_of
from dynatick.engine.ports import ActionContext
from dynatick.engine.rules import Precision, Rules
from dynatick.errors import PermanentError, Reschedule

TASK = Task.from_row(scheduled_row("t", bucket_at(2), dueAt="2026-12-31T12:01:30Z"))
EARLY, LATE = NOON - timedelta(days=1), NOON + timedelta(seconds=100)


@pytest.mark.parametrize(
    ("task", "to_the_second", "after_its_tick"),
    [
        (replace(TASK, created_at=EARLY), 30_500, 500),
        # Inserted after it was due, or within the interval of its tick.
        (replace(TASK, created_at=LATE), 20_500, 500),
        (replace(TASK, created_at=NOON + timedelta(seconds=120.3)), 200, 0),
        # A retry, a deferral or a further turn.
        (replace(TASK, created_at=EARLY, next_attempt_at=NOON + timedelta(seconds=118)), 2_500, 500),
        # An occurrence begins with its bucket, which a flexible window may have moved.
        (replace(TASK, created_at=None, schedule_id="s"), 500, 500),
        # A host whose clock is behind.
        (replace(TASK, created_at=NOON + timedelta(seconds=121)), 0, 0),
    ],
)
def test_lateness_begins_with_the_instant_that_counts(task: Task, to_the_second: int, after_its_tick: int) -> None:
    began: datetime = NOON + timedelta(seconds=120.5)
    for precision, expected in ((Precision.SECOND, to_the_second), (Precision.TICK, after_its_tick)):
        assert lateness_of(task, began, Rules(precision=precision), Grid()) == expected


# -- what the row keeps ----------------------------------------------------------------------------------------------


def late(w: World, task_id: str) -> int:
    """The milliseconds in the row, which the index lists too."""
    kept = w.row(task_id)["lateMilliseconds"]
    bucket = Bucket.parse(w.row(task_id)["taskDateTime"])
    entries = {entry.task_id: entry for entry in w.store.query_bucket(bucket, open_only=False).entries}
    assert entries[task_id].late_milliseconds == kept
    return int(str(kept))


def begun_7_seconds_late(error: Exception | None = None, **row: object) -> World:
    """A world whose task ``t`` was due at 12:01. ``error``: raised by the first attempt of its first turn."""
    w = world()

    def run(task: Task, context: ActionContext) -> None:
        if error is not None and (context.turn, context.attempt) == (0, 1):
            raise error

    w.actions.behaviour["t"] = run
    w.insert("t", **row)
    w.clock.to(NOON + timedelta(minutes=1, seconds=7))
    w.tick()
    return w


@pytest.mark.parametrize(("error", "outcome"), [(None, "completed"), (PermanentError("no"), "failed")])
def test_an_ended_task_says_how_late_it_began(error: Exception | None, outcome: str) -> None:
    w = begun_7_seconds_late(error)
    assert w.outcome("t") == outcome
    assert 7000 <= late(w, "t") < 8000


@pytest.mark.parametrize("again", [RuntimeError("no route"), Reschedule(after=2)])
def test_later_attempts_and_turns_keep_what_the_first_attempt_wrote(again: Exception) -> None:
    w = begun_7_seconds_late(again, retryPolicy={"minBackoffSeconds": 1, "maxBackoffSeconds": 1})
    first = late(w, "t")
    assert w.outcome("t") is None
    assert 7000 <= first < 8000
    w.ticks(3)
    assert w.outcome("t") == "completed"
    assert late(w, "t") == first


def test_a_failure_whose_dead_letter_was_refused_says_how_late_the_task_began() -> None:
    w = world(dead_letters=MemoryDeadLetters(refuse=lambda letter: True))
    w.insert("t", retryPolicy={"maximumRetryAttempts": Decimal(0)})
    w.actions.behaviour["t"] = fails
    w.clock.to(NOON + timedelta(minutes=1, seconds=7))
    w.tick()
    first = late(w, "t")
    w.dead_letters = MemoryDeadLetters()
    w.ticks(8)
    assert w.outcome("t") == "failed"
    assert late(w, "t") == first >= 7000
