"""A recurring schedule as a row of the table: a template for tasks, and when to make one of it.

A schedule is no task. It lies in the index under the bucket of its next run; the tick that finds it there writes the
*occurrence*, an ordinary task, and moves the schedule on (``recurrence`` decides how). What it says about time is the
*definition*: expression, time zone, dates, window and state. Everything else that it holds, the user's own attributes
included, is handed to its occurrences.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from dynatick.domain.buckets import Bucket
from dynatick.domain.expressions import Expression, check_zone, next_after, parse_expression
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.numbers import is_whole
from dynatick.domain.task import MAX_TASK_ID_BYTES, OWN_ATTRIBUTES, Row, Status, check_task_id
from dynatick.errors import InvalidInput

RECURRING = "recurring"
"""The ``status`` of a row that is a schedule, so that it never passes for a task."""

RECURRENCE = ("scheduleExpression", "cronExpression")
"""Either makes a row a schedule; the second is another name for the first."""

TIMING = ("scheduleExpression", "scheduleExpressionTimezone", "startDate", "endDate")
"""What names a schedule's instants."""

DEFINITION = ("cronExpression", *TIMING, "flexibleTimeWindow", "scheduleState")
"""What decides when a schedule runs."""

SCHEDULE_ATTRIBUTES = frozenset(
    {
        *DEFINITION, "catchUp", "overlap", "stateReason", "revision", "definition", "definedAt", "nextOccurrenceAt",
        "bufferedOccurrenceAt", "dueBefore", "lastOccurrenceAt", "lastTaskId", "missed", "missedOccurrences", "earlier",
        "ranNow",
        "backfilled",
    }
)  # fmt: skip
"""What means something on a schedule, beside the attributes that tasks have. To a task these are the user's own."""

MAX_WINDOW_MINUTES = 1440
_SUFFIX_BYTES = 40  # what an occurrence's id adds to its schedule's
MAX_SCHEDULE_ID_BYTES = MAX_TASK_ID_BYTES - _SUFFIX_BYTES
MAX_REVISION = 10**9

_Kind = TypeVar("_Kind", bound=StrEnum)


class ScheduleState(StrEnum):
    """Whether a schedule runs. The first two are the user's to set, under EventBridge Scheduler's names."""

    ENABLED = "ENABLED"
    DISABLED = "DISABLED"  # paused
    COMPLETED = "COMPLETED"  # no run is left: the row has ended, and expires
    FAILED = "FAILED"  # it cannot be understood: the row has ended, ``error`` says why


class CatchUp(StrEnum):
    """What becomes of runs whose ticks did not come in time."""

    LATEST = "latest"  # the last of them is made, unless a later run is due as well
    ALL = "all"
    NONE = "none"


class Overlap(StrEnum):
    """What becomes of a run that is due while the one before it has not ended."""

    SKIP = "skip"
    ALLOW = "allow"
    BUFFER_ONE = "bufferOne"  # one waits for the end of the one before; further ones are skipped


class MissedFor(StrEnum):
    """Why a run was not made."""

    OUTAGE = "outage"  # its tick came too late, and catchUp did not ask for it
    OVERLAP = "overlap"
    PAUSED = "paused"
    ID_TAKEN = "id-taken"  # a task of the occurrence's id was there that is none of this schedule's
    TOO_LARGE = "too-large"  # the table did not take the occurrence's row


