"""Schedules in a pass: what is written and in which order, what it holds back, and what it costs; and occurrences that
were missed, or did not complete within ``expectedWithinSeconds``: noticed soon, and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NOON
from tests.unit.engine.support import (
    NOON_MINUTE,
    World,
    bucket_at,
    is_claim,
    is_record,
    of,
    passed,
    raises,
    raises_for,
    reports,
    rules,
    world,
)

from dynatick import InvalidInput, TaskClient
from dynatick.domain import occurrences, schedule
from dynatick.domain.buckets import Bucket, instant_of, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.instants import format_instant
from dynatick.domain.schedule import Schedule
from dynatick.domain.task import Row
from dynatick.engine import schedules as recurring_module
from dynatick.engine.claims import Claimer, Contended, Ineligible
from dynatick.engine.cursor import ShardLease, Window, acquire_shard, cursor_id
from dynatick.engine.schedules import Recurring
from dynatick.engine.settings import pause, resume
from dynatick.errors import PermanentError, RetryableError, StoreError


def is_advance(change: ConditionalUpdate) -> bool:
    return "nextOccurrenceAt" in change.set and "definition" not in change.set


def put(w: World, schedule_id: str = "s", **row: Any) -> None:
    w.put(**{"taskId": schedule_id, "scheduleExpression": "rate(1 minute)", "overlap": "allow", **row})


def with_a_schedule(**row: Any) -> World:
    w = world()
    put(w, **row)
    return w


def recurring(w: World, token: Callable[[], str] = str) -> Recurring:
    placer = w.placer()
    return Recurring(w.store, placer, Claimer(w.store, placer, w.clock, token), w.clock, token)


FIRST = "s#1#2026-12-31T12:01:00Z"


# -- what a pass writes ----------------------------------------------------------------------------------------------


def test_an_occurrence_is_written_claimed_before_its_schedule_moves_on() -> None:
    """The stream leaves it where its tick wrote it: it is running, in a bucket that is closed."""
    w = with_a_schedule()
    seen: list[Row] = []

    def noted() -> None:
        seen.append(of(w.rigged.peek(FIRST)))
        w.stream(seen[0])

    with w.rigged.meanwhile(is_advance, noted):
        report = passed(w.next_tick())
    assert [(row["status"], row["taskDateTime"]) for row in seen] == [("running", "2026-12-31#12:01")]
    assert (report.due, report.claimed, report.completed, report.occurrences) == (1, 1, 1, 1)
    row = w.row(FIRST)
    assert (row["outcome"], row["attempt"], row["dueAt"]) == ("completed", 1, "2026-12-31T12:01:00Z")
    assert (row["taskDateTime"], w.row("s")["taskDateTime"]) == ("2026-12-31#12:01", "2026-12-31#12:02")
    assert w.cursor().open_until is None, "the pass has closed it for good"


def test_a_backlog_is_made_in_order_and_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurring_module, "MAX_AT_ONCE", 10)
    w = with_a_schedule(catchUp="all")
    w.next_tick(95)
    made = w.ran
    assert len(made) == 95
    assert sorted(made) == sorted(f"s#1#2026-12-31T{12 + n // 60}:{n % 60:02d}:00Z" for n in range(1, 96))
    assert w.row("s#1#2026-12-31T12:40:00Z")["taskDateTime"] == "2026-12-31#12:40"  # listed under its own time
    w.until_drained()


def test_a_pass_without_time_for_all_that_is_late_goes_on_in_another_invocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With ticks an hour apart, the rest of one every minute would wait for the next, and more with each."""
    monkeypatch.setattr(recurring_module, "MAX_AT_ONCE", 10)
    w = world(rules=rules(in_one_thread=True))
    put(w, catchUp="all")
    w.life = timedelta(seconds=20)
    w.behave(lambda *_: w.clock.forward(seconds=16) and None, "s#1#2026-12-31T12:10:00Z")  # the last of a round
    done = w.next_tick(35)
    assert len(w.ran) == len(set(w.ran)) == 35
    assert [report.continuation for report in reports(done)] == [0, 1]
    w.until_drained()


