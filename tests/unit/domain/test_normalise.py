"""Normalising: a raw row becomes a scheduled task in its bucket, or fails with the reason. Of a row that is scheduled,
only a changed time is derived again."""

from __future__ import annotations

from asyncio import CancelledError
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.types import Binary
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import NOON, scheduled_row
from tests.unit.domain.strategies import grids, near_instants, task_ids
from tests.unit.domain.support import written

from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import ConditionalUpdate, Lost, Unknown, Written
from dynatick.domain.instants import format_instant
from dynatick.domain.lifecycle import complete, move, reschedule, retry
from dynatick.domain.normalise import (
    TIMES,
    Defaults,
    check_names,
    check_schedule_names,
    needs_normalising,
    normalise,
    rederive,
    reject,
    right_name,
    without_large_values,
)
from dynatick.domain.task import Row, Task
from dynatick.errors import InvalidInput
from dynatick.store.codec import decode, encode
from dynatick.store.memory import MemoryStore

# Thursday, 31 December 2026, thirty seconds past noon: the current bucket is 12:01, or 12:05 on a grid of five minutes.
NOW = datetime(2026, 12, 31, 12, 0, 30, tzinfo=UTC)
MINUTE, FIVE = Grid(), Grid(tick_minutes=5)


def after(row: Row, *, grid: Grid = MINUTE, defaults: Defaults | None = None) -> Row:
    """The row after a put and normalising."""
    put = decode(encode(row))
    return written(normalise(put, now=NOW, grid=grid, defaults=defaults or Defaults()), put)


# -- the rows that people put (scenarios/raw-items.json, with its instants spelt out) --------------------------------

NULLABLE = (
    "dueAt", "delaySeconds", "action", "payload", "status", "attempt", "run", "retryPolicy", "createdAt", "scheduleId",
    "outcome", "expiresAt", "attempts", "lease", "scheduleExpression",
)  # fmt: skip
NESTED = {"b": Binary(b"\x00\xff"), "n": None, "s": {"a", "b"}, "deep": {"x": [Decimal("1.50"), False]}}
RAW: list[tuple[dict[str, object], str, str]] = [
    # row, bucket, due at
    ({}, "2026-12-31#12:01", "2026-12-31T12:00:30Z"),
    ({"taskDateTime": "2026-12-31#12:01", "payload": {"id": "20"}}, "2026-12-31#12:01", "2026-12-31T12:01:00Z"),
    ({"taskDateTime": "2026-12-31T13:01:20+01:00", "action": "log"}, "2026-12-31#12:02", "2026-12-31T12:01:20Z"),
    ({"dueAt": "2026-12-31T12:01:15Z", "action": "no-such-action"}, "2026-12-31#12:02", "2026-12-31T12:01:15Z"),
    ({"dueAt": Decimal(1_798_718_475)}, "2026-12-31#12:02", "2026-12-31T12:01:15Z"),
    ({"dueAt": "2026-12-31#12:30"}, "2026-12-31#12:30", "2026-12-31T12:30:00Z"),
    ({"delaySeconds": Decimal(30), "action": "log"}, "2026-12-31#12:01", "2026-12-31T12:01:00Z"),
    ({"delaySeconds": Decimal("30.5")}, "2026-12-31#12:02", "2026-12-31T12:01:00.500Z"),
    # What is past stays where it is; placement moves it (protocol 5).
    ({"taskDateTime": "2026-12-30#12:00"}, "2026-12-30#12:00", "2026-12-30T12:00:00Z"),
    # Of two times, the bucket counts, then dueAt.
    ({"dueAt": "2026-12-31T12:05:00Z", "delaySeconds": Decimal(3600)}, "2026-12-31#12:05", "2026-12-31T12:05:00Z"),
    ({"taskDateTime": "2026-12-31T12:30:00Z", "dueAt": "2026-12-31#12:07"}, "2026-12-31#12:30", "2026-12-31T12:30:00Z"),
    # NULL counts as missing, and what is the user's own stays.
    (dict.fromkeys(NULLABLE), "2026-12-31#12:01", "2026-12-31T12:00:30Z"),
    ({"colour": "blue", "taskid": "x", "Status": "mine"}, "2026-12-31#12:01", "2026-12-31T12:00:30Z"),
    ({"payload": NESTED}, "2026-12-31#12:01", "2026-12-31T12:00:30Z"),
]


