"""What the client returns: tasks, entries of a history, counts. In plain Python values.

A row may hold anything, so nothing here refuses one: a malformed value becomes None.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Final

from dynatick.actions.plain_value import plain, to_json
from dynatick.domain import attributes as attr
from dynatick.domain.action_counts import Distribution
from dynatick.domain.batches import OPEN
from dynatick.domain.buckets import Bucket
from dynatick.domain.instants import parse_instant
from dynatick.domain.lifecycle import state_of
from dynatick.domain.row import RowView
from dynatick.domain.task import TERMINAL, Row, Status
from dynatick.domain.view import Json, View, WholeRow
from dynatick.engine.counts import FAILED, RAN
from dynatick.errors import InvalidInput, shown

NextPageToken = Annotated[str | None, Json(null=True), "The pageToken of the next page. None: this is the last one."]


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskView(WholeRow):
    """A task as it was when it was read."""

    TYPED = (attr.TASK_ID, attr.STATUS)
    task_id: str
    status: Annotated[
        Status | str,
        "unscheduled, scheduled, running, completed, failed or cancelled; another text if it was written by hand.",
    ]
    bucket: Annotated[
        str | None, Json(name=attr.TASK_DATE_TIME), "Its bucket; none before the scheduler has placed it."
    ]
    due_at: Annotated[datetime | None, "When it is due."]
    action: str | None
    payload: Mapping[str, object]
    attempt: Annotated[int, "0 until the first; goes up with each claim; 0 again with each run."]
    run: Annotated[int, "One more with each redrive and each run-now of an ended task."]
    turn: Annotated[int, "How often its handler has rescheduled it in this run."]
    first_due_at: Annotated[datetime | None, "When it was due before inserts postponed it."]
    replaced_at: Annotated[datetime | None, "When an insert last replaced it."]
    next_attempt_at: Annotated[datetime | None, "When a retry, a deferral or a further turn may begin."]
    created_at: datetime | None
    started_at: Annotated[datetime | None, "When its latest attempt began."]
    finished_at: datetime | None
    expires_at: Annotated[datetime | None, "When the table deletes it; on ended tasks only. In epoch seconds."]
    error: str | None
    result: object
    row: Annotated[Mapping[str, object], Json(hidden=True)] = field(repr=False)  # under the table's names
    effect: Annotated[
        str | None, Json(hidden=True), "Of an insert: created, kept, replaced, postponed or restarted."
    ] = None

    @property
    def attributes(self) -> Mapping[str, object]:
        """The user's own attributes."""
        return {name: value for name, value in self.row.items() if name not in attr.OWN_ATTRIBUTES}

    @property
    def subject(self) -> Annotated[object, "What it is about, such as customer:4711."]:
        return self.row.get(attr.SUBJECT)

    @property
    def limit_key(self) -> Annotated[object, "What limits it, such as customer:4711."]:
        return self.row.get(attr.LIMIT_KEY)

    @property
    def traceparent(self) -> str | None:
        """The span that it comes from, in the form of W3C Trace Context."""
        return text_or_none(self.row.get(attr.TRACEPARENT))

    @property
    def follow_up_of(self) -> str | None:
        """The id of the task whose handler has inserted it."""
        return text_or_none(self.row.get(attr.FOLLOW_UP_OF))

    @property
    def follow_ups(self) -> tuple[str, ...]:
        """The ids of the tasks that its handler has inserted, in the attempt that completed: the first 20."""
        ids = self.row.get(attr.FOLLOW_UPS)
        return tuple(one for one in ids if isinstance(one, str)) if isinstance(ids, list) else ()

    @property
    def complete_by(self) -> Annotated[datetime | None, "Until when it waits for a completion."]:
        return instant_or_none(self.row.get(attr.COMPLETE_BY))

    @property
    def heartbeat_by(self) -> Annotated[datetime | None, "Until when it waits for the next heartbeat."]:
        return instant_or_none(self.row.get(attr.LEASE_UNTIL)) if attr.HEARTBEAT_SECONDS in self.row else None

    @property
    def version(self) -> str:
        """Identifies this state of the row: it changes whenever the row does."""
        return version_of(self.row)

    @property
    def outcome(self) -> Annotated[object, "How it ended; on ended tasks only."]:
        return self.row.get(attr.OUTCOME)

    @property
    def late_milliseconds(
        self,
    ) -> Annotated[
        object, "How late the first attempt of the run began, after its tick or, to the second, its due time."
    ]:
        return self.row.get(attr.LATE_MILLISECONDS)

    @classmethod
    def from_row(cls, row: Row) -> TaskView:
        values = {name: plain(value) for name, value in row.items() if name != attr.LEASE}  # a secret: see completion
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
            first_due_at=instant_or_none(row.get(attr.FIRST_DUE_AT)),
            replaced_at=instant_or_none(row.get(attr.REPLACED_AT)),
            next_attempt_at=instant_or_none(row.get(attr.NEXT_ATTEMPT_AT)),
            created_at=instant_or_none(row.get(attr.CREATED_AT)),
            started_at=instant_or_none(row.get(attr.STARTED_AT)),
            finished_at=instant_or_none(row.get(attr.FINISHED_AT)),
            expires_at=instant_or_none(row.get(attr.EXPIRES_AT)),
            error=text_or_none(row.get(attr.ERROR)),
            result=values.get(attr.RESULT),
            row=values,
        )

    def to_row(self) -> dict[str, object]:
        """Returns the row, with the status ``unscheduled`` if it has none."""
        return {**self.row, attr.STATUS: str(self.status)}


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskEntry(View):
    """A task as its bucket lists it."""

    task_id: str
    bucket: Annotated[
        str, Json(name=attr.TASK_DATE_TIME, optional=True), "Empty, or left out: the scheduler has not placed it yet."
    ]
    status: Status | str
    action: str | None = None
    due_at: datetime | None = None
    finished_at: datetime | None = None
    error: str | None = None
    attempt: Annotated[int | None, "Of tasks that have not ended; of all, on request."] = None
    schedule_id: str | None = None
    limit_key: Annotated[str | None, "What limits it."] = None
    late_milliseconds: Annotated[int | None, "How late its first attempt began. Of ended tasks that were begun."] = None
    members: Annotated[
        Mapping[str, int] | None, "Of the pack of a batch: how many of its members have which status."
    ] = None
    # As the index lists it.
    may_begin_at: Annotated[datetime | None, Json(hidden=True)] = field(default=None, compare=False)
    has_begun: Annotated[bool, Json(hidden=True)] = field(default=False, compare=False)  # and has not ended

    @property
    def is_retrying(self) -> bool:
        """Whether it waits for another attempt or turn, as it is listed by the index."""
        return self.status == OPEN and self.has_begun and self.may_begin_at != self.due_at

    @property
    def waiting(self) -> int:
        """How many tasks that have not ended it stands for, as it is listed by the index."""
        return int(self.status == OPEN) if self.members is None else self.members.get(OPEN, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryPage(View):
    """A page of a history, in order of time and id. It may be empty without being the last one."""

    FORM = "TaskPage"

    entries: Annotated[tuple[TaskEntry, ...], Json(name="tasks")]
    next_page_token: NextPageToken = None
    # Where the next page begins, if that is by time: all before was looked through.
    through: Annotated[datetime | None, Json(hidden=True)] = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ListedPage:
    """Some tasks of a bucket: entries, and how many others have which status."""

    bucket: Bucket
    entries: Sequence[TaskEntry]
    counts: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskCounts(View):
    """How many tasks of each status there are, by action and together, and how late those that have ended began."""

    counts: Annotated[Mapping[str, int], "By status, without zeros."]
    actions: Annotated[Mapping[str, Mapping[str, int]], "The same by action."]
    lateness: Annotated[Mapping[str, int], Json(name="latenessMs"), "p50, p99 and max of the tasks that have ended."]

    @property
    def total(self) -> Annotated[int, "All of them."]:
        return sum(self.counts.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketCounts(View):
    """How many tasks of each status a bucket holds, and how late those that have ended began."""

    bucket: str
    counts: Annotated[Mapping[str, int], "By status, without zeros."]
    lateness_p50_ms: Annotated[
        int | None,
        "How late the tasks that have ended began, in milliseconds after their tick: the median; "
        "with `Precision: second`, of when they were due.",
    ] = None
    lateness_p99_ms: Annotated[int | None, "The same of 99 in 100."] = None
    lateness_max_ms: Annotated[int | None, "The same of all."] = None
    left: Annotated[
        Mapping[str, int],
        "Of one bucket: tasks that have gone elsewhere since. retried, rescheduled (a further turn), "
        "deferred (failed, and waiting for the dead-letter queue), redrivenFailed, redrivenCompleted, "
        "redrivenCancelled, moved (before they ran). Left out: there are none.",
        Json(optional=True),
    ] = field(default_factory=dict)

    @property
    def total(self) -> Annotated[int, "Tasks in it."]:
        return sum(self.counts.values())

    @property
    def all_ended(self) -> bool:
        """Whether no task is left to wait for, as in an empty bucket."""
        return all(status in TERMINAL for status in self.counts)

    @property
    def ran(
        self,
    ) -> Annotated[int, Json(optional=True), "With left: tasks that have run there, those that have left among them."]:
        """How many have run there, once or more: those that are there still and those that have left."""
        there = sum(self.counts.get(status, 0) for status in (Status.COMPLETED, Status.FAILED))
        return there + sum(self.left.get(name, 0) for name in RAN)

    @property
    def failed(self) -> Annotated[int, Json(optional=True), "With left: how many of them have failed there."]:
        """How many of them have failed there, for good or to be tried again."""
        return self.counts.get(Status.FAILED, 0) + sum(self.left.get(name, 0) for name in FAILED)

    def to_row(self) -> dict[str, object]:
        row = View.to_row(self)
        return row if self.left else {name: value for name, value in row.items() if name not in ("ran", "failed")}


@dataclass(slots=True)
class Tally:
    """Counts entries by status, and how late those that have ended began."""

    counts: Counter[str] = field(default_factory=Counter)
    lateness: Distribution = field(default_factory=Distribution)

    def add(self, entry: TaskEntry) -> None:
        if entry.members is None:
            self.counts[entry.status] += 1
        else:
            self.counts.update(entry.members)
        if entry.late_milliseconds is not None:
            self.lateness.add(entry.late_milliseconds)

    def update(self, other: Tally) -> None:
        """Adds what another has counted."""
        self.counts.update(other.counts)
        self.lateness.update(other.lateness)

    def of(self, bucket: str) -> BucketCounts:
        late = self.lateness_ms()
        return BucketCounts(
            bucket=bucket,
            counts=dict(self.counts),
            lateness_p50_ms=late.get("p50"),
            lateness_p99_ms=late.get("p99"),
            lateness_max_ms=late.get("max"),
        )

    def lateness_ms(self) -> dict[str, int]:
        """By ``p50``, ``p99`` and ``max``; empty if none was begun."""
        late = self.lateness
        return {"p50": late.percentile(50), "p99": late.percentile(99), "max": late.max} if late.count else {}


_STATUSES: Final[Mapping[str, Status]] = {str(status): status for status in Status}


def status_of(text: str) -> Status | str:
    """A known status as such; any other text unchanged."""
    return _STATUSES.get(text, text)


def version_of(row: Mapping[str, object]) -> str:
    """Identifies the state of a row, whatever the order of its attributes, and without the token that no view has: with
    each other one a row has another attempt, too."""
    shown = {name: value for name, value in row.items() if name != attr.LEASE}
    text = json.dumps(json.loads(to_json(shown)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def instant_or_none(value: object) -> datetime | None:
    """An instant of a row; None for anything else."""
    if value is None:
        return None
    if type(value) is str:  # the most frequent type
        return _instant_of(value)
    try:
        return parse_instant(value, "instant")
    except InvalidInput:
        return None


@lru_cache(maxsize=1024)  # the tasks of a bucket have few different instants, and are many
def _instant_of(text: str) -> datetime | None:
    try:
        return parse_instant(text, "instant")
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
