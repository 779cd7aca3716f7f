"""Which occurrences of a schedule are overdue, and which are awaited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from tests.builders import NOON

from dynatick.domain.buckets import Grid, minute_of
from dynatick.domain.expressions import parse_expression
from dynatick.domain.occurrences import Overdue, plan_occurrences, settle
from dynatick.domain.schedule import AwaitedOccurrence, Overlap, Schedule
from dynatick.domain.task import Row

FIRST, SECOND = NOON, NOON + timedelta(minutes=1)
BY_HALF_PAST = AwaitedOccurrence(nominal=FIRST, expected_by=NOON + timedelta(minutes=30))


def every_minute(**fields: object) -> Schedule:
    made = Schedule(schedule_id="s", expression=parse_expression("rate(1 minute)"), start=NOON, next_occurrence_at=NOON)
    return replace(made, **fields)


def settled(
    schedule: Schedule, *, at: datetime, is_active: bool, tasks: Mapping[datetime, Row]
) -> tuple[list[datetime], list[Overdue]]:
    """The nominal instants that are awaited after the tick at ``at``, and what is overdue. ``is_active``: whether the
    occurrence before has not ended."""
    grid = Grid()
    plan = plan_occurrences(schedule, closed_through=minute_of(at), grid=grid, active=is_active, limit=9)
    awaited, overdue = settle(schedule, plan, tasks, made=plan.make, now=at, grid=grid)
    return [one.nominal for one in awaited], list(overdue)


def test_what_overlap_leaves_out_is_overdue_only_where_occurrences_have_a_deadline() -> None:
    """Without one it is what the schedule asks for."""
    schedule = every_minute(overlap=Overlap.SKIP)
    assert settled(schedule, at=FIRST, is_active=True, tasks={}) == ([], [])
    (late,) = settled(replace(schedule, expected_within_seconds=600), at=FIRST, is_active=True, tasks={})[1]
    assert (late.first, late.occurrences) == (FIRST, 1)
    assert late.reason == "missed: the occurrence before it had not ended"


def test_an_occurrence_that_was_buffered_is_awaited_once() -> None:
    schedule = every_minute(overlap=Overlap.BUFFER_ONE, expected_within_seconds=600)
    assert settled(schedule, at=FIRST, is_active=True, tasks={})[0] == [FIRST]
    waiting = AwaitedOccurrence(nominal=FIRST, expected_by=NOON + timedelta(minutes=10))
    buffered = replace(schedule, buffered_occurrence_at=FIRST, awaited=[waiting], next_occurrence_at=SECOND)
    for is_active in (True, False):
        awaited, _ = settled(buffered, at=SECOND, is_active=is_active, tasks={FIRST: {"status": "running"}})
        assert awaited.count(FIRST) == 1


@pytest.mark.parametrize(
    "row",
    [{"status": "failed", "outcome": "failed", "error": "no route"},
     {"status": "scheduled", "attempt": 1, "nextAttemptAt": "2026-12-31T12:20:00Z"}],
    ids=["failed", "waits for another attempt"],
)  # fmt: skip
def test_an_occurrence_that_has_not_completed_is_overdue_at_its_deadline_and_not_before(row: Row) -> None:
    """Even one that has failed: a person may redrive it."""
    just_before = BY_HALF_PAST.expected_by - timedelta(milliseconds=1)
    assert BY_HALF_PAST.judge(row, just_before) is BY_HALF_PAST
    reason = BY_HALF_PAST.judge(row, BY_HALF_PAST.expected_by)
    assert reason == ("failed: no route" if "error" in row else "waits for attempt 2, at 2026-12-31T12:20:00Z")


@pytest.mark.parametrize(
    ("finished_at", "verdict"),
    [("2026-12-31T12:30:00Z", None), ("2026-12-31T12:30:00.001Z", "completed late, at 2026-12-31T12:30:00.001Z")],
)
def test_an_occurrence_that_completed_after_its_deadline_is_overdue(finished_at: str, verdict: str | None) -> None:
    row = {"status": "completed", "outcome": "completed", "finishedAt": finished_at}
    assert BY_HALF_PAST.judge(row, NOON + timedelta(hours=1)) == verdict


def test_an_occurrence_that_a_person_cancelled_or_deleted_is_no_longer_awaited() -> None:
    later = NOON + timedelta(hours=1)
    assert BY_HALF_PAST.judge({"status": "cancelled", "outcome": "cancelled"}, later) is None
    assert BY_HALF_PAST.judge(None, later) is None