@pytest.mark.parametrize(("row", "bucket", "due"), RAW)
def test_a_raw_row_becomes_a_scheduled_task(row: dict[str, object], bucket: str, due: str) -> None:
    done = after({"taskId": "raw", **row})
    assert (done["taskDateTime"], done["dueAt"], done["status"]) == (bucket, due, "scheduled")
    assert (done["attempt"], done["run"], done["createdAt"]) == (0, 1, "2026-12-31T12:00:30Z")
    assert done["action"] == (row.get("action") or "log")
    assert "outcome" not in done
    assert "expiresAt" not in done
    task = Task.from_row(done)
    assert task.payload == decode(encode({"p": row.get("payload") or {}}))["p"]
    assert not needs_normalising(done)


REFUSED: list[tuple[dict[str, object], str]] = [
    # row, what the error begins with
    ({"taskDateTime": "tomorrow"}, "taskDateTime: 'tomorrow' is not accepted; expected a bucket such as"),
    ({"dueAt": "2027-01-01T12:00:00"}, "dueAt: '2027-01-01T12:00:00' is not accepted; its offset from UTC is missing"),
    ({"taskDateTime": "2026-12-31#12:05", "dueAt": "soon"}, "dueAt: 'soon' is not accepted; expected a bucket such as"),
    ({"delaySeconds": Decimal(-1)}, "delaySeconds: -1 is not accepted; expected a number of seconds from 0 to 316224"),
    ({"delaySeconds": "30"}, "delaySeconds: '30' is not accepted; expected a number of seconds"),
    ({"delaySeconds": True}, "delaySeconds: True is not accepted; expected a number of seconds"),
    ({"delaySeconds": Decimal(316_224_001)}, "delaySeconds: 316224001 is not accepted"),
    ({"action": Decimal(7), "payload": "not a map"}, "action: 7 is not accepted; expected the name of an action"),
    ({"payload": "not a map"}, "payload: 'a str' is not accepted; expected a map"),
    ({"retryPolicy": {"maximumRetryAttempts": Decimal(999)}}, "retryPolicy.maximumRetryAttempts: 999 is not accepted"),
    ({"scheduleId": Decimal(7)}, "scheduleId: 7 is not accepted; expected text"),
    ({"timeoutSeconds": Decimal(0)}, "timeoutSeconds: 0 is not accepted; expected a whole number of seconds from 1"),
    ({"scheduleExpression": "rate(1 day)"}, "scheduleExpression: 'rate(1 day)' is not accepted; a task runs once"),
    ({"cronExpression": "0 12 * * ? *"}, "cronExpression: '0 12 * * ? *' is not accepted; a task runs once"),
    ({"status": "waiting"}, "status: 'waiting' is not accepted; leave it out"),
    ({"dueAt": "x\n" * 1000}, "dueAt: 'x"),
]


@pytest.mark.parametrize(("row", "error"), REFUSED)
def test_a_malformed_row_is_marked_failed_with_the_reason_on_one_line(row: dict[str, object], error: str) -> None:
    done = after({"taskId": "raw", **row})
    assert (done["status"], done["outcome"]) == ("failed", "failed")
    assert str(done["error"]).startswith(error)
    assert len(str(done["error"])) <= 300
    assert "\n" not in str(done["error"])
    assert done["taskDateTime"] == "2026-12-31#12:01", "listed in the current bucket, so that it is seen"
    assert (done["finishedAt"], done["expiresAt"]) == ("2026-12-31T12:00:30Z", int(NOW.timestamp()) + 30 * 86_400)
    kept = {name: value for name, value in row.items() if name not in ("taskDateTime", "status")}
    assert kept.items() <= done.items(), "the rest stays as it was put, to be looked at"


def test_a_task_without_a_time_is_placed_into_the_next_tick() -> None:
    """It never gets a tick that is just now: at noon sharp the tick of noon may have ended before the row is seen."""
    assert after({"taskId": "raw"}, grid=FIVE)["taskDateTime"] == "2026-12-31#12:05"
    assert after({"taskId": "raw"}, grid=Grid(tick_minutes=1440))["taskDateTime"] == "2027-01-01#00:00"
    at_noon = normalise({"taskId": "raw"}, now=NOON, grid=MINUTE, defaults=Defaults())
    assert at_noon.set["taskDateTime"] == "2026-12-31#12:01"