@dataclass(frozen=True, kw_only=True, slots=True)
class Missed:
    """Runs that were not made, one after another."""

    first: datetime  # nominal instants
    last: datetime
    runs: int
    reason: MissedFor

    def to_row(self) -> dict[str, object]:
        return {
            "from": format_instant(self.first),
            "until": format_instant(self.last),
            "runs": self.runs,
            "reason": str(self.reason),
        }

    @classmethod
    def from_row(cls, value: object) -> Missed | None:
        """None for what cannot be read: it is a note, and must not cost the schedule."""
        if not isinstance(value, Mapping):
            return None
        try:
            first, last = parse_instant(value.get("from"), "from"), parse_instant(value.get("until"), "until")
            return cls(
                first=first, last=last, runs=int(value.get("runs", 1)), reason=MissedFor(str(value.get("reason")))
            )
        except (InvalidInput, ValueError, TypeError, ArithmeticError):
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Former:
    """A definition that was replaced while runs of it were due, of which some have still to be dealt with."""

    expression: Expression
    zone: str
    start: datetime | None
    end: datetime | None
    until: datetime  # when it was replaced
    since: datetime | None = None  # when it came into force

    def next_after(self, after: datetime) -> datetime | None:
        """The first nominal instant after ``after`` that it was in force at; None if there is none."""
        after = after if self.since is None else max(after, self.since)
        run = next_after(self.expression, after, zone=self.zone, start=self.start, end=self.end)
        return None if run is None or run > self.until else run

    def to_row(self) -> dict[str, object]:
        since = {} if self.since is None else {"since": format_instant(self.since)}
        timing = _timing(self.expression, self.zone, self.start, self.end)
        return timing | since | {"until": format_instant(self.until)}

    @classmethod
    def from_row(cls, value: object) -> Former | None:
        """None for what cannot be read."""
        if not isinstance(value, Mapping):
            return None
        try:
            return cls(
                expression=parse_expression(value.get("scheduleExpression")),
                zone=check_zone(value.get("scheduleExpressionTimezone")),
                start=_instant(value, "startDate"),
                end=_instant(value, "endDate"),
                until=parse_instant(value.get("until"), "until"),
                since=None if value.get("since") is None else parse_instant(value["since"], "since"),
            )
        except InvalidInput:
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """A schedule that was understood. Instants of runs are nominal: as the expression names them."""

    schedule_id: str
    expression: Expression
    zone: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    window_minutes: int = 0  # flexibleTimeWindow: starts are spread over so many minutes; 0: not at all
    state: ScheduleState = ScheduleState.ENABLED
    catch_up: CatchUp = CatchUp.LATEST
    overlap: Overlap = Overlap.SKIP
    revision: int = 1  # goes up when another schedule is put in this one's place
    created_at: datetime | None = None
    bucket: Bucket | None = None  # where it lies in the index; None: it does not
    defined_at: datetime | None = None  # when its definition last changed: runs count from there
    definition: Mapping[str, object] | None = None  # as it was last understood: the one in force
    due_before: Sequence[Former] = field(default=())  # oldest first
    next_occurrence_at: datetime | None = None  # the first run that has not been dealt with
    buffered_occurrence_at: datetime | None = None  # a run that waits for the end of the one before
    last_occurrence_at: datetime | None = None
    last_task_id: str | None = None  # the latest occurrence
    missed: Sequence[Missed] = field(default=())  # the latest
    missed_occurrences: int = 0

    @property
    def offset(self) -> timedelta:
        """How long after its nominal instants this schedule starts: the same each time, spread by the id."""
        if not self.window_minutes:
            return timedelta()
        return timedelta(seconds=zlib.crc32(self.schedule_id.encode("utf-8")) % (self.window_minutes * 60))

    def starts_at(self, nominal: datetime) -> datetime:
        """When a run may start."""
        return nominal + self.offset

    def next_after(self, after: datetime) -> datetime | None:
        """The first nominal instant after ``after``; None if there is none any more."""
        return next_after(self.expression, after, zone=self.zone, start=self.start, end=self.end)

    def occurrence_id(self, nominal: datetime, *, extra: str = "") -> str:
        """The id of the one occurrence that a nominal instant has: a second one cannot exist."""
        return f"{self.schedule_id}#{self.revision}#{format_instant(nominal)}{extra}"

    @property
    def defined(self) -> dict[str, object]:
        """The definition as it stands, to tell it from the one in force."""
        window = {"flexibleTimeWindow": self.window_minutes} if self.window_minutes else {}
        return self.timing() | window | {"scheduleState": str(self.state)}

    def timing(self) -> dict[str, object]:
        """What names its instants, as a row keeps it."""
        return _timing(self.expression, self.zone, self.start, self.end)

    def former(self, until: datetime) -> Former | None:
        """The definition in force, when another one replaces it; None if it made no runs, or is not known."""
        before = self.definition
        if before is None or before.get("scheduleState") != str(ScheduleState.ENABLED):
            return None
        since = None if self.defined_at is None else format_instant(self.defined_at)
        return Former.from_row({**before, "since": since, "until": format_instant(until)})

    @classmethod
    def from_row(cls, row: Row) -> Schedule:
        """The schedule of a row that anybody may have written. Raises InvalidInput."""
        schedule = cls(
            schedule_id=check_schedule_id(row.get("taskId")),
            expression=_expression(row),
            zone="UTC" if row.get("scheduleExpressionTimezone") is None else check_zone(
                row["scheduleExpressionTimezone"]
            ),
            start=_instant(row, "startDate"),
            end=_instant(row, "endDate"),
            window_minutes=_window(row.get("flexibleTimeWindow")),
            state=_state(row.get("scheduleState")),
            catch_up=_one_of(CatchUp, row.get("catchUp"), "catchUp", CatchUp.LATEST),
            overlap=_one_of(Overlap, row.get("overlap"), "overlap", Overlap.SKIP),
            revision=_count(row.get("revision"), 1),
            created_at=_noted(row, "createdAt"),
            bucket=Bucket.canonical(row.get("taskDateTime")),
            defined_at=_noted(row, "definedAt"),
            definition=_mapping(row.get("definition")),
            due_before=_former(row.get("dueBefore")),
            next_occurrence_at=_noted(row, "nextOccurrenceAt"),
            buffered_occurrence_at=_noted(row, "bufferedOccurrenceAt"),
            last_occurrence_at=_noted(row, "lastOccurrenceAt"),
            last_task_id=_task_id(row.get("lastTaskId")),
            missed=_missed(row.get("missed")),
            missed_occurrences=_count(row.get("missedOccurrences"), 0),
        )  # fmt: skip
        if schedule.start is not None and schedule.end is not None and schedule.end < schedule.start:
            raise InvalidInput("endDate", row["endDate"], f"expected it not to be before startDate, {row['startDate']}")
        return schedule


