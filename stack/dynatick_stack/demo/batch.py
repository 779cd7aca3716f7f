"""The demo's tasks: each with the interface that inserts it, and how it must end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from dynatick.client import TaskView
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.instants import format_instant
from dynatick_stack.demo.receiver import Call

PUT, INSERT, MANY = "put-item", "insert", "insert_many"
COMPLETED, FAILED, REFUSED = "completed", "failed", "refused"


@dataclass(frozen=True)
class Planned:
    """A task, and what must come of it."""

    row: Mapping[str, Any]
    ends: str = COMPLETED
    error: str = ""  # a part of the reason
    interface: str = PUT
    attempts: int | None = None  # None: any number
    calls: Sequence[int] = field(default=())  # the attempts at which a webhook comes

    @property
    def task_id(self) -> str:
        return str(self.row["taskId"])


def batch(now: datetime, receiver: str) -> list[Planned]:
    """``receiver``: the address that webhooks go to."""

    def tick(number: int) -> str:
        return str(Bucket(minute_of(now) + number))

    def at(seconds: float) -> datetime:
        return now.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=seconds)

    def iso(seconds: float) -> str:
        return format_instant(at(seconds))

    def task(task_id: str, **attributes: Any) -> Planned:
        return Planned({"taskId": task_id, **attributes})

    def rejected(task_id: str, error: str, **attributes: Any) -> Planned:
        return Planned({"taskId": task_id, **attributes}, FAILED, error, attempts=0)

    def hook(
        task_id: str, path: str, ends: str = COMPLETED, error: str = "", *, calls: int = 1, **more: Any
    ) -> Planned:
        payload = {"url": path if "://" in path else f"{receiver}{path}", **more.pop("payload", {})}
        row = {"taskId": task_id, "taskDateTime": tick(1), "action": "webhook", "payload": payload, **more}
        return Planned(row, ends, error, calls=range(1, calls + 1))

    def mail(task_id: str, ends: str, error: str, **payload: str) -> Planned:
        row = {"taskId": task_id, "taskDateTime": tick(1), "action": "send-reminder", "payload": payload}
        return Planned(row, ends, error, attempts=1)

    def client(interface: str, task_id: str, ends: str = COMPLETED, error: str = "", **attributes: Any) -> Planned:
        return Planned({"taskId": task_id, **attributes}, ends, error, interface)

    east, berlin = timezone(timedelta(hours=5, minutes=30)), ZoneInfo("Europe/Berlin")
    nested = {"b": b"\0\1\2\xff", "n": None, "s": {"a", "b"}, "deep": {"x": [1, False, {"y": "z"}]}}
    once, twice = {"maximumRetryAttempts": 0}, {"maximumRetryAttempts": 2, "minBackoffSeconds": 1}
    return [
        # Without a time, on the tick, and off it in each notation.
        task("bare"),
        task("untimed", action="log", payload={"leadSourceId": "20"}),
        task("tick-1", taskDateTime=tick(1), action="log"),
        task("tick-2", taskDateTime=tick(2), action="log"),
        task("tick-3", taskDateTime=tick(3), action="log"),
        task("off-iso", dueAt=iso(45)),
        task("off-plus", taskDateTime=at(50).astimezone(east).isoformat()),
        task("off-berlin", dueAt=at(20).astimezone(berlin).isoformat()),
        task("off-epoch", dueAt=int(at(45).timestamp())),
        task("off-delay", delaySeconds=30),
        # In the past.
        task("past-bucket", taskDateTime=str(Bucket(minute_of(now) - 5))),
        task("past-instant", dueAt=iso(-86_400)),
        task("past-2021", taskDateTime="2021-12-31#03:00"),
        # Malformed: failed with the reason, in the present bucket.
        rejected("bad-tomorrow", "taskDateTime: 'tomorrow'", taskDateTime="tomorrow"),
        rejected("bad-feb-31", "there is no such time", taskDateTime="2027-02-31#12:00"),
        rejected("bad-hour-25", "there is no such time", dueAt="2027-01-01T25:00:00Z"),
        rejected("bad-naive", "offset from UTC is missing", dueAt="2027-01-01T12:00:00"),
        rejected("bad-delay", "delaySeconds", delaySeconds=-5),
        rejected("bad-action", "action", action=7),
        rejected("bad-payload", "payload", payload="hello"),
        rejected("bad-policy", "retryPolicy.maxRetries", retryPolicy={"maxRetries": 3}),
        rejected("bad-status", "status", status="todo"),
        Planned({"taskId": "bad-unknown", "taskDateTime": tick(1), "action": "none"}, FAILED, "none", attempts=1),
        task("binary", taskDateTime=tick(1), payload=nested),
        # Webhooks.
        hook("hook-order", "/orders", payload={"data": {"order": 1001}}),
        hook("hook-grüße 100 %", "/greetings", payload={"data": {"to": ["Zoë"]}}),
        hook("hook-flaky", "/flaky", calls=2, retryPolicy={"minBackoffSeconds": 1}),
        hook("hook-broken", "/broken", FAILED, "the target answered 500", calls=3, retryPolicy=twice),
        hook("hook-gone", "/gone", FAILED, "the target answered 410"),
        hook("hook-metadata", "https://169.254.169.254/latest/meta-data", FAILED, "not public", calls=0),
        hook("hook-nobody", "http://127.0.0.1:1/", FAILED, "connect", calls=0, retryPolicy=once),
        # Handlers in Python.
        mail("mail-ann", COMPLETED, "", to="ann@example.com", text="The train leaves at nine."),
        mail("mail-no-text", FAILED, "payload.text", to="ann@example.com"),
        mail("mail-nowhere", FAILED, "expected a mail address", to="nowhere", text="Lost."),
        Planned({"taskId": "rehearsal", "taskDateTime": tick(1), "action": "rehearse",
                 "payload": {"failures": 1, "retry_after_seconds": 1}}, attempts=2),
        # By the Python client.
        client(INSERT, "client-tick", task_date_time=tick(2), action="log"),
        client(INSERT, "client-untimed", action="send-reminder", payload={"to": "bob@example.com", "text": "Call."}),
        client(INSERT, "refused-tomorrow", REFUSED, "dueAt: 'tomorrow'", due_at="tomorrow"),
        client(INSERT, "_dynatick#mine", REFUSED, "reserved"),
        client(MANY, "many-delay", delaySeconds=75),
        client(MANY, "many-past", taskDateTime=str(Bucket(minute_of(now) - 10))),
        client(MANY, "many-untimed"),
        client(MANY, "refused-action", REFUSED, "no-such-action", dueAt=iso(60), action="no-such-action"),
        client(MANY, "refused-naive", REFUSED, "offset", dueAt="2027-01-01T12:00:00"),
    ]  # fmt: skip


def unmet(
    planned: Sequence[Planned],
    refused: Mapping[str, str],
    tasks: Mapping[str, TaskView],
    calls: Sequence[Call],
    letters: Sequence[Mapping[str, Any]],
) -> list[str]:
    """What is not as it must be, one line each. ``refused``: reasons by id; ``tasks``: those of the table, by id."""
    known = {one.task_id for one in planned}
    strange = {f"{call.task_id}: a webhook of no task of ours" for call in calls if call.task_id not in known}
    return [*strange] + [
        f"{one.task_id}: {problem}"
        for one in planned
        for problem in _problems(
            one,
            refused.get(one.task_id),
            tasks.get(one.task_id),
            [call for call in calls if call.task_id == one.task_id],
            [letter for letter in letters if letter.get("taskId") == one.task_id],
        )
    ]


def _problems(
    one: Planned,
    refused: str | None,
    task: TaskView | None,
    calls: Sequence[Call],
    letters: Sequence[Mapping[str, Any]],
) -> Iterator[str]:
    status = REFUSED if refused is not None else task.status if task is not None else "not there"
    error = refused or (task.error if task is not None else None) or ""
    if status != one.ends:
        yield f"{status}, expected {one.ends}; {error}"
    if one.error not in error or (error and not one.error):
        yield f"its error is {error!r}, expected {one.error!r}"
    if task is not None and one.attempts is not None and task.attempt != one.attempts:
        yield f"it took {task.attempt} attempts, expected {one.attempts}"
    if (came := [call.attempt for call in calls]) != [str(attempt) for attempt in one.calls]:
        yield f"webhooks came at the attempts {came}, expected {list(one.calls)}"
    if len({call.key for call in calls}) > 1:
        yield "its webhooks had several idempotency keys"
    yield from (problem for call in calls for problem in call.problems())
    if len(letters) != (one.ends == FAILED):
        yield f"{len(letters)} dead letters came"
    if task is not None and task.started_at and task.due_at and task.started_at < task.due_at:
        yield f"it started at {task.started_at}, and was due at {task.due_at}"