def test_the_stream_leaves_a_schedule_to_the_pass_that_makes_more_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moved to the next tick, the rest would be made then."""
    monkeypatch.setattr(recurring_module, "MAX_AT_ONCE", 10)
    w = with_a_schedule(catchUp="all")
    before, closed = w.row("s"), NOON_MINUTE + 35
    w.clock.to(instant_of(closed))
    assert acquire_shard(w.store, 0, closed, token="at work", now=w.clock()).cursor is not None
    entry = (Bucket.parse(before["taskDateTime"]), "s")
    (made,) = recurring(w).make_occurrences([entry], closed_through=closed, lease_until=w.clock() + w.life)
    after = w.row("s")
    assert (made.more, after["nextOccurrenceAt"]) == (True, "2026-12-31T12:11:00Z")
    w.stream(after, before)
    assert w.row("s") == after
    w.stream(after, None)  # as if a person had put it there
    assert Bucket.parse(w.row("s")["taskDateTime"]).minute > closed


def test_a_task_in_the_place_of_an_occurrence_is_left_alone() -> None:
    w = with_a_schedule()
    w.insert(FIRST, at=bucket_at(60))
    w.next_tick()
    assert (w.ran, w.row(FIRST)["status"]) == ([], "scheduled")
    assert [entry["reason"] for entry in w.row("s")["missed"]] == ["id-taken"]  # type: ignore[attr-defined]
    assert "awaited" not in w.row("s")


def test_a_malformed_task_that_names_itself_as_its_schedule_is_not_passed(w: World) -> None:
    """It is claimed, and can't be understood: until it has ended as failed it holds its bucket."""
    w.insert("t", scheduleId="t", payload="no map")
    w.rigged.hidden = lambda entry: entry.task_id == "t"
    w.ticks(5)
    w.rigged.clear_faults()
    w.rigged.throttled = is_record
    w.next_tick()
    assert w.outcome("t") is None
    assert w.cursor().drained_through < bucket_at(1).minute
    w.rigged.clear_faults()
    w.ticks(6)
    assert w.outcome("t") == "failed"


def die_holding_an_occurrence(w: World, tick: int) -> None:
    """A pass that has written an occurrence and not moved its schedule on, and is not heard of again."""
    now = w.clock()
    cursor = acquire_shard(w.store, 0, tick, token="dead", now=now).cursor
    assert cursor is not None
    window = Window(cursor, w.rules, closed_at=w.clock())
    assert ShardLease(w.store, w.clock, window, "dead").keep_open(now + w.life)
    bucket = Bucket.parse(w.row("s")["taskDateTime"])
    (made,) = recurring(w, lambda: "dead").make_occurrences(
        [(bucket, "s")], closed_through=tick, lease_until=now + w.life
    )
    assert (made.verdict, len(made.claimed)) == (Contended(), 1)


def test_no_poll_is_final_before_a_dead_tick_can_have_written_into_its_bucket_and_the_index_shows_it(w: World) -> None:
    """The occurrence is written long after its bucket was closed; then the process dies, and the index shows the
    occurrence late."""
    until = w.clock() + timedelta(minutes=5)
    dead = replace(w.cursor(), open_until=until)
    assert Window(dead, w.rules, closed_at=w.clock()).final_from == until + w.rules.index_settled_after


@pytest.mark.parametrize(("catch_up", "ticks_later"), [("latest", 5), ("none", 5), ("latest", 2)])
def test_what_a_dead_tick_has_made_is_not_noted_as_missed(catch_up: str, ticks_later: int) -> None:
    """It died before it could move the schedule on. By now the run is late, or another one is due as well."""
    w = with_a_schedule(catchUp=catch_up, overlap="skip", retryPolicy={"minBackoffSeconds": 0})
    w.clock.to(NOON + timedelta(minutes=1))
    w.rigged.throttled = is_advance
    die_holding_an_occurrence(w, minute_of(w.clock()))
    w.rigged.clear_faults()
    w.next_tick(ticks_later)
    row = w.row("s")
    reasons = {note["reason"] for note in row["missed"]}  # type: ignore[attr-defined]
    assert reasons == ({"outage", "overlap"} if ticks_later > 2 else {"overlap"})
    assert row["missedOccurrences"] == ticks_later
    assert row["lastTaskId"] == FIRST  # the others were skipped, for it had not ended
    w.ticks(4)
    assert w.outcome(FIRST) == "completed"
    assert len(w.ran) == len({*w.ran})


