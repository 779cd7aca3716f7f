"""Every verb of ``client.schedules``, and what each refuses: field, value, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from tests.builders import NOON, InProcess
from tests.unit.client.support import WISHES, before_deletes, fail

from dynatick import (
    CompleteLater,
    InvalidInput,
    RetryPolicy,
    ScheduleNotFound,
    TaskChanged,
    TaskClient,
    TaskExists,
    TransitionRefused,
)
from dynatick.client import Exists, ExpectedOccurrence, Inserted, ScheduleView
from dynatick.domain.buckets import Bucket
from dynatick.domain.instants import parse_instant
from dynatick.domain.task import Row
from dynatick.errors import StoreError

HOURLY = "cron(0 * * * ? *)"


class World(InProcess):
    """Scheduler and processor in one process, after the first tick, and a client of their table."""

    @property
    def client(self) -> TaskClient:
        return TaskClient(self.store, clock=self.clock)

    @property
    def schedules(self) -> Any:
        return self.client.schedules

    def reported(self, schedule_id: str = "s", **how: Any) -> list[tuple[str, str]]:
        """A history in short: minute and status, with the reason."""
        return [
            (f"{run.occurrence_at:%H:%M}", f"{run.status} ({run.reason})" if run.reason else run.status)
            for run in self.schedules.history(schedule_id, **how)
        ]


@pytest.fixture
def world() -> World:
    world = World()
    world.actions.names = lambda: ["log", "webhook"]  # type: ignore[method-assign]
    world.tick()
    return world


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def test_insert_writes_a_schedule_that_needs_no_scheduler(world: World) -> None:
    made = world.schedules.insert(
        "s", "rate(2 minutes)", action="log", payload={"n": 1}, attributes={"team": "blue"},
        retry_policy=RetryPolicy(maximum_retry_attempts=1), catch_up="all", overlap="allow",
    )  # fmt: skip
    assert (made.schedule_id, made.expression, made.timezone, made.state) == ("s", "rate(2 minutes)", "UTC", "ENABLED")
    assert (made.start_date, made.next_occurrence_at, made.end_date) == (at(1), at(1), None)
    assert (made.catch_up, made.overlap, made.flexible_time_window) == ("all", "allow", 0)
    assert (made.action, made.payload, made.attributes) == ("log", {"n": 1}, {"team": "blue"})
    row = world.row("s")
    assert (row["status"], row["taskDateTime"], row["revision"]) == ("recurring", "2026-12-31#12:01", 1)
    assert world.stream(row).normalised == 0
    assert world.row("s") == row
    assert world.schedules.get("s") == made


def test_a_schedule_may_begin_on_the_last_day_there_is(world: World) -> None:
    last = "9998-12-31T23:59:59Z"
    made = world.schedules.insert("s", "rate(1 hour)", action="log", start_date=last)
    assert made.start_date == made.next_occurrence_at == parse_instant(last, "startDate")
    assert world.schedules.get("s") == made
    assert world.schedules.pause("s").state == "DISABLED"


def test_insert_may_begin_paused(world: World) -> None:
    made = world.schedules.insert("s", HOURLY, enabled=False, reason="not before the move")
    assert made.state_reason == "not before the move"
    assert (made.state, made.next_occurrence_at, world.row("s").get("taskDateTime")) == ("DISABLED", None, None)
    world.next_tick(120)
    assert world.actions.ran == []
    asked = world.schedules.run_now("s")
    world.ticks(1)
    assert world.actions.ran == [(asked.task_id, 1, 1)], "run now is possible while it is paused"
    resumed = world.schedules.resume("s")
    assert (resumed.state, resumed.state_reason, resumed.next_occurrence_at) == ("ENABLED", None, at(180))


def test_before_the_first_tick_the_scheduler_completes_it() -> None:
    world = World()
    made = world.schedules.insert("s", "rate(1 hour)", payload={"n": 1})
    assert (made.state, made.next_occurrence_at) == ("unscheduled", None)
    assert world.row("s") == {
        "taskId": "s", "scheduleExpression": "rate(1 hour)", "payload": {"n": 1}, "createdAt": "2026-12-31T12:00:00Z",
    }  # fmt: skip
    assert [run.instant for run in world.schedules.preview("s", 2)] == [at(1), at(61)]
    assert world.reported() == list(world.schedules.backfill("s", start=at(-60), end=NOON)) == []  # it has no start yet
    changed = world.schedules.update("s", expression="rate(2 hours)", payload=None)
    assert (changed.state, changed.expression, changed.payload) == ("unscheduled", "rate(2 hours)", {})
    world.stream(world.row("s"))
    assert (world.schedules.get("s").state, world.schedules.get("s").next_occurrence_at) == ("ENABLED", at(1))


def test_before_the_first_tick_anothers_schedule_is_not_taken_for_an_insert_that_broke_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.schedules.insert("s", "rate(1 hour)")
    world.clock.forward(seconds=1)
    monkeypatch.setattr(world.store, "create", refused_when_sent_again)
    with pytest.raises(TaskExists):
        world.schedules.insert("s", "rate(1 hour)")


def refused_when_sent_again(row: Row) -> bool:
    raise StoreError("a row of this id exists, and the insert was sent more than once")


def test_an_id_is_taken_once_by_a_task_or_a_schedule(world: World) -> None:
    world.schedules.insert("s", HOURLY)
    world.client.insert("task", payload={"n": 1})
    before = world.row("s"), world.row("task")
    for insert in (
        lambda: world.schedules.insert("s", "rate(5 minutes)"), lambda: world.schedules.insert("task", HOURLY),
        lambda: world.client.insert("s"), lambda: world.client.insert("task", delay_seconds=30),
    ):  # fmt: skip
        with pytest.raises(TaskExists, match=r"taskId: a task or schedule '(s|task)' exists already; choose another"):
            insert()
    assert (world.row("s"), world.row("task")) == before


LOS_ANGELES = {"timezone": "America/Los_Angeles"}
OFTEN = "come as close as 2 min, and ticks every 5 min: several fall due at one tick, and "
DECIDES, EACH = OFTEN + "overlap decides which are made", OFTEN + "each of them is made"
BETWEEN = "it has times between the ticks, which come every {} min, such as {}: "
LEAVES_OUT = "those that overlap leaves out are overdue: set overlap allow, or no expectedWithinSeconds"
WARNED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("rate(2 minutes)", {}, [DECIDES]),
    ("rate(2 minutes)", {"overlap": "allow"}, [EACH]),
    ("rate(7 minutes)", {}, ["its interval of 7 min is not a multiple of the tick interval, 5 min: "]),
    ("cron(7 * * * ? *)", {}, [BETWEEN.format(5, "2026-12-31T12:07:00Z")]),
    ("at(2027-01-01T12:03:00)", {}, [BETWEEN.format(5, "2027-01-01T12:03:00Z")]),
    ("rate(1 hour)", {"start_date": "2026-12-31T12:07:30Z"}, [BETWEEN.format(5, "2026-12-31T12:07:30Z")]),
    ("cron(0 12 * * ? *)", {"timezone": "Asia/Kathmandu", "tick": 30}, [BETWEEN.format(30, "2027-01-01T06:15:00Z")]),
    ("cron(30 2 * * ? *)", LOS_ANGELES, ["02:30 does not exist on 2027-03-14: skipped (America/Los_Angeles)"]),
    ("cron(30 1 * * ? *)", LOS_ANGELES, ["01:30 comes twice on 2027-11-07: runs once, at the first 01:30 (America/"]),
    (HOURLY, {"catch_up": "all"}, ["catchUp all with overlap skip: of several late occurrences only the first is"]),
    # a deadline shorter than a tick, and one of occurrences that overlap leaves out
    (HOURLY, {"expected_within_seconds": 120}, ["its expectedWithinSeconds, 120, is shorter than the tick interval"]),
    ("rate(2 minutes)", {"expected_within_seconds": 600}, [DECIDES, LEAVES_OUT]),
    ("rate(2 minutes)", {"expected_within_seconds": 600, "overlap": "allow"}, [EACH]),
    # times on the grid, and a rate whatever the clocks do
    ("rate(10 minutes)", {}, []), (HOURLY, {}, []), ("cron(5 9 ? * MON#1 *)", {}, []),
    ("at(2027-01-01T00:00:00)", {}, []), ("rate(1 hour)", LOS_ANGELES, []),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "arguments", "warnings"), WARNED)
def test_a_schedule_warns_of_what_may_surprise(
    world: World, expression: str, arguments: dict[str, Any], warnings: list[str]
) -> None:
    world.reconfigure(tick_minutes=arguments.get("tick", 5))
    world.tick()
    arguments = {name: value for name, value in arguments.items() if name != "tick"}
    made: ScheduleView = world.schedules.insert("w", expression, **arguments)
    assert [part in found for part, found in zip(warnings, made.warnings, strict=True)] == [True] * len(warnings)
    assert list(made.warnings) == made.to_row().get("warnings", [])
    assert world.schedules.get("w").warnings == made.warnings
    assert world.schedules.update("w", payload={}).warnings == made.warnings


def test_get_shows_one_that_cannot_be_understood_and_whatever_a_row_holds(world: World) -> None:
    world.put(taskId="s", cronExpression="whenever")
    view = world.schedules.get("s")
    assert (view.state, view.expression, view.warnings) == ("FAILED", "whenever", ())
    assert "cronExpression: 'whenever' is not accepted" in str(view.error)
    assert world.schedules.preview("s") == world.reported() == []
    odd = {"catchUp": ["all"], "missed": "?", "earlier": 5, "ranNow": "x", "backfilled": [{}, 7]}
    row = {**world.schedules.insert("odd", HOURLY).row, **odd, "missedOccurrences": "many"}
    world.store.put(row)  # type: ignore[attr-defined]
    assert (world.schedules.get("odd").row, world.schedules.get("odd").missed_occurrences) == (row, 0)


def test_list_by_state_and_page(world: World) -> None:
    for n in range(7):
        world.schedules.insert(f"s{n}", HOURLY, enabled=n not in (2, 5))
    world.put(taskId="bad", scheduleExpression="bad")
    world.client.insert("task")
    world.schedules.delete("s6")

    def ids(*asked: str) -> list[str]:
        return [view.schedule_id for view in world.schedules.list(*asked).schedules]

    every = ["s0", "s1", "s3", "s4", "s2", "s5", "bad"]
    assert (ids(), world.schedules.list().next_page_token) == (every, None)
    assert (ids("DISABLED"), ids("COMPLETED")) == (["s2", "s5"], [])
    for limit in range(1, 9):
        pages = [world.schedules.list(limit=limit)]
        while (token := pages[-1].next_page_token) is not None:
            pages.append(world.schedules.list(limit=limit, page_token=token))
        assert all(len(page.schedules) <= limit for page in pages)
        assert [view.schedule_id for page in pages for view in page.schedules] == every


def test_a_forecast_lists_the_occurrences_of_all_schedules_in_order(world: World) -> None:
    world.schedules.insert("often", "rate(20 minutes)", action="log")
    world.schedules.insert("daily", "cron(30 12 * * ? *)")
    world.schedules.insert("paused", "rate(1 minute)", enabled=False)
    (due,) = world.schedules.forecast(until=at(2))
    assert due.occurrence_at == at(1), "it begins with what is due"
    world.ticks(1)
    assert world.schedules.forecast(until=at(45), limit=4) == [
        ExpectedOccurrence("often", at(21), "2026-12-31#12:21", "log"),
        ExpectedOccurrence("daily", at(30), "2026-12-31#12:30", "log"),
        ExpectedOccurrence("often", at(41), "2026-12-31#12:41", "log"),
    ]
    with pytest.raises(InvalidInput, match="until"):
        world.schedules.forecast(until=at(45), limit=2)


@pytest.mark.parametrize("change", ["update", "resume"])
def test_what_is_due_when_a_schedule_changes_is_expected_as_it_was_defined(world: World, change: str) -> None:
    """No tick comes in between: 13:00 is still to be made, and then what follows from the change on."""
    world.schedules.insert("s", HOURLY, catch_up="all", overlap="allow")
    world.clock.to(at(60))
    if change == "resume":
        world.schedules.pause("s")
    world.clock.to(at(80))
    world.schedules.update("s", expression="cron(0/10 * * * ? *)")
    if change == "resume":
        world.schedules.resume("s")
    expected = [at(60), at(90), at(100)]
    assert [one.instant for one in world.schedules.preview("s", 3)] == expected
    assert [one.occurrence_at for one in world.schedules.forecast(until=at(101))] == expected
    world.clock.to(at(99))
    world.ticks(1)
    assert [minute for minute, _ in world.reported()] == ["13:00", "13:30", "13:40"]


def test_a_forecast_lists_more_schedules_than_one_read_returns(world: World) -> None:
    ids = [f"s{n:03}" for n in range(450)]
    for one in ids:
        world.schedules.insert(one, "cron(30 12 * * ? *)")
    assert [one.schedule_id for one in world.schedules.forecast(until=at(45))] == ids


def test_update_changes_what_is_given_and_removes_what_is_none(world: World) -> None:
    before = world.schedules.insert("s", "rate(1 hour)", payload={"n": 1}, overlap="allow", attributes={"team": "blue"})
    policy = {"minBackoffSeconds": 9}
    edits = {"payload": {"n": 2}, "flexible_time_window": 10, "retry_policy": policy, "expected_within_seconds": 60}
    after = world.schedules.update("s", **edits, version=before.version)
    assert (after.payload, after.flexible_time_window, after.expression) == ({"n": 2}, 10, "rate(1 hour)")
    assert (after.overlap, after.attributes, after.row["revision"]) == ("allow", {"team": "blue"}, 1)
    assert (after.start_date, after.row["createdAt"]) == (before.start_date, before.row["createdAt"])
    assert after.expected_within_seconds == 60
    assert after.version == world.schedules.get("s").version != before.version
    with pytest.raises(TaskChanged, match="'s' has changed"):
        world.schedules.update("s", payload={"n": 3}, version=before.version)
    less = world.schedules.update("s", **dict.fromkeys(("overlap", *edits)))
    assert (less.payload, less.flexible_time_window, less.overlap) == ({}, 0, "skip")
    assert less.row.keys().isdisjoint({"retryPolicy", "expectedWithinSeconds"})


def test_pause_and_resume(world: World) -> None:
    world.schedules.insert("s", "rate(1 minute)")
    world.ticks(2)
    paused = world.schedules.pause("s", "stocktaking")
    assert (paused.state, paused.state_reason, paused.next_occurrence_at) == ("DISABLED", "stocktaking", None)
    assert "taskDateTime" not in world.row("s")
    world.ticks(3)
    again = world.schedules.pause("s", "two")
    assert (again.state_reason, again.row["definedAt"]) == ("two", paused.row["definedAt"]), "only the reason changes"
    assert world.schedules.pause("s").state_reason is None
    until = [("12:01", "completed"), ("12:02", "completed")]
    until += [(minute, "missed (paused)") for minute in ("12:03", "12:04", "12:05")]
    assert world.reported() == until
    assert [run.instant for run in world.schedules.preview("s", 1)] == [at(6)]  # as if it were resumed
    for _ in range(2):
        resumed = world.schedules.resume("s")
        assert (resumed.state, resumed.state_reason, resumed.next_occurrence_at) == ("ENABLED", None, at(6))
    world.ticks(1)
    assert world.reported() == [*until, ("12:06", "completed")]


def test_delete_goes_on_when_the_row_changes_meanwhile_but_leaves_its_tasks_and_one_in_its_place(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.schedules.insert("s", "rate(1 minute)")
    world.ticks(1)
    edits = [{**world.row("s"), "scheduleExpression": f"rate({minutes} minutes)"} for minutes in (5, 6)]
    before_deletes(world, monkeypatch, *(partial(world.put, **edit) for edit in edits))
    world.schedules.delete("s")
    world.ticks(3)
    assert (world.store.get("s"), world.actions.ran) == (None, [("s#1#2026-12-31T12:01:00Z", 1, 1)])
    world.schedules.insert("s", "rate(1 minute)")
    before_deletes(world, monkeypatch, lambda: world.put(taskId="s", action="log"))
    world.schedules.delete("s")
    world.next_tick()
    assert world.row("s")["outcome"] == "completed"


def test_run_now_is_beside_the_expression(world: World) -> None:
    world.schedules.insert("s", HOURLY, payload={"n": 1}, attributes={"team": "blue"})
    task = world.schedules.run_now("s")
    assert (task.task_id, task.bucket, task.status) == ("s#1#2026-12-31T12:00:00Z#now", "2026-12-31#12:01", "scheduled")
    assert (task.payload, task.row["team"], task.row["scheduleId"]) == ({"n": 1}, "blue", "s")
    with pytest.raises(TaskExists):
        world.schedules.run_now("s")
    world.ticks(1)
    (run,) = world.schedules.history("s")
    assert (run.occurrence_at, run.status, run.run_now, run.task_id) == (NOON, "completed", True, task.task_id)
    assert run.to_row()["runNow"] is True
    assert world.schedules.get("s").next_occurrence_at == at(60)


def test_a_run_due_when_it_was_created_is_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock shows the same millisecond."""
    world = World()
    world.tick()
    monkeypatch.setattr(world, "clock", lambda: at(60))
    world.schedules.insert("s", HOURLY)
    monkeypatch.undo()
    world.clock.to(at(61))
    assert world.reported() == world.reported(start=NOON) == []


