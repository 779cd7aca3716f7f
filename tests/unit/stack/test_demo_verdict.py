"""The demo's verdict: silent when all is well, and a line for each thing that is not."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dynatick.client import TaskEntry, TaskView, TickView
from dynatick.domain.buckets import minute_of
from dynatick_stack.demo import tables
from dynatick_stack.demo.batch import Expected, expected
from dynatick_stack.demo.observe import Seen
from dynatick_stack.demo.receiver import Call
from dynatick_stack.demo.verdict import Evidence, unmet

NOON = datetime(2026, 12, 31, 12, 0, tzinfo=UTC)


def entry(task_id: str, **more: Any) -> Expected:
    item: dict[str, Any] = {"taskId": task_id} if "door" in more else {"taskId": {"S": task_id}}
    return expected({"name": f"the task {task_id}", "item": item, "ends": "completed", "by": 1} | more)


def row(task_id: str, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "taskId": task_id,
        "taskDateTime": "2026-12-31#12:01",
        "dueAt": "2026-12-31T12:00:40Z",
        "startedAt": "2026-12-31T12:01:05Z",
        "status": status,
        "outcome": status,
        "attempt": 1,
    } | more


def call(task_id: str, attempt: int) -> Call:
    headers = {
        "idempotency-key": f"{task_id}#1",
        "x-dynatick-task-id": task_id,
        "x-dynatick-attempt": str(attempt),
        "x-dynatick-due-at": "2026-12-31T12:00:40Z",
        "content-type": "application/json",
    }
    return Call(path="/", headers=headers, body=b"{}", at=NOON)


def tick(completed: int) -> TickView:
    counts = dict.fromkeys(
        ("buckets", "due", "claimed", "failed", "retried", "released", "expired", "recovered", "deferred",
         "superseded", "unrecorded", "unfinished", "moved", "occurrences", "missed", "lateness_max_ms",
         "lateness_mean_ms"), 0,
    )  # fmt: skip
    return TickView(
        tick="2026-12-31#12:01", shard=0, continuation=0, started_at=NOON, finished_at=NOON + timedelta(seconds=1),
        first_start_ms=3, continued=False, completed=completed, **counts,
    )  # fmt: skip


def listing(rows: list[dict[str, Any]]) -> list[TaskEntry]:
    return [TaskEntry(task_id=one["taskId"], bucket=one["taskDateTime"], status=one["status"]) for one in rows]


def evidence() -> Evidence:
    """Four tasks of the batch, all as they must be."""
    rows = [
        row("plain"),
        row("hook", attempt=2),
        row("bad", "failed", attempt=0, error="taskDateTime: no", startedAt=None, dueAt=None),
    ]
    return Evidence(
        batch=[
            entry("plain"),
            entry("hook", attempts=2, calls=2),
            entry("bad", ends="failed", error="taskDateTime"),
            entry("refused", door="insert", ends="refused", error="reserved"),
        ],
        sent={"plain": None, "hook": None, "bad": None, "refused": "taskId: it is reserved"},
        seen=Seen(
            at=NOON,
            tasks={one["taskId"]: TaskView.from_row(one) for one in rows},
            calls=[call("hook", 1), call("hook", 2)],
            letters=[{"taskId": "bad", "error": "taskDateTime: no"}],
        ),
        listed=listing(rows),
        ticks=[tick(2)],
        settled=minute_of(NOON),
    )


def with_row(task_id: str, **more: Any) -> Callable[[Evidence], Evidence]:
    def change(found: Evidence) -> Evidence:
        tasks = dict(found.seen.tasks)
        tasks[task_id] = TaskView.from_row(row(task_id) | dict(tasks[task_id].row) | more)
        listed = listing([dict(task.row) for task in tasks.values()])
        return replace(found, seen=replace(found.seen, tasks=tasks), listed=listed)

    return change


def with_seen(**more: Any) -> Callable[[Evidence], Evidence]:
    return lambda found: replace(found, seen=replace(found.seen, **more))


def without(task_id: str) -> Callable[[Evidence], Evidence]:
    def change(found: Evidence) -> Evidence:
        tasks = {name: task for name, task in found.seen.tasks.items() if name != task_id}
        return replace(found, seen=replace(found.seen, tasks=tasks), ticks=[tick(1)])

    return change


def test_nothing_is_said_when_all_is_well() -> None:
    found = evidence()
    assert unmet(found) == []
    assert tables.counts(found) == [
        "inserted 3 = completed 2 + failed 1 (1 of these as expected), waiting 0",
        "refused at the client's door 1",
        "dead letters 1 of 1",
        "webhook calls 2 of 2, with 1 idempotency keys for 1 tasks",
    ]


def changed(**more: Any) -> Callable[[Evidence], Evidence]:
    return lambda found: replace(found, **more)


def sent(**more: Any) -> Callable[[Evidence], Evidence]:
    return lambda found: replace(found, sent={**found.sent, **more})


FIRST, SECOND = call("hook", 1), call("hook", 2)
OTHER_KEY = replace(SECOND, headers=SECOND.headers | {"idempotency-key": "hook#2"})
BAD = {"taskId": "bad", "error": "taskDateTime"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("plain"), "plain (the task plain): it is not in the table"),
        (with_row("plain", status="failed", outcome="failed", error="oh"), "it is failed (oh), expected completed"),
        (with_row("plain", status="scheduled", outcome=None), "it is scheduled, expected completed"),
        (with_row("plain", attempt=2), "it took 2 attempts, expected 1"),
        (with_row("plain", error="left over"), "it has an error although it completed: left over"),
        (with_row("plain", taskDateTime="2026-12-31#12:02"), "it ended in 2026-12-31#12:02, expected by"),
        (with_row("plain", taskDateTime="noon"), "it lies in no bucket, but in 'noon'"),
        (with_row("plain", startedAt="2026-12-31T12:00:39Z"), "it started early"),
        (with_row("bad", error="no"), "its error is 'no', expected a word of 'taskDateTime'"),
        (with_seen(calls=[FIRST]), "1 webhook came (attempts 1), expected 2"),
        (with_seen(calls=[]), "0 webhooks came (attempts none), expected 2"),
        (with_seen(calls=[FIRST, OTHER_KEY]), "its attempts had several idempotency keys: hook#1, hook#2"),
        (with_seen(calls=[FIRST, replace(SECOND, body=b"{")]), "what receivers rely on: the body isn't JSON"),
        (with_seen(calls=[FIRST, SECOND, call("stray", 1)]), "a webhook came for 'stray'"),
        (with_seen(letters=[]), "0 dead letters came, expected 1"),
        (with_seen(letters=[BAD, BAD]), "2 dead letters came, expected 1"),
        (with_seen(letters=[{"taskId": "bad", "error": "?"}]), "its dead letter says '?'"),
        (with_seen(letters=[BAD, {"taskId": "stray"}]), "a dead letter came for 'stray'"),
        (changed(listed=[]), "the history lists it in no bucket"),
        (
            changed(listed=[*evidence().listed, evidence().listed[0]]),
            "the history lists it in 2026-12-31#12:01 as comp",
        ),
        (changed(ticks=[tick(1)]), "the ticks tell of 1 completed tasks, the table of 2"),
        (sent(refused=None), "the door took it, and had to refuse it"),
        (sent(refused="no"), "without a word of 'reserved': no"),
        (sent(plain="no"), "the door refused it: no"),
        (changed(sent={}), "it was not sent"),
    ],
)
def test_whatever_is_not_well_is_said(change: Callable[[Evidence], Evidence], said: str) -> None:
    assert any(said in line for line in unmet(change(evidence()))), unmet(change(evidence()))
