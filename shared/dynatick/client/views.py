"""What the client shows: tasks, entries of a bucket's history, counts. In plain Python values.

Anybody may have written a row, so nothing here refuses one: what cannot be read is left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, cast

from dynatick.actions.plain_value import plain, to_json
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.lifecycle import state_of
from dynatick.domain.task import OWN_ATTRIBUTES, Row, Status
from dynatick.errors import InvalidInput, shown

if TYPE_CHECKING:
    from dynatick.client.row_types import BucketCountsRow, TaskEntryRow


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskView:
    """A task as it stood when it was read."""

    task_id: str
    status: Status | str  # another text only if it was put there by hand
    bucket: str | None  # taskDateTime as it stands; a canonical name once the task is scheduled
    due_at: datetime | None
    action: str | None
    payload: Mapping[str, object]
    attempt: int  # 0 until the first; goes up with each claim, and begins anew with each run
    run: int
    created_at: datetime | None
    started_at: datetime | None  # of the latest attempt
    finished_at: datetime | None
    expires_at: datetime | None  # when the table forgets it; only ended tasks do
    error: str | None
    result: object
    row: Mapping[str, object] = field(repr=False)  # the whole row, under the table's names

    @property
    def attributes(self) -> Mapping[str, object]:
        """The row's other attributes, the user's own."""
        return {name: value for name, value in self.row.items() if name not in OWN_ATTRIBUTES}

    @property
    def version(self) -> str:
        """A name for the row as it stands: another one as soon as anything in it changes."""
        return version_of(self.row)

    @classmethod
    def from_row(cls, row: Row) -> TaskView:
        values = {name: plain(value) for name, value in row.items()}
        payload = values.get("payload")
        return cls(
            task_id=str(row["taskId"]),
            status=status_of(state_of(row)),
            bucket=text_or_none(row.get("taskDateTime")),
            due_at=instant_or_none(row.get("dueAt")),
            action=text_or_none(row.get("action")),
            payload=payload if isinstance(payload, dict) else {},
            attempt=number_or(row.get("attempt"), 0),
            run=number_or(row.get("run"), 1),
            created_at=instant_or_none(row.get("createdAt")),
            started_at=instant_or_none(row.get("startedAt")),
            finished_at=instant_or_none(row.get("finishedAt")),
            expires_at=instant_or_none(row.get("expiresAt")),
            error=text_or_none(row.get("error")),
            result=values.get("result"),
            row=values,
        )

    def to_row(self) -> Mapping[str, object]:
        """Under the table's names; a row that nobody has looked at yet says so."""
        return {**self.row, "status": str(self.status)}


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskEntry:
    """A task as a bucket's history lists it."""

    task_id: str
    bucket: str
    status: Status | str
    action: str | None = None
    due_at: datetime | None = None
    finished_at: datetime | None = None
    error: str | None = None
    attempt: int | None = None  # of tasks that have not ended; of all, where it was asked for
    schedule_id: str | None = None

    def to_row(self) -> TaskEntryRow:
        """Under the table's names; what there is none of is left out."""
        row = without_none(
            {
                "taskId": self.task_id,
                "taskDateTime": self.bucket,
                "status": str(self.status),
                "action": self.action,
                "dueAt": None if self.due_at is None else format_instant(self.due_at),
                "finishedAt": None if self.finished_at is None else format_instant(self.finished_at),
                "error": self.error,
                "attempt": self.attempt,
                "scheduleId": self.schedule_id,
            }
        )
        return cast("TaskEntryRow", row)


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryPage:
    """A part of a history. It may be empty and still not be the last one: that one has no ``next_page_token``."""

    entries: tuple[TaskEntry, ...]
    next_page_token: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketCounts:
    """How many tasks of each status a bucket holds."""

    bucket: str
    counts: Mapping[str, int]  # by status; those that occur

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def to_row(self) -> BucketCountsRow:
        return {"bucket": self.bucket, "counts": dict(self.counts), "total": self.total}


def status_of(text: str) -> Status | str:
    """A status that is known, as such; any other text as it is."""
    try:
        return Status(text)
    except ValueError:
        return text


def version_of(row: Mapping[str, object]) -> str:
    """A name for a row as it stands, whatever the order of its attributes."""
    text = json.dumps(json.loads(to_json(row)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def without_none(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def instant_or_none(value: object) -> datetime | None:
    """An instant of a row that anybody may have written."""
    if value is None:
        return None
    try:
        return parse_instant(value, "instant")
    except InvalidInput:
        return None


def number_or(value: object, otherwise: int) -> int:
    """A count of a row that anybody may have written."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return otherwise
    return int(value)


def text_or_none(value: object) -> str | None:
    """A text of a row that anybody may have written; what is none is shown."""
    return value if value is None or isinstance(value, str) else shown(plain(value))