def test_backfill_makes_what_was_not_made(world: World) -> None:
    world.schedules.insert("s", "rate(1 hour)", overlap="allow")
    world.ticks(1)
    world.next_tick(180)
    assert world.reported() == [
        ("12:01", "completed"), ("13:01", "missed (outage)"), ("14:01", "missed (outage)"), ("15:01", "completed"),
    ]  # fmt: skip
    span = {"start": NOON, "end": at(600)}
    ids = [f"s#1#2026-12-31T{hour}:01:00Z" for hour in (12, 13, 14, 15)]
    would = list(world.schedules.backfill("s", **span, dry_run=True))
    assert would == [Exists(0, ids[0]), Inserted(1, ids[1]), Inserted(2, ids[2]), Exists(3, ids[3])]
    assert list(world.schedules.backfill("s", **span)) == would
    assert all(isinstance(one, Exists) for one in world.schedules.backfill("s", **span))
    assert world.client.get(ids[1]).due_at == at(61)
    world.ticks(1)
    assert [status for _, status in world.reported()] == ["completed"] * 4


def test_history_shows_what_was_backfilled(world: World) -> None:
    """The backfill lies before the schedule was there, and at instants that only its present expression names."""
    world.schedules.insert("s", "cron(0/2 * * * ? *)")
    world.ticks(2)
    world.schedules.update("s", expression="cron(* * * * ? *)", overlap="allow")
    assert world.reported() == [("12:02", "completed")]
    list(world.schedules.backfill("s", start=at(-1), end=at(1), dry_run=True))
    assert world.reported() == [("12:02", "completed")]
    list(world.schedules.backfill("s", start=at(-3), end=at(1)))
    every = [(when, "scheduled") for when in ("11:57", "11:58", "11:59", "12:00", "12:01")]
    assert world.reported() == [*every, ("12:02", "completed")]
    assert world.reported(limit=2) == [every[-1], ("12:02", "completed")]
    assert world.reported(start=at(-2), limit=2) == every[1:3]
    list(world.schedules.backfill("s", start=at(-3), end=at(1)))
    assert len(world.row("s")["backfilled"]) == 1
    world.store.delete("s#1#2026-12-31T11:58:00Z")
    assert world.reported(end=at(-1)) == [every[0], every[2]]


