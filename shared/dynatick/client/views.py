"""What the client returns: tasks, entries of a history, counts. In plain Python values.

A row may hold anything, so nothing here refuses one: a malformed value becomes None.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, cast

from dynatick.actions.plain_value import plain, to_json
from dynatick.domain import attributes as attr
from dynatick.domain.distribution import Distribution
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.lifecycle import state_of
from dynatick.domain.row import RowView
from dynatick.domain.task import TERMINAL, Row, Status
from dynatick.engine.counts import FAILED, RAN
from dynatick.errors import InvalidInput, shown

if TYPE_CHECKING:
    from dynatick.client.row_types import BucketCountsRow, TaskEntryRow


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskView:
    """A task as it was when it was read."""

    task_id: str
    status: Status | str  # another text only if it was written by hand
    bucket: str | None  # taskDateTime; a canonical name once the task is scheduled
    due_at: datetime | None
    action: str | None
    payload: Mapping[str, object]
    attempt: int  # 0 until the first; one more with each claim; 0 again with each run
    run: int
    turn: int  # how often its handler has rescheduled it in this run
    next_attempt_at: datetime | None  # of a retry, a deferral or a further turn that is to come
    created_at: datetime | None
    started_at: datetime | None  # of the latest attempt
    finished_at: datetime | None
    expires_at: datetime | None  # when the table deletes it; only of ended tasks
    error: str | None
    result: object
    row: Mapping[str, object] = field(repr=False)  # the whole row, under the table's names

    @property
    def attributes(self) -> Mapping[str, object]:
        """The user's own attributes."""
        return {name: value for name, value in self.row.items() if name not in attr.OWN_ATTRIBUTES}

    @property
    def version(self) -> str:
        """Identifies this state of the row: it changes whenever the row does."""
        return version_of(self.row)

    @classmethod
    def from_row(cls, row: Row) -> TaskView:
        values = {name: plain(value) for name, value in row.items()}
        payload = values.get(attr.PAYLOAD)
        return cls(
            task_id=RowView(row).task_id,
            status=status_of(state_of(row)),
            bucket=text_or_none(row.get(attr.TASK_DATE_TIME)),
            due_at=instant_or_none(row.get(attr.DUE_AT)),
            action=text_or_none(row.get(attr.ACTION)),
            payload=payload if isinstance(payload, dict) else {},
            attempt=number_or(row.get(attr.ATTEMPT), 0),
            run=number_or(row.get(attr.RUN), 1),
            turn=number_or(row.get(attr.TURN), 0),
            next_attempt_at=instant_or_none(row.get(attr.NEXT_ATTEMPT_AT)),
            created_at=instant_or_none(row.get(attr.CREATED_AT)),
            started_at=instant_or_none(row.get(attr.STARTED_AT)),
            finished_at=instant_or_none(row.get(attr.FINISHED_AT)),
            expires_at=instant_or_none(row.get(attr.EXPIRES_AT)),
            error=text_or_none(row.get(attr.ERROR)),
            result=values.get(attr.RESULT),
            row=values,
        )

    def to_row(self) -> Mapping[str, object]:
        """Returns the fields under the table's names, with the status ``unscheduled`` if the row has none."""
        return {**self.row, attr.STATUS: str(self.status)}


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskEntry:
    """A task in a history."""

    task_id: str
    bucket: str
    status: Status | str
    action: str | None = None
    due_at: datetime | None = None
    finished_at: datetime | None = None
    error: str | None = None
    attempt: int | None = None  # of tasks that have not ended; of all, on request
    schedule_id: str | None = None
    late_milliseconds: int | None = None  # how late its first attempt began; of ended tasks that were begun

    def to_row(self) -> TaskEntryRow:
        """Returns the fields that are not None, under the table's names."""
        row = without_none(
            {
                attr.TASK_ID: self.task_id,
                attr.TASK_DATE_TIME: self.bucket,
                attr.STATUS: str(self.status),
                attr.ACTION: self.action,
                attr.DUE_AT: None if self.due_at is None else format_instant(self.due_at),
                attr.FINISHED_AT: None if self.finished_at is None else format_instant(self.finished_at),
                attr.ERROR: self.error,
                attr.ATTEMPT: self.attempt,
                attr.SCHEDULE_ID: self.schedule_id,
                attr.LATE_MILLISECONDS: self.late_milliseconds,
            }
        )
        return cast("TaskEntryRow", row)


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryPage:
    """A page of a history. Only the last one has no ``next_page_token``; others may be empty, too."""

    entries: tuple[TaskEntry, ...]
    next_page_token: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketCounts:
    """How many tasks of each status a bucket holds, and how late those that have ended began, in milliseconds."""

    bucket: str
    counts: Mapping[str, int]  # by status, without zeros
    lateness_p50_ms: int | None = None  # half of them began within this; None: none was begun
    lateness_p99_ms: int | None = None
    lateness_max_ms: int | None = None
    left: Mapping[str, int] = field(default_factory=dict)  # went elsewhere since, by how; without zeros

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def all_ended(self) -> bool:
        """Whether no task is left to wait for, as in an empty bucket."""
        return all(status in TERMINAL for status in self.counts)

    @property
    def ran(self) -> int:
        """How many have run there, once or more: those that are there still and those that have left."""
        there = sum(self.counts.get(status, 0) for status in (Status.COMPLETED, Status.FAILED))
        return there + sum(self.left.get(name, 0) for name in RAN)

    @property
    def failed(self) -> int:
        """How many of them have failed there, for good or to be tried again."""
        return self.counts.get(Status.FAILED, 0) + sum(self.left.get(name, 0) for name in FAILED)

    def to_row(self) -> BucketCountsRow:
        row = without_none(
            {
                "bucket": self.bucket,
                "counts": dict(self.counts),
                "total": self.total,
                attr.LATENESS_P50_MS: self.lateness_p50_ms,
                attr.LATENESS_P99_MS: self.lateness_p99_ms,
                attr.LATENESS_MAX_MS: self.lateness_max_ms,
                **({"left": dict(self.left), "ran": self.ran, "failed": self.failed} if self.left else {}),
            }
        )
        return cast("BucketCountsRow", row)


