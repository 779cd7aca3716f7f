"""The demo's tasks: each with the interface that inserts it, and how it must end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from dynatick.client import TaskView
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.instants import format_instant

PUT, INSERT, MANY = "put-item", "insert", "insert_many"
COMPLETED, FAILED, REFUSED = "completed", "failed", "refused"


@dataclass(frozen=True)
class Planned:
    """A task, and what must come of it."""

    row: Mapping[str, Any]
    ends: str
    error: str  # a part of the reason
    interface: str
    calls: int  # webhooks that come

    @property
    def task_id(self) -> str:
        return str(self.row["taskId"])


def batch(now: datetime, receiver: str) -> list[Planned]:
    """``receiver``: the address that webhooks go to. All is due before the tick after the next."""

    def tick(number: int) -> str:
        return str(Bucket(minute_of(now) + number))

    def at(seconds: float) -> datetime:
        return now.replace(microsecond=0) + timedelta(seconds=seconds)

    def task(
        task_id: str, ends: str = COMPLETED, error: str = "", *, by: str = PUT, calls: int = 0, **attributes: Any
    ) -> Planned:
        return Planned({"taskId": task_id, **attributes}, ends, error, by, calls)

    def hook(
        task_id: str, path: str, ends: str = COMPLETED, error: str = "", *, calls: int = 1, **more: Any
    ) -> Planned:
        payload = {"url": path if "://" in path else f"{receiver}{path}", "data": {"order": 1001}}
        return task(task_id, ends, error, calls=calls, taskDateTime=tick(1), action="webhook", payload=payload, **more)

    def mail(task_id: str, ends: str = COMPLETED, error: str = "", **payload: str) -> Planned:
        return task(task_id, ends, error, taskDateTime=tick(1), action="send-reminder", payload=payload)

    east, berlin = timezone(timedelta(hours=5, minutes=30)), ZoneInfo("Europe/Berlin")
    nested = {"b": b"\0\1\2\xff", "n": None, "s": {"a", "b"}, "deep": {"x": [1, False, {"y": "z"}]}}
    once, twice = {"maximumRetryAttempts": 0}, {"maximumRetryAttempts": 2, "minBackoffSeconds": 1}
    rehearsal = {"failures": 1, "retry_after_seconds": 1}
    return [
        # Without a time, on the tick, and off it in each notation.
        task("bare"),
        task("untimed", action="log", payload={"leadSourceId": "20"}),
        task("tick-1", taskDateTime=tick(1), action="log"),
        task("off-iso", dueAt=format_instant(at(8))),
        task("off-plus", taskDateTime=at(9).astimezone(east).isoformat()),
        task("off-berlin", dueAt=at(5).astimezone(berlin).isoformat()),
        task("off-epoch", dueAt=int(at(8).timestamp())),
        task("off-delay", delaySeconds=7),
        # In the past.
        task("past-bucket", taskDateTime=tick(-5)),
        task("past-instant", dueAt=format_instant(at(-86_400))),
        task("past-2021", taskDateTime="2021-12-31#03:00"),
        # Malformed: failed with the reason, in the present bucket.
        task("bad-tomorrow", FAILED, "taskDateTime: 'tomorrow'", taskDateTime="tomorrow"),
        task("bad-feb-31", FAILED, "there is no such time", taskDateTime="2027-02-31#12:00"),
        task("bad-naive", FAILED, "offset from UTC is missing", dueAt="2027-01-01T12:00:00"),
        task("bad-delay", FAILED, "delaySeconds", delaySeconds=-5),
        task("bad-payload", FAILED, "payload", payload="hello"),
        task("bad-policy", FAILED, "retryPolicy.maxRetries", retryPolicy={"maxRetries": 3}),
        task("bad-status", FAILED, "status", status="todo"),
        task("bad-unknown", FAILED, "none", taskDateTime=tick(1), action="none"),
        task("binary", taskDateTime=tick(1), payload=nested),
        # Webhooks.
        hook("hook-order", "/orders"),
        hook("hook-grüße 100 %", "/greetings"),
        hook("hook-flaky", "/flaky", calls=2, retryPolicy={"minBackoffSeconds": 1}),
        hook("hook-broken", "/broken", FAILED, "the target answered 500", calls=3, retryPolicy=twice),
        hook("hook-gone", "/gone", FAILED, "the target answered 410"),
        hook("hook-metadata", "https://169.254.169.254/latest/meta-data", FAILED, "not public", calls=0),
        hook("hook-nobody", "http://127.0.0.1:1/", FAILED, "connect", calls=0, retryPolicy=once),
        # Handlers in Python.
        mail("mail-ann", to="ann@example.com", text="The train leaves at nine."),
        mail("mail-no-text", FAILED, "payload.text", to="ann@example.com"),
        mail("mail-nowhere", FAILED, "expected a mail address", to="nowhere", text="Lost."),
        task("rehearsal", taskDateTime=tick(1), action="rehearse", payload=rehearsal),
        # By the Python client.
        task("client-tick", by=INSERT, task_date_time=tick(1), action="log"),
        task("client-untimed", by=INSERT, action="send-reminder", payload={"to": "bob@example.com", "text": "Call."}),
        task("refused-tomorrow", REFUSED, "dueAt: 'tomorrow'", by=INSERT, due_at="tomorrow"),
        task("_dynatick#mine", REFUSED, "reserved", by=INSERT),
        task("many-delay", by=MANY, delaySeconds=2),
        task("many-past", by=MANY, taskDateTime=tick(-10)),
        task("many-untimed", by=MANY),
        task("refused-action", REFUSED, "no-such-action", by=MANY, action="no-such-action"),
        task("refused-naive", REFUSED, "offset", by=MANY, dueAt="2027-01-01T12:00:00"),
    ]


def unmet(
    planned: Sequence[Planned],
    refused: Mapping[str, str],
    tasks: Mapping[str, TaskView],
    called: Collection[str],
    letters: Collection[str],
) -> Iterator[str]:
    """What is not as it must be, one line each. ``refused``: reasons by id; ``tasks``: those of the table, by id;
    ``called`` and ``letters``: the task's id of each webhook and each dead letter."""
    calls, dead = Counter(called), Counter(letters)
    for one in planned:
        task = tasks.get(one.task_id)
        ended = REFUSED if one.task_id in refused else task.status if task is not None else "not there"
        error = refused.get(one.task_id) or (task.error if task is not None else None) or ""
        if ended != one.ends or one.error not in error or (error and not one.error):
            yield f"{one.task_id}: {ended} {error!r}, expected {one.ends} {one.error!r}"
        if calls[one.task_id] != one.calls:
            yield f"{one.task_id}: {calls[one.task_id]} webhooks came, expected {one.calls}"
        if dead[one.task_id] != (one.ends == FAILED):
            yield f"{one.task_id}: {dead[one.task_id]} dead letters came"