def test_history_shows_each_occurrence_of_a_range(world: World) -> None:
    world.actions.behaviour["s#1#2026-12-31T12:02:00Z"] = fail
    world.schedules.insert("s", "rate(1 minute)")
    world.ticks(6)
    first, second, third, *_ = world.schedules.history("s")
    assert (first.occurrence_at, first.status, first.task_id) == (at(1), "completed", "s#1#2026-12-31T12:01:00Z")
    assert (first.bucket, first.reason, first.run_now) == ("2026-12-31#12:01", None, False)
    assert first.finished_at is not None
    assert (second.status, second.error) == ("failed", "it broke")
    assert set(third.to_row()) == {"occurrenceAt", "status", "taskId", "taskDateTime", "finishedAt"}
    for asked, minutes in [
        ({"start": at(2), "end": at(4)}, [2, 3, 4]), ({"start": at(2), "limit": 2}, [2, 3]),
        ({"end": at(3)}, [1, 2, 3]), ({"limit": 2}, [5, 6]), ({"start": Bucket.parse("2026-12-31#12:05")}, [5, 6]),
    ]:  # fmt: skip
        assert [run.occurrence_at for run in world.schedules.history("s", **asked)] == [at(n) for n in minutes]
    world.store.delete("s#1#2026-12-31T12:01:00Z")
    world.clock.to(at(7) + timedelta(seconds=10))
    first, *_, last = world.reported()
    assert (first, last) == (("12:01", "gone"), ("12:07", "due"))
    assert [run.instant for run in world.schedules.preview("s", 2)] == [at(7), at(8)], "it begins with what is due"


