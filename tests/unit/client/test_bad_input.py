"""Bad input at the Python door: each case with the message that it gives. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from tests.builders import InProcess

from dynatick import DynatickError, InvalidInput, MemoryStore, TaskClient
from dynatick.client import NewTask, Refused
from dynatick.client.connect import ClientSettings

TIME = (
    "expected a bucket such as 2026-12-31#12:00, or an instant with its offset, such as 2026-12-31T12:07:00Z or "
    "2026-12-31T13:07:00+01:00, or epoch seconds as a number"
)
SECONDS = "expected a number of seconds from 0 to 316224000"
NAIVE = datetime(2026, 12, 31, 12, 7)  # noqa: DTZ001 - what this is about


def deep(levels: int) -> dict[str, object]:
    value: object = 1
    for _ in range(levels):
        value = {"in": value}
    assert isinstance(value, dict)
    return value


INSERTS: list[tuple[dict[str, object], str, str]] = [
    # the id
    ({"taskId": ""}, "taskId", "'' is not accepted; expected a text that is not empty"),
    ({"taskId": 7}, "taskId", "7 is not accepted; expected a text that is not empty"),
    ({}, "taskId", "None is not accepted; expected a text that is not empty"),
    ({"taskId": "_dynatick#x"}, "taskId",
     "'_dynatick#x' is not accepted; ids beginning with _dynatick# are reserved; choose another"),
    ({"taskId": "i" * 1025}, "taskId",
     f"'{'i' * 119}… (1027 characters) is not accepted; expected at most 1024 bytes in UTF-8, this has 1025"),
    ({"taskId": "\ud800"}, "taskId",
     "'\\ud800' is not accepted; expected text that UTF-8 can hold (no lone surrogates)"),
    # the time
    ({"taskDateTime": "12:07"}, "taskDateTime", f"'12:07' is not accepted; {TIME}"),
    ({"dueAt": "tomorrow"}, "dueAt", f"'tomorrow' is not accepted; {TIME}"),
    ({"dueAt": "2026-12-31T12:07:00"}, "dueAt",
     f"'2026-12-31T12:07:00' is not accepted; its offset from UTC is missing; {TIME}"),
    (
        {"dueAt": NAIVE},
        "dueAt",
        "datetime.datetime(2026, 12, 31, 12, 7) is not accepted; "
        "expected a datetime with a time zone, for instance datetime.now(UTC)",
    ),
    ({"dueAt": "2027-02-31T12:00:00Z"}, "dueAt",
     f"'2027-02-31T12:00:00Z' is not accepted; there is no such time (day is out of range for month); {TIME}"),
    ({"dueAt": "2026-12-31T24:00:00Z"}, "dueAt",
     f"'2026-12-31T24:00:00Z' is not accepted; there is no such time (hour must be in 0..23); {TIME}"),
    ({"taskDateTime": "2026-12-31#24:00"}, "taskDateTime",
     f"'2026-12-31#24:00' is not accepted; there is no such time (hour must be in 0..23); {TIME}"),
    ({"taskDateTime": "2026-12-31#12:00#0"}, "taskDateTime",
     "'2026-12-31#12:00#0' is not accepted; expected a bucket such as 2026-12-31#12:00 or 2026-12-31#12:00#3"),
    ({"taskDateTime": "2026-12-31#13:00#9"}, "taskDateTime",
     "'#9' is not accepted; there is no such shard; expected a bucket without a shard"),
    ({"dueAt": -1}, "dueAt", "-1 is not accepted; expected a time between 1970 and 9998"),
    ({"dueAt": 1e30}, "dueAt", f"1e+30 is not accepted; {TIME}"),
    ({"dueAt": float("nan")}, "dueAt", f"nan is not accepted; {TIME}"),
    ({"dueAt": Decimal("NaN")}, "dueAt", "NaN is not accepted; expected a finite number"),
    ({"dueAt": True}, "dueAt", f"True is not accepted; {TIME}"),
    ({"dueAt": ["2026-12-31T12:00:00Z"]}, "dueAt", f"['2026-12-31T12:00:00Z'] is not accepted; {TIME}"),
    ({"delaySeconds": -1}, "delaySeconds", f"-1 is not accepted; {SECONDS}"),
    ({"delaySeconds": float("inf")}, "delaySeconds", f"inf is not accepted; {SECONDS}"),
    ({"delaySeconds": Decimal("NaN")}, "delaySeconds", "NaN is not accepted; expected a finite number"),
    ({"delaySeconds": "5"}, "delaySeconds", f"'5' is not accepted; {SECONDS}"),
    ({"delaySeconds": timedelta(5)}, "delaySeconds", f"datetime.timedelta(days=5) is not accepted; {SECONDS}"),
    ({"dueAt": 5, "delaySeconds": 5}, "delaySeconds",
     "5 is not accepted; expected one time only, and there is dueAt too"),
    ({"taskDateTime": "2026-12-31#12:00", "dueAt": "2026-12-31T12:00:00Z"}, "dueAt",
     "'2026-12-31T12:00:00Z' is not accepted; expected one time only, and there is taskDateTime too"),
    # the action and its arguments
    ({"action": " "}, "action", "' ' is not accepted; expected the name of an action as text, such as log or webhook"),
    ({"action": 5}, "action", "5 is not accepted; expected the name of an action as text, such as log or webhook"),
    ({"payload": [1]}, "payload", "'a list' is not accepted; expected a map of names to values"),
    ({"payload": "x"}, "payload", "'a str' is not accepted; expected a map of names to values"),
    ({"payload": {1: 2}}, "payload", "1 is not accepted; expected names that are text"),
    ({"payload": {"a": {1: 2}}}, "payload.a", "1 is not accepted; expected names that are text"),
    ({"payload": {"": 2}}, "payload", "'' is not accepted; expected names that are not empty"),
    ({"payload": {"a": float("nan")}}, "payload.a", "nan is not accepted; expected a finite number"),
    ({"payload": {"a": ["\udfff"]}}, "payload.a[0]",
     "'\\udfff' is not accepted; expected text that UTF-8 can hold (no lone surrogates)"),
    ({"payload": {"a": set()}}, "payload.a", "set() is not accepted; expected a set that is not empty"),
    ({"payload": deep(32)}, "payload" + ".in" * 32,
     "'a deeper value' is not accepted; expected at most 31 lists and maps, one in another"),
    (
        {"payload": {"text": "x" * 400_000}},
        "payload",
        "'400022 bytes in all' is not accepted; "
        "expected an item of at most 393216 bytes; store the data in S3 and put its key here",
    ),
    # retries
    (
        {"retryPolicy": 3},
        "retryPolicy",
        "3 is not accepted; expected a map with any of maximumRetryAttempts, maximumEventAgeInSeconds, "
        "minBackoffSeconds, maxBackoffSeconds",
    ),
    ({"retryPolicy": {"maximumRetryAttempts": 186}}, "retryPolicy.maximumRetryAttempts",
     "186 is not accepted; expected a whole number from 0 to 185"),
    ({"retryPolicy": {"minBackoffSeconds": 60, "maxBackoffSeconds": 5}}, "retryPolicy.maxBackoffSeconds",
     "5 is not accepted; expected at least minBackoffSeconds, which is 60"),
    (
        {"retryPolicy": {"tries": 1}},
        "retryPolicy.tries",
        "1 is not accepted; there is no such setting; expected any of maximumRetryAttempts, "
        "maximumEventAgeInSeconds, minBackoffSeconds, maxBackoffSeconds",
    ),
    # how long it takes
    ({"timeoutSeconds": 0}, "timeoutSeconds", "0 is not accepted; expected a whole number of seconds from 1 to 900"),
    (
        {"timeoutSeconds": 901},
        "timeoutSeconds",
        "901 is not accepted; expected a whole number of seconds from 1 to 900",
    ),
    ({"timeoutSeconds": "60"}, "timeoutSeconds",
     "'60' is not accepted; expected a whole number of seconds from 1 to 900"),
    (
        {"timeoutSeconds": 0.5},
        "timeoutSeconds",
        "0.5 is not accepted; expected a whole number of seconds from 1 to 900",
    ),
    # other attributes
    ({"status": "scheduled"}, "status", "'scheduled' is not accepted; leave it out: it is set by Dynatick"),
    ({"outcome": "completed"}, "outcome", "'completed' is not accepted; leave it out: it is set by Dynatick"),
    ({"expiresAt": 5}, "expiresAt", "5 is not accepted; leave it out: it is set by Dynatick"),
    ({"scheduleExpression": "rate(1 hour)"}, "scheduleExpression",
     "'rate(1 hour)' is not accepted; a task runs once: leave it out, or insert it as a schedule"),
    ({"cronExpression": "rate(2 minutes)"}, "cronExpression",
     "'rate(2 minutes)' is not accepted; a task runs once: leave it out, or insert it as a schedule"),
    ({"": 1}, "attributes", "'' is not accepted; expected names that are text and not empty"),
    ({5: 1}, "attributes", "5 is not accepted; expected names that are text and not empty"),  # type: ignore[dict-item]
]  # fmt: skip


@pytest.fixture(params=[True, False], ids=["after the first tick", "before the first tick"])
def world(request: pytest.FixtureRequest) -> InProcess:
    world = InProcess()
    if request.param:
        world.tick()
    return world


@pytest.mark.parametrize(("row", "field", "message"), INSERTS)
def test_what_an_insert_refuses(world: InProcess, row: dict[str, object], field: str, message: str) -> None:
    client = TaskClient(world.store, clock=world.clock)
    task = row if "taskId" in row or not row else {"taskId": "x", **row}
    (result,) = client.insert_lazily([task])

    assert isinstance(result, Refused)
    assert str(result.error) == f"{field}: {message}"
    assert result.error.field == field
    assert world.store.get("x") is None


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (5, "task: 5 is not accepted; expected a NewTask, or a map with taskId"),
        (None, "task: None is not accepted; expected a NewTask, or a map with taskId"),
        (
            NewTask(task_id="x", attributes={"payload": {}}),
            "payload: {} is not accepted; it has an argument of its own",
        ),
        (
            NewTask(task_id="x", attributes=5),  # type: ignore[arg-type]
            "attributes: 5 is not accepted; expected a map of names to values",
        ),
    ],
)
def test_what_is_no_task(task: object, message: str) -> None:
    (result,) = TaskClient(MemoryStore()).insert_lazily([task])  # type: ignore[list-item]
    assert isinstance(result, Refused)
    assert str(result.error) == message


CALLS: list[tuple[Callable[[TaskClient], object], str]] = [
    (lambda c: c.get(""), "taskId: '' is not accepted; expected a text that is not empty"),
    (lambda c: c.get("_dynatick#settings"),
     "taskId: '_dynatick#settings' is not accepted; ids beginning with _dynatick# are reserved; choose another"),
    (lambda c: c.cancel("_dynatick#cursor#0"),
     "taskId: '_dynatick#cursor#0' is not accepted; ids beginning with _dynatick# are reserved; choose another"),
    (lambda c: c.cancel("x"), "taskId: there is no task 'x'"),
    (lambda c: c.redrive("x"), "taskId: there is no task 'x'"),
    (lambda c: c.run_now("x"), "taskId: there is no task 'x'"),
    (lambda c: c.get("x"), "taskId: there is no task 'x'"),
    (lambda c: c.reschedule("x", delay_seconds=5), "taskId: there is no task 'x'"),
    (lambda c: c.reschedule("x"),
     "taskDateTime: None is not accepted; expected a time: one of taskDateTime, dueAt, delaySeconds"),
    (
        lambda c: c.reschedule("x", due_at=NAIVE),
        "dueAt: datetime.datetime(2026, 12, 31, 12, 7) is not accepted; "
        "expected a datetime with a time zone, for instance datetime.now(UTC)",
    ),
    (lambda c: c.reschedule("x", due_at=5, delay_seconds=5),
     "delaySeconds: 5 is not accepted; expected one time only, and there is dueAt too"),
    (lambda c: c.reschedule("x", task_date_time="2026-12-31#12:30#1"),
     "taskDateTime: '#1' is not accepted; there is no such shard; expected a bucket without a shard"),
    (lambda c: c.history(), "bucket: None is not accepted; expected a bucket, or a range with start and end"),
    (lambda c: c.history(start="2026-12-31T12:00:00Z"),
     "bucket: None is not accepted; expected a bucket, or a range with start and end"),
    (lambda c: c.history("2026-12-31#12:00", start=5),
     "bucket: '2026-12-31#12:00' is not accepted; expected either a bucket or a range, not both"),
    (
        lambda c: c.history("2026-12-31T12:00:00Z"),
        "bucket: '2026-12-31T12:00:00Z' is not accepted; "
        "expected a bucket such as 2026-12-31#12:00 or 2026-12-31#12:00#3",
    ),
    (lambda c: c.history(start="2026-12-31T12:00:00Z", end="2026-12-31T12:00:00Z"),
     "end: '2026-12-31T12:00:00Z' is not accepted; expected a time later than start, 2026-12-31T12:00:00Z"),
    (lambda c: c.history(start="2026-12-01#00:00", end="2027-01-01#00:01"),
     "end: '2027-01-01#00:01' is not accepted; expected a range of at most 31 days: split it"),
    (lambda c: c.history(start="now", end="then"), f"start: 'now' is not accepted; {TIME}"),
    (lambda c: c.history("2026-12-31#12:00", status="done"),
     "status: 'done' is not accepted; expected one of scheduled, running, completed, failed, cancelled, unscheduled"),
    (lambda c: c.history("2026-12-31#12:00", limit=0), "limit: 0 is not accepted; expected a number from 1 to 1000"),
    (lambda c: c.history("2026-12-31#12:00", limit=1001),
     "limit: 1001 is not accepted; expected a number from 1 to 1000"),
    (lambda c: c.bucket_counts("12:00"),
     "bucket: '12:00' is not accepted; expected a bucket such as 2026-12-31#12:00 or 2026-12-31#12:00#3"),
    (lambda c: c.ticks(timedelta(days=8)),
     "last: '8 days, 0:00:00' is not accepted; expected a duration of at most 7 days"),
    (lambda c: c.ticks(timedelta()), "last: '0:00:00' is not accepted; expected a duration of at most 7 days"),
    (lambda c: c.ticks(start="2026-12-01T00:00:00Z"),
     "end: '2026-12-31 12:01:00+00:00' is not accepted; expected a range of at most 7 days"),
    (lambda c: c.ticks(end=5), "start: None is not accepted; expected a start with the end"),
    (lambda c: c.ticks(start=600, end=60), "end: '60' is not accepted; expected a time later than start, 600"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_what_other_calls_refuse(call: Callable[[TaskClient], object], message: str) -> None:
    world = InProcess()
    world.tick()
    with pytest.raises(DynatickError) as refused:
        call(TaskClient(world.store, clock=world.clock))
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "é",
        "bm9uc2Vuc2U",  # nonsense
        "e30",  # {}
        "W10",  # []
        "eyJidWNrZXQiOiIyMDI2LTEyLTMxIzEyOjAxIiwiYWZ0ZXIiOm51bGx9",  # another bucket
        "eyJidWNrZXQiOiIyMDI2LTEyLTMxIzEyOjAwIzEiLCJhZnRlciI6bnVsbH0",  # a shard that there is not
        "eyJidWNrZXQiOiIyMDI2LTEyLTMxIzEyOjAwIiwiYWZ0ZXIiOjV9",  # after 5
        "eyJidWNrZXQiOiIyMDI2LTEyLTMxIzEyOjAwIiwiYWZ0ZXIiOiIifQ",  # after nothing
        "eyJidWNrZXQiOiIyMDI2LTEyLTMxIzEyOjAwIiwiYWZ0ZXIiOiJcdWQ4MDAifQ",  # after a lone surrogate
        5,
    ],
)
def test_a_page_token_that_does_not_belong_here(token: object) -> None:
    with pytest.raises(InvalidInput, match="expected the token of the page before, with the same bucket or range"):
        TaskClient(MemoryStore()).history("2026-12-31#12:00", page_token=token)  # type: ignore[arg-type]


def test_an_unknown_action_is_refused_once_the_known_ones_are_known() -> None:
    world = InProcess()
    client = TaskClient(world.store, clock=world.clock)
    assert client.insert("early", action="nope").status == "unscheduled"
    world.next_tick()
    with pytest.raises(InvalidInput) as refused:
        client.insert("late", action="nope")
    assert str(refused.value) == "action: 'nope' is not accepted; expected one of log"


def test_checking_actions_can_be_turned_off() -> None:
    world = InProcess()
    world.tick()
    client = TaskClient(world.store, clock=world.clock, check_actions=False)
    assert client.insert("x", action="of-next-week").action == "of-next-week"


def test_a_table_must_be_named() -> None:
    with pytest.raises(DynatickError, match="DYNATICK_TABLE: it is not set, and no table was named"):
        ClientSettings.from_env({})


def test_an_aware_datetime_is_fine() -> None:
    client = TaskClient(MemoryStore(), clock=lambda: datetime(2026, 12, 31, tzinfo=UTC))
    assert client.insert("x", due_at=datetime(2027, 1, 1, tzinfo=UTC)).due_at == datetime(2027, 1, 1, tzinfo=UTC)
