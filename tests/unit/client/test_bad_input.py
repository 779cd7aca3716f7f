"""Bad input to the Python client: each case with the message that it gives. Nothing is written.

Which values are good is decided, and tested, in the domain: here one of each field shows that it is asked.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from tests.builders import NOON, InProcess

from dynatick import DynatickError, InvalidInput, MemoryStore, TaskClient
from dynatick.client import NewTask, Refused

TIME = (
    "expected a bucket such as 2026-12-31#12:00, or an instant with its offset, such as 2026-12-31T12:07:00Z or "
    "2026-12-31T13:07:00+01:00, or epoch seconds as a number"
)
SECONDS = "expected a number of seconds from 0 to 316224000"
SHIFT = "expected one time, or a shift that is not zero"
BUCKET_OR_RANGE = "bucket: None is not accepted; expected a bucket, or a range with start and end"
WAITING = "2026-12-31#13:00"
RESERVED = "ids beginning with _dynatick# are reserved; choose another"
NAIVE = datetime(2026, 12, 31, 12, 7)  # noqa: DTZ001 - what this is about

INSERTS: list[tuple[dict[str, object], str]] = [
    # the id
    ({}, "taskId: None is not accepted; expected a text that is not empty"),
    ({"taskId": ""}, "taskId: '' is not accepted; expected a text that is not empty"),
    ({"taskId": "_dynatick#x"}, f"taskId: '_dynatick#x' is not accepted; {RESERVED}"),
    # the time
    ({"taskDateTime": "12:07"}, f"taskDateTime: '12:07' is not accepted; {TIME}"),
    ({"dueAt": "tomorrow"}, f"dueAt: 'tomorrow' is not accepted; {TIME}"),
    ({"dueAt": NAIVE}, "dueAt: datetime.datetime(2026, 12, 31, 12, 7) is not accepted; expected a datetime with a time "
                       "zone, for instance datetime.now(UTC)"),
    ({"taskDateTime": "2026-12-31#13:00#9"},
     "taskDateTime: '#9' is not accepted; there is no such shard; expected a bucket without a shard"),
    ({"dueAt": Decimal("NaN")}, "dueAt: NaN is not accepted; expected a finite number"),
    ({"delaySeconds": -1}, f"delaySeconds: -1 is not accepted; {SECONDS}"),
    ({"dueAt": 5, "delaySeconds": 5},
     "delaySeconds: 5 is not accepted; expected one time only, and there is dueAt too"),
    # what it does, and how
    ({"action": " "}, "action: ' ' is not accepted; expected the name of an action as text, such as log or webhook"),
    ({"payload": [1]}, "payload: 'a list' is not accepted; expected a map of names to values"),
    ({"payload": {"a": ["\udfff"]}},
     "payload.a[0]: '\\udfff' is not accepted; expected text that UTF-8 can hold (no lone surrogates)"),
    ({"payload": {"text": "x" * 400_000}}, "payload: '400022 bytes in all' is not accepted; expected an item of at "
                                           "most 393216 bytes; store the data in S3 and put its key here"),
    ({"retryPolicy": {"maximumRetryAttempts": 186}},
     "retryPolicy.maximumRetryAttempts: 186 is not accepted; expected a whole number from 0 to 185"),
    ({"timeoutSeconds": 0}, "timeoutSeconds: 0 is not accepted; expected a whole number of seconds from 1 to 900"),
    # other attributes
    ({"status": "scheduled"}, "status: 'scheduled' is not accepted; leave it out: it is set by Dynatick"),
    ({"scheduleExpression": "rate(1 hour)"}, "scheduleExpression: 'rate(1 hour)' is not accepted; a task runs once: "
                                             "leave it out, or insert it as a schedule"),
    ({"": 1}, "attributes: '' is not accepted; expected names that are text and not empty"),
]  # fmt: skip


@pytest.mark.parametrize("ticks", [0, 1], ids=["before the first tick", "after the first tick"])
@pytest.mark.parametrize(("row", "message"), INSERTS)
def test_what_an_insert_refuses(row: dict[str, object], message: str, ticks: int) -> None:
    world = InProcess()
    world.ticks(ticks)
    client = TaskClient(world.store, clock=world.clock)
    (result,) = client.insert_lazily([row if "taskId" in row or not row else {"taskId": "x", **row}])
    assert isinstance(result, Refused)
    assert str(result.error) == message
    assert result.error.field == message.partition(":")[0]
    assert world.store.get("x") is None


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (5, "task: 5 is not accepted; expected a NewTask, or a map with taskId"),
        (
            NewTask(task_id="x", attributes={"payload": {}}),
            "payload: {} is not accepted; it has an argument of its own",
        ),
        (NewTask(task_id="x", attributes=5), "attributes: 5 is not accepted; expected a map of names to values"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_task(task: object, message: str) -> None:
    (result,) = TaskClient(MemoryStore()).insert_lazily([task])  # type: ignore[list-item]
    assert isinstance(result, Refused)
    assert str(result.error) == message


CALLS: list[tuple[Callable[[TaskClient], object], str]] = [
    (lambda c: c.get(""), "taskId: '' is not accepted; expected a text that is not empty"),
    (lambda c: c.get("_dynatick#settings"), f"taskId: '_dynatick#settings' is not accepted; {RESERVED}"),
    (lambda c: c.cancel("x"), "taskId: there is no task 'x'"),
    (lambda c: c.get("x"), "taskId: there is no task 'x'"),
    (lambda c: c.reschedule("x"),
     "taskDateTime: None is not accepted; expected a time: one of taskDateTime, dueAt, delaySeconds"),
    (lambda c: c.reschedule("x", due_at=NAIVE), "dueAt: datetime.datetime(2026, 12, 31, 12, 7) is not accepted; "
     "expected a datetime with a time zone, for instance datetime.now(UTC)"),
    (lambda c: c.cancel("_dynatick#cursor#0"), f"taskId: '_dynatick#cursor#0' is not accepted; {RESERVED}"),
    (lambda c: c.reschedule("x", task_date_time="2026-12-31#12:30#1"),
     "taskDateTime: '#1' is not accepted; there is no such shard; expected a bucket without a shard"),
    (lambda c: c.update("t"),
     "payload: None is not accepted; expected a change: payload, or one of taskDateTime, dueAt, delaySeconds"),
    (lambda c: c.update("t", due_at="noon"), f"dueAt: 'noon' is not accepted; {TIME}"),
    (lambda c: c.update("t", due_at=NOON, delay_seconds=3),
     "delaySeconds: 3 is not accepted; expected one time only, and there is dueAt too"),
    (lambda c: c.update("t", payload={"deep": {"": 1}}),
     "payload.deep: '' is not accepted; expected names that are not empty"),
    (lambda c: c.redrive_many(WAITING, status="running"),
     "status: 'running' is not accepted; expected one of failed, cancelled"),
    (lambda c: c.cancel_many(WAITING, start=NOON, end=NOON + timedelta(hours=1)),
     f"bucket: '{WAITING}' is not accepted; expected either a bucket or a range, not both"),
    *((lambda c, limit=limit: c.cancel_many(WAITING, limit=limit),
       f"limit: {limit!r} is not accepted; expected a number of at least 1") for limit in (0, True, 1.5)),
    (lambda c: c.reschedule_many(WAITING),
     "taskDateTime: None is not accepted; expected a time: one of taskDateTime, dueAt, delaySeconds"),
    (lambda c: c.reschedule_many(WAITING, shift=timedelta()), f"shift: '0:00:00' is not accepted; {SHIFT}"),
    (lambda c: c.reschedule_many(WAITING, shift=timedelta(hours=1), due_at=NOON),
     f"shift: '1:00:00' is not accepted; {SHIFT}"),
    (lambda c: c.reschedule_many(WAITING, due_at=NOON, status="failed"),
     "status: 'failed' is not accepted; expected one of unscheduled, scheduled"),
    (lambda c: c.history(start=5), BUCKET_OR_RANGE),
    (lambda c: c.iter_history(WAITING, status="done"), "status: 'done' is not accepted; expected one of "
     "scheduled, running, completed, failed, cancelled, unscheduled"),
    (lambda c: c.history(start="2026-12-31T12:00:00Z", end="2026-12-31T12:00:00Z"),
     "end: '2026-12-31T12:00:00Z' is not accepted; expected a time later than start, 2026-12-31T12:00:00Z"),
    (lambda c: c.history(start="2026-12-01#00:00", end="2027-01-01#00:01"),
     "end: '2027-01-01#00:01' is not accepted; expected a range of at most 31 days: split it"),
    (lambda c: c.history("2026-12-31#12:00", status="done"), "status: 'done' is not accepted; expected one of "
     "scheduled, running, completed, failed, cancelled, unscheduled"),
    (lambda c: c.history("2026-12-31#12:00", limit=0), "limit: 0 is not accepted; expected a number from 1 to 1000"),
    (lambda c: c.bucket_counts("12:00"),
     "bucket: '12:00' is not accepted; expected a bucket such as 2026-12-31#12:00 or 2026-12-31#12:00#3"),
    (lambda c: c.ticks(timedelta(days=8)),
     "last: '8 days, 0:00:00' is not accepted; expected a duration of at most 7 days"),
    (lambda c: c.ticks(start="2026-12-01T00:00:00Z"),
     "end: '2026-12-31 12:01:00+00:00' is not accepted; expected a range of at most 7 days"),
    (lambda c: c.ticks(end=5), "start: None is not accepted; expected a start with the end"),
    (lambda c: c.ticks(start=600, end=60), "end: '60' is not accepted; expected a time later than start, 600"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_what_other_calls_refuse(client: TaskClient, call: Callable[[TaskClient], object], message: str) -> None:
    """At the call, also where its results are consumed later."""
    client.insert("t", due_at="2026-12-31T13:00:00Z", payload={"n": 1})
    before = client.get("t")
    with pytest.raises(DynatickError) as refused:
        call(client)
    assert str(refused.value) == message
    assert getattr(refused.value, "field", "taskId") == message.partition(":")[0]
    assert client.get("t") == before


def token_of(value: object) -> str:
    """As a page's token is made."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