def test_history_says_of_each_that_a_long_task_left_out_why(world: World) -> None:
    world.schedules.insert("s", "rate(1 minute)")
    world.actions.behaviour["s#1#2026-12-31T12:01:00Z"] = lambda *_: CompleteLater(within=timedelta(hours=1))
    world.ticks(30)
    assert world.reported() == [("12:01", "waiting"), *((f"12:{m:02}", "missed (overlap)") for m in range(2, 31))]


def test_history_does_not_say_that_what_was_missed_long_ago_was_deleted(world: World) -> None:
    """The reasons of ten spans are kept: later ones take their places."""
    world.schedules.insert("s", "rate(1 minute)", catch_up="none", overlap="allow")
    for _ in range(11):
        world.next_tick(3)
    world.store.delete("s#1#2026-12-31T12:33:00Z")
    reported = world.reported()
    assert [status for _, status in reported[:4]] == ["unknown", "completed", "completed", "missed (outage)"]
    assert reported[-1] == ("12:33", "gone")
    sentence = world.client.operations.explain("s#1#2026-12-31T12:01:00Z").sentence
    assert "whether the occurrence at 2026-12-31T12:01:00Z was made is no longer known" in sentence


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_history_shows_the_latest_of_many_however_long_ago_they_are(world: World, limit: int) -> None:
    """More than 44,000 in a month, and none since."""
    world.schedules.insert("s", "cron(* * * 1 ? *)")
    world.ticks(1)
    world.clock.to(datetime(2027, 3, 20, 12, tzinfo=UTC))
    end = datetime(2027, 2, 1, tzinfo=UTC)
    latest = [run.occurrence_at for run in world.schedules.history("s", limit=limit)]
    assert latest == [end - timedelta(minutes=limit - number) for number in range(limit)]


