"""The checks that a row must pass to become a task; and what a view says of any row."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from boto3.dynamodb.types import Binary
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import scheduled_row
from tests.unit.domain.support import refusal

from dynatick.domain.attributes import OWN_ATTRIBUTES, RECURRENCE
from dynatick.domain.buckets import Bucket
from dynatick.domain.retry import DEFAULT_POLICY, RetryPolicy
from dynatick.domain.row import MAX_DEFERRALS, RowView, is_terminal
from dynatick.domain.task import (
    Status,
    Task,
    check_action,
    check_count,
    check_payload,
    check_status,
    check_task_id,
    check_timeout,
    is_own_row,
)
from dynatick.errors import InvalidInput

BUCKET = Bucket.parse("2026-12-31#12:00")


@pytest.mark.parametrize("value", ["a", "A b", "ä☃", "x" * 1024, "é" * 512, "\x00", "_dynatick", "x_dynatick#"])
def test_valid_ids_are_accepted(value: str) -> None:
    assert check_task_id(value) == value
    assert not is_own_row(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [*((value, "expected a text that is not empty") for value in ("", None, 7, b"a", ["a"])),
     ("x" * 1025, "expected at most 1024 bytes in UTF-8, this has 1025"),
     ("é" * 513, "expected at most 1024 bytes in UTF-8, this has 1026"),
     *((own, "ids beginning with _dynatick# are reserved; choose another") for own in ("_dynatick#", "_dynatick#x")),
     ("a\ud800b", "expected text that UTF-8 can hold (no lone surrogates)")],
)  # fmt: skip
def test_invalid_ids_are_refused(value: object, expected: str) -> None:
    assert refusal(check_task_id, value) == ("taskId", expected)
    assert is_own_row(value) is ("reserved" in expected)


@pytest.mark.parametrize("value", [None, "", "  ", Decimal(7), {"name": "log"}])
def test_an_action_is_a_text_of_at_most_128_characters(value: object) -> None:
    """The processor checks whether it exists."""
    assert [check_action(name) for name in ("no-such-action", "x" * 128)] == ["no-such-action", "x" * 128]
    expected = "expected the name of an action as text, such as log or webhook"
    assert refusal(check_action, value) == ("action", expected)
    assert refusal(check_action, "x" * 129) == ("action", "expected at most 128 characters")


@pytest.mark.parametrize("value", ["not a map", Decimal(7), [1, 2], False, Binary(b"x")])
def test_a_payload_is_a_map_whose_names_are_text(value: object) -> None:
    assert refusal(check_payload, value) == ("payload", "expected a map of names to values")
    assert refusal(check_payload, {1: value}) == ("payload", "expected names that are text")
    assert (check_payload(None), check_payload({"a": value})) == ({}, {"a": value})


NO_NUMBERS = [-1, Decimal("0.5"), 60.0, True, "60", "", None, [60], Decimal("NaN"), Decimal("Infinity")]


@pytest.mark.parametrize("value", [0, 901, Decimal("901"), *NO_NUMBERS])
def test_a_timeout_is_a_whole_number_of_seconds(value: object) -> None:
    assert [check_timeout(seconds) for seconds in (1, 900, Decimal("6E+1"))] == [1, 900, 60]
    assert type(check_timeout(Decimal(60))) is int
    assert refusal(check_timeout, value) == ("timeoutSeconds", "expected a whole number of seconds from 1 to 900")


@pytest.mark.parametrize("value", [False, Decimal("-1"), *NO_NUMBERS])
def test_a_count_is_a_whole_number(value: object) -> None:
    assert [check_count(count, "attempt") for count in (0, Decimal(7), Decimal("1E+2"))] == [0, 7, 100]
    assert refusal(check_count, value, "attempt") == ("attempt", "expected a whole number, 0 or more")


@pytest.mark.parametrize("value", ["", "Scheduled", "unscheduled", None, Decimal(1), ["scheduled"], {"scheduled"}])
def test_a_status_is_one_that_dynatick_sets(value: object) -> None:
    known = [status for status in Status if status is not Status.UNSCHEDULED]
    assert [check_status(str(status)) for status in known] == known
    with pytest.raises(InvalidInput, match="leave it out: it is set by Dynatick"):
        check_status(value)


def test_a_row_without_optional_attributes_as_a_task() -> None:
    task = Task.from_row({"taskId": "a", "taskDateTime": str(BUCKET), "action": "log", "status": "running"})
    assert task == Task(task_id="a", bucket=BUCKET, action="log", status=Status.RUNNING, due_at=BUCKET.instant)
    assert (task.attempt, task.run, task.retry_policy, task.payload) == (0, 1, DEFAULT_POLICY, {})
    assert (task.timeout_seconds, task.first_started_at, task.idempotency_key) == (None, None, "a#1")


def test_a_full_row_as_a_task() -> None:
    task = Task.from_row(
        scheduled_row("a", BUCKET, dueAt="2026-12-31T12:59:30+01:00", payload={"url": "https://example.org"},
            status="running", attempt=Decimal(2), run=Decimal(3), retryPolicy={"maximumRetryAttempts": Decimal(1)},
            attempts=[{"run": Decimal(3), "attempt": Decimal(1), "startedAt": "2026-12-31T11:00:00Z"}, "not a map"],
            lease="token", leaseUntil="2026-12-31T12:02:00Z", startedAt="2026-12-31T12:00:00.250Z",
            scheduleId="nightly", timeoutSeconds=Decimal(60), colour="blue", delaySeconds=Decimal(30),
            movedTo=str(BUCKET)),
    )  # fmt: skip
    assert task.due_at == datetime(2026, 12, 31, 11, 59, 30, tzinfo=UTC), "a claim may come before it is normalised"
    assert (task.status, task.attempt, task.run, task.lease) == (Status.RUNNING, 2, 3, "token")
    assert task.retry_policy == RetryPolicy(maximum_retry_attempts=1)
    assert len(task.attempts) == 1
    assert task.lease_until == datetime(2026, 12, 31, 12, 2, tzinfo=UTC)
    assert (task.schedule_id, task.timeout_seconds) == ("nightly", 60)
    assert task.attributes == {"colour": "blue"}, "what means nothing to us reaches the action, what is ours does not"
    assert task.idempotency_key == "a#1798714800000-3"
    assert task.first_started_at == datetime(2026, 12, 31, 11, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("malformed", "field"),
    [({"taskDateTime": "2026-12-31T12:00:00Z"}, "taskDateTime"),
     ({"taskDateTime": None}, "taskDateTime"), ({"action": None}, "action"), ({"action": Decimal(7)}, "action"),
     ({"dueAt": "soon"}, "dueAt"), ({"payload": "x"}, "payload"), ({"status": "open"}, "status"),
     ({"attempt": Decimal("0.5")}, "attempt"), ({"run": "1"}, "run"), ({"run": True}, "run"),
     ({"retryPolicy": {"maximumRetryAttempts": Decimal(999)}}, "retryPolicy.maximumRetryAttempts"),
     ({"lease": Decimal(7)}, "lease"), ({"leaseUntil": "soon"}, "leaseUntil"), ({"createdAt": "soon"}, "createdAt"),
     ({"startedAt": ["x"]}, "startedAt"), ({"scheduleId": Decimal(7)}, "scheduleId"),
     ({"timeoutSeconds": "a minute"}, "timeoutSeconds"), ({"turn": Decimal(-1)}, "turn"),
     ({"nextAttemptAt": "soon"}, "nextAttemptAt"), ({"firstStartedAt": Decimal(-1)}, "firstStartedAt")],
)  # fmt: skip
def test_a_malformed_row_is_refused(malformed: dict[str, object], field: str) -> None:
    assert refusal(Task.from_row, scheduled_row("a", BUCKET) | malformed)[0] == field


def test_the_first_start_is_that_of_the_current_run_and_malformed_records_are_ignored() -> None:
    """``attempts`` are informative only, and a user may have changed them."""
    attempts = [
        {"run": Decimal(run), "attempt": Decimal(attempt), "startedAt": f"2026-12-31T{hour:02}:00:00Z"}
        for run, attempt, hour in ((1, 1, 9), (2, 1, 10), (2, 2, 11))
    ]
    attempts += [{"run": Decimal(4), "startedAt": started} for started in ("soon", Decimal(7), None, ["x"])]
    row = scheduled_row("a", BUCKET, attempts=attempts, startedAt="2026-12-31T12:00:00Z")
    for run, hour in ((1, 9), (2, 10), (3, 12), (4, 12)):
        started = Task.from_row(row | {"run": run}).first_started_at
        assert started == datetime(2026, 12, 31, hour, tzinfo=UTC)


def test_each_turn_of_a_run_has_an_idempotency_key_of_its_own_and_the_runs_first_start() -> None:
    row = scheduled_row("a", BUCKET, run=Decimal(2), turn=Decimal(3), firstStartedAt="2026-12-31T09:00:00Z",
                        startedAt="2026-12-31T12:00:00Z")  # fmt: skip
    task = Task.from_row(row)
    assert task.idempotency_key == "a#1798714800000-2.3"
    assert Task.from_row({name: value for name, value in row.items() if name != "createdAt"}).idempotency_key == "a#2.3"
    assert task.first_started_at == datetime(2026, 12, 31, 9, tzinfo=UTC)


# -- views of rows that may hold anything -----------------------------------------------------------------------------

PROPERTIES = [name for name, value in vars(RowView).items() if isinstance(value, property)]
# A table holds no NaN, and one that signals can't even be compared.
NONSENSE = st.one_of(
    st.none(), st.booleans(), st.text(max_size=5), st.decimals(allow_nan=False), st.integers(), st.binary(max_size=3),
    st.lists(st.text(max_size=2), max_size=2), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sets(st.text(max_size=2), max_size=2),
)  # fmt: skip


@given(row=st.dictionaries(st.sampled_from(sorted(OWN_ATTRIBUTES | {*RECURRENCE})), NONSENSE, max_size=8))
def test_a_view_answers_for_any_row(row: dict[str, object]) -> None:
    view = RowView(row)
    for name in PROPERTIES:
        getattr(view, name)
    assert view.is_open_in(BUCKET) is (row.get("taskDateTime") == str(BUCKET) and row.get("outcome") is None)


def test_an_empty_row_says_nothing() -> None:
    view = RowView({})
    answers = {name: answer for name in PROPERTIES if (answer := getattr(view, name))}
    assert answers == {"is_unscheduled": True, "is_unbegun": True, "retry_policy": DEFAULT_POLICY}
    assert not is_terminal({})


@pytest.mark.parametrize(
    ("attribute", "value", "answers"),
    [
        ("taskDateTime", str(BUCKET), {"bucket": BUCKET}),
        ("taskDateTime", "2026-12-31T12:00:00Z", {"bucket": None}),
        ("status", "scheduled", {"is_scheduled": True, "is_unbegun": True, "is_unscheduled": False}),
        ("status", "running", {"is_running": True, "is_unbegun": False, "terminal_status": None}),
        ("status", "recurring", {"is_recurring": True, "is_unbegun": False}),
        ("status", "failed", {"terminal_status": Status.FAILED, "is_unbegun": False}),
        ("status", "unscheduled", {"is_unscheduled": False, "is_unbegun": False, "terminal_status": None}),
        ("attempt", Decimal(3), {"attempt": 3, "attempts_made": 3, "is_last_attempt": True}),
        ("attempt", Decimal("1.5"), {"attempt": None, "attempts_made": 0, "is_last_attempt": False}),
        ("attempt", True, {"attempt": None}),
        ("retryPolicy", {"maximumRetryAttempts": "many"}, {"retry_policy": DEFAULT_POLICY}),
        ("leaseUntil", "1970-01-01T00:00:00Z", {"is_released": False}),  # by its status, it is not claimed any more
        ("leaseUntil", "2026-12-31T12:00:00Z", {"lease_until": datetime(2026, 12, 31, 12, tzinfo=UTC)}),
        ("leaseUntil", "soon", {"lease_until": None, "is_released": False}),
        ("lease", Decimal(7), {"lease": None}),
        ("deferrals", Decimal(2), {"deferrals": 2}),
        ("deferrals", Decimal(-2), {"deferrals": 0}),
        ("deferrals", Decimal(10**30), {"deferrals": MAX_DEFERRALS}),
        ("movedTo", str(BUCKET), {"is_moved": False}),
        ("cronExpression", "cron(0 9 * * ? *)", {"has_expression": True}),
    ],
)
def test_what_a_view_says_of_one_attribute(attribute: str, value: object, answers: dict[str, object]) -> None:
    view = RowView({attribute: value})
    assert {name: getattr(view, name) for name in answers} == answers


def test_a_row_is_moved_and_open_in_its_own_bucket_only() -> None:
    moved = {"taskDateTime": str(BUCKET), "movedTo": str(BUCKET)}
    assert RowView(moved).is_moved
    assert not RowView({**moved, "taskDateTime": "2026-12-31#12:01"}).is_moved
    assert RowView(moved).is_open_in(BUCKET)
    assert not RowView({**moved, "outcome": "completed"}).is_open_in(BUCKET)
    assert not RowView(moved).is_open_in(BUCKET._replace(shard=1))
