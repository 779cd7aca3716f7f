"""What a view says of a row, which may hold anything."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynatick.domain.attributes import OWN_ATTRIBUTES, RECURRENCE
from dynatick.domain.buckets import Bucket
from dynatick.domain.retry import DEFAULT_POLICY
from dynatick.domain.row import MAX_DEFERRALS, RowView, is_terminal
from dynatick.domain.task import Status

NOON = Bucket.parse("2026-12-31#12:00")
PROPERTIES = [name for name, value in vars(RowView).items() if isinstance(value, property)]
NONSENSE = st.one_of(
    st.none(), st.booleans(), st.text(max_size=5), st.decimals(allow_nan=True), st.integers(), st.binary(max_size=3),
    st.lists(st.text(max_size=2), max_size=2), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sets(st.text(max_size=2), max_size=2),
)  # fmt: skip


@given(row=st.dictionaries(st.sampled_from(sorted(OWN_ATTRIBUTES | {*RECURRENCE})), NONSENSE, max_size=8))
def test_a_view_answers_for_any_row(row: dict[str, object]) -> None:
    view = RowView(row)
    for name in PROPERTIES:
        getattr(view, name)
    assert view.is_open_in(NOON) is (row.get("taskDateTime") == str(NOON) and row.get("outcome") is None)


def test_an_empty_row_says_nothing() -> None:
    view = RowView({})
    answers = {name: answer for name in PROPERTIES if (answer := getattr(view, name))}
    assert answers == {"is_unscheduled": True, "is_waiting": True, "retry_policy": DEFAULT_POLICY}
    assert not is_terminal({})


@pytest.mark.parametrize(
    ("attribute", "value", "answers"),
    [
        ("taskDateTime", str(NOON), {"bucket": NOON}),
        ("taskDateTime", "2026-12-31T12:00:00Z", {"bucket": None}),
        ("status", "scheduled", {"is_scheduled": True, "is_waiting": True, "is_unscheduled": False}),
        ("status", "running", {"is_running": True, "is_waiting": False, "terminal_status": None}),
        ("status", "recurring", {"is_recurring": True, "is_waiting": False}),
        ("status", "failed", {"terminal_status": Status.FAILED, "is_waiting": False}),
        ("status", "unscheduled", {"is_unscheduled": False, "is_waiting": False, "terminal_status": None}),
        ("attempt", Decimal(3), {"attempt": 3, "attempts_made": 3, "is_last_attempt": True}),
        ("attempt", Decimal("1.5"), {"attempt": None, "attempts_made": 0, "is_last_attempt": False}),
        ("attempt", True, {"attempt": None}),
        ("retryPolicy", {"maximumRetryAttempts": "many"}, {"retry_policy": DEFAULT_POLICY}),
        ("leaseUntil", "1970-01-01T00:00:00Z", {"is_released": True}),
        ("leaseUntil", "2026-12-31T12:00:00Z", {"lease_until": datetime(2026, 12, 31, 12, tzinfo=UTC)}),
        ("leaseUntil", "soon", {"lease_until": None, "is_released": False}),
        ("lease", Decimal(7), {"lease": None}),
        ("deferrals", Decimal(2), {"deferrals": 2}),
        ("deferrals", Decimal(-2), {"deferrals": 0}),
        ("deferrals", Decimal(10**30), {"deferrals": MAX_DEFERRALS}),
        ("movedTo", str(NOON), {"is_moved": False}),
        ("cronExpression", "cron(0 9 * * ? *)", {"has_expression": True}),
    ],
)
def test_what_a_view_says_of_one_attribute(attribute: str, value: object, answers: dict[str, object]) -> None:
    view = RowView({attribute: value})
    assert {name: getattr(view, name) for name in answers} == answers


def test_a_row_is_moved_where_it_lies_in_the_bucket_that_dynatick_gave_it() -> None:
    moved = {"taskDateTime": str(NOON), "movedTo": str(NOON)}
    assert RowView(moved).is_moved
    assert not RowView({**moved, "taskDateTime": "2026-12-31#12:01"}).is_moved


def test_a_row_is_open_in_its_own_bucket_until_it_has_ended() -> None:
    row = {"taskDateTime": str(NOON)}
    assert RowView(row).is_open_in(NOON)
    assert not RowView({**row, "outcome": "completed"}).is_open_in(NOON)
    assert not RowView(row).is_open_in(NOON._replace(shard=1))