def test_history_shows_the_latest_of_both_definitions(world: World) -> None:
    world.schedules.insert("s", "rate(1 minute)", overlap="allow")
    world.ticks(4)
    world.schedules.update("s", expression="cron(0/5 * * * ? *)")
    world.clock.to(at(11))
    minutes = [run.occurrence_at.minute for run in world.schedules.history("s")]
    assert minutes == [1, 2, 3, 4, 5, 10]
    for limit in range(1, 7):
        latest = [run.occurrence_at.minute for run in world.schedules.history("s", limit=limit)]
        first = [run.occurrence_at.minute for run in world.schedules.history("s", start=NOON, limit=limit)]
        assert (latest, first) == (minutes[-limit:], minutes[:limit])


@pytest.mark.parametrize(
    ("edit", "state"),
    [({"endDate": "2026-12-31T12:02:00Z"}, "COMPLETED"), ({"scheduleExpression": "rate(5 parsecs)"}, "FAILED"),
     ({"startDate": "soon"}, "FAILED")],
)  # fmt: skip
def test_history_of_one_that_ends_or_becomes_malformed_by_hand(world: World, edit: dict[str, Any], state: str) -> None:
    world.put(taskId="s", scheduleExpression="rate(1 minute)")
    world.ticks(1)
    if state == "COMPLETED":
        world.put(**{**world.row("s"), **edit})
        assert len(world.schedules.preview("s", 1000)) == 1
    world.ticks(1)
    world.put(**{**world.row("s"), **edit})
    world.ticks(3)
    assert (world.schedules.get("s").state, world.schedules.preview("s")) == (state, [])
    assert world.reported() == [("12:01", "completed"), ("12:02", "completed")]