@dataclass(slots=True)
class BucketCounter:
    """Counts the entries of a bucket."""

    counts: Counter[str] = field(default_factory=Counter)
    lateness: Distribution = field(default_factory=Distribution)

    def add(self, entry: TaskEntry) -> None:
        self.counts[entry.status] += 1
        if entry.late_milliseconds is not None:
            self.lateness.add(entry.late_milliseconds)

    def of(self, bucket: str) -> BucketCounts:
        counted = BucketCounts(bucket=bucket, counts=dict(self.counts))
        if not self.lateness.count:
            return counted
        return replace(
            counted,
            lateness_p50_ms=self.lateness.percentile(50),
            lateness_p99_ms=self.lateness.percentile(99),
            lateness_max_ms=self.lateness.max,
        )


def status_of(text: str) -> Status | str:
    """A known status as such; any other text unchanged."""
    try:
        return Status(text)
    except ValueError:
        return text


def version_of(row: Mapping[str, object]) -> str:
    """Identifies the state of a row, whatever the order of its attributes."""
    text = json.dumps(json.loads(to_json(row)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def without_none(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def instant_or_none(value: object) -> datetime | None:
    """An instant of a row; None for anything else."""
    if value is None:
        return None
    try:
        return parse_instant(value, "instant")
    except InvalidInput:
        return None


def number_or(value: object, otherwise: int) -> int:
    """A number of a row; ``otherwise`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return otherwise
    return int(value)


def text_or_none(value: object) -> str | None:
    """A text of a row; another value as text."""
    return value if value is None or isinstance(value, str) else shown(plain(value))