@pytest.mark.parametrize(
    ("edit", "then"),
    [(lambda schedules: schedules.pause("s"), []),
     (lambda schedules: schedules.update("s", expression="cron(0/5 * * * ? *)"), ["s#1#2026-12-31T12:05:00Z"])],
    ids=["paused", "updated"],
)  # fmt: skip
def test_an_edit_between_a_run_and_the_move_stands(edit: Callable[[Any], object], then: list[str]) -> None:
    """Anyone who moves a schedule on has read it some time before."""
    w = with_a_schedule()
    schedules = TaskClient(w.store, clock=w.clock).schedules
    with w.rigged.meanwhile(is_advance, lambda: edit(schedules)):
        w.ticks(6)
    assert w.ran == [FIRST, *then]
    assert ("taskDateTime" in w.row("s")) == bool(then)


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_an_occurrence_whose_write_got_no_answer_runs_at_once(taken: int) -> None:
    """It has one attempt only, which must not be used up by waiting for a lease of our own. ``taken``: how many writes
    took effect."""
    w = world()
    first = [f"{schedule_id}#1#2026-12-31T12:01:00Z" for schedule_id in ("a", "b")]
    for schedule_id in ("a", "b"):
        put(w, schedule_id, retryPolicy={"maximumRetryAttempts": 0})
    w.rigged.unanswered = lambda change: is_claim(change) and change.task_id in first[:taken]
    w.rigged.throttled = lambda change: is_claim(change) and change.task_id in first[taken:]
    w.next_tick()
    assert sorted(w.ran) == first[:taken]
    w.rigged.clear_faults()
    w.next_tick()
    assert set(w.ran) >= set(first)
    assert len(w.ran) == len({*w.ran})
    assert {w.outcome(task_id) for task_id in first} == {"completed"}


def test_of_a_schedule_only_that_of_its_own_bucket_and_in_form_is_made() -> None:
    """An index that lags shows a schedule where it was. One that can't be normalised holds its bucket back."""
    w = with_a_schedule()
    stale = Bucket.parse(w.row("s")["taskDateTime"])
    w.next_tick()
    (made,) = recurring(w).make_occurrences([(stale, "s")], closed_through=stale.minute, lease_until=w.clock() + w.life)
    assert made.verdict == Ineligible()
    assert w.ran == [FIRST]
    assert Schedule.from_row(w.row("s")).next_occurrence_at == NOON + timedelta(minutes=2)
    here = bucket_at(2)
    raw = {"taskId": "s", "scheduleId": "s", "scheduleExpression": "rate(1 minute)", "taskDateTime": str(here)}
    w.rigged.put(raw)
    w.rigged.throttled = lambda change: change.task_id == "s"
    (made,) = recurring(w).make_occurrences([(here, "s")], closed_through=here.minute, lease_until=w.clock())
    assert made.verdict == Contended()


@pytest.mark.parametrize("overlap", ["skip", "bufferOne"])
def test_what_a_backfill_has_made_does_not_end_the_wait_for_the_occurrence_before_it(overlap: str) -> None:
    """The first waits for its retry. A client makes the next, of whose time no tick has decided yet."""
    w = with_a_schedule(overlap=overlap, **RETRIES_IN_AN_HOUR)
    w.behave(raises(RetryableError("no answer")), FIRST)
    w.ticks(2)
    w.clock.to(NOON + timedelta(minutes=3))
    client = TaskClient(w.store, clock=w.clock, check_actions=False)
    (made,) = client.schedules.backfill("s", start=NOON + timedelta(minutes=3), end=NOON + timedelta(minutes=3))
    w.ticks(6)
    assert w.ran == [FIRST, made.task_id]
    assert w.row("s")["lastTaskId"] == FIRST