Call = Callable[[Any], object]
INSERTED = {"schedule_id": "new", "expression": HOURLY, "action": "log"}


def insert(change: dict[str, Any]) -> Call:
    return lambda schedules: schedules.insert(**(INSERTED | change))


def backfill(start: object, end: object) -> Call:
    return lambda schedules: list(schedules.backfill("s", start=start, end=end))


# Which values are good is decided, and tested, in the domain. All fields at once: tests/unit/api/test_refusals.py.
REFUSED: list[tuple[Call, str]] = [
    (insert({"schedule_id": "_dynatick#x"}), "taskId: '_dynatick#x' is not accepted"),
    (insert({"schedule_id": "x" * 985}), "expected at most 984 bytes for a schedule, this has 985"),
    (insert({"expression": None}), "scheduleExpression: None is not accepted; expected"),
    (insert({"expression": "at(2026-12-31T11:00:00)"}), "it never runs after 2026-12-31T12:00:0"),
    (insert({"start_date": "2027-01-02T00:00:00Z", "end_date": "2027-01-01T00:00:00Z"}),
     "endDate: '2027-01-01T00:00:00Z' is not accepted; expected it not to be before startDate"),
    (insert({"action": "webhook", "payload": {"url": 7}}), "payload.url: 'a number' is not accepted; "),
    (insert({"payload": [1]}), "payload: 'a list' is not accepted; expected a map"),
    (insert({"payload": {"text": "x" * 400_000}}), "expected an item of at most 393216 bytes; store the data in S3"),
    (insert({"retry_policy": {"maximumRetryAttempts": -1}}), "retryPolicy.maximumRetryAttempts: -1 is not accepted"),
    (insert({"attributes": {"nextOccurrenceAt": "x"}}),
     "nextOccurrenceAt: 'x' is not accepted; it has an argument of its own"),
    (insert({"attributes": {"dueAt": "x"}}), "dueAt: 'x' is not accepted"),
    (lambda s: s.update("s", colour="red"), "colour: 'red' is not accepted; expected any of expression, timezone"),
    (lambda s: s.update("s", expression=None), "scheduleExpression: None is not accepted; a schedule has one; delete"),
    (lambda s: s.update("s", end_date="2026-12-31T12:00:00Z"), "endDate: '2026-12-31T12:00:00Z' is not accepted; it"),
    (lambda s: s.update("s", start_date=1.5e300), "startDate: 1.5e+300 is not accepted"),
    (lambda s: s.update("s", payload="x"), "payload: 'a str' is not accepted; expected a map"),
    (lambda s: s.update("s", action="webhook"), "payload.url: "),
    (lambda s: TaskClient(s._store, check_actions=False).schedules.update("s", action="\ud800"), "action: '\\ud800'"),
    (lambda s: s.update("s", retry_policy=[]), "retryPolicy: [] is not accepted"),
    (insert({"reason": "\ud800"}), "stateReason: '\\ud800' is not accepted; expected text that UTF-8 can hold"),
    (lambda s: s.pause("s", "\ud800"), "stateReason: '\\ud800' is not accepted; expected text that UTF-8 can hold"),
    (lambda s: s.compose({"taskId": "x", "scheduleExpression": HOURLY, "stateReason": "\ud800"}), "stateReason: "),
    (lambda s: s.pause("s", 7), "stateReason: 7 is not accepted; expected text"),
    (lambda s: s.list("on"), "scheduleState: 'on' is not accepted; expected one of ENABLED, DISABLED, COMPLETED, "),
    (lambda s: s.list(limit=0), "limit: 0 is not accepted; expected a number from 1 to 1000"),
    (lambda s: s.list(page_token="x"), "pageToken: 'x' is not accepted; expected the token of the page before"),
    (lambda s: s.list("ENABLED", page_token="DISABLED:a"), "pageToken: 'DISABLED:a' is not accepted"),
    (lambda s: s.list(page_token="ENABLED:" + "x" * 3000), "pageToken: "),
    (lambda s: s.preview("s", 0), "count: "),
    (backfill(at(60), at(120)), "end: '2026-12-31 14:00:00+00:00' is not accepted; expected a time not"),
    (backfill(at(-60), at(-120)), "end: '2026-12-31 10:00:00+00:00' is not accepted; expected a time not"),
    (backfill(at(-31 * 1440), NOON), "expected at most 1000 occurrences in the range: split it"),
    (backfill("yesterday", NOON), "start: 'yesterday' is not accepted"),
    (backfill(NOON, None), "end: None is not accepted"),
    (lambda s: s.history("s", start=at(60)), "expected a time not before start, 2026-12-31 13:00:00+00:00"),
    (lambda s: s.history("s", start="x"), "start: 'x' is not accepted"),
    (lambda s: s.history("s", limit=1001), "limit: 1001 is not accepted; expected a number from 1 to 1000"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_a_refusal_names_the_field_and_changes_nothing(world: World, call: Call, message: str) -> None:
    made = world.schedules.insert("s", "cron(0/5 * * * ? *)")
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call(world.schedules)
    assert [view.schedule_id for view in world.schedules.list().schedules] == ["s"]
    assert world.schedules.get("s") == made


VERBS: dict[str, Call] = {
    "update": lambda schedules: schedules.update("s", payload={}),
    "pause": lambda schedules: schedules.pause("s"),
    "resume": lambda schedules: schedules.resume("s"),
    "run": lambda schedules: schedules.run_now("s"),
    "backfill": lambda schedules: list(schedules.backfill("s", start=NOON, end=at(1))),
}
IN_ANY_STATE: dict[str, Call] = {
    "get": lambda schedules: schedules.get("s"),
    "preview": lambda schedules: schedules.preview("s"),
    "history": lambda schedules: schedules.history("s"),
    "delete": lambda schedules: schedules.delete("s"),
}


@pytest.mark.parametrize("call", [*VERBS.values(), *IN_ANY_STATE.values()], ids=[*VERBS, *IN_ANY_STATE])
@pytest.mark.parametrize("there", [None, "a task"])
def test_a_schedule_that_is_not_there(world: World, call: Call, there: str | None) -> None:
    if there:
        world.client.insert("s")
    with pytest.raises(ScheduleNotFound, match="taskId: there is no schedule 's'"):
        call(world.schedules)
    assert (world.store.get("s") is not None) is (there is not None)


@pytest.mark.parametrize("verb", VERBS)
def test_one_that_has_ended_is_left_alone(world: World, verb: str) -> None:
    world.schedules.insert("s", "at(2026-12-31T12:01:00)")
    world.ticks(1)
    before = world.row("s")
    with pytest.raises(TransitionRefused) as caught:
        VERBS[verb](world.schedules)
    assert str(caught.value) == (
        f"cannot {verb} schedule 's': it is COMPLETED; possible only while it is ENABLED or DISABLED"
    )
    assert world.row("s") == before
    world.schedules.delete("s")


@pytest.mark.parametrize("state", ["waiting", "raw", "paused", "ended"])
@pytest.mark.parametrize("verb", WISHES)
def test_what_is_for_tasks_is_not_for_schedules(world: World, verb: str, state: str) -> None:
    if state == "raw":
        assert world.store.create({"taskId": "s", "scheduleExpression": HOURLY})
    else:
        world.schedules.insert("s", "rate(1 minute)", enabled=state != "paused", end_date=at(1))
        world.ticks(2 if state == "ended" else 0)
    before = world.row("s")
    with pytest.raises(TransitionRefused, match=f"cannot {verb} task 's': it is a schedule; ") as caught:
        WISHES[verb](world.client, "s")
    assert "dynatick schedule " in str(caught.value)
    statuses = {"waiting": "recurring", "raw": "unscheduled", "paused": "recurring", "ended": "completed"}
    assert (caught.value.status, caught.value.allowed) == (statuses[state], ())
    assert world.row("s") == before


def test_what_lists_or_changes_tasks_of_a_bucket_leaves_schedules_alone(world: World) -> None:
    bucket = "2026-12-31#12:01"
    world.schedules.insert("s", "rate(1 minute)")
    for task_id in ("off", "task"):
        world.client.insert(task_id, delay_seconds=1)
    assert (world.client.get("s").status, world.client.get("s").bucket) == ("recurring", bucket)
    assert [one.task_id for one in world.client.cancel_many(bucket, prefix="off")] == ["off"]
    assert [one.task_id for one in world.client.cancel_many(bucket, dry_run=True)] == ["task"]
    (counts,) = world.client.bucket_counts(bucket)
    assert counts.counts == {"scheduled": 1, "cancelled": 1}
    world.ticks(1)
    assert [(entry.task_id, entry.schedule_id) for entry in world.client.history(bucket).entries] == [
        ("off", None), ("s#1#2026-12-31T12:01:00Z", "s"), ("task", None),
    ]  # fmt: skip


def test_the_history_says_whether_each_was_in_time(world: World) -> None:
    world.schedules.insert("s", "rate(1 minute)", action="log", overlap="allow", catch_up="none",
                           expected_within_seconds=60)  # fmt: skip
    world.actions.behaviour["s#1#2026-12-31T12:02:00Z"] = fail
    world.ticks(3)
    made = world.row("s#1#2026-12-31T12:01:00Z")
    assert {"expectedWithinSeconds", "awaited"} & made.keys() == set(), "its occurrences do not get it"
    world.client.redrive("s#1#2026-12-31T12:02:00Z")
    world.client.cancel("s#1#2026-12-31T12:02:00Z")
    world.actions.behaviour["s#1#2026-12-31T12:04:00Z"] = fail
    world.ticks(1)
    world.next_tick(4)

    def found() -> dict[str, tuple[str, bool | None]]:
        return {f"{one.occurrence_at:%H:%M}": (one.status, one.in_time) for one in world.schedules.history("s")}

    expected = {"12:01": ("completed", True), "12:02": ("cancelled", None), "12:04": ("failed", False),
                "12:05": ("missed", False)}  # fmt: skip
    assert found().items() >= expected.items()
    world.schedules.update("s", expected_within_seconds=3600)
    assert found()["12:04"] == ("failed", None), "there is time to redrive it"
    world.schedules.update("s", expected_within_seconds=None)
    assert {one.in_time for one in world.schedules.history("s")} == {None}
    assert not any("inTime" in one.to_row() for one in world.schedules.history("s"))
