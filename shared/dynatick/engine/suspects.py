"""What is to be done with a task whose lease ran out (protocol 10). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dynatick.domain.buckets import Bucket
from dynatick.domain.change import Change
from dynatick.domain.lifecycle import is_terminal, take_over
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.task import Row, Status, check_count
from dynatick.engine.claims import lease_is_over
from dynatick.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Its attempts are used up: it fails without being executed."""

    attempt: int
    error: str


def plan_recovery(
    row: Row | None, bucket: Bucket, *, token: str, lease_until: datetime, now: datetime
) -> Change | Exhausted | None:
    """How to go on with a suspect of ``bucket``; None if it is none any more."""
    if (
        row is None
        or is_terminal(row)
        or row.get("status") != str(Status.RUNNING)
        or row.get("taskDateTime") != str(bucket)
        or not lease_is_over(row, now)
    ):
        return None
    attempt = _attempt_of(row)
    if attempt >= _policy_of(row).maximum_attempts:
        return Exhausted(attempt, f"its process died, or did not finish in time, at the last of {attempt} attempts")
    return take_over(row, attempt=attempt + 1, token=token, lease_until=lease_until, now=now)


def _attempt_of(row: Row) -> int:
    try:
        return check_count(row.get("attempt", 0), "attempt")
    except InvalidInput:
        return 0


def _policy_of(row: Row) -> RetryPolicy:
    try:
        return RetryPolicy.from_row(row.get("retryPolicy"))
    except InvalidInput:
        return RetryPolicy()