@pytest.mark.parametrize("unanswered", [False, True])
def test_a_schedule_that_is_moved_into_a_bucket_that_has_closed_goes_to_the_next_open_one(unanswered: bool) -> None:
    """Another tick closes it meanwhile, and the answer of the move may be lost (7)."""
    w = with_a_schedule()
    if unanswered:
        w.rigged.unanswered = is_advance

    def is_closed() -> None:
        acquire_shard(w.store, 0, NOON_MINUTE + 5, token="another's", now=w.clock())

    with w.rigged.meanwhile(is_advance, is_closed):
        w.next_tick()
    assert w.ran == [FIRST]
    assert Bucket.parse(w.row("s")["taskDateTime"]).minute > w.cursor().closed_through == NOON_MINUTE + 5


def test_a_schedules_occurrences_run_though_its_move_can_not_be_checked() -> None:
    w = with_a_schedule()

    def is_unreadable() -> None:
        w.rigged.before_read = raises_for(cursor_id(0))

    with w.rigged.meanwhile(is_advance, is_unreadable), pytest.raises(StoreError):
        w.next_tick()
    assert w.outcome(FIRST) == "completed"


def test_a_pass_that_loses_its_shard_before_it_writes_occurrences_writes_none() -> None:
    """The one who has it by now would not know that they come, and could pass their bucket."""
    w = with_a_schedule(catchUp="all")

    # Longer than a shard's lease.
    with w.rigged.meanwhile(lambda change: change.set.get("openUntil") is not None, lambda: w.is_frozen(seconds=40)):
        w.next_tick()
    assert w.ran == []
    assert not [row for row in w.open_rows().values() if row["taskId"] != "s"]
    w.clock.forward(seconds=40)
    w.next_tick()
    assert w.ran.count(FIRST) == 1


# -- overdue occurrences ---------------------------------------------------------------------------------------------


EVERY_MINUTE = {"scheduleExpression": "rate(1 minute)", "overlap": "allow"}

RETRIES_IN_AN_HOUR = {"retryPolicy": {"minBackoffSeconds": 3600, "maxBackoffSeconds": 3600}}

FIRST_FAILED = [("12:01:00Z", "failed: no")]

TOMORROW = "2027-01-01#12:01"

DAILY = {"scheduleExpression": "cron(1 12 * * ? *)", "expectedWithinSeconds": 150, "overlap": None}


def with_a_deadline(**row: Any) -> World:
    return with_a_schedule(**{**DAILY, **row})


def whose_first_run_raised(error: Exception | None = None, **row: Any) -> World:
    """A world at 12:01; its first occurrence is to have completed at 12:03:30, which the tick of 12:04 asks."""
    w = with_a_deadline(**row)
    w.behave(raises(error or PermanentError("no")), FIRST)
    w.next_tick()
    return w


def reported(w: World) -> list[tuple[str, str]]:
    """The reasons by nominal instant, without the day."""
    return [(format_instant(one.first)[11:], one.reason) for one in w.overdue]


def test_one_that_completes_in_time_is_looked_at_once_and_no_more() -> None:
    w = with_a_deadline()
    w.next_tick()
    assert w.outcome(FIRST) == "completed"
    assert w.row("s")["taskDateTime"] == "2026-12-31#12:04"
    assert w.row("s")["awaited"] == [{"dueAt": "2026-12-31T12:01:00Z", "expectedBy": "2026-12-31T12:03:30Z"}]
    w.ticks(4)
    row = w.row("s")
    assert (row["taskDateTime"], "awaited" in row) == (TOMORROW, False)
    assert w.overdue == []


def process_died(w: World) -> None:
    w.life = timedelta(seconds=30)
    w.rigged.throttled = lambda change: change.set.get("status") == "completed"


def still_runs(w: World) -> None:
    w.next_tick()
    lease = {"status": "running", "leaseUntil": "2026-12-31T12:05:00Z", "taskDateTime": str(bucket_at(1))}
    w.store.write(ConditionalUpdate(task_id=FIRST, set=lease, remove=("outcome", "finishedAt", "expiresAt")))