@pytest.mark.parametrize(
    ("time", "due", "bucket", "kept"),
    [
        # a time off the grid is rounded up: never early
        ("2026-12-31#12:06", None, "2026-12-31#12:10", "2026-12-31T12:06:00Z"),
        ("2026-12-31#23:58", None, "2027-01-01#00:00", "2026-12-31T23:58:00Z"),
        ("2026-12-31T12:05:00.001Z", None, "2026-12-31#12:10", "2026-12-31T12:05:00.001Z"),
        ("2026-12-31#12:10", None, "2026-12-31#12:10", "2026-12-31T12:10:00Z"),
        # dueAt says which second of the bucket's interval was meant, if it lies there
        ("2026-12-31#12:10", "2026-12-31T13:07:30+01:00", "2026-12-31#12:10", "2026-12-31T12:07:30Z"),
        ("2026-12-31#12:10", Decimal(1_798_718_850), "2026-12-31#12:10", "2026-12-31T12:07:30Z"),
        ("2026-12-31#12:10", "2026-12-31#12:08", "2026-12-31#12:10", "2026-12-31T12:08:00Z"),
        ("2026-12-31#12:08", "2026-12-31T12:09:30Z", "2026-12-31#12:10", "2026-12-31T12:09:30Z"),
        ("2026-12-31#12:10", "2026-12-31T12:10:00Z", "2026-12-31#12:10", "2026-12-31T12:10:00Z"),
        # and otherwise the bucket is what counts
        ("2026-12-31#12:10", "2026-12-31T12:05:00Z", "2026-12-31#12:10", "2026-12-31T12:10:00Z"),
        ("2026-12-31#12:10", "2026-12-31T12:10:01Z", "2026-12-31#12:10", "2026-12-31T12:10:00Z"),
    ],
)
def test_a_time_off_the_grid_is_rounded_up_and_a_due_instant_of_its_tick_kept(
    time: str, due: object, bucket: str, kept: str
) -> None:
    done = after({"taskId": "raw", "taskDateTime": time, "dueAt": due}, grid=FIVE)
    assert (done["taskDateTime"], done["dueAt"]) == (bucket, kept)


@pytest.mark.parametrize(
    ("row", "bucket"),
    [
        # A query by the name of a bucket that was named must find the task.
        ({"taskDateTime": "2026-12-31#12:10"}, "2026-12-31#12:10"),
        ({"taskDateTime": "2026-12-31#12:10#2"}, "2026-12-31#12:10#2"),
        ({"dueAt": "2026-12-31#12:10"}, "2026-12-31#12:10"),
        # With any other time it is in its own shard.
        ({"taskDateTime": "2026-12-31T12:10:00Z"}, "2026-12-31#12:10#3"),
        ({"dueAt": "2026-12-31T12:10:00Z"}, "2026-12-31#12:10#3"),
        ({"delaySeconds": Decimal(570)}, "2026-12-31#12:10#3"),
    ],
)
def test_a_task_is_placed_into_the_shard_that_was_named_or_its_own(row: dict[str, object], bucket: str) -> None:
    """The assignment policy isn't called for a task with a time."""
    grid = Grid(shard_count=4)
    assert grid.shard_of("task-1") == 3
    done = after({"taskId": "task-1", **row}, grid=grid, defaults=assigned(AssertionError("called")))
    assert (done["taskDateTime"], done["status"]) == (bucket, "scheduled")


# -- the assignment policy -------------------------------------------------------------------------------------------


def assigned(answer: object) -> Defaults:
    def policy(*_: object) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return Defaults(assign=policy)


@pytest.mark.parametrize(
    ("answer", "bucket", "due"),
    [(None, "2026-12-31#12:05", "2026-12-31T12:00:30Z"),
     (NOW - timedelta(hours=2), "2026-12-31#10:05", "2026-12-31T10:00:30Z"),  # placement moves it
     ("2026-12-31T13:12:00+01:00", "2026-12-31#12:15", "2026-12-31T12:12:00Z")],  # generous
)  # fmt: skip
def test_the_assignment_policy_sets_the_due_instant(answer: object, bucket: str, due: str) -> None:
    done = after({"taskId": "raw"}, grid=FIVE, defaults=assigned(answer))
    assert (done["taskDateTime"], done["dueAt"], done["status"]) == (bucket, due, "scheduled")


