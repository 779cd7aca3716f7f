"""Schedules as rows: how they are understood, placed, edited, and what is decided at a tick."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import NOON, defaults

from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of
from dynatick.domain.conditional_update import Absent, ConditionalUpdate, Is
from dynatick.domain.occurrences import (
    MAX_CATCH_UP,
    MAX_CATCH_UP_AGE,
    MAX_DECIDED,
    Plan,
    advance,
    bucket_at,
    occurrence_row,
    oldest_made_up,
    plan_occurrences,
)
from dynatick.domain.pause import Pause
from dynatick.domain.recurrence import edited, ready
from dynatick.domain.schedule import CatchUp, MissedFor, Overlap, Schedule, is_schedule
from dynatick.domain.task import Task

EVERY_MINUTE = Grid()
EVERY_FIVE = Grid(tick_minutes=5)
C = minute_of(NOON)


def at(minutes: float) -> datetime:
    """Minutes after noon."""
    return NOON + timedelta(minutes=minutes)


EVERY = {"taskId": "s", "scheduleExpression": "rate(1 minute)"}
PAUSED, RESUMED = {"scheduleState": "DISABLED"}, {"scheduleState": "ENABLED"}
Fields = dict[str, Any]


def applied(row: Fields, change: ConditionalUpdate) -> Fields:
    return {name: value for name, value in (row | dict(change.set)).items() if name not in change.remove}


def is_ready(row: Fields, now: datetime) -> bool:
    return ready(row, now=now, grid=EVERY_MINUTE, defaults=defaults()) is None


def made_ready(row: Fields, now: datetime = NOON, grid: Grid = EVERY_MINUTE, revision: int = 1) -> ConditionalUpdate:
    change = ready(row, now=now, grid=grid, defaults=defaults(), revision=revision)
    assert change is not None
    return change


def begun(grid: Grid = EVERY_MINUTE, now: datetime = NOON, **row: Any) -> Fields:
    """The row of a schedule, once it was made ready."""
    raw = {name: value for name, value in (EVERY | row).items() if value is not None}
    return applied(raw, made_ready(raw, now, grid))


def changed(row: Fields, edits: Fields, now: datetime) -> Fields:
    """Returns the row after an edit through an interface of ours."""
    return applied(row, edited(row, edits, now=now, grid=EVERY_MINUTE, defaults=defaults()))


def plan_of(row: Fields, closed: int, *, grid: Grid = EVERY_MINUTE, active: bool = False, limit: int = 9) -> Plan:
    """Returns the plan of a tick that has closed a given number of minutes after noon."""
    return plan_occurrences(Schedule.from_row(row), closed_through=C + closed, grid=grid, active=active, limit=limit)


# -- coming in ---------------------------------------------------------------------------------------------------------


def test_a_bare_rate_starts_at_the_next_tick() -> None:
    row = begun(EVERY_FIVE, now=at(1), scheduleExpression="rate(10 minutes)")
    assert row == {
        "taskId": "s", "scheduleId": "s", "status": "recurring", "scheduleExpression": "rate(10 minutes)",
        "scheduleExpressionTimezone": "UTC", "scheduleState": "ENABLED", "startDate": "2026-12-31T12:05:00Z",
        "nextOccurrenceAt": "2026-12-31T12:05:00Z", "taskDateTime": "2026-12-31#12:05", "action": "log", "revision": 1,
        "createdAt": "2026-12-31T12:01:00Z", "definedAt": "2026-12-31T12:01:00Z", "definition": row["definition"],
    }  # fmt: skip


def test_the_other_name_of_an_expression() -> None:
    row = begun(scheduleExpression=None, cronExpression="rate(2 minutes)")
    assert row["scheduleExpression"] == "rate(2 minutes)"
    assert "cronExpression" not in row
    error = made_ready(EVERY | {"cronExpression": "rate(2 minutes)"}).set["error"]
    assert str(error).startswith("cronExpression: 'rate(2 minutes)' is not accepted; it is another name for schedule")


def test_a_cron_follows_its_zone_from_its_start_to_its_end() -> None:
    row = begun(scheduleExpression="cron(0 9 * * ? *)", scheduleExpressionTimezone="Europe/Berlin",
                startDate="2027-01-10T00:00:00+01:00", endDate="2027-01-11T23:00:00Z")  # fmt: skip
    first, second = (datetime.fromisoformat(f"2027-01-{day}T08:00:00Z") for day in (10, 11))
    assert row["nextOccurrenceAt"] == "2027-01-10T08:00:00Z"
    schedule = Schedule.from_row(row)
    assert (schedule.next_after(first), schedule.next_after(second)) == (second, None)


def test_one_that_waits_to_be_marked_failed_can_be_corrected() -> None:
    """Its dead letter was refused, so it lies in a bucket whose tick tries again."""
    moved = {"taskDateTime": "2026-12-31#12:05", "movedTo": "2026-12-31#12:05", "malformedReason": "it never runs"}
    row = changed({"taskId": "s", "scheduleExpression": "at(2020-01-01T00:00:00)"} | moved,
                  {"scheduleExpression": "rate(1 minute)"}, at(1))  # fmt: skip
    assert (row["status"], row["taskDateTime"]) == ("recurring", "2026-12-31#12:02")
    assert not {"movedTo", "malformedReason"} & row.keys()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"scheduleExpression": "cron(0 0 31 2 ? *)"}, "scheduleExpression: 'cron(0 0 31 2 ? *)' is not accepted"),
        ({"scheduleExpression": "at(2026-12-31T11:59:00)"}, "it never runs after 2026-12-31T12:00:00Z"),
        ({"scheduleExpressionTimezone": "Europe/Berlim"}, "close to it: Europe/Berlin"),
        ({"startDate": "2026-12-31"}, "startDate: '2026-12-31' is not accepted"),
        ({"endDate": "2026-12-31T11:00:00Z"}, "endDate: '2026-12-31T11:00:00Z' is not accepted"),
        ({"startDate": "2027-02-01T00:00:00Z", "endDate": "2027-01-01T00:00:00Z"}, "not to be before startDate"),
        ({"flexibleTimeWindow": 1441}, "flexibleTimeWindow: 1441 is not accepted; expected a whole number of minutes"),
        ({"scheduleState": "paused"}, "scheduleState: 'paused' is not accepted; expected ENABLED or DISABLED"),
        ({"catchUp": "some"}, "catchUp: 'some' is not accepted; expected one of latest, all, none"),
        ({"overlap": "queue"}, "overlap: 'queue' is not accepted; expected one of skip, allow, bufferOne"),
        ({"dueAt": "2027-01-01T00:00:00Z"}, "dueAt: '2027-01-01T00:00:00Z' is not accepted; leave it out"),
        ({"taskDateTime": "2027-01-01#00:00"}, "taskDateTime: '2027-01-01#00:00' is not accepted; leave it out"),
        ({"payload": [1]}, "payload: 'a list' is not accepted"),
        ({"action": 7}, "action: 7 is not accepted"),
        ({"retryPolicy": {"maximumRetryAttempts": -1}}, "retryPolicy.maximumRetryAttempts: -1 is not accepted"),
        ({"timeoutSeconds": 0}, "timeoutSeconds: 0 is not accepted"),
        ({"subject": ""}, "subject: '' is not accepted"),
        ({"limitKey": "customer"}, "limitKey: 'customer' is not accepted"),
        ({"taskId": "x" * 1000}, "expected at most 984 bytes for a schedule"),
        ({"timezone": "Europe/Berlin"}, "expected scheduleExpressionTimezone: under this name it changes nothing"),
    ],
)
def test_what_cannot_be_understood_is_marked_failed(row: Fields, message: str) -> None:
    change = made_ready(EVERY | row)
    assert (change.set["status"], change.set["scheduleState"]) == ("failed", "FAILED")
    assert message in str(change.set["error"])


def test_a_schedule_keeps_an_attribute_that_a_new_one_may_not_have() -> None:
    assert is_ready({**begun(), "catchup": "none"}, NOON)


def test_only_what_is_as_it_was_read_is_written_and_what_is_ready_left_alone() -> None:
    found = {*made_ready({**EVERY, "startDate": "2027-01-01T00:00:00Z"}).conditions}
    assert {Absent("status"), Absent("outcome"), Absent("taskDateTime"), Absent("cronExpression")} <= found
    assert {Is("scheduleExpression", "rate(1 minute)"), Is("startDate", "2027-01-01T00:00:00Z")} <= found
    for row in (begun(), begun(scheduleExpression="cron(0 9 ? * MON *)"), begun(flexibleTimeWindow=30)):
        assert is_ready(row, at(-1))
        assert is_ready(row, at(500))  # its tick is late


def test_which_rows_are_schedules() -> None:
    assert is_schedule({"taskId": "s", "cronExpression": "rate(1 minute)"})
    assert is_schedule({"taskId": "s", "status": "recurring"})
    assert not is_schedule({"taskId": "s"})
    assert not is_schedule({"taskId": "s", "scheduleExpression": None})
    assert not is_schedule({"taskId": "s", "status": "running", "scheduleExpression": "rate(1 minute)"})


# -- edits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scheduleExpression", "cronExpression"])
def test_an_edit_counts_from_now_on_also_one_by_hand(name: str) -> None:
    row = begun(scheduleExpression="cron(0 13 * * ? *)")
    by_hand = row | {name: "cron(30 12 * * ? *)"}
    edited_row = changed(row, {"scheduleExpression": "cron(30 12 * * ? *)"}, at(10))
    assert edited_row == applied(by_hand, made_ready(by_hand, at(10)))
    assert edited_row["scheduleExpression"] == "cron(30 12 * * ? *)"
    assert "cronExpression" not in edited_row
    assert (edited_row["nextOccurrenceAt"], edited_row["taskDateTime"]) == ("2026-12-31T12:30:00Z", "2026-12-31#12:30")
    assert edited_row["definedAt"] == "2026-12-31T12:10:00Z"
    assert edited_row["definition"] != row["definition"]


def test_an_edit_leaves_a_run_that_is_due_where_it_is() -> None:
    row = begun(scheduleExpression="cron(0 13 * * ? *)")
    later = changed(row, {"scheduleExpression": "cron(0/5 * * * ? *)"}, at(62))
    assert (later["nextOccurrenceAt"], later["taskDateTime"]) == ("2026-12-31T13:00:00Z", "2026-12-31#13:00")
    plan = plan_of(later, 63)
    assert plan.make == [at(60)]
    assert plan.next_occurrence_at == at(65)  # not 12:05 to 13:00, which the new expression names too


def test_pausing_and_resuming_within_an_interval_changes_nothing() -> None:
    row = begun(scheduleExpression="cron(0 13 * * ? *)")
    paused = changed(row, PAUSED | {"stateReason": "why"}, at(10))
    for one in (paused, begun(**PAUSED)):
        assert not {"taskDateTime", "nextOccurrenceAt"} & one.keys()
        assert is_ready(one, at(60))
    resumed = changed(paused, RESUMED | {"stateReason": None}, at(20))
    assert (resumed["nextOccurrenceAt"], resumed["taskDateTime"]) == ("2026-12-31T13:00:00Z", "2026-12-31#13:00")
    assert "stateReason" not in resumed


def test_a_run_that_was_due_before_a_pause_is_made() -> None:
    """Its tick is late; and whether it was resumed before the tick came makes no difference."""
    row = begun(scheduleExpression="cron(0 13 * * ? *)")
    paused = changed(row, PAUSED, at(60.5))
    assert paused["taskDateTime"] == "2026-12-31#13:00"
    assert is_ready(paused, at(61))
    plan = plan_of(paused, 62)
    assert plan.make == [at(60)]
    assert "taskDateTime" not in advanced(paused, plan, C + 62)
    assert plan_of(changed(paused, RESUMED, at(61)), 62).make == [at(60)]


def waiting(**row: Any) -> Fields:
    """Every five minutes from 12:05; the run of 12:10 waits, at 12:11, for that of 12:05."""
    row = begun(scheduleExpression="cron(0/5 * * * ? *)", overlap="bufferOne", **row)
    row = advanced(row, plan_of(row, 5), C + 5)
    row = advanced(row, plan_of(row, 10, active=True), C + 10)
    assert (row["bufferedOccurrenceAt"], row["taskDateTime"]) == ("2026-12-31T12:10:00Z", "2026-12-31#12:11")
    return row


def test_an_edit_while_a_run_waits_counts_from_now_on() -> None:
    """The one that waits is made; the next one was not due, and is no run of the new definition."""
    row = waiting()
    assert row["nextOccurrenceAt"] == "2026-12-31T12:15:00Z"
    edited_row = changed(row, {"scheduleExpression": "cron(0/2 * * * ? *)"}, at(10.5))
    assert (edited_row["nextOccurrenceAt"], edited_row["taskDateTime"]) == ("2026-12-31T12:12:00Z", "2026-12-31#12:11")
    plan = plan_of(edited_row, 11)
    assert (plan.make, plan.next_occurrence_at) == ([at(10)], at(12))


def test_pausing_while_a_run_waits_makes_it_and_no_other() -> None:
    paused = changed(waiting(catchUp="all"), PAUSED, at(10.5))
    assert (paused["bufferedOccurrenceAt"], "nextOccurrenceAt" in paused) == ("2026-12-31T12:10:00Z", False)
    resumed = changed(paused, RESUMED, at(31))
    plan = plan_of(resumed, 31)
    assert (plan.make, plan.missed, plan.next_occurrence_at) == ([at(10)], [], at(35))


def test_the_last_run_may_wait_and_ends_it() -> None:
    """Read again, it is still a schedule, and is made before the schedule ends."""
    row = waiting(endDate="2026-12-31T12:12:00Z")
    assert "nextOccurrenceAt" not in row
    assert is_ready(row, at(11))
    plan = plan_of(row, 11)
    assert (plan.make, plan.next_occurrence_at) == ([at(10)], None)
    ended = advanced(row, plan, C + 11)
    assert (ended["status"], ended["outcome"], ended["scheduleState"]) == ("completed", "completed", "COMPLETED")
    assert ("taskDateTime" in ended, "expiresAt" in ended) == (False, True)
    lost = changed({name: value for name, value in row.items() if name != "taskDateTime"}, {}, at(11.5))
    assert lost["taskDateTime"] == "2026-12-31#12:12"
    longer = changed(row, {"endDate": "2026-12-31T12:30:00Z"}, at(11))
    assert (longer["nextOccurrenceAt"], longer["taskDateTime"]) == ("2026-12-31T12:15:00Z", "2026-12-31#12:11")


def runs_from(row: Fields, *ticks: int) -> list[datetime]:
    """Returns all runs that the ticks make of it, however many passes they take."""
    made: list[datetime] = []
    for closed in ticks:
        more = "taskDateTime" in row
        while more:
            plan = plan_of(row, closed, limit=2)
            made += plan.make
            row, more = advanced(row, plan, C + closed), plan.more
    assert "dueBefore" not in row
    return made


ALL: Fields = {"catchUp": "all", "overlap": "allow"}
EVERY_OTHER = {"scheduleExpression": "rate(2 minutes)"}
EDITS_IN_AN_OUTAGE = [
    # the edits, each half a minute after a minute; the runs (minutes after noon) that are made at a tick at 12:10
    ([(4, EVERY_OTHER)], [1, 2, 3, 4, 5, 7, 9]),  # counted from 12:01 as before
    ([(4, PAUSED)], [1, 2, 3, 4]),
    ([(4, PAUSED), (7, RESUMED)], [1, 2, 3, 4, 8, 9, 10]),
    ([(4, PAUSED), (5, EVERY_OTHER), (7, RESUMED)], [1, 2, 3, 4, 9]),
    ([(2, EVERY_OTHER), (5, {"scheduleExpression": "cron(0/5 * * * ? *)"})], [1, 2, 3, 5, 10]),
    ([(2, EVERY_OTHER), (2, {"scheduleExpression": "rate(1 minute)"})], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
    ([(4, {"endDate": "2026-12-31T12:06:00Z"})], [1, 2, 3, 4, 5, 6]),
]


@pytest.mark.parametrize(("paused", "made"), [(7.6, [5]), (9.5, [5, 8, 9])])
def test_a_definition_makes_no_runs_of_the_time_before_it(paused: float, made: list[int]) -> None:
    """It runs each minute from 12:07:30 on; what was due before that had been every five minutes."""
    row = begun(scheduleExpression="cron(0/5 * * * ? *)", **ALL)
    row = changed(row, {"scheduleExpression": "cron(* * * * ? *)"}, at(7.5))
    row = changed(row, PAUSED, at(paused))
    assert runs_from(row, 10) == [at(minutes) for minutes in made]


@pytest.mark.parametrize("by_hand", [False, True], ids=["through an interface", "by hand"])
@pytest.mark.parametrize(("edits", "made"), EDITS_IN_AN_OUTAGE)
def test_an_edit_leaves_all_runs_that_are_due(edits: list[tuple[int, Fields]], made: list[int], by_hand: bool) -> None:
    """Several are, for no tick comes: those of the definition that was in force at their time. One late tick makes
    them, or each its own."""
    row = begun(**ALL)
    for minutes, edit in edits:
        now = at(minutes + 0.5)
        row = applied(row | edit, made_ready(row | edit, now)) if by_hand else changed(row, edit, now)
    assert runs_from(row, 10) == runs_from(row, *range(1, 11)) == [at(minutes) for minutes in made]


def test_an_edit_before_the_start_of_a_run_that_a_window_puts_off() -> None:
    """It is due from its own time on; the window only spreads the starts."""
    row = begun(taskId="s1", scheduleExpression="cron(0 * * * ? *)", flexibleTimeWindow=30, **ALL)
    offset = Schedule.from_row(row).offset
    assert offset > timedelta(minutes=2)
    for edit in (PAUSED, {"scheduleExpression": "cron(0/20 * * * ? *)"}):
        later = changed(row, edit, at(61))
        assert later["taskDateTime"] == row["taskDateTime"]
        assert at(60) in runs_from(later, 90)


@pytest.mark.parametrize("lost", ["scheduleId", "taskDateTime", "nextOccurrenceAt", "definition"])
def test_an_attribute_that_was_removed_comes_back(lost: str) -> None:
    row = begun(scheduleExpression="cron(0 13 * * ? *)")
    malformed = {name: value for name, value in row.items() if name != lost}
    repaired = applied(malformed, made_ready(malformed, at(5)))
    assert repaired | {"definedAt": row["definedAt"]} == row


def test_what_would_end_it_is_removed_and_a_bucket_later_than_the_next_run_corrected() -> None:
    for stray in ({"expiresAt": 5}, {"outcome": None}):
        assert made_ready(begun() | stray).remove == tuple(stray)
    row = begun(scheduleExpression="cron(0 13 * * ? *)") | {"taskDateTime": "2027-12-31#12:00"}
    for now in (NOON, at(61)):
        assert made_ready(row, now).set == {"taskDateTime": "2026-12-31#13:00"}
    assert is_ready(row | {"movedTo": "2027-12-31#12:00"}, NOON), "placed there: its own was closed"


# -- deciding ----------------------------------------------------------------------------------------------------------


def advanced(row: Fields, plan: Plan, closed: int, grid: Grid = EVERY_MINUTE) -> Fields:
    schedule, now = Schedule.from_row(row), instant_of(closed)
    return applied(row, advance(row, schedule, plan, closed_through=closed, grid=grid, now=now, retention_days=30))


def test_at_its_tick_a_run_is_made_and_the_schedule_moves_on() -> None:
    row = begun()
    plan = plan_of(row, 1)
    assert plan == Plan(make=[at(1)], missed=[], buffered=None, next_occurrence_at=at(2), more=False, last=at(1))
    after = advanced(row, plan, C + 1)
    assert (after["nextOccurrenceAt"], after["taskDateTime"]) == ("2026-12-31T12:02:00Z", "2026-12-31#12:02")
    assert (after["lastOccurrenceAt"], after["lastTaskId"]) == ("2026-12-31T12:01:00Z", "s#1#2026-12-31T12:01:00Z")
    # Found in a bucket of an older, finer grid, it is not due yet on the new one.
    plan = plan_of(row, 1, grid=EVERY_FIVE)
    assert (plan.make, plan.more) == ([], False)
    assert advanced(row, plan, C + 1, EVERY_FIVE)["taskDateTime"] == "2026-12-31#12:05"


OUTAGE = [
    # policy, interval, overlap, what is made, what is missed (runs); ticks closed through 13:00, none since 12:00
    ("latest", "rate(1 minute)", "allow", [59, 60], 58), ("latest", "rate(1 minute)", "skip", [59], 58 + 1),
    ("latest", "rate(20 minutes)", "allow", [41], 2),  # 12:01 and 12:21 are older than the latest
    ("all", "rate(20 minutes)", "allow", [1, 21, 41], 0), ("all", "rate(20 minutes)", "skip", [1], 2),
    ("none", "rate(20 minutes)", "allow", [], 3), ("none", "rate(1 minute)", "allow", [59, 60], 58),
]  # fmt: skip


def long_ago(expression: str, next_at: str, catch_up: str = "all") -> Fields:
    """A schedule with a backlog: by hand, or since no tick came for years."""
    row = begun(
        now=NOON - timedelta(days=3650), scheduleExpression=expression, catchUp=catch_up, overlap="allow",
        startDate="1970-01-01T00:00:00Z",
    )  # fmt: skip
    return row | {"nextOccurrenceAt": next_at, "definedAt": "1970-01-01T00:00:00Z"}


def test_a_backlog_of_decades_is_made_up_for_a_week_and_passed_over_at_once() -> None:
    row = long_ago("rate(1 minute)", "1970-01-01T00:00:00Z")
    plan = plan_of(row, 0)
    assert (list(plan.make), plan.more, plan.next_occurrence_at) == ([], True, at(-MAX_CATCH_UP))
    (missed,) = plan.missed
    assert (missed.reason, missed.occurrences) == (MissedFor.TOO_OLD, MAX_DECIDED), "the others are not counted"
    assert at(-MAX_CATCH_UP) - missed.last < timedelta(seconds=1)
    following = plan_of(row | {"nextOccurrenceAt": "2026-12-24T13:20:00Z"}, 0)
    assert at(-MAX_CATCH_UP) == following.make[0], "the rest is made, oldest first"
    assert not following.missed


def test_an_outage_of_months_leaves_out_nothing_that_is_seldom() -> None:
    schedule = Schedule.from_row(long_ago("cron(0 12 * * ? *)", "2026-11-01T12:00:00Z"))
    assert oldest_made_up(schedule, C) <= schedule.next_occurrence_at
    plan = plan_of(long_ago("cron(0 12 * * ? *)", "2026-11-01T12:00:00Z"), 0, limit=100)
    assert (len(plan.make), list(plan.missed)) == (61, [])


def test_what_is_made_up_is_bounded_by_number_and_by_age() -> None:
    for minutes, expression in ((1, "rate(1 minute)"), (7, "rate(7 minutes)"), (60, "rate(1 hour)")):
        oldest = oldest_made_up(Schedule.from_row(long_ago(expression, "1970-01-01T00:00:00Z")), C)
        assert MAX_CATCH_UP / 3 < (NOON - oldest) // timedelta(minutes=minutes) <= MAX_CATCH_UP
    daily = Schedule.from_row(long_ago("cron(0 12 * * ? *)", "1970-01-01T12:00:00Z"))
    assert oldest_made_up(daily, C) == NOON - MAX_CATCH_UP_AGE


@pytest.mark.parametrize(("catch_up", "makes"), [("latest", True), ("all", True), ("none", False)])
def test_the_latest_is_made_however_old_it_is(catch_up: str, makes: bool) -> None:
    row = long_ago("cron(0 12 31 12 ? 2020-2021)", "2020-12-31T12:00:00Z", catch_up)
    plan = plan_of(row, 0)
    assert list(plan.make) == [datetime(2021, 12, 31, 12, tzinfo=UTC)] * makes
    assert [one.reason for one in plan.missed] == [MissedFor.TOO_OLD if catch_up == "all" else MissedFor.OUTAGE]
    assert sum(one.occurrences for one in plan.missed) == 2 - makes


@pytest.mark.parametrize(("catch_up", "expression", "overlap", "made", "missed"), OUTAGE)
def test_after_an_outage(catch_up: str, expression: str, overlap: str, made: list[int], missed: int) -> None:
    plan = plan_of(begun(scheduleExpression=expression, catchUp=catch_up, overlap=overlap), 60)
    assert list(plan.make) == [at(minutes) for minutes in made]
    assert sum(entry.occurrences for entry in plan.missed) == missed
    assert plan.next_occurrence_at is not None
    assert plan.next_occurrence_at > at(60)
    # One missed tick is no outage.
    assert list(plan_of(begun(catchUp=catch_up, overlap="allow"), 2).make) == [at(1), at(2)]


CATCH_UPS = ["latest", "all", "none"]


@pytest.mark.parametrize("catch_up", CATCH_UPS)
def test_a_smaller_interval_makes_no_occurrence_late(catch_up: str) -> None:
    """The schedule lies in the bucket of a tick that comes, and each of its occurrences is in time at that."""
    row = begun(EVERY_FIVE, scheduleExpression="cron(* * * * ? *)", catchUp=catch_up, overlap="allow")
    assert row["taskDateTime"] == "2026-12-31#12:05"
    for now in (3, 4.95, 5, 7):  # an edit, and the scan, show it too
        assert is_ready(row, at(now))
    for closed in (5, 6):
        plan = plan_of(row, closed)
        assert (plan.make, plan.missed) == ([at(minutes) for minutes in range(1, closed + 1)], [])
    late = plan_of(row, 7)
    assert late.make[0] == (at(1) if catch_up == "all" else at(6))


def test_once_it_was_moved_its_bucket_does_not_say_that_it_is_in_time() -> None:
    row = begun(catchUp="none") | {"taskDateTime": "2026-12-31#12:09", "movedTo": "2026-12-31#12:09"}
    assert is_ready(row, at(9))
    assert [one.occurrences for one in plan_of(row, 9).missed] == [7, 1]  # overlap leaves out the last one


def test_a_pause_at_the_tick_of_a_former_interval_is_why_an_occurrence_is_missed() -> None:
    row = begun(EVERY_FIVE, scheduleExpression="cron(2 12 * * ? *)", catchUp="none")
    pause = Pause(since=at(4), until=at(9), by="ada", reason="why")
    plan = plan_occurrences(
        Schedule.from_row(row), closed_through=C + 9, grid=EVERY_MINUTE, active=False, limit=9, pauses=[pause]
    )
    assert [one.reason for one in plan.missed] == [MissedFor.ALL_PAUSED]


@pytest.mark.parametrize("catch_up", CATCH_UPS)
@pytest.mark.parametrize("window", [None, 10, 1440])
def test_another_window_leaves_the_start_of_an_occurrence_that_is_due(window: int | None, catch_up: str) -> None:
    row = begun(taskId="nightly", scheduleExpression="cron(0 13 * * ? *)", flexibleTimeWindow=600, catchUp=catch_up)
    start = Bucket.parse(row["taskDateTime"]).minute
    row = changed(row, {"flexibleTimeWindow": window}, at(61))
    assert Bucket.parse(row["taskDateTime"]).minute == start
    assert all(is_ready(row, instant) for instant in (at(61), instant_of(start)))
    plan = plan_of(row, start - C)
    assert (plan.make, plan.missed) == ([at(60)], [])
    assert plan_of(changed(row, PAUSED, at(62)), start - C).make == [at(60)]


def test_an_interval_shorter_than_the_tick() -> None:
    """Each run is made at the tick that it falls to, as far as they may overlap."""
    row = begun(EVERY_FIVE, **EVERY_OTHER)
    assert list(plan_of(row | {"overlap": "allow"}, 10, grid=EVERY_FIVE).make) == [at(5), at(7), at(9)]
    plan = plan_of(row, 10, grid=EVERY_FIVE)
    assert list(plan.make) == [at(5)]
    assert [(entry.reason, entry.occurrences) for entry in plan.missed] == [(MissedFor.OVERLAP, 2)]


def test_a_run_while_the_one_before_has_not_ended() -> None:
    skip = plan_of(begun(), 1, active=True)
    assert (skip.make, [entry.reason for entry in skip.missed]) == ([], [MissedFor.OVERLAP])
    assert list(plan_of(begun(overlap="allow"), 1, active=True).make) == [at(1)]
    row = begun(overlap="bufferOne")
    buffer = plan_of(row, 1, active=True)
    assert (buffer.make, buffer.buffered) == ([], at(1))
    waits = advanced(row, buffer, C + 1)
    assert waits["bufferedOccurrenceAt"] == "2026-12-31T12:01:00Z"
    # One waits already: the next one is skipped.
    second = plan_of(waits, 2, active=True)
    assert (second.make, second.buffered, [entry.occurrences for entry in second.missed]) == ([], at(1), [1])
    # The one before has ended: the one that waited starts, and the present one waits for it.
    freed = plan_of(waits, 2)
    assert (list(freed.make), freed.buffered) == ([at(1)], at(2))


def test_what_is_missed_at_consecutive_ticks_is_one_entry() -> None:
    """A task that takes long leaves out an occurrence at each tick; the list has ten entries."""
    row = begun(overlap="bufferOne")
    for closed, active in [*((minute, True) for minute in range(1, 21)), (21, False), (22, True), (23, True)]:
        row = advanced(row, plan_of(row, closed, active=active), C + closed)
    expected = [(2, 20, 19), (22, 23, 2)]  # the first waits, starts at the 21st tick, and another waits from then on
    assert [(at(first), at(last), number) for first, last, number in expected] == [
        (one.first, one.last, one.occurrences) for one in Schedule.from_row(row).missed
    ]
    assert row["missedOccurrences"] == 21


def test_a_week_without_ticks_is_gone_through_in_parts() -> None:
    week = 7 * 1440
    row, made, missed, plans = begun(), [], 0, []
    while not plans or plans[-1].more:
        plans.append(plan_of(row, week, limit=99))
        made += plans[-1].make
        missed += sum(entry.occurrences for entry in plans[-1].missed)
        row = advanced(row, plans[-1], C + week)
    assert (made, missed) == ([at(week - 1)], week - 1)  # of the two that are in time, skip lets one start
    assert (row["missedOccurrences"], len(row["missed"]) <= 10, len(plans)) == (missed, True, 6)


def test_a_window_spreads_starts_and_keeps_them() -> None:
    offsets = {Schedule.from_row(begun(taskId=f"s{n}", flexibleTimeWindow=15)).offset for n in range(50)}
    assert all(timedelta() <= offset < timedelta(minutes=15) for offset in offsets)
    assert len(offsets) > 40
    row = begun(taskId="s1", flexibleTimeWindow=15, scheduleExpression="cron(0 * * * ? *)")
    schedule = Schedule.from_row(row)
    assert row["nextOccurrenceAt"] == "2026-12-31T13:00:00Z"
    assert row["taskDateTime"] == str(EVERY_MINUTE.bucket_of("s1", at(60) + schedule.offset))
    assert plan_of(row, 60).make == [], "it is early"


def test_an_occurrence_is_a_task_with_the_schedules_own_data() -> None:
    row = begun(
        payload={"a": 1},
        retryPolicy={"maximumRetryAttempts": 1},
        timeoutSeconds=60,
        subject="customer:7",
        colour="red",
        limitKey="host:example.com",
    )
    schedule = Schedule.from_row(row)
    bucket = bucket_at(schedule, at(1), found_in=Bucket(C + 1), closed_through=C + 5, grid=EVERY_MINUTE)
    task = Task.from_row(occurrence_row(row, schedule, at(1), bucket, now=at(5)))
    assert (task.task_id, task.schedule_id, task.due_at) == ("s#1#2026-12-31T12:01:00Z", "s", at(1))
    assert (str(task.bucket), dict(task.payload), task.attributes) == ("2026-12-31#12:01", {"a": 1}, {"colour": "red"})
    assert (task.retry_policy.maximum_retry_attempts, task.timeout_seconds, task.subject) == (1, 60, "customer:7")
    assert task.limit_key == "host:example.com"
    another = applied(EVERY, made_ready(EVERY, revision=2))  # which takes its place
    assert Schedule.from_row(another).occurrence_id(at(1)) == "s#2#2026-12-31T12:01:00Z"


@pytest.mark.parametrize(("run", "found", "closed", "listed"), [(3, 1, 9, 3), (3, 4, 9, 4), (3, 1, 2, 2), (0, 1, 9, 1)])
def test_an_occurrence_is_listed_where_its_tick_still_looks(run: int, found: int, closed: int, listed: int) -> None:
    schedule = Schedule.from_row(begun())
    bucket = bucket_at(schedule, at(run), found_in=Bucket(C + found, 2), closed_through=C + closed, grid=EVERY_MINUTE)
    assert bucket == Bucket(C + listed, 2)


@given(
    st.sampled_from(["rate(1 minute)", "rate(7 minutes)", "cron(0/5 * * * ? *)", "cron(3 12,13 * * ? *)"]),
    st.sampled_from(list(CatchUp)),
    st.sampled_from(list(Overlap)),
    st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.sampled_from([1, 2, 25])), max_size=12),
)
def test_each_run_is_either_made_or_said_to_be_missed(
    expression: str, catch_up: CatchUp, overlap: Overlap, ticks: list[tuple[int, bool, int]]
) -> None:
    row = begun(scheduleExpression=expression, catchUp=str(catch_up), overlap=str(overlap))
    made: list[datetime] = []
    missed, closed = 0, 0
    for wait, active, maximum in ticks:
        closed += wait
        more = Bucket.parse(row["taskDateTime"]).minute <= C + closed
        while more:
            plan = plan_of(row, closed, active=active, limit=maximum)
            made += plan.make
            missed += sum(entry.occurrences for entry in plan.missed)
            row = advanced(row, plan, C + closed)
            more = plan.more
    schedule = Schedule.from_row(row)
    assert made == sorted(set(made))
    expected, run = 0, schedule.next_after(NOON)
    while run is not None and schedule.next_occurrence_at is not None and run < schedule.next_occurrence_at:
        expected += 1
        run = schedule.next_after(run)
    assert len(made) + missed + (schedule.buffered_occurrence_at is not None) == expected
