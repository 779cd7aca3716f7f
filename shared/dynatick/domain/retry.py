"""Whether a failed attempt is made again, and when. The caller supplies the clock and the dice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from dynatick.domain import attributes as attr
from dynatick.domain.numbers import is_whole
from dynatick.errors import InvalidInput

MAX_ATTEMPTS = 185
"""The maximum of EventBridge Scheduler."""

_LIMITS = {
    attr.MAXIMUM_RETRY_ATTEMPTS: (0, MAX_ATTEMPTS),
    attr.MAXIMUM_EVENT_AGE_IN_SECONDS: (60, 30 * 86_400),
    attr.MIN_BACKOFF_SECONDS: (0, 86_400),
    attr.MAX_BACKOFF_SECONDS: (0, 86_400),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How often, how long and how fast. Names and defaults of the first two are EventBridge Scheduler's."""

    maximum_retry_attempts: int = 3
    maximum_event_age_in_seconds: int = 86_400  # from the first start; bounds only retries
    min_backoff_seconds: int = 5
    max_backoff_seconds: int = 3_600

    @property
    def maximum_attempts(self) -> int:
        return self.maximum_retry_attempts + 1

    def seconds_left(self, first_started_at: datetime, at: datetime) -> float:
        """How long after ``at`` an attempt may still begin; less than 0: none may."""
        return self.maximum_event_age_in_seconds - (at - first_started_at).total_seconds()

    @classmethod
    def from_row(cls, value: object) -> RetryPolicy:
        """Reads the attribute ``retryPolicy``, any part of which may be missing. Raises InvalidInput."""
        if value is None:
            return DEFAULT_POLICY
        if not isinstance(value, Mapping):
            raise InvalidInput(attr.RETRY_POLICY, value, f"expected a map with any of {', '.join(_LIMITS)}")
        found: dict[str, int] = {}
        for name, number in value.items():
            if name not in _LIMITS:
                raise InvalidInput(
                    f"retryPolicy.{name}",
                    number,
                    f"there is no such setting; expected any of {', '.join(_LIMITS)}",
                )
            low, high = _LIMITS[name]
            if not is_whole(number) or not low <= number <= high:
                raise InvalidInput(f"retryPolicy.{name}", number, f"expected a whole number from {low} to {high}")
            found[name] = int(number)
        min_backoff = found.get(attr.MIN_BACKOFF_SECONDS, DEFAULT_POLICY.min_backoff_seconds)
        policy = cls(
            maximum_retry_attempts=found.get(attr.MAXIMUM_RETRY_ATTEMPTS, DEFAULT_POLICY.maximum_retry_attempts),
            maximum_event_age_in_seconds=found.get(
                attr.MAXIMUM_EVENT_AGE_IN_SECONDS, DEFAULT_POLICY.maximum_event_age_in_seconds
            ),
            min_backoff_seconds=min_backoff,
            max_backoff_seconds=found.get(
                attr.MAX_BACKOFF_SECONDS, max(min_backoff, DEFAULT_POLICY.max_backoff_seconds)
            ),
        )
        if policy.max_backoff_seconds < policy.min_backoff_seconds:
            raise InvalidInput(
                "retryPolicy.maxBackoffSeconds", policy.max_backoff_seconds,
                f"expected at least minBackoffSeconds, which is {policy.min_backoff_seconds}",
            )  # fmt: skip
        return policy

    def to_row(self) -> dict[str, int]:
        """Returns the value of the attribute ``retryPolicy``."""
        return {
            attr.MAXIMUM_RETRY_ATTEMPTS: self.maximum_retry_attempts,
            attr.MAXIMUM_EVENT_AGE_IN_SECONDS: self.maximum_event_age_in_seconds,
            attr.MIN_BACKOFF_SECONDS: self.min_backoff_seconds,
            attr.MAX_BACKOFF_SECONDS: self.max_backoff_seconds,
        }


DEFAULT_POLICY = RetryPolicy()

_FIRST_DEFERRAL, _LONGEST_DEFERRAL = timedelta(minutes=5), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again, not before ``at``."""

    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The task has failed."""

    reason: str


def decide_retry(
    policy: RetryPolicy,
    *,
    attempt: int,
    first_started_at: datetime,
    now: datetime,
    permanent: bool,
    retry_after: float | None,
    jitter: float,
) -> Retry | GiveUp:
    """Decides about a task whose ``attempt`` (counted from 1) has failed.

    The wait doubles with each attempt from ``minBackoffSeconds`` to ``maxBackoffSeconds``; ``jitter`` in [0, 1)
    subtracts up to half of it. ``retry_after`` (seconds, from the target) can only make it longer, up to the policy's
    ``maximumEventAgeInSeconds``: it ends no task that may be tried again.
    """
    if permanent:
        return GiveUp("the error is permanent")
    if attempt >= policy.maximum_attempts:
        return GiveUp(f"all {policy.maximum_attempts} attempts are used up")
    base = min(policy.min_backoff_seconds * 2 ** min(attempt - 1, 32), policy.max_backoff_seconds)
    wait = base * (1 - jitter / 2)
    left = policy.seconds_left(first_started_at, now)
    if wait > left:
        return GiveUp(f"a retry would begin later than {policy.maximum_event_age_in_seconds} s after the first attempt")
    wait = min(max(wait, retry_after or 0.0), left)  # as numbers: a target may ask for more than fits into a date
    return Retry(
        now + timedelta(seconds=wait),
        f"attempt {attempt} of {policy.maximum_attempts} failed; again in {wait:.0f} s or at the first tick after",
    )


MIN_TURN_SECONDS = 1.0
"""Between two turns of a task that its handler reschedules."""


def decide_turn(
    policy: RetryPolicy, *, turn: int, max_turns: int | None, after: float, first_started_at: datetime, now: datetime
) -> Retry | GiveUp:
    """Decides about a task whose handler asks for another turn, number ``turn``, ``after`` this number of seconds.

    Its number is bounded by ``max_turns``, if that is given, its age by the policy's ``maximumEventAgeInSeconds``, as
    that of a retry is.
    """
    if max_turns is not None and turn > max_turns:
        return GiveUp(f"its handler has rescheduled it {max_turns} times in this run, the most that is allowed")
    wait = max(after, MIN_TURN_SECONDS)
    if wait > policy.seconds_left(first_started_at, now):
        return GiveUp(
            f"its handler reschedules it to later than {policy.maximum_event_age_in_seconds} s "
            "(maximumEventAgeInSeconds) after the first attempt"
        )
    return Retry(now + timedelta(seconds=wait), f"turn {turn}")


def deferral(earlier: int) -> timedelta:
    """How long to defer a row that no tick can work on. ``earlier``: the number of its deferrals before.

    Doubles each time, from five minutes up to an hour: such a row must not make every tick more expensive.
    """
    return min(_FIRST_DEFERRAL * (1 << min(earlier, 8)), _LONGEST_DEFERRAL)