def another_task_is_there(w: World) -> None:
    w.insert(FIRST, at=bucket_at(60))


@pytest.mark.parametrize(
    ("does", "seconds", "reason"),
    [(process_died, 40, "attempt 1 did not end: its process died"), (still_runs, 150, "still running, attempt 1"),
     (lambda w: w.behave(lambda *_: w.clock.forward(seconds=100) and None, FIRST), 60, "completed late, at 2026-12-"),
     (another_task_is_there, 150, "missed: another task has its id"),
     (lambda w: w.behave(raises(PermanentError("no such mailbox")), FIRST), 150, "failed: no such mailbox"),
     (lambda w: w.behave(raises(RetryableError("no answer")), FIRST), 150, "waits for attempt 2, at 2026-12-31T1")],
)  # fmt: skip
def test_one_that_did_not_complete_in_time_is_reported_once_at_its_deadline(
    does: Callable[[World], None], seconds: int, reason: str
) -> None:
    w = with_a_deadline(expectedWithinSeconds=seconds, **RETRIES_IN_AN_HOUR)
    does(w)
    for _ in range(4):
        is_over = w.clock() > NOON + timedelta(minutes=1, seconds=seconds)
        assert w.overdue == [] or is_over or does is another_task_is_there
        w.next_tick()
    w.ticks(10)
    ((at, why),) = reported(w)
    assert (at, why[: len(reason)]) == ("12:01:00Z", reason)
    assert w.row("s")["taskDateTime"] == TOMORROW


@pytest.mark.parametrize("does", ["cancel", "delete"])
def test_one_that_a_person_calls_off_is_not_reported(does: str) -> None:
    w = whose_first_run_raised(RetryableError("no answer"), **RETRIES_IN_AN_HOUR)
    getattr(TaskClient(w.store, clock=w.clock), does)(FIRST)
    w.ticks(5)
    assert w.overdue == []
    assert "awaited" not in w.row("s")


ALL_PAUSED = "all was paused since 2026-12-31T12:00:00Z until 2026-12-31T12:09:00Z by ada: a bad deployment"


@pytest.mark.parametrize(
    ("row", "paused", "occurrences", "reason"),
    [
        # 12:01 to 12:10 are due at once, and the last two are in time.
        ({**EVERY_MINUTE, "catchUp": "none"}, False, 8, "missed: no tick ran"),
        ({**EVERY_MINUTE, "catchUp": "none", "expectedWithinSeconds": None}, False, 8, "missed: no tick ran"),
        # Made all the same, but too late.
        ({}, False, 1, "begins only now: no tick ran in time"),
        ({}, True, 1, f"begins only now: {ALL_PAUSED}"),
        ({**EVERY_MINUTE, "catchUp": "none"}, True, 8, f"missed: {ALL_PAUSED}"),
    ],
)
def test_those_that_were_missed_for_want_of_ticks_or_for_a_pause_are_one_report_of_the_next(
    row: dict[str, Any], paused: bool, occurrences: int, reason: str
) -> None:
    w = with_a_deadline(**row)
    if paused:
        pause(w.store, now=NOON, by="ada", reason="a bad deployment")
        w.ticks(9)
        resume(w.store, now=NOON + timedelta(minutes=9))
    w.next_tick(1 if paused else 10)
    (one,) = w.overdue
    assert (one.schedule_id, one.occurrences, one.reason) == ("s", occurrences, reason)
    assert (one.first, one.last) == (NOON + timedelta(minutes=1), NOON + timedelta(minutes=occurrences))
    missed = TaskClient(w.store, clock=w.clock).schedules.get("s").missed
    assert {entry.reason for entry in missed} == ({"all-paused" if paused else "outage"} if row else set())
    w.ticks(3)
    assert len(w.overdue) == 1


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


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_schedule_whose_last_occurrence_is_awaited_can_be_paused(by_hand: bool) -> None:
    w = whose_first_run_raised(scheduleExpression="at(2026-12-31T12:01:00)")
    if by_hand:
        w.put(**{**w.row("s"), "scheduleState": "DISABLED"})
    else:
        TaskClient(w.store, clock=w.clock).schedules.pause("s", "the books")
    assert (w.row("s")["scheduleState"], w.row("s")["taskDateTime"]) == ("DISABLED", "2026-12-31#12:04")
    w.ticks(4)
    assert reported(w) == FIRST_FAILED
    assert (w.outcome("s"), "taskDateTime" in w.row("s")) == (None, False)
    with pytest.raises(InvalidInput, match="it never runs after"):
        TaskClient(w.store, clock=w.clock).schedules.update("s", expression="at(2026-12-31T12:02:00)")
    w.until_drained()


