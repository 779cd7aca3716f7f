"""Occurrences that must have completed by an instant, and why one has not.

A schedule with ``expectedWithinSeconds`` keeps a list of them on its row, from the tick that decides on each until it
has completed or its instant has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dynatick.domain import attributes as attr
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.row import RowView
from dynatick.domain.task import Row, Status
from dynatick.errors import InvalidInput

MAX_AWAITED = 100
"""The limit for one schedule, so that its row stays small. Further ones are reported at once instead."""

OF_AWAITED = (
    attr.STATUS, attr.OUTCOME, attr.SCHEDULE_ID, attr.ATTEMPT, attr.FINISHED_AT, attr.ERROR, attr.NEXT_ATTEMPT_AT,
    attr.LEASE_UNTIL,
)  # fmt: skip
"""The attributes of a task's row that ``judge`` reads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AwaitedOccurrence:
    """An occurrence that a tick has decided to make, and when it must have completed."""

    nominal: datetime
    expected_by: datetime

    def to_row(self) -> dict[str, object]:
        return {attr.DUE_AT: format_instant(self.nominal), attr.EXPECTED_BY: format_instant(self.expected_by)}

    @classmethod
    def from_row(cls, value: object) -> AwaitedOccurrence | None:
        """None for a malformed entry: the schedule works without it."""
        if not isinstance(value, Mapping):
            return None
        try:
            return cls(
                nominal=parse_instant(value.get(attr.DUE_AT), attr.DUE_AT),
                expected_by=parse_instant(value.get(attr.EXPECTED_BY), attr.EXPECTED_BY),
            )
        except InvalidInput:
            return None

    def judge(self, row: Row | None, now: datetime, *, otherwise: str | None = None) -> AwaitedOccurrence | str | None:
        """Itself while it is awaited; why it is overdue; or None: it has completed in time, or a person has cancelled
        or deleted its task.

        ``row``: of its task, with at least ``OF_AWAITED``. ``otherwise``: why it is overdue if there is no such row.
        """
        view = RowView({} if row is None else row)
        status = view.terminal_status
        if status is Status.CANCELLED or (row is None and otherwise is None):
            return None
        if status is Status.COMPLETED:
            finished_at = view.finished_at
            if finished_at is None or finished_at <= self.expected_by:
                return None
            return f"completed late, at {format_instant(finished_at)}"
        if now < self.expected_by:
            return self  # even if it has failed: a person may redrive it
        return otherwise if row is None else _why_open(view, status, now)


def _why_open(view: RowView, status: Status | None, now: datetime) -> str:
    """Why a task has not completed."""
    if status is not None:
        return f"failed: {view.error or 'without an error'}"
    if view.is_running and not view.is_released:
        until = view.lease_until
        if until is None or until < now:
            return f"attempt {view.attempts_made} did not end: its process died"
        return f"still running, attempt {view.attempts_made}"
    next_attempt_at = view.next_attempt_at
    at = "" if next_attempt_at is None else f", at {format_instant(next_attempt_at)}"
    return f"waits for attempt {view.attempts_made + 1}{at}"
