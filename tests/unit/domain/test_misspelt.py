"""A row whose only time has a misspelt name is refused, and not taken for a task without a time."""

from __future__ import annotations

import pytest

from dynatick.domain.normalise import TIMES, check_names, right_name
from dynatick.errors import InvalidInput


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