HERE = "2026-12-31#12:00"


@pytest.mark.parametrize(
    "token",
    [
        "", "x", "é", 5, token_of("nonsense"), token_of({}), token_of([]),
        token_of({"bucket": "2026-12-31#12:01", "after": None}),
        token_of({"bucket": f"{HERE}#1", "after": None}),  # a shard that there is not
        *(token_of({"bucket": HERE, "after": after}) for after in (5, "", "\ud800")),
    ],
)  # fmt: skip
def test_a_page_token_that_does_not_belong_here(token: object) -> None:
    with pytest.raises(InvalidInput, match="expected the token of the page before, with the same bucket or range"):
        TaskClient(MemoryStore()).history(HERE, page_token=token)  # type: ignore[arg-type]


def test_an_unknown_action_is_refused_once_the_known_ones_are_known() -> None:
    world = InProcess()
    client = TaskClient(world.store, clock=world.clock)
    assert client.insert("early", action="nope").status == "unscheduled"
    world.next_tick()
    with pytest.raises(InvalidInput) as refused:
        client.insert("late", action="nope")
    assert str(refused.value) == "action: 'nope' is not accepted; expected one of log"


def test_checking_actions_can_be_turned_off(world: InProcess) -> None:
    client = TaskClient(world.store, clock=world.clock, check_actions=False)
    assert client.insert("x", action="of-next-week").action == "of-next-week"