def is_schedule(row: Row) -> bool:
    """Whether a row that has not ended is a schedule, or is to become one. A task that runs is none yet."""
    status = row.get("status")
    if status == RECURRING:
        return True
    return status in (None, str(Status.SCHEDULED)) and any(row.get(name) is not None for name in RECURRENCE)


def is_or_was_schedule(row: Row) -> bool:
    """Whether a row is a schedule, is to become one, or was one until it ended. Occurrences are none."""
    if row.get("outcome") is None:
        return is_schedule(row)
    return any(row.get(name) is not None for name in RECURRENCE)


def is_at_rest(row: Row) -> bool:
    """Whether a schedule that is ready waits for nothing: it is paused, and no run of it is due."""
    return row.get("status") == RECURRING and "taskDateTime" not in row


def is_listed_as_schedule(task_id: str, schedule_id: str | None) -> bool:
    """Whether an index entry is a schedule's: it names itself, as nothing else does."""
    return task_id == schedule_id


def check_schedule_id(value: object) -> str:
    """As a task's id, with room for what the ids of its occurrences add."""
    schedule_id = check_task_id(value)
    size = len(schedule_id.encode("utf-8"))
    if size > MAX_SCHEDULE_ID_BYTES:
        raise InvalidInput(
            "taskId", value, f"expected at most {MAX_SCHEDULE_ID_BYTES} bytes for a schedule, this has {size}"
        )
    return schedule_id


def handed_on(row: Row) -> dict[str, Any]:
    """The user's own attributes of a schedule's row: they reach each occurrence untouched."""
    return {name: row[name] for name in row if is_handed_on(name)}


def is_handed_on(name: str) -> bool:
    """Whether an attribute is the user's own."""
    return name not in OWN_ATTRIBUTES and name not in SCHEDULE_ATTRIBUTES


def _timing(expression: Expression, zone: str, start: datetime | None, end: datetime | None) -> dict[str, object]:
    dates = {"startDate": start, "endDate": end}
    return {
        "scheduleExpression": expression.text,
        "scheduleExpressionTimezone": zone,
        **{name: format_instant(date) for name, date in dates.items() if date is not None},
    }


def _expression(row: Row) -> Expression:
    """From either name. The second one is taken off a row once it is understood: where it stands, it is news."""
    first, second = (row.get(name) for name in RECURRENCE)
    if second is not None:
        if first is not None and first != second and row.get("status") != RECURRING:
            raise InvalidInput("cronExpression", second, "it is another name for scheduleExpression: give one of them")
        return parse_expression(second, "cronExpression")
    return parse_expression(first)


def _instant(row: Row, name: str) -> datetime | None:
    """Dates are to the second: the instants of a rate are counted from them."""
    return None if row.get(name) is None else parse_instant(row[name], name).replace(microsecond=0)


def _noted(row: Row, name: str) -> datetime | None:
    """An instant of our own. Where somebody has spoilt it, it is found anew."""
    try:
        return _instant(row, name)
    except InvalidInput:
        return None


def _window(value: object) -> int:
    if value is None:
        return 0
    if not is_whole(value) or not 0 <= value <= MAX_WINDOW_MINUTES:
        raise InvalidInput(
            "flexibleTimeWindow", value, f"expected a whole number of minutes from 0 to {MAX_WINDOW_MINUTES}"
        )
    return int(value)


def _state(value: object) -> ScheduleState:
    if value is None:
        return ScheduleState.ENABLED
    if value in (str(ScheduleState.ENABLED), str(ScheduleState.DISABLED)):
        return ScheduleState(value)
    raise InvalidInput("scheduleState", value, "expected ENABLED or DISABLED")


def _one_of(kind: type[_Kind], value: object, name: str, otherwise: _Kind) -> _Kind:
    if value is None:
        return otherwise
    for known in kind:
        if value == str(known):
            return known
    raise InvalidInput(name, value, f"expected one of {', '.join(kind)}")


def _count(value: object, otherwise: int) -> int:
    return int(value) if is_whole(value) and 0 <= value <= MAX_REVISION else otherwise


def _mapping(value: object) -> Mapping[str, object] | None:
    return value if isinstance(value, Mapping) else None


def _task_id(value: object) -> str | None:
    """None for what no task can have: a read of many rows fails as a whole for one key that the table does not take."""
    try:
        return check_task_id(value)
    except InvalidInput:
        return None


def _former(value: object) -> Sequence[Former]:
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(entry for entry in map(Former.from_row, value) if entry is not None)


def _missed(value: object) -> Sequence[Missed]:
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(entry for entry in map(Missed.from_row, value) if entry is not None)
