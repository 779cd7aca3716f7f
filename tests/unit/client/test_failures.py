"""Failed tasks in groups: which errors are the same, and what a group has."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.builders import NOON
from tests.unit.engine.support import World

from dynatick import TaskClient
from dynatick.client.failures import (
    MAX_TASKS,
    FailureGroup,
    FailureGroups,
    error_line,
    error_pattern,
    fingerprint_of,
    has_fingerprint,
    shared_line,
)
from dynatick.client.views import TaskEntry
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick.errors import InvalidInput


def entry(n: int, error: str | None, *, action: str | None = "mail", status: str = "failed") -> TaskEntry:
    at = NOON + timedelta(minutes=n)
    return TaskEntry(
        task_id=f"task-{n}", bucket=str(Bucket(minute_of(at))), status=status, action=action, error=error,
        finished_at=at + timedelta(seconds=1),
    )  # fmt: skip


def grouped(*entries: TaskEntry) -> list[FailureGroup]:
    groups = FailureGroups()
    for one in entries:
        groups.add(one)
    return groups.by_impact()


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ("no such mailbox: ada1@example.com", "no such mailbox: bob@example.com", "no such mailbox: …"),
        ("order 5001: -5 cents is negative", "order 5002: -6 cents is negative", "order …: … cents is negative"),
        ("order 5001: -5 cents is negative", "order 5001: -6 cents is negative", "order 5001: … cents is negative"),
        ("answered 503", "answered 404", "answered …"),
        ("KeyError: 'user-17'", "KeyError: 'user-18'", "KeyError: '…'"),
        ("row 5f2c1a9e-0000-4000-8000-000000000001", "row 00000000-0000-4000-8000-000000000002", "row …"),
        ("timed out after 1.5s at 10.0.0.1:443", "timed out after 30s at 10.0.0.12:8443", "timed out after … at …"),
        ("at 2026-12-31T12:00:00.5Z", "at 2027-01-01T00:00:01Z", "at …"),
        ("it broke\nat line 1", "it broke\nat line 2", "it broke"),
        ("x" * 190 + " 1 is gone", "x" * 190 + " 1000000 is gone", "x" * 190 + " … is gone"),
    ],
)
def test_errors_that_differ_in_numbers_only_are_alike(first: str, second: str, both: str) -> None:
    assert error_pattern(first) == error_pattern(second) == error_pattern(error_pattern(first))
    assert fingerprint_of(first) == fingerprint_of(second)
    assert shared_line(error_line(first), error_line(second)) == both
    assert has_fingerprint(fingerprint_of(first))(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [("ValueError: a", "TypeError: a"), ("no mailbox", "no mailbox here"), ("a 1", "b 1"), ("", "x")],
)
def test_errors_that_differ_in_a_word_are_not_alike(first: str, second: str) -> None:
    assert fingerprint_of(first) != fingerprint_of(second)
    assert not has_fingerprint(fingerprint_of(first))(second)


def test_a_group_has_its_actions_its_times_its_errors_and_its_latest_tasks() -> None:
    found = grouped(
        entry(1, "no order 1"), entry(2, "no order 2", action="print"), entry(3, "no order 1"),
        entry(4, "the disk is full", action=None), entry(5, "no order 9", status="completed"),
    )  # fmt: skip
    orders, disk = found
    assert (orders.count, orders.error, orders.actions) == (3, "no order …", {"mail": 2, "print": 1})
    assert (orders.first, orders.last) == (NOON + timedelta(seconds=61), NOON + timedelta(seconds=181))
    assert (orders.task_id, orders.action) == ("task-3", "mail")
    assert orders.errors == {"no order 1": 2, "no order 2": 1}
    assert orders.minutes == {minute_of(NOON) + n: 1 for n in (1, 2, 3)}
    assert [one.task_id for one in orders.tasks] == ["task-3", "task-2", "task-1"]
    assert (disk.count, disk.error, disk.actions) == (1, "the disk is full", {})
    assert orders.fingerprint == fingerprint_of("no order 77") != disk.fingerprint
    assert set(orders.to_row()) == {
        "fingerprint", "action", "actions", "error", "count", "first", "last", "taskId"
    }  # fmt: skip


def test_groups_of_hours_are_put_together_as_if_they_were_read_at_once() -> None:
    entries = [entry(n, f"no order {n % 3}", action=("mail", "print")[n % 2]) for n in range(3 * MAX_TASKS)]
    groups = FailureGroups()
    for start in range(0, len(entries), 20):
        groups.update(grouped(*entries[start : start + 20]))
    assert groups.by_impact() == grouped(*entries)
    assert [one.task_id for one in groups.by_impact()[0].tasks] == [
        f"task-{n}" for n in range(3 * MAX_TASKS - 1, 2 * MAX_TASKS - 1, -1)
    ]


def test_the_group_with_the_most_tasks_comes_first_and_of_equals_the_latest() -> None:
    found = grouped(entry(1, "a"), entry(2, "b"), entry(3, "c"), entry(4, "a"))
    assert [one.error for one in found] == ["a", "c", "b"]


def test_a_group_is_new_only_if_what_was_before_the_deployment_was_read() -> None:
    (group,) = grouped(entry(5, "a"))
    deployed = NOON + timedelta(minutes=4)
    assert group.is_new_since(deployed, NOON)
    assert not group.is_new_since(deployed, deployed + timedelta(seconds=1)), "what was before is not known"
    assert not group.is_new_since(NOON + timedelta(minutes=6), NOON), "one failed before"
    assert not group.is_new_since(None, NOON)


@pytest.mark.parametrize("text", ["", "x", "0123456789a", "ABCDEF0123", "0123456789\n"])
def test_what_is_no_fingerprint_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="fingerprint"):
        has_fingerprint(text)


def test_the_client_groups_what_is_failed_now(world: World, client: TaskClient) -> None:
    def no_order(task: Task, context: ActionContext) -> None:
        raise LookupError(f"no order {task.task_id}")

    world.actions.behaviour = {f"bad-{n}": no_order for n in range(3)}
    for n in range(3):
        client.insert(f"bad-{n}", delay_seconds=30, retry_policy={"maximumRetryAttempts": 0})
    world.next_tick()
    (group,) = client.operations.failures(timedelta(hours=1))
    assert (group.count, group.error) == (3, "LookupError: no order …")
    selected = client.iter_history(last="1h", status="failed", error=has_fingerprint(group.fingerprint))
    assert {one.task_id for one in selected} == {f"bad-{n}" for n in range(3)}
    client.redrive("bad-0")
    assert [one.count for one in client.operations.failures()] == [2]
    for wrong in (timedelta(), timedelta(days=8)):
        with pytest.raises(InvalidInput, match="at most 7 days"):
            client.operations.failures(wrong)
