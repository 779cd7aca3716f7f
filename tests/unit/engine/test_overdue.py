"""Occurrences that were missed, or did not complete within ``expectedWithinSeconds``: noticed soon, and named."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NOON
from tests.unit.engine.support import World, bucket_at, world
from tests.unit.engine.test_recurring import is_advance

from dynatick import TaskClient
from dynatick.domain import awaited_occurrence, overdue
from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.instants import format_instant
from dynatick.domain.schedule import Schedule
from dynatick.engine.installation_settings import pause, resume
from dynatick.errors import PermanentError, RetryableError

DAILY = "cron(1 12 * * ? *)"
EVERY_MINUTE = {"scheduleExpression": "rate(1 minute)", "overlap": "allow"}
RETRIES_IN_AN_HOUR = {"retryPolicy": {"minBackoffSeconds": 3600, "maxBackoffSeconds": 3600}}
FIRST = "s#1#2026-12-31T12:01:00Z"
FIRST_FAILED = [("12:01:00Z", "failed: no")]
TOMORROW = "2027-01-01#12:01"


def put(w: World, schedule_id: str = "s", **row: Any) -> None:
    w.put(**{"taskId": schedule_id, "scheduleExpression": DAILY, "expectedWithinSeconds": 150, **row})


def with_a_schedule(**row: Any) -> World:
    w = world()
    put(w, **row)
    return w


def whose_first_run_raised(error: Exception | None = None, **row: Any) -> World:
    """A world at 12:01; its first occurrence is to have completed at 12:03:30, which the tick of 12:04 asks."""
    w = with_a_schedule(**row)
    w.actions.behaviour[FIRST] = raises(error or PermanentError("no"))
    w.next_tick()
    return w


def reported(w: World) -> list[tuple[str, str]]:
    """The reasons by nominal instant, without the day."""
    return [(format_instant(one.first)[11:], one.reason) for one in w.overdue]


def raises(error: Exception) -> Callable[..., object]:
    def run(*_: object) -> object:
        raise error

    return run


def test_one_that_completes_in_time_is_looked_at_once_and_no_more() -> None:
    """A day before the next."""
    w = with_a_schedule()
    w.next_tick()
    assert w.outcome(FIRST) == "completed"
    assert w.row("s")["taskDateTime"] == "2026-12-31#12:04"
    assert w.row("s")["awaited"] == [{"dueAt": "2026-12-31T12:01:00Z", "expectedBy": "2026-12-31T12:03:30Z"}]
    w.ticks(4)
    row = w.row("s")
    assert (row["taskDateTime"], "awaited" in row) == (TOMORROW, False)
    assert w.overdue == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [(PermanentError("no such mailbox"), "failed: no such mailbox"),
     (RetryableError("no answer"), "waits for attempt 2, at 2026-12-31T1")],
)  # fmt: skip
def test_one_that_fails_or_waits_for_a_retry_is_reported_at_its_deadline(error: Exception, reason: str) -> None:
    w = whose_first_run_raised(error, **RETRIES_IN_AN_HOUR)
    w.ticks(2)
    assert w.overdue == []
    w.next_tick()
    ((at, why),) = reported(w)
    assert at == "12:01:00Z"
    assert why.startswith(reason)
    w.ticks(10)
    assert len(w.overdue) == 1
    assert w.row("s")["taskDateTime"] == TOMORROW


def test_one_that_still_runs_is_reported() -> None:
    w = with_a_schedule()
    w.next_tick()
    lease_until = format_instant(NOON + timedelta(minutes=5))
    running = {"status": "running", "leaseUntil": lease_until, "taskDateTime": str(bucket_at(1))}
    w.store.write(ConditionalUpdate(task_id=FIRST, set=running, remove=("outcome", "finishedAt", "expiresAt")))
    w.ticks(3)
    assert reported(w) == [("12:01:00Z", "still running, attempt 1")]


def test_one_whose_process_died_is_reported() -> None:
    w = with_a_schedule(retryPolicy={"maximumRetryAttempts": 5}, expectedWithinSeconds=40)
    w.life = timedelta(seconds=30)
    w.rigged.throttled = lambda change: change.set.get("status") == "completed"
    w.ticks(2)
    assert reported(w) == [("12:01:00Z", "attempt 1 did not end: its process died")]


def test_one_that_completed_late_is_reported() -> None:
    w = with_a_schedule(expectedWithinSeconds=60)
    w.actions.behaviour[FIRST] = lambda task, context: w.clock.forward(seconds=100) and None
    w.ticks(4)
    ((at, why),) = reported(w)
    assert (at, why[:27]) == ("12:01:00Z", "completed late, at 2026-12-")


@pytest.mark.parametrize("does", ["cancel", "delete"])
def test_one_that_a_person_calls_off_is_not_reported(does: str) -> None:
    w = whose_first_run_raised(RetryableError("no answer"), **RETRIES_IN_AN_HOUR)
    getattr(TaskClient(w.store, clock=w.clock), does)(FIRST)
    w.ticks(5)
    assert w.overdue == []
    assert "awaited" not in w.row("s")


@pytest.mark.parametrize(
    ("row", "occurrences", "reason"),
    [
        # 12:01 to 12:10 are due at once, and the last two are in time.
        ({**EVERY_MINUTE, "catchUp": "none"}, 8, "missed: no tick ran"),
        ({**EVERY_MINUTE, "catchUp": "none", "expectedWithinSeconds": None}, 8, "missed: no tick ran"),
        # Made all the same, but too late.
        ({}, 1, "begins only now: no tick ran in time"),
    ],
)
def test_those_that_were_missed_for_want_of_ticks_are_one_report_of_the_next(
    row: dict[str, Any], occurrences: int, reason: str
) -> None:
    w = with_a_schedule(**row)
    w.next_tick(10)
    (one,) = w.overdue
    assert (one.schedule_id, one.occurrences, one.reason) == ("s", occurrences, reason)
    assert (one.first, one.last) == (NOON + timedelta(minutes=1), NOON + timedelta(minutes=occurrences))
    w.ticks(3)
    assert len(w.overdue) == 1


ALL_PAUSED = "all was paused since 2026-12-31T12:00:00Z until 2026-12-31T12:09:00Z by ada: a bad deployment"


@pytest.mark.parametrize(
    ("row", "reason", "kept"),
    [({**EVERY_MINUTE, "catchUp": "none"}, f"missed: {ALL_PAUSED}", ["all-paused"]),
     ({}, f"begins only now: {ALL_PAUSED}", [])],
)  # fmt: skip
def test_one_that_was_missed_for_a_pause_of_everything_names_the_pause(
    row: dict[str, Any], reason: str, kept: list[str]
) -> None:
    w = with_a_schedule(**row)
    pause(w.store, now=NOON, by="ada", reason="a bad deployment")
    w.ticks(9)
    resume(w.store, now=NOON + timedelta(minutes=9))
    w.next_tick()
    assert reported(w) == [("12:01:00Z", reason)]
    missed = TaskClient(w.store, clock=w.clock).schedules.get("s").missed
    assert [one.reason for one in missed] == kept
    w.ticks(3)
    assert len(w.overdue) == 1


def test_a_task_in_its_place_is_reported_as_missed() -> None:
    w = with_a_schedule()
    w.insert(FIRST, at=bucket_at(60))
    w.next_tick()
    assert reported(w) == [("12:01:00Z", "missed: another task has its id")]
    assert "awaited" not in w.row("s")


# -- the last one of a schedule, and changes of it -------------------------------------------------------------------


def test_the_last_occurrence_is_awaited_before_its_schedule_ends() -> None:
    w = whose_first_run_raised(scheduleExpression="at(2026-12-31T12:01:00)")
    assert w.outcome("s") is None
    w.next_tick()
    assert w.outcome("s") is None
    w.ticks(3)
    assert reported(w) == FIRST_FAILED
    assert (w.outcome("s"), w.row("s")["scheduleState"]) == ("completed", "COMPLETED")
    w.until_drained()


def test_a_paused_schedule_awaits_what_was_made_before() -> None:
    w = whose_first_run_raised()
    TaskClient(w.store, clock=w.clock).schedules.pause("s")
    assert w.row("s")["taskDateTime"] == "2026-12-31#12:04"
    w.ticks(4)
    assert reported(w) == FIRST_FAILED
    assert "taskDateTime" not in w.row("s")
    w.until_drained()


@pytest.mark.parametrize(
    ("edits", "bucket"),
    [({"expression": "cron(0 18 * * ? *)"}, "2026-12-31#12:04"),
     ({"expression": "cron(2 12 * * ? *)"}, "2026-12-31#12:02"),
     ({"expected_within_seconds": None}, "2026-12-31#12:04"), ({"expected_within_seconds": 3600}, "2026-12-31#12:04")],
)  # fmt: skip
def test_an_edit_keeps_the_deadlines_of_what_was_made(edits: dict[str, Any], bucket: str) -> None:
    w = whose_first_run_raised()
    TaskClient(w.store, clock=w.clock).schedules.update("s", **edits)
    assert w.row("s")["taskDateTime"] == bucket
    w.ticks(4)
    assert reported(w) == FIRST_FAILED


def test_a_schedule_put_in_its_place_awaits_nothing_of_it() -> None:
    w = with_a_schedule()
    w.next_tick()
    kept = w.row("s")["awaited"]
    w.put(taskId="s", scheduleExpression="rate(1 hour)", awaited=kept)
    assert "awaited" not in w.row("s")


def test_a_malformed_list_is_passed_over() -> None:
    w = with_a_schedule()
    w.next_tick()
    for awaited in ("text", [5, {"dueAt": "soon", "expectedBy": "later"}], [{}]):
        w.store.write(ConditionalUpdate(task_id="s", set={"awaited": awaited}))
        assert Schedule.from_row(w.row("s")).awaited == ()
    w.ticks(4)
    assert w.overdue == []
    assert w.row("s")["taskDateTime"] == TOMORROW


def test_more_than_can_be_awaited_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overdue, "MAX_AWAITED", 3)
    w = with_a_schedule(**EVERY_MINUTE, **RETRIES_IN_AN_HOUR, expectedWithinSeconds=86_400)
    for minute in range(1, 6):
        task_id = f"s#1#{format_instant(instant_of(minute_of(NOON) + minute))}"
        w.actions.behaviour[task_id] = raises(RetryableError("no answer"))
    w.ticks(5)
    assert [at for at, _ in reported(w)] == ["12:04:00Z", "12:05:00Z"]
    assert {why for _, why in reported(w)} == {
        f"not awaited: {awaited_occurrence.MAX_AWAITED} occurrences before it have not completed"
    }
    assert len(w.row("s")["awaited"]) == 3  # type: ignore[arg-type]


# -- processes that die, and answers that are lost ---------------------------------------------------------------------


def test_a_pass_that_dies_after_its_report_reports_again_and_one_that_dies_before_it_loses_nothing() -> None:
    w = whose_first_run_raised()
    w.ticks(2)
    w.rigged.throttled = is_forgetting  # reported, and the row does not forget it
    w.next_tick()
    assert len(w.overdue) == 1
    w.rigged.throttled = lambda change: False
    w.next_tick()
    assert reported(w) == FIRST_FAILED * 2
    w.ticks(4)
    assert len(w.overdue) == 2


def test_a_report_that_fails_leaves_the_schedule_as_it_is_and_holds_up_no_occurrence() -> None:
    w = whose_first_run_raised()
    put(w, "other", scheduleExpression="cron(4 12 * * ? *)")
    w.ticks(2)
    seen: list[object] = []

    class Refusing(list[Any]):
        def extend(self, overdue: Any) -> None:
            seen.append(overdue)
            raise OSError("standard output is gone")

    w.overdue = Refusing()
    w.next_tick()
    assert len(seen) >= 1
    assert "awaited" in w.row("s")
    assert w.outcome("other#1#2026-12-31T12:04:00Z") == "completed"  # made by the same batch
    w.overdue = []
    w.next_tick(2)
    assert reported(w) == FIRST_FAILED


def is_forgetting(change: ConditionalUpdate) -> bool:
    return "awaited" in change.remove


def test_an_occurrence_that_completed_before_its_schedule_was_moved_on_is_in_time() -> None:
    """The move got no answer, and the deadline is past when the next tick tries again."""
    w = with_a_schedule(expectedWithinSeconds=30)
    w.rigged.throttled = is_advance
    w.next_tick()
    assert w.outcome(FIRST) == "completed"
    w.rigged.throttled = lambda change: False
    w.ticks(3)
    assert w.overdue == []
    assert w.row("s")["taskDateTime"] == TOMORROW
