"""A failed attempt is made again or not, and when."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import NOON
from tests.unit.domain.support import refusal

from dynatick.domain.retry import DEFAULT_POLICY, MAX_ATTEMPTS, GiveUp, Retry, RetryPolicy, decide_retry, decide_turn


def decide(policy: RetryPolicy = DEFAULT_POLICY, **given_: object) -> Retry | GiveUp:
    asked: dict[str, object] = {
        "attempt": 1, "first_started_at": NOON, "now": NOON, "permanent": False, "retry_after": None, "jitter": 0.0,
    } | given_  # fmt: skip
    return decide_retry(policy, **asked)  # type: ignore[arg-type]


def wait(policy: RetryPolicy = DEFAULT_POLICY, **given_: object) -> float:
    decision = decide(policy, **given_)
    assert isinstance(decision, Retry), decision
    return (decision.at - NOON).total_seconds()


LONG = RetryPolicy(maximum_retry_attempts=185, maximum_event_age_in_seconds=30 * 86_400)


@pytest.mark.parametrize(
    ("attempt", "jitter", "seconds"),
    [
        # doubled, up to an hour
        *((attempt, 0.0, wait) for attempt, wait in [(1, 5), (2, 10), (3, 20), (10, 2560), (11, 3600), (185, 3600)]),
        # jitter takes up to half off
        *((4, jitter, wait) for jitter, wait in [(0.0, 40), (0.25, 35), (0.5, 30), (0.999, 20.02)]),
    ],
)
def test_the_wait_doubles_up_to_the_maximum_and_jitter_shortens_it(attempt: int, jitter: float, seconds: float) -> None:
    assert wait(LONG, attempt=attempt, jitter=jitter) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("retry_after", "seconds"), [(None, 5), (3, 5), (-10, 5), (60, 60), (5000.5, 5000.5), (float("nan"), 5)]
)
def test_what_the_target_asks_for_only_lengthens_the_wait(retry_after: float | None, seconds: float) -> None:
    assert wait(retry_after=retry_after) == seconds


def test_what_the_target_asks_for_ends_no_task_that_may_be_tried_again() -> None:
    for wish in (86_400, 86_401, 1e20, 1e308, float("inf"), 10**400):  # or a user's handler, which may ask for anything
        assert wait(retry_after=wish) == 86_400
        assert wait(retry_after=wish, attempt=3, first_started_at=NOON - timedelta(hours=23)) == 3600
        assert wait(retry_after=wish, first_started_at=NOON - timedelta(seconds=86_395)) == 5


def turn(**given_: object) -> Retry | GiveUp:
    asked = {"turn": 1, "max_turns": 7, "after": 20.0, "first_started_at": NOON, "now": NOON} | given_
    return decide_turn(DEFAULT_POLICY, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(("after", "seconds"), [(20, 20), (0, 1), (0.2, 1), (3600.5, 3600.5), (86_400, 86_400)])
def test_a_further_turn_begins_after_the_time_that_its_handler_names(after: float, seconds: float) -> None:
    decision = turn(after=after, turn=7)
    assert isinstance(decision, Retry)
    assert (decision.at - NOON).total_seconds() == seconds


TOO_LATE = "a retry would begin later than 86400 s after the first attempt"
TURN_TOO_LATE = "its handler reschedules it to later than 86400 s (maximumEventAgeInSeconds) after the first attempt"


def test_giving_up_has_its_reason() -> None:
    for wish in (None, 0, 3600):
        late = NOON - timedelta(seconds=86_395, microseconds=1)
        assert decide(first_started_at=late, retry_after=wish) == GiveUp(TOO_LATE)
    for after in (86_401, 1e20, 1e308):
        assert turn(after=after) == GiveUp(TURN_TOO_LATE)
    assert turn(after=61, first_started_at=NOON - timedelta(seconds=86_340)) == GiveUp(TURN_TOO_LATE)
    turns = "its handler has rescheduled it 7 times in this run, the most that is allowed"
    assert turn(turn=8) == GiveUp(turns)
    assert decide(permanent=True) == GiveUp("the error is permanent")
    for maximum, attempt in ((0, 1), (3, 4), (3, 5), (185, 186)):
        reason = f"all {maximum + 1} attempts are used up"
        assert decide(RetryPolicy(maximum_retry_attempts=maximum), attempt=attempt) == GiveUp(reason)


def test_the_last_attempt_and_the_last_moment_are_used_and_a_decision_says_why() -> None:
    assert isinstance(decide(attempt=3), Retry)
    assert isinstance(decide(first_started_at=NOON - timedelta(seconds=86_395)), Retry)
    assert isinstance(turn(after=60, first_started_at=NOON - timedelta(seconds=86_340)), Retry)
    reason = "attempt 2 of 4 failed; again in 8 s or at the first tick after"
    assert decide(attempt=2, jitter=0.5) == Retry(NOON + timedelta(seconds=7.5), reason)


policies = st.builds(
    lambda minimum, more, **others: RetryPolicy(
        min_backoff_seconds=minimum, max_backoff_seconds=minimum + more, **others),
    minimum=st.integers(0, 40_000), more=st.integers(0, 40_000),
    maximum_retry_attempts=st.integers(0, MAX_ATTEMPTS), maximum_event_age_in_seconds=st.integers(60, 30 * 86_400),
)  # fmt: skip
failures = st.fixed_dictionaries({
    "attempt": st.integers(1, 300), "jitter": st.floats(0, 1, exclude_max=True), "permanent": st.booleans(),
    "retry_after": st.one_of(st.none(), st.floats(), st.integers()),
    "first_started_at": st.timedeltas(timedelta(), timedelta(days=400)).map(lambda age: NOON - age),
})  # fmt: skip


@given(policies, failures)
def test_every_decision_keeps_within_the_policy(policy: RetryPolicy, failure: dict[str, Any]) -> None:
    found = decide(policy, **failure)
    if isinstance(found, GiveUp):
        return
    assert not failure["permanent"]
    assert failure["attempt"] <= policy.maximum_retry_attempts
    waited = (found.at - NOON).total_seconds()
    assert waited >= policy.min_backoff_seconds / 2 - 1e-6
    asked = failure["retry_after"] or 0
    asked = 0 if math.isnan(asked) else asked
    assert waited <= max(policy.max_backoff_seconds, asked) + 1e-6
    last = failure["first_started_at"] + timedelta(seconds=policy.maximum_event_age_in_seconds)
    assert waited >= min(asked, (last - NOON).total_seconds()) - 1e-6
    assert found.at <= last


# -- the policy as a row has it --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        (None, DEFAULT_POLICY), ({}, DEFAULT_POLICY),
        ({"maximumRetryAttempts": Decimal(0)}, RetryPolicy(maximum_retry_attempts=0)),
        ({"maximumEventAgeInSeconds": Decimal("2592000")}, RetryPolicy(maximum_event_age_in_seconds=2_592_000)),
        ({"minBackoffSeconds": 0, "maxBackoffSeconds": 0}, RetryPolicy(min_backoff_seconds=0, max_backoff_seconds=0)),
        # The maximum follows where only the minimum is given, and is beyond it.
        ({"minBackoffSeconds": Decimal(7200)}, RetryPolicy(min_backoff_seconds=7200, max_backoff_seconds=7200)),
    ],
)  # fmt: skip
def test_a_policy_any_part_of_which_may_be_missing(value: object, policy: RetryPolicy) -> None:
    assert RetryPolicy.from_row(value) == policy


MAP = "expected a map with any of maximumRetryAttempts, maximumEventAgeInSeconds, minBackoffSeconds, maxBackoffSeconds"
OUT_OF_RANGE: list[tuple[str, int, int, list[object]]] = [
    ("maximumRetryAttempts", 0, 185,
        [-1, 186, Decimal("1.5"), "3", True, None, 3.0, Decimal("NaN"), Decimal("Infinity")]),
    ("maximumEventAgeInSeconds", 60, 2_592_000, [59, 2_592_001]),
    ("minBackoffSeconds", 0, 86_400, [86_401]),
    ("maxBackoffSeconds", 0, 86_400, [-1]),
]  # fmt: skip
REFUSED: list[tuple[object, str, str]] = [
    ("3", "retryPolicy", MAP), (Decimal(3), "retryPolicy", MAP), ([3], "retryPolicy", MAP),
    ({"maxRetries": 3}, "retryPolicy.maxRetries",
        "there is no such setting; expected any of maximumRetryAttempts, maximumEventAgeInSeconds, "
        "minBackoffSeconds, maxBackoffSeconds"),
    ({"minBackoffSeconds": 10, "maxBackoffSeconds": 9}, "retryPolicy.maxBackoffSeconds",
        "expected at least minBackoffSeconds, which is 10"),
    ({"maxBackoffSeconds": 4}, "retryPolicy.maxBackoffSeconds", "expected at least minBackoffSeconds, which is 5"),
    *(({name: value}, f"retryPolicy.{name}", f"expected a whole number from {minimum} to {maximum}")
        for name, minimum, maximum, values in OUT_OF_RANGE for value in values),
]  # fmt: skip


@pytest.mark.parametrize(("value", "field", "expected"), REFUSED)
def test_policies_that_are_refused(value: object, field: str, expected: str) -> None:
    assert refusal(RetryPolicy.from_row, value) == (field, expected)


@given(policies)
def test_a_policy_is_read_as_it_was_written(policy: RetryPolicy) -> None:
    assert RetryPolicy.from_row(policy.to_row()) == policy
    assert RetryPolicy.from_row({name: Decimal(number) for name, number in policy.to_row().items()}) == policy
