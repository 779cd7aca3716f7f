"""Records of attempts: on the claim's token, the dead letter first, no failure turned into success; and what the row
keeps of when a task began."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.engine.support import (
    NOON_MINUTE,
    Once,
    World,
    bucket_at,
    fails,
    ids,
    is_record,
    passed,
    raises,
    raises_for,
    world,
)

from dynatick import CompleteLater
from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import Written
from dynatick.domain.instants import parse_instant
from dynatick.domain.lifecycle import reclaim
from dynatick.domain.task import Task
from dynatick.engine.counts import RecordResult
from dynatick.engine.cursor import Cursor, cursor_id
from dynatick.engine.placement import Placer
from dynatick.engine.ports import ActionContext, DeadLetter
from dynatick.engine.record import Attempted, Deferred, Done, Error, Failure, Handed, Recorder, Rescheduled, lateness_of
from dynatick.engine.rules import Precision, Rules
from dynatick.engine.settings import InstallationSettings
from dynatick.errors import PermanentError, Reschedule, StoreError
from dynatick.store.codec import item_bytes

HERE = bucket_at(0)


def recorder(
    w: World,
    *,
    grid: Grid | None = None,
    closed: int = 0,
    jitter: float = 0.0,
    keep_fault: Callable[[Exception], object] = pytest.fail,
) -> Recorder:
    grid = grid or Grid()
    rules, settings = Rules(grid=grid), InstallationSettings(grid=grid, shards_ever=grid.shard_count)
    placer = Placer(w.store, rules, settings, w.clock, lambda row, error: True)
    close(w, HERE.shard, closed)
    return Recorder(w.store, rules, settings, w.clock, placer=placer, keep_fault=keep_fault, jitter=lambda: jitter)


def close(w: World, shard: int, closed: int) -> None:
    """Ticks close the buckets of a shard."""
    there = {"shard": shard, "checkpoint_at": NOON, "polled_through": 0, "checkpoint": 0, "drained_through": 0}
    w.rigged.put({"taskId": cursor_id(shard), **Cursor(closed_through=NOON_MINUTE + closed, **there).to_row()})


def recorded(w: World, attempts: Sequence[Attempted], made: Recorder | None = None) -> list[RecordResult]:
    """Records attempts; failures once their letters were sent."""
    made = made or recorder(w)
    return [failed(w, result, made) if isinstance(result, Failure) else result for result in made.record(attempts)]


def failed(w: World, failure: Failure, made: Recorder | None = None) -> RecordResult:
    (result,) = (made or recorder(w)).fail([failure], w.dead_letters.send([failure.letter()]))
    return result


def attempt(
    w: World, task_id: str, outcome: Done | Error | Deferred | Rescheduled | Handed, **more: object
) -> Attempted:
    """A task that was claimed, and its attempt that has ended."""
    row = scheduled_row(
        task_id, HERE, status="running", attempt=Decimal(1), lease=f"{task_id}'s", leaseUntil="2026-12-31T12:02:00Z",
        startedAt="2026-12-31T12:00:00Z",
    ) | more  # fmt: skip
    w.rigged.put(row)
    stored = w.row(task_id)
    return Attempted(Task.from_row(stored), stored, outcome, NOON)


FAILED = Error("no route")

PERMANENT = Error("no such address", permanent=True)

A_MINUTE = {"maximumEventAgeInSeconds": Decimal(60)}


# -- what is written -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "closed", "error", "bucket"),
    [(1, 0, FAILED, "2026-12-31#12:01"),  # in 5 s: at the first tick after
     (1, 0, Error("x", retry_after=90), "2026-12-31#12:02"), (5, 0, FAILED, "2026-12-31#12:05"),
     (1, 7, FAILED, "2026-12-31#12:08"),  # closed to newcomers: the first that is not
     (5, 7, FAILED, "2026-12-31#12:10"), (5, 5, FAILED, "2026-12-31#12:10")],
)  # fmt: skip
def test_a_retry_goes_to_the_first_open_bucket_after_the_wait(n: int, closed: int, error: Error, bucket: str) -> None:
    w = world()
    (result,) = recorded(w, [attempt(w, "t", error)], recorder(w, grid=Grid(tick_minutes=n), closed=closed))
    assert result is RecordResult.RETRIED
    assert w.row("t")["taskDateTime"] == bucket


def test_the_row_has_the_instant_of_the_next_attempt(w: World) -> None:
    outcomes = {"retry": FAILED, "limited": Deferred(90.25), "turn": Rescheduled(20.0)}
    results = recorded(w, [attempt(w, name, outcome) for name, outcome in outcomes.items()])
    assert list(results) == [RecordResult.RETRIED, RecordResult.RELEASED, RecordResult.RESCHEDULED]
    rows = {name: w.row(name) for name in outcomes}
    waits = {name: parse_instant(row["nextAttemptAt"], name) - NOON for name, row in rows.items()}
    for name, seconds in {"retry": 5, "limited": 90.25, "turn": 20}.items():
        assert timedelta(seconds=seconds) <= waits[name] < timedelta(seconds=seconds + 3), name
    # A limited task waits for the rest in the tick before.
    assert {row["taskDateTime"] for row in rows.values()} == {"2026-12-31#12:01"}


def test_a_task_that_its_handler_reschedules_for_ever_fails_with_a_dead_letter(w: World) -> None:
    often = attempt(w, "often", Rescheduled(1.0), turn=Decimal(10_000))
    long = attempt(w, "long", Rescheduled(1.0), retryPolicy=A_MINUTE, firstStartedAt="2026-12-31T11:59:00Z")
    assert recorded(w, [often, long]) == [RecordResult.FAILED] * 2
    error = "its handler has rescheduled it 10000 times in this run, the most that is allowed"
    assert w.row("often")["error"] == error
    assert [letter.row["taskId"] for letter in w.dead_letters.letters] == ["often", "long"]


@pytest.mark.parametrize(
    ("n", "closed", "seconds", "bucket"),
    [(1, 0, 56, "2026-12-31#12:01"),
     (1, 0, 57, "2026-12-31#12:02"),  # the tick at 12:01 could find the lease not over yet
     (5, 0, 60, "2026-12-31#12:05"),
     (1, 7, 60, "2026-12-31#12:08")],  # closed to newcomers: the first that is not
)  # fmt: skip
def test_what_is_handed_over_lies_in_the_first_open_bucket_after_its_deadline(
    n: int, closed: int, seconds: int, bucket: str
) -> None:
    w = world(rules=Rules(grid=Grid(tick_minutes=n)))
    later = Handed(CompleteLater(timedelta(seconds=seconds)))
    assert recorded(w, [attempt(w, "t", later)], recorder(w, grid=Grid(tick_minutes=n), closed=closed)) == [
        RecordResult.WAITING
    ]
    assert (w.row("t")["status"], w.row("t")["taskDateTime"]) == ("waiting", bucket)


@pytest.mark.parametrize(("closed", "bucket"), [(None, "2026-12-31#12:01#3"), (5, "2026-12-31#12:06#3")])
def test_a_retry_goes_to_the_tasks_own_shard_even_if_that_is_further(w: World, closed: int | None, bucket: str) -> None:
    """Once the shard count has changed, a pass sees no watermark of the shard to which a row goes (7)."""
    if closed is not None:
        close(w, 3, closed)
    recorder(w, grid=Grid(shard_count=4)).record([attempt(w, "task-1", FAILED)])
    assert w.row("task-1")["taskDateTime"] == bucket


MOVES = {"a retry": FAILED, "a further turn": Rescheduled(20.0), "for its rate limit": Deferred(90.25)}


@pytest.mark.parametrize("name", [*MOVES, "its failure is deferred"])
def test_what_a_pass_moves_into_a_bucket_that_closed_meanwhile_goes_to_the_next_open_one(w: World, name: str) -> None:
    """Another tick closes buckets though a pass has the shard lease, and a pass may have released it (7)."""
    w.dead_letters = MemoryDeadLetters(refuse=lambda letter: True)
    made = recorder(w)
    with w.rigged.meanwhile(lambda change: "taskDateTime" in change.set, lambda: close(w, HERE.shard, 30)):
        recorded(w, [attempt(w, "t", MOVES.get(name, PERMANENT))], made)
    assert w.row("t")["taskDateTime"] == "2026-12-31#12:31"


def test_a_failure_that_is_deferred_unexecuted_into_a_closed_bucket_goes_to_the_next_open_one(w: World) -> None:
    w.dead_letters = MemoryDeadLetters(refuse=lambda letter: True)
    made, row = recorder(w), attempt(w, "t", PERMANENT).row
    with w.rigged.meanwhile(lambda change: "taskDateTime" in change.set, lambda: close(w, HERE.shard, 30)):
        failed(w, made.failure_of(row, "its attempts are used up", attempt=1), made)
    assert w.row("t")["taskDateTime"] == "2026-12-31#12:31"


def test_the_moves_of_a_batch_are_checked_by_one_read(w: World) -> None:
    made, attempts = recorder(w), [attempt(w, f"t{n}", FAILED) for n in range(20)]
    reads: list[str] = []
    w.rigged.before_read = reads.append
    made.record(attempts)
    assert reads == [cursor_id(HERE.shard)]


def test_moves_that_can_not_be_checked_discard_no_other_result(w: World) -> None:
    """They hold back the buckets that they have left, and the invocation raises why once all is recorded (7)."""
    faults: list[Exception] = []
    made = recorder(w, keep_fault=faults.append)
    moves = {**MOVES, "handed over": Handed(CompleteLater(timedelta(minutes=5)))}
    attempts = [attempt(w, name, outcome) for name, outcome in moves.items()]
    others = [attempt(w, "done", Done()), *(attempt(w, name, PERMANENT) for name in ("heard", "unheard"))]
    w.rigged.before_read = raises_for(cursor_id(HERE.shard))
    *moved, done, heard, unheard = made.record([*attempts, *others])
    assert (moved, done) == ([RecordResult.UNRECORDED] * 4, RecordResult.COMPLETED)
    assert {w.row(name)["status"] for name in moves} == {"scheduled", "waiting"}
    assert isinstance(heard, Failure)
    assert isinstance(unheard, Failure)
    assert made.fail([heard, unheard], [True, False]) == [RecordResult.FAILED, RecordResult.UNRECORDED]
    assert (w.outcome("heard"), w.row("unheard")["deferrals"]) == ("failed", 1)
    assert [type(fault) for fault in faults] == [StoreError] * 2


def test_what_has_failed_for_good_is_not_executed_again_for_a_move_that_can_not_be_checked() -> None:
    w = world(rules=Rules(in_one_thread=True))
    w.insert("again", *ids(10))
    w.behave(lambda task, context: fails(task, context) if context.attempt == 1 else None, "again")
    w.behave(raises(PermanentError("the account is closed")), *ids(10))

    def from_now_on() -> None:
        w.rigged.before_read = raises_for(cursor_id(0))

    with w.rigged.meanwhile(is_record, from_now_on), pytest.raises(StoreError):
        w.next_tick()
    w.rigged.clear_faults()
    w.clock.forward(seconds=40)  # the end write failed, too, and the shard lease ends
    w.ticks(6)
    assert [(w.actions.times(i), w.outcome(i)) for i in ids(10)] == [(1, "failed")] * 10
    assert (w.actions.times("again"), w.outcome("again")) == (2, "completed")


def test_the_age_of_a_task_counts_from_the_first_start_of_its_run(w: World) -> None:
    old = {"attempts": [{"run": Decimal(1), "attempt": Decimal(1), "startedAt": "2026-12-31T11:59:00Z"}]}
    rows = {"young": {}, "old": old, "another run": {**old, "run": Decimal(2)}}
    results = recorded(w, [attempt(w, name, FAILED, retryPolicy=A_MINUTE, **row) for name, row in rows.items()])
    assert list(results) == [RecordResult.RETRIED, RecordResult.FAILED, RecordResult.RETRIED]


# -- dead letters ----------------------------------------------------------------------------------------------------


def test_a_failure_whose_message_the_queue_refuses_is_deferred_and_the_others_are_recorded(w: World) -> None:
    met: list[object] = []  # the outcomes that the rows have when their letters are sent, so that no failure is lost

    def refuse(letter: DeadLetter) -> bool:
        met.append(w.outcome(str(letter.row["taskId"])))
        return letter.row["taskId"] == "unheard"

    w.dead_letters = MemoryDeadLetters(refuse=refuse)
    attempts = [attempt(w, "heard", PERMANENT), attempt(w, "unheard", PERMANENT), attempt(w, "done", Done())]
    assert recorded(w, attempts) == [RecordResult.FAILED, RecordResult.DEFERRED, RecordResult.COMPLETED]
    assert set(met) == {None}
    assert [w.outcome(i) for i in ("heard", "unheard", "done")] == ["failed", None, "completed"]
    (letter,) = w.dead_letters.letters
    assert letter == DeadLetter(row=letter.row, attempt=1, error="no such address", failed_at=letter.failed_at)
    assert (letter.row["taskId"], letter.row["status"]) == ("heard", "running")
    row = w.row("unheard")
    assert Bucket.parse(row["taskDateTime"]).instant >= w.clock() + timedelta(minutes=4), "it is tried again later"
    assert (row["status"], row["deferrals"]) == ("running", 1)


@pytest.mark.parametrize(("n", "closed", "bucket"), [(1, 30, "2026-12-31#12:31"), (5, 30, "2026-12-31#12:35")])
def test_a_deferred_failure_goes_to_a_bucket_that_is_open(n: int, closed: int, bucket: str) -> None:
    """Refusing may take longer than the deferral: by then its tick may have been."""
    w = world(dead_letters=MemoryDeadLetters(refuse=lambda letter: True))
    made = recorder(w, grid=Grid(tick_minutes=n), closed=closed)
    assert recorded(w, [attempt(w, "t", PERMANENT)], made) == [RecordResult.DEFERRED]
    assert w.row("t")["taskDateTime"] == bucket
    row = attempt(w, "u", PERMANENT).row
    assert failed(w, made.failure_of(row, "its attempts are used up", attempt=1), made) is RecordResult.DEFERRED
    assert w.row("u")["taskDateTime"] == bucket


# -- another writer was first, answers that are lost -----------------------------------------------------------------


OUTCOMES = [(Done(), RecordResult.COMPLETED), (FAILED, RecordResult.RETRIED), (PERMANENT, RecordResult.FAILED)]


@pytest.mark.parametrize("outcome", [outcome for outcome, _ in OUTCOMES])
@pytest.mark.parametrize("how", ["deleted", "replaced", "ended by hand", "reclaimed"])
def test_rule_12_a_task_that_is_no_longer_ours_is_left_alone(w: World, how: str, outcome: Done | Error) -> None:
    """With the status as its only condition, a zombie would end a task that another process is working on."""
    ended = attempt(w, "t", outcome)
    match how:
        case "deleted":
            w.rigged.delete("t")
        case "replaced":
            w.rigged.put(scheduled_row("t", bucket_at(9), run=Decimal(2)))
        case "ended by hand":
            w.rigged.put({**w.row("t"), "status": "cancelled", "outcome": "cancelled", "lease": "another's"})
        case "reclaimed":
            over = reclaim(w.row("t"), attempt=2, token="another's", lease_until=NOON + timedelta(hours=1), now=NOON)
            assert isinstance(w.store.write(over), Written)
    before = w.rigged.peek("t")
    # What was reclaimed has not ended: the watermark must wait for it.
    expected = RecordResult.UNRECORDED if how == "reclaimed" else RecordResult.SUPERSEDED
    assert recorded(w, [ended]) == [expected]
    assert w.rigged.peek("t") == before


@pytest.mark.parametrize(("outcome", "result"), OUTCOMES)
@pytest.mark.parametrize("has_run", [True, False])  # a row from hand need not say which run it is
def test_a_record_without_an_answer_counts_if_it_is_found_done(
    w: World, outcome: Done | Error, result: RecordResult, has_run: bool
) -> None:
    ended = attempt(w, "t", outcome)
    if not has_run:
        del w.rigged._items["t"]["run"]
    before = w.row("t")
    w.rigged.throttled = is_record
    assert recorded(w, [ended]) == [RecordResult.UNRECORDED]
    assert w.row("t") == before
    w.rigged.throttled, w.rigged.unanswered = lambda change: False, is_record
    assert recorded(w, [ended]) == [result]


def test_each_record_of_a_batch_is_judged_by_its_own_answer_and_is_written_once_more_if_it_got_none(w: World) -> None:
    attempts = [attempt(w, f"t{n}", Done()) for n in range(5)]
    once = Once(lambda change: change.task_id == "t4")
    w.rigged.throttled = lambda change: change.task_id == "t1" or once(change)
    w.rigged.unanswered = lambda change: change.task_id == "t2"
    w.rigged.delete("t3")
    assert recorded(w, attempts) == [
        RecordResult.COMPLETED, RecordResult.UNRECORDED, RecordResult.COMPLETED, RecordResult.SUPERSEDED,
        RecordResult.COMPLETED,
    ]  # fmt: skip
    assert once.done


def test_the_failure_of_a_row_that_is_not_executed_is_recorded_on_the_same_conditions(w: World) -> None:
    row = attempt(w, "t", Done()).row
    w.rigged.throttled = is_record
    assert failed(w, recorder(w).failure_of(row, "x", attempt=1)) is RecordResult.UNRECORDED
    w.rigged.clear_faults()
    w.dead_letters = MemoryDeadLetters(refuse=lambda letter: True)
    assert failed(w, recorder(w).failure_of(row, "x", attempt=1)) is RecordResult.DEFERRED
    assert (w.outcome("t"), w.row("t")["error"]) == (None, "x")
    w.dead_letters = MemoryDeadLetters()
    w.rigged.put({**row, "lease": "another's"})
    assert failed(w, recorder(w).failure_of(row, "x", attempt=1)) is RecordResult.UNRECORDED, "another process runs it"
    assert w.outcome("t") is None
    w.rigged.delete("t")
    assert failed(w, recorder(w).failure_of(row, "x", attempt=1)) is RecordResult.SUPERSEDED


def full(w: World, outcome: Done | Error, spare: int, *, bulk: str = "payload", **more: object) -> Attempted:
    """An attempt of a task whose row has this many bytes to spare."""
    attempt(w, "t", outcome, **{bulk: {"k": ""}}, **more)
    left = 400 * 1024 - item_bytes(w.row("t")) - spare
    return attempt(w, "t", outcome, **{bulk: {"k": "x" * left}}, **more)


@pytest.mark.parametrize("bulk", ["payload", "blob"])
@pytest.mark.parametrize(
    ("outcome", "result", "spare", "kept"),
    [(Done({"k": "x" * 500}), RecordResult.COMPLETED, 200, True),  # without its result it fits
     (Done({"k": "x" * 500}), RecordResult.COMPLETED, 30, False),  # without its bulk it fits
     (FAILED, RecordResult.RETRIED, 70, True),  # without the note of the attempt it fits
     (PERMANENT, RecordResult.FAILED, 130, True), (PERMANENT, RecordResult.FAILED, 30, False)],
)  # fmt: skip
def test_what_is_too_large_is_recorded_without_its_bulk(
    w: World, outcome: Done | Error, result: RecordResult, spare: int, kept: bool, bulk: str
) -> None:
    assert recorded(w, [full(w, outcome, spare, bulk=bulk)]) == [result]
    row = w.row("t")
    assert (bulk in row) is kept
    assert not {"result", "attempts"} & set(row)
    listed_in = bucket_at(1) if result is RecordResult.RETRIED else HERE
    assert row["taskDateTime"] == str(listed_in)


# -- how late a task began -------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(None, "completed"), (PermanentError("no"), "failed"), (RuntimeError("no route"), None),
     (Reschedule(after=2), None)],
)  # fmt: skip
@pytest.mark.parametrize("refused", [False, True])
def test_a_row_says_how_late_its_first_attempt_began_whatever_became_of_it(
    error: Exception | None, outcome: str | None, refused: bool
) -> None:
    """``refused``: the dead-letter queue takes no message at first."""
    w = world(dead_letters=MemoryDeadLetters(refuse=lambda letter: refused))

    def run(task: Task, context: ActionContext) -> None:
        if error is not None and (context.turn, context.attempt) == (0, 1):
            raise error

    w.behave(run, "t")
    w.insert("t", retryPolicy={"minBackoffSeconds": 1, "maxBackoffSeconds": 1})
    w.clock.to(NOON + timedelta(minutes=1, seconds=7))
    w.tick()
    first = w.row("t")["lateMilliseconds"]
    assert 7000 <= int(str(first)) < 8000
    assert w.outcome("t") == (None if refused and outcome == "failed" else outcome)
    w.dead_letters = MemoryDeadLetters()
    w.ticks(8)
    assert w.outcome("t") == (outcome or "completed")
    assert w.row("t")["lateMilliseconds"] == first


def test_a_job_is_polled_until_it_is_done_and_each_turn_has_all_the_attempts_of_the_policy(w: World) -> None:
    """A further turn is late only by what it begins after the tick of its wait."""
    calls: list[tuple[int, int, str]] = []
    answers = iter([Reschedule(after=20), ValueError("no connection"), Reschedule(after=200), ValueError("no"), None])

    def poll(task: Task, context: ActionContext) -> str:
        calls.append((context.turn, context.attempt, context.idempotency_key))
        if (error := next(answers)) is not None:
            raise error
        return "done"

    w.behave(poll, "job")
    w.insert("job", retryPolicy={"maximumRetryAttempts": 1})
    reports = [passed(w.next_tick()) for _ in range(8)]
    assert [(one.rescheduled, one.retried, one.completed, one.lateness.count) for one in reports] == [
        (1, 0, 0, 1), (0, 1, 0, 1), (1, 0, 0, 0), *[(0, 0, 0, 0)] * 3, (0, 1, 0, 1), (0, 0, 1, 0),
    ]  # fmt: skip
    assert reports[6].lateness.max < 1000
    key = calls[0][2]
    assert calls == [(0, 1, key), (1, 1, f"{key}.1"), (1, 2, f"{key}.1"), (2, 1, f"{key}.2"), (2, 2, f"{key}.2")]
    row = w.row("job")
    assert (row["outcome"], row["result"], row["turn"], row["run"], row["attempt"]) == ("completed", "done", 2, 1, 2)
    assert str(row["firstStartedAt"]).startswith("2026-12-31T12:01:0")
    assert ("nextAttemptAt" in row, w.dead_letters.letters) == (False, [])


@pytest.mark.parametrize(("level", "number"), [(logging.DEBUG, 2), (logging.INFO, 0)])
def test_each_attempt_is_logged_with_its_result_at_level_debug(
    logged: list[logging.LogRecord], level: int, number: int
) -> None:
    logging.getLogger("dynatick.engine").setLevel(level)
    w = world()
    w.actions.behaviour["again"] = fails
    w.insert("fine", "again", payload={"secret": "xyzzy"})
    w.first_pass()
    attempts = {vars(one)["task_id"]: vars(one) for one in logged if vars(one).get("action") == "attempt_recorded"}
    assert len(attempts) == number
    assert {task_id: one["result"] for task_id, one in attempts.items()} == (
        {"fine": "completed", "again": "retried"} if number else {}
    )
    for one in attempts.values():
        assert (one["attempt"], one["max_attempts"], one["run"], one["turn"], one["handler"]) == (1, 4, 1, 0, "log")
        assert (one["due_at"], one["started_at"][:19]) == ("2026-12-31T12:01:00Z", "2026-12-31T12:01:00")
        assert "xyzzy" not in str(one)
