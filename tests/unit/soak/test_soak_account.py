"""What a soak's history says of when tasks had to begin, and when they did."""

from __future__ import annotations

from typing import Any

import pytest
from proof.windows import judge
from tests.sandbox import journal
from tests.sandbox.history import History
from tests.sandbox.journal import BATCH, CANCEL, INSERT, KILLED, OK, REFUSED, SCHEDULE, TICK, UNKNOWN, Line
from tests.soak.account import account
from tests.soak.tasks import RandomTask

NOON = 1_798_718_400.0  # 2026-12-31T12:00:00Z
LATE, SKEW = 60.0, 2.0


def insert(task_id: str = "a", status: str = OK, due: float | None = 30.0, **more: Any) -> list[Line]:
    """Sent at noon, answered three seconds later."""
    known: dict[str, Any] = {"operation": INSERT, "interface": "insert", "incarnation": task_id} | more
    request_id = f"{known['operation']} {task_id}"
    due_at = None if due is None else NOON + due
    return [
        journal.Requested(request_id=request_id, task_id=task_id, at=NOON, due_at=due_at, **known),
        journal.Responded(request_id=request_id, status=status, at=NOON + 3),
    ]


def execution(at: float, task_id: str = "a", attempt: int = 1, *, cut: bool = False) -> list[Line]:
    who: dict[str, Any] = {
        "pid": attempt, "task_id": task_id, "incarnation": task_id, "run": 1, "attempt": attempt, "key": f"{task_id}#1"
    }  # fmt: skip
    after = journal.Died(pid=attempt, role="processor", why=KILLED)
    return [
        journal.Began(**who, at=NOON + at, due_at=NOON),
        journal.Ended(**who, at=NOON + at + 1, done=True),
        after if cut else journal.Recorded(pid=attempt, task_ids=[task_id]),
    ]


def events(*lines: list[Line]) -> list[dict[str, Any]]:
    ticks = [journal.Disturbance(of=TICK, what="on time", at=NOON + 60.0 * n) for n in range(1, 5)]
    ticks.append(journal.Disturbance(of=TICK, what="dropped"))
    history = History().take([*ticks, *(one for part in lines for one in part)])
    return [*account(history, skew=SKEW, late=LATE, read=NOON + 240)]


def test_a_task_has_the_time_of_its_tick() -> None:
    report = judge(events(insert(), execution(62)))
    assert (report.needed, report.after_tick, report.problems) == (1, [2.0], [])
    assert judge(events(insert(), execution(123))).late == ["a: due at 1798718430.000, began 1.000 s after its window"]
    assert len(judge(events(insert())).missing) == 1
    assert len(judge(events(insert(), execution(27))).early) == 1


@pytest.mark.parametrize(
    ("due", "delayed", "since"), [(-500.0, False, 3.0), (0.0, True, 3.0), (30.0, True, 33.0), (30.0, False, 30.0)]
)
def test_a_task_has_the_tick_after_its_insert_was_answered(due: float, delayed: bool, since: float) -> None:
    (found,) = [one for one in events(insert(due=due, delayed=delayed)) if one["e"] == "due"]
    assert (found["at"] - NOON, found["since"] - NOON) == (due, since)


@pytest.mark.parametrize("lines", [insert(status=UNKNOWN), insert(limited=True)])
def test_a_task_without_an_answer_or_with_a_limit_key_need_not_begin_and_may(lines: list[Line]) -> None:
    for ran in ([], execution(200)):
        report = judge(events(lines, ran))
        assert (report.targets, report.needed, report.problems) == (1, 0, [])
    assert len(judge(events(lines, execution(20))).early) == 1


def test_what_was_executed_again_has_the_reason_of_the_verdict() -> None:
    report = judge(events(insert(), execution(62, cut=True), execution(100, attempt=2)))
    assert (report.problems, dict(report.repeated)) == ([], {"killed": 1})
    assert len(judge(events(insert(), execution(62), execution(100, attempt=2))).twice) == 1


@pytest.mark.parametrize(
    ("task_id", "lines"),
    [
        ("a", insert(operation=CANCEL)),
        ("a", insert(operation=CANCEL, status=REFUSED)),
        ("b/000000001", insert("b", operation=CANCEL, interface=BATCH)),
    ],
)
def test_what_a_client_has_changed_is_left_to_the_verdict(task_id: str, lines: list[Line]) -> None:
    interface = BATCH if "/" in task_id else "insert"
    kinds = {one["e"] for one in events(insert(task_id, interface=interface), execution(500, task_id), lines)}
    assert kinds == {"windows", "tick"}
    assert "due" in {one["e"] for one in events(insert(task_id, interface=interface), execution(500, task_id))}


def test_the_occurrences_of_a_schedule_are_told_apart_by_their_times_alone() -> None:
    ids = [f"s#1#2026-12-31T12:0{n}:00Z" for n in (1, 2, 3)]
    due = [insert(task_id, due=60.0 * n, interface=SCHEDULE) for n, task_id in enumerate(ids, 1)]
    ran = [execution(60.0 * n + 5, task_id) for n, task_id in enumerate(ids, 1)]
    assert {one["of"] for one in events(*due, *ran) if one["e"] == "due"} == {"s"}
    assert judge(events(*due, *ran)).problems == []
    assert len(judge(events(*due, *ran[:1], *ran[2:])).missing) == 1


@pytest.mark.parametrize(
    ("times", "due"),
    [
        ({}, 7.0),
        ({"delaySeconds": 20}, 27.0),
        ({"dueAt": "2026-12-31T12:00:45Z"}, 45.0),
        ({"taskDateTime": "2026-12-31#12:03"}, 180.0),
    ],
)
def test_the_time_of_a_task_follows_from_what_was_asked_for(times: dict[str, object], due: float) -> None:
    requested = RandomTask(task_id="a", incarnation="a", row={"limitKey": "k:1"}, times=times).requested(
        "1", INSERT, "insert", NOON + 7
    )
    assert (requested.due_at, requested.limited) == (NOON + due, True)
