"""What a row says. It may hold anything, because users write rows too, so each property answers for any row."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import Absent, Condition, Is
from dynatick.domain.instants import EPOCH, format_instant, parse_instant
from dynatick.domain.numbers import is_count, is_whole
from dynatick.domain.retry import DEFAULT_POLICY, RetryPolicy
from dynatick.domain.task import TERMINAL, Row, Status
from dynatick.errors import InvalidInput

RECURRING: Final = "recurring"
"""The ``status`` of a schedule's row, which no task has."""

RELEASED: Final = format_instant(EPOCH)
"""The ``leaseUntil`` of a task that was released."""

MAX_DEFERRALS = 10**6
_SCHEDULED: Final = str(Status.SCHEDULED)
_CLAIMED: Final = (str(Status.RUNNING), str(Status.WAITING))


def is_terminal(row: Row) -> bool:
    """Whether a task has ended. ``outcome`` decides: the index shows nothing else."""
    return row.get(attr.OUTCOME) is not None


@dataclass(frozen=True, slots=True)
class RowView:
    """A row of a task or a schedule. Where an attribute is missing or malformed, a property is None or False, unless
    it says otherwise."""

    row: Row

    @property
    def task_id(self) -> str:
        """The key, which every row of the table has; empty if there is none."""
        return str(self.row.get(attr.TASK_ID, ""))

    @property
    def limit_key(self) -> str | None:
        return self._text(attr.LIMIT_KEY) or None

    @property
    def shard_key(self) -> str:
        """The text whose hash is its shard: its limit key, so that one shard has all tasks of a key; else its id."""
        return self.limit_key or self.task_id

    @property
    def bucket(self) -> Bucket | None:
        """The bucket, if its name is canonical."""
        return Bucket.canonical(self.row.get(attr.TASK_DATE_TIME))

    def is_open_in(self, bucket: Bucket) -> bool:
        """Whether it has not ended, and lies in this bucket."""
        return self.row.get(attr.TASK_DATE_TIME) == str(bucket) and not is_terminal(self.row)

    @property
    def is_moved(self) -> bool:
        """Whether it lies where Dynatick itself has moved it."""
        moved_to = self.row.get(attr.MOVED_TO)
        return moved_to is not None and moved_to == self.row.get(attr.TASK_DATE_TIME)

    @property
    def is_unscheduled(self) -> bool:
        """Whether it has no status: Dynatick has not processed it yet."""
        return self.row.get(attr.STATUS) is None

    @property
    def is_scheduled(self) -> bool:
        return self.row.get(attr.STATUS) == _SCHEDULED

    @property
    def is_unbegun(self) -> bool:
        """Whether it is scheduled, or not yet processed."""
        return self.is_unscheduled or self.is_scheduled

    @property
    def is_running(self) -> bool:
        """Whether it is claimed: a process runs it, or it waits for a completion."""
        return self.row.get(attr.STATUS) in _CLAIMED

    @property
    def awaits_completion(self) -> bool:
        return self.row.get(attr.STATUS) == Status.WAITING

    @property
    def is_live(self) -> bool:
        """Whether it is scheduled or claimed."""
        return self.is_scheduled or self.is_running

    @property
    def is_recurring(self) -> bool:
        """Whether it has the status of a schedule."""
        return self.row.get(attr.STATUS) == RECURRING

    @property
    def terminal_status(self) -> Status | None:
        """The status, if it is a terminal one; it may be without an outcome."""
        status = self.row.get(attr.STATUS)
        return Status(status) if isinstance(status, str) and status in TERMINAL else None

    @property
    def has_expression(self) -> bool:
        """Whether it has an expression, which makes a schedule of a waiting row."""
        return any(self.row.get(name) is not None for name in attr.RECURRENCE)

    @property
    def attempt(self) -> int | None:
        """The number of the latest attempt, from 0."""
        value = self.row.get(attr.ATTEMPT)
        return int(value) if is_count(value, 0) else None

    @property
    def attempts_made(self) -> int:
        """How many attempts it has had; 0 if that can't be read."""
        return self.attempt or 0

    @property
    def retry_policy(self) -> RetryPolicy:
        """Its retry policy; the default one if it is malformed."""
        try:
            return RetryPolicy.from_row(self.row.get(attr.RETRY_POLICY))
        except InvalidInput:
            return DEFAULT_POLICY

    @property
    def is_last_attempt(self) -> bool:
        """Whether its next attempt is the last one, and is made apart from others, since the one before may have killed
        its process (10). What waited for a completion has killed none. A pack has no last one: each of its members has
        (21)."""
        is_apart = not (self.is_pack or self.awaits_completion)
        return is_apart and self.attempts_made + 1 == self.retry_policy.maximum_attempts

    @property
    def is_pack(self) -> bool:
        """Whether it is a pack of a batch."""
        return self.row.get(attr.PACK) is not None

    @property
    def lease(self) -> str | None:
        """The claim's token."""
        return self._text(attr.LEASE)

    @property
    def lease_until(self) -> datetime | None:
        return self._instant(attr.LEASE_UNTIL)

    @property
    def is_released(self) -> bool:
        """Whether it was claimed and released: it is running by its status, and waits for another claim."""
        return self.row.get(attr.STATUS) == Status.RUNNING and self.row.get(attr.LEASE_UNTIL) == RELEASED

    @property
    def started_at(self) -> datetime | None:
        return self._instant(attr.STARTED_AT)

    @property
    def finished_at(self) -> datetime | None:
        return self._instant(attr.FINISHED_AT)

    @property
    def next_attempt_at(self) -> datetime | None:
        return self._instant(attr.NEXT_ATTEMPT_AT)

    @property
    def deferrals(self) -> int:
        """How often it was deferred; 0 if that can't be read."""
        number = self.row.get(attr.DEFERRALS)
        return min(int(number), MAX_DEFERRALS) if is_whole(number) and number > 0 else 0

    @property
    def schedule_id(self) -> str | None:
        return self._text(attr.SCHEDULE_ID)

    @property
    def error(self) -> str | None:
        return self._text(attr.ERROR)

    def _text(self, name: str) -> str | None:
        value = self.row.get(name)
        return value if isinstance(value, str) else None

    def _instant(self, name: str) -> datetime | None:
        try:
            return parse_instant(self.row.get(name), name)
        except InvalidInput:
            return None


