"""Normalising: a raw row becomes a scheduled task in its bucket, or fails with the reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from boto3.dynamodb.types import Binary
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import NOON, scheduled_row
from tests.unit.domain.strategies import grids, near_instants, task_ids
from tests.unit.domain.support import written

from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import Lost, Unknown, Written
from dynatick.domain.instants import format_instant
from dynatick.domain.lifecycle import complete
from dynatick.domain.normalise import (
    MAX_DELAY_SECONDS,
    Defaults,
    Unassigned,
    needs_normalising,
    normalise,
    reject,
    task_time,
    without_large_values,
)
from dynatick.domain.task import Row, Task
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

RAW = [
    # name, row, bucket, due at
    ("nothing but an id", {}, "2026-12-31#12:01", "2026-12-31T12:00:30Z"),
    ("time on the grid", {"taskDateTime": "2026-12-31#12:01", "action": "log", "payload": {"leadSourceId": "20"}},
        "2026-12-31#12:01", "2026-12-31T12:01:00Z"),
    ("ISO time with offset in taskDateTime", {"taskDateTime": "2026-12-31T13:01:20+01:00", "action": "log"},
        "2026-12-31#12:02", "2026-12-31T12:01:20Z"),
    ("due instant, seconds kept", {"dueAt": "2026-12-31T12:01:15Z", "action": "no-such-action"}, "2026-12-31#12:02",
        "2026-12-31T12:01:15Z"),
    ("due instant as epoch seconds", {"dueAt": Decimal(1_798_718_475)}, "2026-12-31#12:02", "2026-12-31T12:01:15Z"),
    ("delay", {"delaySeconds": Decimal(30), "action": "log"}, "2026-12-31#12:01", "2026-12-31T12:01:00Z"),
    # What is past stays where it is; settling moves it (protocol 5).
    ("in the past", {"taskDateTime": "2026-12-30#12:00"}, "2026-12-30#12:00", "2026-12-30T12:00:00Z"),
    ("binary and nested payload", {"payload": {"b": Binary(b"\x00\x01\x02\xff"), "n": None, "s": {"a", "b"},
        "deep": {"x": [Decimal("1.50"), False]}}}, "2026-12-31#12:01", "2026-12-31T12:00:30Z"),
    ("a bucket in dueAt", {"dueAt": "2026-12-31#12:30"}, "2026-12-31#12:30", "2026-12-31T12:30:00Z"),
    ("half a second's delay", {"delaySeconds": Decimal("30.5")}, "2026-12-31#12:02", "2026-12-31T12:01:00.500Z"),
    ("a time, and a delay too", {"dueAt": "2026-12-31T12:05:00Z", "delaySeconds": Decimal(3600)}, "2026-12-31#12:05",
        "2026-12-31T12:05:00Z"),
    ("every attribute is NULL", dict.fromkeys(("dueAt", "delaySeconds", "action", "payload", "status", "attempt",
        "run", "retryPolicy", "createdAt", "scheduleId", "outcome", "expiresAt", "attempts", "lease",
        "scheduleExpression")), "2026-12-31#12:01", "2026-12-31T12:00:30Z"),
    ("attributes of the user's own", {"colour": "blue", "taskid": "x", "Status": "mine"}, "2026-12-31#12:01",
        "2026-12-31T12:00:30Z"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "row", "bucket", "due"), RAW, ids=[name for name, *_ in RAW])
def test_a_raw_row_becomes_a_scheduled_task(name: str, row: dict[str, object], bucket: str, due: str) -> None:
    done = after({"taskId": "raw", **row})
    assert (done["taskDateTime"], done["dueAt"], done["status"]) == (bucket, due, "scheduled")
    assert (done["attempt"], done["run"], done["createdAt"]) == (0, 1, "2026-12-31T12:00:30Z")
    assert done["action"] == (row.get("action") or "log")
    assert "outcome" not in done
    assert "expiresAt" not in done
    task = Task.from_row(done)
    assert task.payload == decode(encode({"p": row.get("payload") or {}}))["p"]
    assert not needs_normalising(done)


REFUSED = [
    # name, row, what the error begins with
    ("not a time", {"taskDateTime": "tomorrow"}, "taskDateTime: 'tomorrow' is not accepted; expected a bucket such as"),
    ("no offset", {"dueAt": "2027-01-01T12:00:00"},
        "dueAt: '2027-01-01T12:00:00' is not accepted; its offset from UTC is missing"),
    ("wrong types", {"action": Decimal(7), "payload": "not a map"}, "action: 7 is not accepted; expected the name"),
    ("payload is no map", {"payload": "not a map"}, "payload: 'a str' is not accepted; expected a map"),
    ("a garbled dueAt beside a bucket", {"taskDateTime": "2026-12-31#12:05", "dueAt": "soon"},
        "dueAt: 'soon' is not accepted; expected a bucket such as"),
    ("a negative delay", {"delaySeconds": Decimal(-1)},
        "delaySeconds: -1 is not accepted; expected a number of seconds from 0 to 316224000"),
    ("a delay as text", {"delaySeconds": "30"}, "delaySeconds: '30' is not accepted; expected a number of seconds"),
    ("a delay that is a truth", {"delaySeconds": True}, "delaySeconds: True is not accepted; expected a number of"),
    ("an endless delay", {"delaySeconds": Decimal(MAX_DELAY_SECONDS + 1)}, "delaySeconds: 316224001 is not"),
    ("an empty action", {"action": ""}, "action: '' is not accepted; expected the name of an action"),
    ("a retry policy beyond bounds", {"retryPolicy": {"maximumRetryAttempts": Decimal(999)}},
        "retryPolicy.maximumRetryAttempts: 999 is not accepted; expected a whole number from 0 to 185"),
    ("a schedule id that is none", {"scheduleId": Decimal(7)}, "scheduleId: 7 is not accepted; expected text"),
    ("a timeout of nothing", {"timeoutSeconds": Decimal(0)},
        "timeoutSeconds: 0 is not accepted; expected a whole number of seconds from 1 to 900"),
    ("a recurring schedule", {"scheduleExpression": "rate(5 minutes)"},
        "scheduleExpression: 'rate(5 minutes)' is not accepted; a task runs once: leave it out"),
    ("a cron", {"cronExpression": "0 12 * * ? *"}, "cronExpression: '0 12 * * ? *' is not accepted; a task runs once"),
    ("a status of one's own", {"status": "waiting"}, "status: 'waiting' is not accepted; leave it out"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "row", "error"), REFUSED, ids=[name for name, *_ in REFUSED])
def test_a_malformed_row_is_marked_failed_with_the_reason(name: str, row: dict[str, object], error: str) -> None:
    done = after({"taskId": "raw", **row})
    assert (done["status"], done["outcome"]) == ("failed", "failed")
    assert str(done["error"]).startswith(error)
    assert done["taskDateTime"] == "2026-12-31#12:01", "listed in the current bucket, so that it is seen"
    assert (done["finishedAt"], done["expiresAt"]) == ("2026-12-31T12:00:30Z", int(NOW.timestamp()) + 30 * 86_400)
    kept = {name: value for name, value in row.items() if name not in ("taskDateTime", "status")}
    assert kept.items() <= done.items(), "the rest stays as it was put, to be looked at"


# -- rounding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "bucket", "due"),
    [
        ("2026-12-31#12:05", "2026-12-31#12:05", "2026-12-31T12:05:00Z"),
        ("2026-12-31#12:06", "2026-12-31#12:10", "2026-12-31T12:06:00Z"),  # off the grid: never early
        ("2026-12-31#23:58", "2027-01-01#00:00", "2026-12-31T23:58:00Z"),
        ("2026-12-31T12:05:00.001Z", "2026-12-31#12:10", "2026-12-31T12:05:00.001Z"),
    ],
)
def test_a_time_off_the_grid_is_rounded_up(given_: str, bucket: str, due: str) -> None:
    done = after({"taskId": "raw", "taskDateTime": given_}, grid=FIVE)
    assert (done["taskDateTime"], done["dueAt"]) == (bucket, due)


def test_a_task_without_a_time_is_placed_into_the_next_tick() -> None:
    """And never into one that is just now: at noon sharp the tick of noon may have ended before the row is seen."""
    assert after({"taskId": "raw"}, grid=FIVE)["taskDateTime"] == "2026-12-31#12:05"
    assert after({"taskId": "raw"}, grid=Grid(tick_minutes=1440))["taskDateTime"] == "2027-01-01#00:00"
    when = task_time({"taskId": "raw"}, now=NOON, grid=MINUTE, defaults=Defaults())
    assert str(when.bucket) == "2026-12-31#12:01"


@pytest.mark.parametrize(
    ("bucket", "due", "kept"),
    [
        # dueAt says which second of the bucket's interval was meant, if it lies there
        ("2026-12-31#12:10", "2026-12-31T12:07:30Z", "2026-12-31T12:07:30Z"),
        ("2026-12-31#12:10", "2026-12-31T13:07:30+01:00", "2026-12-31T12:07:30Z"),
        ("2026-12-31#12:10", Decimal(1_798_718_850), "2026-12-31T12:07:30Z"),
        ("2026-12-31#12:10", "2026-12-31#12:08", "2026-12-31T12:08:00Z"),
        ("2026-12-31#12:08", "2026-12-31T12:09:30Z", "2026-12-31T12:09:30Z"),  # both mean the tick of 12:10
        ("2026-12-31#12:10", "2026-12-31T12:10:00Z", "2026-12-31T12:10:00Z"),
        # and otherwise the bucket is what counts
        ("2026-12-31#12:10", "2026-12-31T12:05:00Z", "2026-12-31T12:10:00Z"),
        ("2026-12-31#12:10", "2026-12-31T12:10:01Z", "2026-12-31T12:10:00Z"),
        ("2026-12-31#12:10", "2027-12-31T12:10:00Z", "2026-12-31T12:10:00Z"),
        ("2026-12-31#12:10", None, "2026-12-31T12:10:00Z"),
    ],
)
def test_a_due_instant_beside_a_bucket_is_kept_or_replaced(bucket: str, due: object, kept: str) -> None:
    done = after({"taskId": "raw", "taskDateTime": bucket, "dueAt": due}, grid=FIVE)
    assert (done["taskDateTime"], done["dueAt"]) == ("2026-12-31#12:10", kept)


def test_an_instant_in_task_date_time_takes_precedence_over_due_at() -> None:
    done = after({"taskId": "raw", "taskDateTime": "2026-12-31T12:30:00Z", "dueAt": "2026-12-31T12:07:00Z"})
    assert (done["taskDateTime"], done["dueAt"]) == ("2026-12-31#12:30", "2026-12-31T12:30:00Z")


# -- shards ----------------------------------------------------------------------------------------------------------


def test_a_bucket_named_without_shard_stays_in_shard_0() -> None:
    """A query by that name must find it."""
    grid = Grid(shard_count=4)
    assert grid.shard_of("task-1") == 3
    row = {"taskId": "task-1", "taskDateTime": "2026-12-31#12:10"}
    assert after(row, grid=grid)["taskDateTime"] == "2026-12-31#12:10"
    assert after({**row, "taskDateTime": "2026-12-31#12:10#2"}, grid=grid)["taskDateTime"] == "2026-12-31#12:10#2"


@pytest.mark.parametrize(
    "row",
    [{"taskDateTime": "2026-12-31T12:10:00Z"}, {"dueAt": "2026-12-31T12:10:00Z"}, {"dueAt": "2026-12-31#12:10"},
     {"delaySeconds": Decimal(570)}],
)  # fmt: skip
def test_a_task_with_any_other_time_is_placed_into_its_shard(row: dict[str, object]) -> None:
    found = after({"taskId": "task-1", **row}, grid=Grid(shard_count=4))["taskDateTime"]
    assert found == ("2026-12-31#12:10" if row.get("dueAt") == "2026-12-31#12:10" else "2026-12-31#12:10#3")


# -- the assignment policy -------------------------------------------------------------------------------------------


def assigned(answer: object) -> Defaults:
    def policy(task: Unassigned, now: datetime, grid: Grid) -> datetime | None:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    return Defaults(assign=policy)


@pytest.mark.parametrize(
    ("answer", "bucket", "due"),
    [(None, "2026-12-31#12:05", "2026-12-31T12:00:30Z"),
     (NOW - timedelta(hours=2), "2026-12-31#10:05", "2026-12-31T10:00:30Z"),  # settling moves it
     ("2026-12-31T13:12:00+01:00", "2026-12-31#12:15", "2026-12-31T12:12:00Z")],  # generous
)  # fmt: skip
def test_the_assignment_policy_sets_the_due_instant(answer: object, bucket: str, due: str) -> None:
    done = after({"taskId": "raw"}, grid=FIVE, defaults=assigned(answer))
    assert (done["taskDateTime"], done["dueAt"], done["status"]) == (bucket, due, "scheduled")


@pytest.mark.parametrize(
    ("answer", "error"),
    [(ValueError("no quota left"),
         "taskDateTime: None is not accepted; the assignment policy raised ValueError: no quota left"),
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


def test_the_assignment_policy_gets_the_task() -> None:
    seen: list[tuple[Unassigned, datetime, Grid]] = []
    row = {"taskId": "raw", "payload": {"a": "b"}, "colour": "blue"}
    after(row, grid=FIVE, defaults=Defaults(action="mail", assign=lambda *given_: seen.append(given_)))
    ((task, now, grid),) = seen
    assert (task.task_id, task.action, task.payload, now, grid) == ("raw", "mail", {"a": "b"}, NOW, FIVE)
    assert task.attributes == row


@pytest.mark.parametrize(
    "row", [{"taskDateTime": "2026-12-31#12:10"}, {"dueAt": "2026-12-31T12:10:00Z"}, {"delaySeconds": Decimal(5)}]
)
def test_the_assignment_policy_is_not_called_for_a_task_with_a_time(row: dict[str, object]) -> None:
    assert after({"taskId": "raw", **row}, defaults=assigned(AssertionError("asked")))["status"] == "scheduled"


# -- what else is filled in, kept and taken away ---------------------------------------------------------------------


def test_normalising_removes_the_attributes_of_a_past_run() -> None:
    past = {
        "expiresAt": Decimal(1_700_000_000), "finishedAt": "2026-12-01T00:00:00Z", "lease": "x", "leaseUntil": "x",
        "startedAt": "x", "attempts": [{"run": Decimal(1)}], "result": {"n": Decimal(1)}, "error": "x", "movedTo": "x",
    }  # fmt: skip
    done = after({"taskId": "raw", **past, "payload": {"a": "b"}})
    assert not set(past) & set(done)
    assert done["payload"] == {"a": "b"}


def test_normalising_does_not_rewrite_values_that_are_right() -> None:
    row = {"taskId": "raw", "taskDateTime": "2026-12-31#12:05", "dueAt": "2026-12-31T12:05:00Z", "action": "log"}
    change = normalise(row, now=NOW, grid=MINUTE, defaults=Defaults())
    assert set(change.set) == {"status", "attempt", "run", "createdAt"}
    assert change.remove == ()
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


# -- which rows need it ----------------------------------------------------------------------------------------------


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


# -- the write -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "edit"),
    [*(({}, edit) for edit in ({"status": "running"}, {"outcome": "cancelled"}, {"action": "other"},
        {"taskDateTime": "2026-12-31#13:00"}, {"dueAt": "2026-12-31T13:00:00Z"}, {"delaySeconds": Decimal(1)})),
     ({"payload": "not a map"}, {"action": "other"}),
     ({"timeoutSeconds": Decimal(0)}, {"timeoutSeconds": Decimal(60)})],  # a correction of what was refused
)  # fmt: skip
def test_a_row_that_was_changed_meanwhile_is_not_overwritten(row: Row, edit: Row) -> None:
    change = normalise({"taskId": "raw", **row}, now=NOW, grid=MINUTE, defaults=Defaults())
    store = MemoryStore()
    assert isinstance(store.write(change), Lost), "a row that was deleted meanwhile stays deleted"
    store.put({"taskId": "raw", **row, **edit})
    assert isinstance(store.write(change), Lost)


# -- rejections ------------------------------------------------------------------------------------------------------


def test_a_row_with_an_id_too_long_for_the_index_fails_without_a_bucket() -> None:
    """DynamoDB accepts the row only without taskDateTime, because the index key has at most 1,024 bytes."""
    done = after({"taskId": "x" * 1025, "payload": {"a": "b"}})
    assert done["outcome"] == "failed"
    assert "taskDateTime" not in done
    assert str(done["error"]).startswith("taskId: 'xxx")
    assert "expected at most 1024 bytes in UTF-8, this has 1025" in str(done["error"])


def test_the_rejection_of_a_long_id_removes_its_bucket() -> None:
    row = {**scheduled_row("x" * 1025, Bucket(0)), "payload": {"k": "x" * 400_000}}
    rejection = reject(row, "too large", now=NOW, grid=MINUTE, retention_days=1)
    bare = without_large_values(rejection, row)
    assert ("taskDateTime" in rejection.remove, bare.remove) == (True, ("payload", "taskDateTime"))
    assert "taskDateTime" not in {*rejection.set, *bare.set}


def test_the_reason_of_a_rejection_is_bounded() -> None:
    done = after({"taskId": "raw", "dueAt": "x\n" * 1000})
    assert len(str(done["error"])) <= 300
    assert "\n" not in str(done["error"])


FULL = 400 * 1024
BULK = [
    ("payload", {"payload": {"k": "x" * (FULL - 40)}}),
    ("an attribute of the user's own", {"blob": "x" * (FULL - 40)}),
    ("many attributes of the user's own", {f"a{n:05d}": "x" * 34 for n in range((FULL - 40) // 40)}),
    ("an attribute of ours, with something else in it", {"action": "x" * (FULL - 40)}),
    ("another", {"retryPolicy": {"x" * (FULL - 40): Decimal(1)}}),
    ("notes of attempts", {"attempts": [{"error": "x" * (FULL - 60)}]}),
]


@pytest.mark.parametrize(("name", "bulk"), BULK, ids=[name for name, _ in BULK])
def test_a_rejection_without_large_values_fits_a_full_row(name: str, bulk: dict[str, object]) -> None:
    """A raw row of the maximum size is marked failed too, without its large values."""
    store = MemoryStore()
    row = {"taskId": "raw", "colour": "blue", **bulk}
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
    change = without_large_values(reject(row, "too large", now=NOW, grid=MINUTE, retention_days=1), row)
    assert change.remove == ("payload",)
    assert change.set["taskDateTime"] == "2026-12-31#12:01"
    task = Task.from_row(row | {"status": "running", "lease": "x", "attempt": 1})
    record = complete(task, now=NOW, retention_days=1, result={"k": "v"})
    assert set(without_large_values(record, row).set) == {"status", "outcome", "finishedAt", "expiresAt"}
    assert without_large_values(record, row).conditions == record.conditions


# -- properties ------------------------------------------------------------------------------------------------------

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
rows = st.fixed_dictionaries(
    {"taskId": task_ids},
    optional={
        "taskDateTime": times, "dueAt": times, "delaySeconds": st.one_of(times, odd),
        "status": st.sampled_from([None, "scheduled"]),
        **dict.fromkeys(("action", "payload", "retryPolicy", "run", "attempt", "createdAt"), odd),
        **dict.fromkeys(("scheduleId", "expiresAt", "attempts", "colour"), odd),
    },
)  # fmt: skip


@given(rows, grids)
def test_any_row_becomes_a_task_or_fails_and_normalising_again_changes_nothing(
    row: dict[str, object], grid: Grid
) -> None:
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