@pytest.mark.parametrize(
    ("answer", "error"),
    [(ValueError("no quota left"),
         "taskDateTime: None is not accepted; the assignment policy raised ValueError: no quota left"),
     (SystemExit("no calendar"),
         "taskDateTime: None is not accepted; the assignment policy raised SystemExit: no calendar"),
     (CancelledError(), "taskDateTime: None is not accepted; the assignment policy raised CancelledError:"),
     (datetime(2027, 1, 1), "the assignment policy's answer: datetime.datetime(2027, 1, 1, 0, 0) is not accepted; "  # noqa: DTZ001
         "expected a datetime with a time zone"),
     (datetime.max.replace(tzinfo=UTC), "the assignment policy's answer: "),
     ("soon", "the assignment policy's answer: 'soon' is not accepted"),
     (timedelta(minutes=5), "the assignment policy's answer: datetime.timedelta(seconds=300) is not accepted")],
)  # fmt: skip
def test_a_failing_assignment_policy_fails_only_its_task(answer: object, error: str) -> None:
    done = after({"taskId": "raw"}, defaults=assigned(answer))
    assert done["outcome"] == "failed"
    assert str(done["error"]).startswith(error)


def test_who_interrupts_an_assignment_policy_ends_more_than_its_task() -> None:
    with pytest.raises(KeyboardInterrupt):
        after({"taskId": "raw"}, defaults=assigned(KeyboardInterrupt()))


def test_the_assignment_policy_gets_the_task() -> None:
    seen: list[Any] = []
    row = {"taskId": "raw", "payload": {"a": "b"}, "colour": "blue"}
    after(row, grid=FIVE, defaults=Defaults(action="mail", assign=lambda *given_: seen.append(given_)))
    ((task, now, grid),) = seen
    assert (task.task_id, task.action, task.payload, now, grid) == ("raw", "mail", {"a": "b"}, NOW, FIVE)
    assert task.attributes == row


def test_normalising_removes_the_attributes_of_a_past_run_and_keeps_values_that_are_right() -> None:
    past = {
        "expiresAt": Decimal(1_700_000_000), "finishedAt": "2026-12-01T00:00:00Z", "lease": "x", "leaseUntil": "x",
        "startedAt": "x", "attempts": [{"run": Decimal(1)}], "result": {"n": Decimal(1)}, "error": "x", "movedTo": "x",
    }  # fmt: skip
    done = after({"taskId": "raw", **past, "payload": {"a": "b"}})
    assert (set(past) & set(done), done["payload"]) == (set(), {"a": "b"})
    row = {"taskId": "raw", "taskDateTime": "2026-12-31#12:05", "dueAt": "2026-12-31T12:05:00Z", "action": "log"}
    change = normalise(row, now=NOW, grid=MINUTE, defaults=Defaults())
    assert (set(change.set), change.remove) == ({"status", "attempt", "run", "createdAt"}, ())
    of_the_client = scheduled_row("raw", Bucket.parse("2026-12-31#12:05"))
    assert normalise(of_the_client, now=NOW, grid=MINUTE, defaults=Defaults()).set == {}


@pytest.mark.parametrize(
    ("status", "given_", "run"),
    [(None, None, 1),
     (None, Decimal(9), 1),  # a copy of some row
     ("scheduled", Decimal(9), 9),  # a task that is a task already keeps its run
     *(("scheduled", wrong, 1) for wrong in (Decimal(0), Decimal("1.5"), Decimal("1E+125"), True, "9"))],
)  # fmt: skip
def test_a_task_keeps_its_run_and_a_raw_row_begins_at_1(status: str | None, given_: object, run: int) -> None:
    assert Task.from_row(after({"taskId": "raw", "status": status, "run": given_})).run == run


@pytest.mark.parametrize("status", [{}, {"status": "scheduled"}])
@pytest.mark.parametrize("value", ["2026-12-30T00:00:00+01:00", "yesterday", {"a": "b"}])
def test_created_at_is_the_instant_of_normalising(value: object, status: dict[str, object]) -> None:
    """The idempotency key contains it: a copy of a row must get another one."""
    done = after({"taskId": "raw", "createdAt": value, **status})
    assert done["createdAt"] == "2026-12-31T12:00:30Z"
    assert Task.from_row(done).idempotency_key == "raw#1798718430000-1"


@pytest.mark.parametrize(
    ("row", "needs"),
    [
        ({}, True), ({"status": None}, True), ({"status": "scheduled", "attempt": Decimal(0)}, False),
        ({"status": "scheduled", "attempt": Decimal(3)}, False), ({"status": "scheduled"}, True),
        # a status from hand, without what a claim needs; the last could not be counted up
        *(({"status": "scheduled", "attempt": attempt}, True)
          for attempt in ("0", None, False, Decimal(-1), Decimal("0.5"), Decimal("1E+125"))),
        # an outcome that says nothing; the index, and the condition of a claim, take it for an end
        ({"outcome": None}, True), ({"status": "scheduled", "attempt": Decimal(0), "outcome": None}, False),
        ({"outcome": "failed"}, False), ({"status": "running"}, False), ({"status": ["scheduled"]}, False),
    ],
)  # fmt: skip
def test_which_rows_need_normalising(row: dict[str, object], needs: bool) -> None:
    assert needs_normalising({"taskId": "raw", **row}) is needs


