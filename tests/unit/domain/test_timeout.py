"""``timeoutSeconds``: valid values, and that tasks and occurrences keep it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.domain.support import refusal

from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.lifecycle import redrive
from dynatick.domain.normalise import Defaults
from dynatick.domain.occurrences import occurrence_row
from dynatick.domain.recurrence import edited
from dynatick.domain.schedule import Schedule
from dynatick.domain.task import Task
from dynatick.domain.timeout import check_timeout
from dynatick.errors import InvalidInput

BUCKET = Bucket(minute_of(NOON))


@pytest.mark.parametrize(("value", "seconds"), [(1, 1), (900, 900), (Decimal("60"), 60), (Decimal("6E+1"), 60)])
def test_a_timeout_is_a_whole_number_of_seconds_up_to_the_longest_that_a_function_runs(
    value: object, seconds: int
) -> None:
    checked = check_timeout(value)
    assert checked == seconds
    assert type(checked) is int


@pytest.mark.parametrize(
    "value",
    [0, -1, 901, Decimal("0"), Decimal("0.5"), Decimal("901"), Decimal("NaN"), Decimal("Infinity"), 60.0, True, False,
     "60", "", [60], {"seconds": 60}],
)  # fmt: skip
def test_any_other_timeout_is_refused(value: object) -> None:
    assert refusal(check_timeout, value) == ("timeoutSeconds", "expected a whole number of seconds from 1 to 900")


def test_a_task_has_the_timeout_of_its_row_and_none_without() -> None:
    row = scheduled_row("t", BUCKET, timeoutSeconds=Decimal("60"))
    task = Task.from_row(row)
    assert task.timeout_seconds == 60
    assert task.attributes == {}, "it is no attribute of the user's own"
    assert Task.from_row(scheduled_row("t", BUCKET)).timeout_seconds is None
    assert Task.from_row(scheduled_row("t", BUCKET, timeoutSeconds=None)).timeout_seconds is None


def test_occurrences_have_the_timeout_of_their_schedule() -> None:
    row = {"taskId": "s", "scheduleExpression": "rate(5 minutes)", "action": "log", "timeoutSeconds": Decimal("60")}
    nominal = NOON + timedelta(minutes=5)
    task = Task.from_row(occurrence_row(row, Schedule.from_row(row), nominal, BUCKET, now=NOON))
    assert task.timeout_seconds == 60
    assert "timeoutSeconds" not in task.attributes


@pytest.mark.parametrize("value", [0, -1])
def test_a_schedule_with_a_malformed_timeout_is_refused(value: object) -> None:
    row = {"taskId": "s", "scheduleExpression": "rate(5 minutes)", "action": "log", "timeoutSeconds": value}
    with pytest.raises(InvalidInput, match="timeoutSeconds"):
        edited(row, {}, now=NOON, grid=Grid(), defaults=Defaults())


def test_a_redriven_task_keeps_its_timeout() -> None:
    row = scheduled_row("t", BUCKET, timeoutSeconds=Decimal("60"), status="failed", outcome="failed")
    change = redrive(row, bucket=Bucket(BUCKET.minute + 1), due_at=NOON, run=2)
    assert "timeoutSeconds" not in {*change.set, *change.remove}