def in_own_shard(row: Row, bucket: Bucket, grid: Grid) -> Bucket:
    """The bucket of the same time in the shard of the row's limit key; itself, if it has none."""
    key = RowView(row).limit_key
    return bucket if key is None else bucket._replace(shard=grid.shard_of(key))


@dataclass(frozen=True, slots=True, order=True)
class Due:
    """A task, and the instant at which it is due. ``by``: the attribute that says so, dueAt or nextAttemptAt."""

    at: datetime
    task_id: str
    by: str = attr.DUE_AT

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions that this instant is still the one that counts (protocol 18)."""
        is_due = Is(self.by, format_instant(self.at))
        return (is_due,) if self.by == attr.NEXT_ATTEMPT_AT else (is_due, Absent(attr.NEXT_ATTEMPT_AT))


def due_of(task_id: str, due_at: object, next_attempt_at: object) -> Due | None:
    """When a task is due, by the attributes of its row or its entry: ``nextAttemptAt`` counts, else ``dueAt``.

    None if that isn't written as Dynatick writes it: then a user has, and it is still to be normalised.
    """
    by, value = (attr.DUE_AT, due_at) if next_attempt_at is None else (attr.NEXT_ATTEMPT_AT, next_attempt_at)
    try:
        at = parse_instant(value, by)
    except InvalidInput:
        return None
    return Due(at, task_id, by) if format_instant(at) == value else None