EDITED = [
    {"status": "running"}, {"outcome": "cancelled"}, {"action": "other"}, {"delaySeconds": Decimal(1)},
    {"taskDateTime": "2026-12-31#14:00"}, {"dueAt": "2026-12-31T14:00:00Z"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "edit"),
    [*(({}, edit) for edit in EDITED), *(({"taskDateTime": "2026-12-31#13:01"}, edit) for edit in EDITED),
     ({"payload": "not a map"}, {"action": "other"}),
     ({"timeoutSeconds": Decimal(0)}, {"timeoutSeconds": Decimal(60)})],  # a correction of what was refused
)  # fmt: skip
def test_a_row_that_was_changed_meanwhile_is_not_overwritten(row: Row, edit: Row) -> None:
    if "taskDateTime" in row:
        row = OLD | row
        change = derive(OLD, row)
        assert change is not None
    else:
        row = {"taskId": "t", **row}
        change = normalise(row, now=NOW, grid=MINUTE, defaults=Defaults())
    store = MemoryStore()
    assert isinstance(store.write(change), Lost), "a row that was deleted meanwhile stays deleted"
    store.put({**row, **edit})
    assert isinstance(store.write(change), Lost)


# -- rejections ------------------------------------------------------------------------------------------------------


def test_a_row_with_an_id_too_long_for_the_index_fails_without_a_bucket() -> None:
    """DynamoDB accepts the row only without taskDateTime, because the index key has at most 1,024 bytes."""
    done = after({"taskId": "x" * 1025, "payload": {"a": "b"}})
    assert (done["outcome"], "taskDateTime" in done) == ("failed", False)
    assert str(done["error"]).startswith("taskId: 'xxx")
    assert "expected at most 1024 bytes in UTF-8, this has 1025" in str(done["error"])
    row = {**scheduled_row("x" * 1025, Bucket(0)), "payload": {"k": "x" * 400_000}}
    rejection = reject(row, "too large", now=NOW, grid=MINUTE, retention_days=1)
    bare = without_large_values(rejection, row)
    assert ("taskDateTime" in rejection.remove, bare.remove) == (True, ("payload", "taskDateTime"))
    assert "taskDateTime" not in {*rejection.set, *bare.set}


