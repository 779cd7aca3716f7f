"""Bad input to the Python client: each refusal names the field, the value and what would be right. Nothing is written.

Which values are good is decided, and tested, in the domain: here one of each field shows that it is asked.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.builders import NOON, InProcess
from tests.unit.actions.test_interfaces import Interfaces
from tests.unit.api.support import event, read

from dynatick import DynatickError, InvalidInput, MemoryStore, Refused, TaskClient
from dynatick.client import NewTask

TIME = "expected a bucket such as 2026-12-31#12:00, or an instant with its offset, such as 2026-12-31T12:07:00Z"
WAITING = "2026-12-31#13:00"
RESERVED = "ids beginning with _dynatick# are reserved; choose another"
NAIVE = datetime(2026, 12, 31, 12, 7)  # noqa: DTZ001 - what this is about
LAST = datetime.max.replace(tzinfo=ZoneInfo("America/New_York"))
NO_NAIVE = "datetime.datetime(2026, 12, 31, 12, 7) is not accepted; expected a datetime with a time zone"
STATUSES = "expected one of scheduled, running, waiting, completed, failed, cancelled, unscheduled"
NO_SHARD = "'#9' is not accepted; there is no such shard; expected a bucket without a shard"
NO_TIME = "taskDateTime: None is not accepted; expected a time: one of taskDateTime, dueAt, delaySeconds"
TWO_TIMES = "delaySeconds: 5 is not accepted; expected one time only, and there is dueAt too"


def x(**row: object) -> dict[str, object]:
    return {"taskId": "x", **row}


INSERTS: list[tuple[Any, str]] = [
    # no task
    (5, "task: 5 is not accepted; expected a NewTask, or a map with taskId"),
    (NewTask(task_id="x", attributes={"payload": {}}), "payload: {} is not accepted; it has an argument of its own"),
    (NewTask(task_id="x", attributes=5), "attributes: 5 is not accepted; expected a map of names to values"),  # type: ignore[arg-type]
    # the id
    ({}, "taskId: None is not accepted; expected a text that is not empty"),
    ({"taskId": "_dynatick#x"}, f"taskId: '_dynatick#x' is not accepted; {RESERVED}"),
    # the time
    (x(taskDateTime="12:07"), f"taskDateTime: '12:07' is not accepted; {TIME}"),
    (x(taskDateTime=f"{WAITING}#9"), f"taskDateTime: {NO_SHARD}"),
    (x(dueAt=NAIVE), f"dueAt: {NO_NAIVE}"),
    (x(dueAt=LAST), f"dueAt: {LAST!r} is not accepted; expected a time between 1970 and 9998"),
    (x(dueAt=Decimal("NaN")), "dueAt: NaN is not accepted; expected a finite number"),
    (x(delaySeconds=-1), "delaySeconds: -1 is not accepted; expected a number of seconds from 0 to 316224000"),
    (x(dueAt=5, delaySeconds=5), TWO_TIMES),
    # what it does, and how
    (x(action=" "), "action: ' ' is not accepted; expected the name of an action as text, such as log or webhook"),
    (x(payload=[1]), "payload: 'a list' is not accepted; expected a map of names to values"),
    (x(payload={"a": ["\udfff"]}), "payload.a[0]: '\\udfff' is not accepted; expected text that UTF-8 can hold"),
    (x(payload={"text": "x" * 400_000}), "payload: '400065 bytes in all' is not accepted; expected an item of at most"),
    # other attributes
    (x(status="scheduled"), "status: 'scheduled' is not accepted; leave it out: it is set by Dynatick"),
    (x(scheduleExpression="rate(1 hour)"), "scheduleExpression: 'rate(1 hour)' is not accepted; a task runs once"),
    (x(**{"": 1}), "attributes: '' is not accepted; expected names that are text and not empty"),
]


@pytest.mark.parametrize("ticks", [0, 1], ids=["before the first tick", "after the first tick"])
@pytest.mark.parametrize(("task", "message"), INSERTS)
def test_what_an_insert_refuses(task: Any, message: str, ticks: int) -> None:
    world = InProcess()
    world.ticks(ticks)
    (result,) = TaskClient(world.store, clock=world.clock).insert_lazily([task])
    assert isinstance(result, Refused)
    assert str(result.error).startswith(message)
    assert result.error.field == message.partition(":")[0]
    assert world.store.get("x") is None


Call = Callable[[TaskClient], object]
CALLS: list[tuple[Call, str]] = [
    (lambda c: c.get(""), "taskId: '' is not accepted; expected a text that is not empty"),
    *((call, f"taskId: '_dynatick#settings' is not accepted; {RESERVED}") for call in (
        lambda c: c.get("_dynatick#settings"), lambda c: c.cancel("_dynatick#settings"),
        lambda c: c.delete("_dynatick#settings"), lambda c: c.operations.explain("_dynatick#settings"),
        lambda c: c.schedules.get("_dynatick#settings"))),
    (lambda c: c.wait("x"), "taskId: there is no task 'x'"),
    (lambda c: c.reschedule("x"), NO_TIME),
    (lambda c: c.reschedule("x", due_at=NAIVE), f"dueAt: {NO_NAIVE}"),
    (lambda c: c.reschedule("x", due_at=LAST), f"dueAt: {LAST!r} is not accepted; expected a time between 1970 and"),
    (lambda c: c.reschedule("x", task_date_time=f"{WAITING}#9"), f"taskDateTime: {NO_SHARD}"),
    (lambda c: c.update("t"), "payload: None is not accepted; expected a change: payload, or one of taskDateTime"),
    (lambda c: c.update("t", due_at="noon"), f"dueAt: 'noon' is not accepted; {TIME}"),
    (lambda c: c.update("t", due_at=NOON, delay_seconds=5), TWO_TIMES),
    (lambda c: c.update("t", payload={"in": {"": 1}}), "payload.in: '' is not accepted; expected names that are not"),
    (lambda c: c.redrive_many(WAITING, status="running"),
     "status: 'running' is not accepted; expected failed; a cancelled task is restored, to run at its time, or run at"),
    (lambda c: c.run_now_many(WAITING, status="running"), "status: 'running' is not accepted; expected one of "
     "unscheduled, scheduled, completed, failed, cancelled"),
    (lambda c: c.cancel_many(WAITING, start=NOON, end=NOON + timedelta(hours=1)),
     f"bucket: '{WAITING}' is not accepted; expected either a bucket or a range, not both"),
    *((lambda c, limit=limit: c.cancel_many(WAITING, limit=limit),
       f"limit: {limit!r} is not accepted; expected a number of at least 1") for limit in (0, True, 1.5)),
    (lambda c: c.reschedule_many(WAITING), NO_TIME),
    (lambda c: c.reschedule_many(WAITING, shift=timedelta()),
     "shift: '0:00:00' is not accepted; expected one time, or a shift that is not zero"),
    (lambda c: c.reschedule_many(WAITING, shift=timedelta(hours=1), due_at=NOON),
     "shift: '1:00:00' is not accepted; expected one time, or a shift"),
    (lambda c: c.reschedule_many(WAITING, due_at=NOON, status="failed"),
     "status: 'failed' is not accepted; expected one of unscheduled, scheduled"),
    (lambda c: c.history(start=5),
     "bucket: None is not accepted; expected a bucket, a range with start and end, or a subject"),
    (lambda c: c.iter_history(WAITING, status="done"), f"status: 'done' is not accepted; {STATUSES}"),
    (lambda c: c.history(WAITING, status="done"), f"status: 'done' is not accepted; {STATUSES}"),
    (lambda c: c.history(start="2026-12-31T12:00:00Z", end="2026-12-31T12:00:00Z"),
     "end: '2026-12-31T12:00:00Z' is not accepted; expected a time later than start, 2026-12-31T12:00:00Z"),
    (lambda c: c.history(start="2026-12-01#00:00", end="2027-01-01#00:01"),
     "end: '2027-01-01#00:01' is not accepted; expected a range of at most 31 days: split it"),
    (lambda c: c.history(last="3x"), "last: '3x' is not accepted; expected numbers with their units, such as 90s"),
    *((call, "error: '' is not accepted; expected a part of the error as text, not empty, or a function") for call in (
        lambda c: c.redrive_many(WAITING, error=""), lambda c: c.history(WAITING, error=""))),
    (lambda c: c.history(WAITING, error=5), "error: 5 is not accepted; expected a part of the error as text, not"),
    (lambda c: c.history(last=5), "last: 5 is not accepted; expected a duration: a timedelta, or a text such as 90s"),
    (lambda c: c.history(last=timedelta(days=40)),
     "last: '40 days, 0:00:00' is not accepted; expected a range of at most 31 days"),
    (lambda c: c.history(last="1h", end="now"),
     "last: '1h' is not accepted; expected either a duration or a range, not both"),
    (lambda c: c.bucket_counts(WAITING, last="1h"),
     f"bucket: '{WAITING}' is not accepted; expected either a bucket or a range, not both"),
    (lambda c: c.bucket_counts(last="1h", listed=c.history(WAITING)),
     "listed: 'a page' is not accepted; expected it with one bucket only"),
    (lambda c: c.export(start="1h", end="now"), "start: '1h' is not accepted; add a sign: +1h is later than now"),
    (lambda c: c.select(WAITING, status="done"), f"status: 'done' is not accepted; {STATUSES}"),
    (lambda c: c.cancel_many(c.select(WAITING, status="failed")),
     "status: 'failed' is not accepted; expected one of unscheduled, scheduled"),
    (lambda c: c.history(c.select(WAITING), action="log"),
     f"bucket: {{'bucket': '{WAITING}'}} is not accepted; expected either a selection or arguments, not both"),
    (lambda c: c.history(WAITING, limit=0), "limit: 0 is not accepted; expected a number from 1 to 1000"),
    (lambda c: c.bucket_counts("12:00"), "bucket: '12:00' is not accepted; expected a bucket such as 2026-12-31#12:00"),
    (lambda c: c.operations.ticks(timedelta(days=8)),
     "last: '8 days, 0:00:00' is not accepted; expected a duration above 0, at most 7"),
    (lambda c: c.operations.ticks(start="2026-12-01T00:00:00Z"),
     "end: '2026-12-31 12:01:00+00:00' is not accepted; expected a range of at most 7 days"),
    (lambda c: c.operations.ticks(end=5), "start: None is not accepted; expected a start with the end"),
    (lambda c: c.operations.ticks(start=600, end=60),
     "end: '60' is not accepted; expected a time later than start, 600"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_what_other_calls_refuse(client: TaskClient, call: Call, message: str) -> None:
    """They refuse at the call, even if its results are consumed later."""
    client.insert("t", due_at="2026-12-31T13:00:00Z", payload={"n": 1})
    before = client.get("t"), client.store.get("_dynatick#settings")
    with pytest.raises(DynatickError) as refused:
        call(client)
    assert str(refused.value).startswith(message)
    assert getattr(refused.value, "field", "taskId") == message.partition(":")[0]
    assert (client.get("t"), client.store.get("_dynatick#settings")) == before


def token_of(value: object) -> str:
    """A page's token with any content."""
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
    with pytest.raises(
        InvalidInput, match="expected the token of the page before, with the same bucket, range or subject"
    ):
        TaskClient(MemoryStore()).history(HERE, page_token=token)  # type: ignore[arg-type]


SOON = "2026-12-31T12:30:00Z"
NAMES = {"due_at": "dueAt", "ScheduleExpression": "scheduleExpression"}  # others: in the domain


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Interfaces:
    return Interfaces(monkeypatch, capsys, tmp_path)


@pytest.mark.parametrize(("name", "right"), NAMES.items())
def test_each_interface_refuses_a_misspelt_time_by_its_name(interfaces: Interfaces, name: str, right: str) -> None:
    task = {"taskId": "t", name: SOON}
    with pytest.raises(InvalidInput, match=f"^{name}: .*{right}"):
        interfaces.client.insert("t", attributes={name: SOON})
    (one,) = read(interfaces.api.handle(event("POST", "/v1/tasks/bulk", {"tasks": [task]}), None))["results"]
    assert (one["pointer"], right in one["detail"]) == (f"#/tasks/0/{name}", True)
    refused = [interfaces.many(task), interfaces.asked("POST", "/v1/tasks", task), interfaces.imported(task)]
    assert [*refused, interfaces.dropped(task)] == [name] * 4
    assert interfaces.world.store.get("t") is None
    row = interfaces.world.put(**task)
    assert (row["outcome"], name in str(row["error"]), right in str(row["error"])) == ("failed", True, True)