@pytest.mark.parametrize(
    ("edits", "bucket", "then"),
    [(None, "2026-12-31#12:04", None),  # a pause
     ({"expression": "cron(0 18 * * ? *)"}, "2026-12-31#12:04", "2026-12-31#18:00"),
     ({"expression": "cron(2 12 * * ? *)"}, "2026-12-31#12:02", "2027-01-01#12:02"),
     ({"expected_within_seconds": None}, "2026-12-31#12:04", TOMORROW),
     ({"expected_within_seconds": 3600}, "2026-12-31#12:04", TOMORROW)],
)  # fmt: skip
def test_an_edit_or_a_pause_keeps_the_deadlines_of_what_was_made(
    edits: dict[str, Any] | None, bucket: str, then: str | None
) -> None:
    w = whose_first_run_raised()
    schedules = TaskClient(w.store, clock=w.clock).schedules
    schedules.pause("s") if edits is None else schedules.update("s", **edits)
    assert w.row("s")["taskDateTime"] == bucket
    w.ticks(4)
    assert reported(w) == FIRST_FAILED
    assert w.row("s").get("taskDateTime") == then
    w.until_drained()


def test_a_malformed_list_is_passed_over_and_a_schedule_put_in_its_place_awaits_nothing_of_it() -> None:
    w = with_a_deadline()
    w.next_tick()
    kept = w.row("s")["awaited"]
    for awaited in ("text", [5, {"dueAt": "soon", "expectedBy": "later"}], [{}]):
        w.store.write(ConditionalUpdate(task_id="s", set={"awaited": awaited}))
        assert Schedule.from_row(w.row("s")).awaited == ()
    w.ticks(4)
    assert (w.overdue, w.row("s")["taskDateTime"]) == ([], TOMORROW)
    w.put(taskId="s", scheduleExpression="rate(1 hour)", awaited=kept)
    assert "awaited" not in w.row("s")


def test_more_than_can_be_awaited_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occurrences, "MAX_AWAITED", 3)
    w = with_a_deadline(**EVERY_MINUTE, **RETRIES_IN_AN_HOUR, expectedWithinSeconds=86_400)
    w.behave(raises(RetryableError("no answer")), *(f"s#1#2026-12-31T12:0{minute}:00Z" for minute in range(1, 6)))
    w.ticks(5)
    assert [at for at, _ in reported(w)] == ["12:04:00Z", "12:05:00Z"]
    assert {why for _, why in reported(w)} == {
        f"not awaited: {schedule.MAX_AWAITED} occurrences before it have not completed"
    }
    assert len(w.row("s")["awaited"]) == 3  # type: ignore[arg-type]


# -- processes that die, and answers that are lost -------------------------------------------------------------------


def test_a_report_that_fails_leaves_the_schedule_as_it_is_and_holds_up_no_occurrence() -> None:
    w = whose_first_run_raised()
    put(w, "other", **{**DAILY, "scheduleExpression": "cron(4 12 * * ? *)"})
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


def test_an_occurrence_that_completed_before_its_schedule_was_moved_on_is_in_time() -> None:
    """The move got no answer, and the deadline is past when the next tick tries again."""
    w = with_a_deadline(expectedWithinSeconds=30)
    w.rigged.throttled = is_advance
    w.next_tick()
    assert w.outcome(FIRST) == "completed"
    w.rigged.clear_faults()
    w.ticks(3)
    assert w.overdue == []
    assert w.row("s")["taskDateTime"] == TOMORROW