FULL = 400 * 1024
BULK: dict[str, dict[str, object]] = {
    "many attributes of the user's own": {f"a{n:05d}": "x" * 34 for n in range((FULL - 40) // 40)},
    "an attribute of ours, with something else in it": {"action": "x" * (FULL - 40)},
    "another": {"retryPolicy": {"x" * (FULL - 40): Decimal(1)}},
    "notes of attempts": {"attempts": [{"error": "x" * (FULL - 60)}]},
}


@pytest.mark.parametrize("name", BULK)
def test_a_rejection_without_large_values_fits_a_full_row(name: str) -> None:
    store = MemoryStore()
    row = {"taskId": "raw", "colour": "blue", **BULK[name]}
    store.put(row)
    rejection = reject(row, "too large", now=NOW, grid=MINUTE, retention_days=1)
    refused = store.write(rejection)
    if name != "notes of attempts":  # which a rejection drops anyway
        assert isinstance(refused, Unknown)
        assert refused.too_large
        assert isinstance(store.write(without_large_values(rejection, row)), Written)
    done = store.get("raw") or {}
    assert (done["outcome"], done["error"], done["taskDateTime"]) == ("failed", "too large", "2026-12-31#12:01")
    assert done.get("colour") == "blue", "what is small stays"


def test_only_the_values_that_make_a_row_too_large_are_dropped() -> None:
    row = {**scheduled_row("raw", Bucket(0)), "payload": {"k": "x" * 400_000}, "blob": "x" * 5_000, "colour": "blue"}
    rejection = reject(row, "too large", now=NOW, grid=MINUTE, retention_days=1)
    change = without_large_values(rejection, row)
    assert (change.remove, change.conditions) == (("payload",), rejection.conditions)
    assert change.set["taskDateTime"] == "2026-12-31#12:01"
    record = complete(Task.from_row(row | {"lease": "x"}), now=NOW, retention_days=1, result={"k": "v"})
    assert set(without_large_values(record, row).set) == {"status", "outcome", "finishedAt", "expiresAt"}


times = st.one_of(
    st.none(), st.text(max_size=20), st.integers(0, 4_000_000_000).map(Decimal), near_instants.map(format_instant),
    st.builds(lambda m, k: str(Bucket(29_978_640 + m, k)), st.integers(-3000, 3000), st.integers(0, 5)),
    st.booleans(), st.lists(st.text(max_size=3), max_size=2),
)  # fmt: skip
odd = st.one_of(
    st.none(), st.booleans(), st.text(max_size=10), st.integers(-5, 10**9).map(Decimal),
    st.lists(st.integers(0, 9).map(Decimal), max_size=2),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    st.sampled_from(["scheduled", "running", "log", Decimal("1E+120"), Decimal("0.5"), Binary(b"x"), {"a", "b"}]),
)  # fmt: skip
named_times = times.filter(lambda value: isinstance(value, str) and value != "")
"""All that a table takes as the key of an index."""

rows = st.fixed_dictionaries(
    {"taskId": task_ids},
    optional={
        "taskDateTime": named_times, "dueAt": times, "delaySeconds": st.one_of(times, odd),
        "status": st.sampled_from([None, "scheduled"]),
        **dict.fromkeys(("action", "payload", "retryPolicy", "run", "attempt", "createdAt"), odd),
        **dict.fromkeys(("scheduleId", "expiresAt", "attempts", "colour"), odd),
    },
)  # fmt: skip


@given(rows, grids)
def test_any_row_becomes_a_task_or_fails_and_normalising_again_changes_nothing(row: Row, grid: Grid) -> None:
    done = after(row, grid=grid)
    if done.get("outcome") is not None:
        assert done["outcome"] == done["status"] == "failed"
        assert done["error"]
        assert not needs_normalising(done)
        return
    task = Task.from_row(done)
    assert task.bucket.minute % grid.tick_minutes == 0
    assert grid.tick_at_or_after(task.due_at) <= task.bucket.minute, "never early"
    assert task.bucket.instant - task.due_at <= timedelta(minutes=2 * grid.tick_minutes)
    assert (task.attempt, done["status"]) == (0, "scheduled")
    again = normalise(done, now=NOW + timedelta(hours=1), grid=grid, defaults=Defaults())
    assert not set(again.set) - {"dueAt"}, "the same row again says the same"
    assert again.remove == ()


# -- a time that a user changes is derived again -----------------------------------------------------------------------

BUCKET = Bucket.parse("2026-12-31#12:30")
OLD = scheduled_row("t", BUCKET)


def derive(old: Row, new: Row, grid: Grid = FIVE, now: datetime = NOW) -> ConditionalUpdate | None:
    return rederive(old, new, now=now, grid=grid, defaults=Defaults())


def derived(old: Row, new: Row, grid: Grid = FIVE) -> Row:
    """The new row with its derived time; it has one, and our own write is no edit that has another."""
    row = written(derive(old, new, grid), new)
    assert derive(new, row, grid, NOW + timedelta(hours=1)) is None
    return row


EDITS = [
    # what was edited, the bucket and the due instant that follow
    ({"taskDateTime": "2026-12-31#13:01"}, "2026-12-31#13:05", "2026-12-31T13:01:00Z"),  # off the grid
    ({"taskDateTime": "2026-12-31T14:01:00+01:00"}, "2026-12-31#13:05", "2026-12-31T13:01:00Z"),  # an instant
    ({"taskDateTime": "2026-12-31#12:05"}, "2026-12-31#12:05", "2026-12-31T12:05:00Z"),  # earlier
    ({"taskDateTime": "2026-12-30#12:05"}, "2026-12-30#12:05", "2026-12-30T12:05:00Z"),  # past
    ({"dueAt": "2026-12-31T13:07:30Z"}, "2026-12-31#13:10", "2026-12-31T13:07:30Z"),
    ({"dueAt": None, "delaySeconds": Decimal(600)}, "2026-12-31#12:15", "2026-12-31T12:10:30Z"),
    ({"delaySeconds": Decimal(600)}, "2026-12-31#12:15", "2026-12-31T12:10:30Z"),
    ({"taskDateTime": "2026-12-31#13:00", "dueAt": "2027-01-01T00:00:00Z"}, "2026-12-31#13:00", "2026-12-31T13:00:00Z"),
    # the due instant's notation, not its tick
    ({"dueAt": "2026-12-31T13:29:00+01:00"}, "2026-12-31#12:30", "2026-12-31T12:29:00Z"),
]


@pytest.mark.parametrize(("edit", "bucket", "due"), EDITS)
def test_a_time_changed_by_a_user_moves_the_task(edit: dict[str, object], bucket: str, due: str) -> None:
    row = derived(OLD, {**OLD, **edit})
    assert (row["taskDateTime"], row["dueAt"], row["status"]) == (bucket, due, "scheduled")
    assert (row["attempt"], row["run"]) == (0, 1)


LEFT_ALONE: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "nothing": ({}, {}),
    "the payload": ({}, {"payload": {"a": "b"}}),
    "bucket and due instant, together": ({}, {"taskDateTime": "2026-12-31#13:10", "dueAt": "2026-12-31T13:07:30Z"}),
    "a due instant of the same tick": ({}, {"dueAt": "2026-12-31T12:28:00Z"}),
    "the bucket is gone: it is normalised": ({}, {"taskDateTime": None}),
    "the due instant is gone": ({}, {"dueAt": None}),
    "an unscheduled row": ({"status": None}, {"taskDateTime": "2026-12-31#13:00"}),
    "a running row": ({"status": "running"}, {"status": "running", "taskDateTime": "2026-12-31#13:00"}),
    "a row that has ended": ({}, {"status": "cancelled", "outcome": "cancelled", "taskDateTime": "2026-12-31#13:00"}),
    "a redriven one": ({"status": "failed", "outcome": "failed"}, {"taskDateTime": "2026-12-31#13:00"}),
    "a placed one": ({}, {"taskDateTime": "2026-12-31#12:35", "movedTo": "2026-12-31#12:35"}),
}


@pytest.mark.parametrize(("before", "edit"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_rederive_returns_none_for_a_row_that_is_right(before: dict[str, object], edit: dict[str, object]) -> None:
    old = {name: value for name, value in {**OLD, **before}.items() if value is not None}
    new = {name: value for name, value in {**OLD, **edit}.items() if value is not None}
    assert derive(old, new) is None


OTHER = Bucket.parse("2026-12-31#12:35")
RUNNING = {**OLD, "status": "running", "lease": "x", "leaseUntil": "2026-12-31T13:00:00Z", "attempt": Decimal(1)}
MOVES = {
    "of a retry": (RUNNING, retry(Task.from_row(RUNNING), now=NOW, at=OTHER.instant, bucket=OTHER, error="x")),
    "of a placement": (OLD, move(OLD, OTHER)),
    "of a reschedule": (OLD, reschedule(OLD, bucket=OTHER, due_at=OTHER.instant - timedelta(seconds=30))),
}


@pytest.mark.parametrize("name", MOVES)
def test_a_move_of_our_own_is_not_derived_again(name: str) -> None:
    old, change = MOVES[name]
    new = written(change, old)
    assert new["taskDateTime"] == str(OTHER)
    assert derive(old, new) is None
    if name != "of a reschedule":
        assert new["dueAt"] == OLD["dueAt"], "lateness is measured from what was asked for"
    row = derived(new, {**new, "taskDateTime": "2026-12-31#18:00"})
    assert (row["taskDateTime"], row["dueAt"]) == ("2026-12-31#18:00", "2026-12-31T18:00:00Z")


@pytest.mark.parametrize(
    ("edit", "bucket"),
    [({"dueAt": "2026-12-31T13:07:30Z"}, "2026-12-31#13:10"), ({"dueAt": "2026-12-31T12:34:00Z"}, str(OTHER)),
     ({"taskDateTime": "2026-12-31#13:00"}, "2026-12-31#13:00"), ({"delaySeconds": Decimal(600)}, "2026-12-31#12:15")],
)  # fmt: skip
def test_a_time_changed_by_a_user_counts_instead_of_the_backoff(edit: dict[str, object], bucket: str) -> None:
    waiting = written(MOVES["of a retry"][1], RUNNING)
    row = derived(waiting, {**waiting, **edit})
    assert (row["taskDateTime"], "nextAttemptAt" in row) == (bucket, False)


def test_a_time_changed_to_a_malformed_one_fails_the_task_with_the_reason() -> None:
    row = derived(OLD, {**OLD, "dueAt": "2027-02-01T12:00:00"})
    assert (row["status"], row["outcome"], row["taskDateTime"]) == ("failed", "failed", "2026-12-31#12:05")
    assert str(row["error"]).startswith("dueAt: '2027-02-01T12:00:00' is not accepted; its offset from UTC is missing")


def test_rederive_removes_expires_at_from_a_scheduled_row() -> None:
    """DynamoDB would delete the task before it has run."""
    expiring = {**OLD, "expiresAt": Decimal(1_800_000_000)}
    assert derived(OLD, expiring) == OLD
    row = derived(OLD, {**expiring, "taskDateTime": "2026-12-31#13:00"})
    assert row == {**OLD, "taskDateTime": "2026-12-31#13:00", "dueAt": "2026-12-31T13:00:00Z"}, "both in one update"


edits = st.fixed_dictionaries(
    {},
    optional={
        "taskDateTime": st.none() | named_times, "dueAt": times,
        "delaySeconds": st.integers(-5, 10_000).map(Decimal), "expiresAt": st.just(Decimal(1_800_000_000)),
        "payload": st.just({"a": "b"}),
    },
)  # fmt: skip


@given(st.integers(0, 3000), edits, grids)
def test_a_derived_time_is_not_derived_again(later: int, edit: dict[str, object], grid: Grid) -> None:
    """The stream record of Dynatick's own write must not count as another change."""
    due = NOW + timedelta(minutes=later)
    put = {"taskId": "t", "dueAt": format_instant(due)}
    old = written(normalise(put, now=NOW, grid=grid, defaults=Defaults()), put)
    new = {name: value for name, value in {**old, **edit}.items() if value is not None}
    change = derive(old, new, grid)
    if change is None:
        return
    row = derived(old, new, grid)
    if "outcome" not in row:
        assert "expiresAt" not in row
        assert "taskDateTime" not in change.set or Task.from_row(row).bucket.minute % grid.tick_minutes == 0


# -- misspelt names of times: such a task would run at once ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "right"),
    [("due_at", "dueAt"), ("DUE-AT", "dueAt"), ("run_at", "dueAt"), ("scheduledFor", "dueAt"), ("due", "dueAt"),
     ("dueaAt", "dueAt"), ("duAt", "dueAt"),
     ("taskDateTme", "taskDateTime"), ("TaskDatetimes", "taskDateTime"), ("bucket", "taskDateTime"),
     ("delay", "delaySeconds"), ("schedule_expression", "scheduleExpression"), ("cron", "scheduleExpression"),
     ("CronExpression", "cronExpression")],
)  # fmt: skip
def test_a_misspelt_name_is_refused_with_the_right_name(name: str, right: str) -> None:
    assert right_name(name) == right
    with pytest.raises(InvalidInput, match=f"{name}: 'x' .*{right}"):
        check_names({"taskId": "t", name: "x"})


@pytest.mark.parametrize(
    "name",
    [
        *TIMES,
        "customer",
        "order",
        "date",
        "time",
        "runtime",
        "dues",
        "dueTo",
        "doneAt",
        "duration",
        "task",
        "schedule",
        "",
    ],
)
def test_other_names_are_accepted(name: str) -> None:
    assert right_name(name) is None


def test_only_the_given_names_within_the_limits_are_checked_and_only_without_a_time() -> None:
    check_names({"taskId": "t", "due_at": "x"}, ["customer"])
    check_names({**{f"n{n}": 1 for n in range(100)}, "due_at": "x"})
    check_names({"due_at" + "_" * 40: "x"})
    for right in TIMES:
        check_names({"taskId": "t", right: "2026-12-31#12:00", "due_at": "x"})
        with pytest.raises(InvalidInput):
            check_names({"taskId": "t", right: None, "due_at": "x"})


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("timezone", "scheduleExpressionTimezone"), ("ScheduleExpressionTimeZone", "scheduleExpressionTimezone"),
        ("start_date", "startDate"), ("EndDate", "endDate"), ("flexible-time-window", "flexibleTimeWindow"),
        ("schedulestate", "scheduleState"), ("catchup", "catchUp"), ("overLap", "overlap"),
        ("expected_within_seconds", "expectedWithinSeconds"),
    ],
)  # fmt: skip
def test_a_misspelt_attribute_of_a_schedule_is_refused_unless_it_has_the_right_one(name: str, right: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name}: 'x' .*expected {right}"):
        check_schedule_names({"taskId": "s", name: "x"})
    check_schedule_names({"taskId": "s", name: "x", right: "y"})
    check_schedule_names({"taskId": "s", name: None, right: "y"})


def test_other_names_of_a_schedules_attributes_are_accepted() -> None:
    check_schedule_names(dict.fromkeys(("scheduleState", "state", "zone", "start", "window", "overlaps", "team"), "x"))
