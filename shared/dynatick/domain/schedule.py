"""A recurring schedule as a row of the table: a template for tasks, and the times at which a tick makes one.

A schedule is not a task. The index lists it in the bucket of its next occurrence. The tick that polls the bucket writes
the *occurrence*, an ordinary task, and moves the schedule on (``occurrences``). The attributes about time are the
*definition*: expression, time zone, dates, window and state. Occurrences get the others, the user's own included.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.expressions import Expression, check_zone, next_after, parse_expression
from dynatick.domain.instants import format_instant, optional_instant, optional_text, parse_instant
from dynatick.domain.numbers import is_whole
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.task import MAX_TASK_ID_BYTES, Row, Status, check_task_id
from dynatick.errors import InvalidInput

MAX_WINDOW_MINUTES = 1440
MAX_EXPECTED_WITHIN_SECONDS = 86_400
"""A day: no task that has ended expires sooner, so its row is still there to be judged."""
_SUFFIX_BYTES = 40  # what an occurrence's id adds to its schedule's
MAX_SCHEDULE_ID_BYTES = MAX_TASK_ID_BYTES - _SUFFIX_BYTES
MAX_REVISION = 10**9
MAX_OWNER_CHARACTERS = 128

_Kind = TypeVar("_Kind", bound=StrEnum)


class ScheduleState(StrEnum):
    """Whether a schedule makes occurrences. The user sets the first two, which are EventBridge Scheduler's names."""

    ENABLED = "ENABLED"
    DISABLED = "DISABLED"  # paused
    COMPLETED = "COMPLETED"  # it has no more occurrences: the row has ended, and expires
    FAILED = "FAILED"  # it cannot be understood: the row has ended, ``error`` says why


class CatchUp(StrEnum):
    """Which late occurrences are made."""

    LATEST = "latest"  # only the last one, unless a later one is due as well
    ALL = "all"
    NONE = "none"


class Overlap(StrEnum):
    """What happens to an occurrence that is due while the one before has not ended."""

    SKIP = "skip"
    ALLOW = "allow"
    BUFFER_ONE = "bufferOne"  # one waits until the one before has ended; further ones are skipped


class MissedFor(StrEnum):
    """Why an occurrence was not made."""

    OUTAGE = "outage"  # its tick came too late, and catchUp skips it
    OVERLAP = "overlap"
    PAUSED = "paused"
    ALL_PAUSED = "all-paused"  # its tick came, but the whole installation was paused, and catchUp skips it
    TOO_OLD = "too-old"  # the same, and there are more, or older ones, than catchUp makes up
    ID_TAKEN = "id-taken"  # another task has the occurrence's id
    TOO_LARGE = "too-large"  # the table did not take the occurrence's row


@dataclass(frozen=True, kw_only=True, slots=True)
class Missed:
    """Consecutive occurrences that were not made."""

    first: datetime  # nominal instants
    last: datetime
    occurrences: int  # how many
    reason: MissedFor

    def to_row(self) -> dict[str, object]:
        return {
            attr.FROM: format_instant(self.first),
            attr.UNTIL: format_instant(self.last),
            attr.OCCURRENCES: self.occurrences,
            attr.REASON: str(self.reason),
        }

    @classmethod
    def from_row(cls, value: object) -> Missed | None:
        """None for a malformed entry: the schedule works without it."""
        if not isinstance(value, Mapping):
            return None
        try:
            first = parse_instant(value.get(attr.FROM), attr.FROM)
            last = parse_instant(value.get(attr.UNTIL), attr.UNTIL)
            number = int(value.get(attr.OCCURRENCES, 1))
            return cls(first=first, last=last, occurrences=number, reason=MissedFor(str(value.get(attr.REASON))))
        except (InvalidInput, ValueError, TypeError, ArithmeticError):
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class FormerDefinition:
    """The timing of a definition that was replaced."""

    expression: Expression
    zone: str
    start: datetime | None
    end: datetime | None
    until: datetime  # when it was replaced
    since: datetime | None = None  # when it came into force

    def next_after(self, after: datetime) -> datetime | None:
        """The first nominal instant after ``after`` while it was in force; None if there is none."""
        after = after if self.since is None else max(after, self.since)
        nominal = next_after(self.expression, after, zone=self.zone, start=self.start, end=self.end)
        return None if nominal is None or nominal > self.until else nominal

    def to_row(self) -> dict[str, object]:
        since = {} if self.since is None else {attr.SINCE: format_instant(self.since)}
        timing = _timing(self.expression, self.zone, self.start, self.end)
        return timing | since | {attr.UNTIL: format_instant(self.until)}

    @classmethod
    def from_row(cls, value: object) -> FormerDefinition | None:
        """None for a malformed entry."""
        if not isinstance(value, Mapping):
            return None
        try:
            return cls(
                expression=parse_expression(value.get(attr.SCHEDULE_EXPRESSION)),
                zone=check_zone(value.get(attr.SCHEDULE_EXPRESSION_TIMEZONE)),
                start=_instant(value, attr.START_DATE),
                end=_instant(value, attr.END_DATE),
                until=parse_instant(value.get(attr.UNTIL), attr.UNTIL),
                since=optional_instant(value.get(attr.SINCE), attr.SINCE),
            )
        except InvalidInput:
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """A valid schedule. Its occurrences' instants are nominal: those of the expression."""

    schedule_id: str
    expression: Expression
    limit_key: str | None = None
    zone: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    window_minutes: int = 0  # flexibleTimeWindow: starts are spread over it; 0: they are not
    state: ScheduleState = ScheduleState.ENABLED
    catch_up: CatchUp = CatchUp.LATEST
    overlap: Overlap = Overlap.SKIP
    expected_within_seconds: int | None = None  # an occurrence must have completed so long after it may start
    revision: int = 1  # goes up when another schedule replaces this one under its id
    created_at: datetime | None = None
    bucket: Bucket | None = None  # that lists it in the index; None: no bucket does
    is_moved: bool = False  # to that bucket, since its own was closed
    defined_at: datetime | None = None  # when its definition last changed; next_after starts there
    definition: Mapping[str, object] | None = None  # the current one, as last accepted
    due_before: Sequence[FormerDefinition] = field(default=())  # with due occurrences; oldest first
    next_occurrence_at: datetime | None = None  # the first that no tick has decided on
    buffered_occurrence_at: datetime | None = None  # waits until the one before has ended
    last_occurrence_at: datetime | None = None
    last_task_id: str | None = None  # the latest occurrence
    awaited: Sequence[AwaitedOccurrence] = field(default=())  # not known to have completed
    missed: Sequence[Missed] = field(default=())  # the latest
    missed_occurrences: int = 0

    @property
    def offset(self) -> timedelta:
        """How long after its nominal instant each occurrence starts, within the window. It follows from the id."""
        if not self.window_minutes:
            return timedelta()
        return timedelta(seconds=zlib.crc32(self.schedule_id.encode("utf-8")) % (self.window_minutes * 60))

    @property
    def shard_key(self) -> str:
        """As that of its row: its occurrences have its key, and lie in its shard."""
        return self.limit_key or self.schedule_id

    def starts_at(self, nominal: datetime) -> datetime:
        """When an occurrence may start."""
        return nominal + self.offset

    def expected_by(self, nominal: datetime) -> datetime | None:
        """When an occurrence must have completed; None: no deadline."""
        if self.expected_within_seconds is None:
            return None
        return self.starts_at(nominal) + timedelta(seconds=self.expected_within_seconds)

    def next_after(self, after: datetime) -> datetime | None:
        """The first nominal instant after ``after``; None if there is none."""
        return next_after(self.expression, after, zone=self.zone, start=self.start, end=self.end)

    def is_paused_at(self, nominal: datetime) -> bool:
        """Whether a pause skips the occurrence of a nominal instant. One that was due when it began is made."""
        return self.state is ScheduleState.DISABLED and (self.defined_at is None or nominal > self.defined_at)

    def occurrence_id(self, nominal: datetime, *, extra: str = "") -> str:
        """The id of the occurrence of a nominal instant: there cannot be a second one."""
        return f"{self.schedule_id}#{self.revision}#{format_instant(nominal)}{extra}"

    @property
    def defined(self) -> dict[str, object]:
        """The definition by the row's attributes, to compare with the last accepted ``definition``."""
        window = {attr.FLEXIBLE_TIME_WINDOW: self.window_minutes} if self.window_minutes else {}
        return self.timing() | window | {attr.SCHEDULE_STATE: str(self.state)}

    def timing(self) -> dict[str, object]:
        """The attributes of ``TIMING``, in canonical notation."""
        return _timing(self.expression, self.zone, self.start, self.end)

    def former(self, until: datetime) -> FormerDefinition | None:
        """The last accepted definition, when another one replaces it; None if it was paused or is not known."""
        before = self.definition
        if before is None or before.get(attr.SCHEDULE_STATE) != str(ScheduleState.ENABLED):
            return None
        since = optional_text(self.defined_at)
        return FormerDefinition.from_row({**before, attr.SINCE: since, attr.UNTIL: format_instant(until)})

    @classmethod
    def from_row(cls, row: Row) -> Schedule:
        """The schedule of a row, which may hold anything. Raises InvalidInput."""
        schedule = cls(
            schedule_id=check_schedule_id(row.get(attr.TASK_ID)),
            expression=_expression(row),
            limit_key=RowView(row).limit_key,
            zone="UTC" if row.get(attr.SCHEDULE_EXPRESSION_TIMEZONE) is None else check_zone(
                row[attr.SCHEDULE_EXPRESSION_TIMEZONE]
            ),
            start=_instant(row, attr.START_DATE),
            end=_instant(row, attr.END_DATE),
            window_minutes=_window(row.get(attr.FLEXIBLE_TIME_WINDOW)),
            state=_state(row.get(attr.SCHEDULE_STATE)),
            catch_up=_one_of(CatchUp, row.get(attr.CATCH_UP), attr.CATCH_UP, CatchUp.LATEST),
            overlap=_one_of(Overlap, row.get(attr.OVERLAP), attr.OVERLAP, Overlap.SKIP),
            expected_within_seconds=_expected_within(row.get(attr.EXPECTED_WITHIN_SECONDS)),
            revision=_count(row.get(attr.REVISION), 1),
            created_at=_noted(row, attr.CREATED_AT),
            bucket=RowView(row).bucket,
            is_moved=RowView(row).is_moved,
            defined_at=_noted(row, attr.DEFINED_AT),
            definition=_mapping(row.get(attr.ACCEPTED_DEFINITION)),
            due_before=_former(row.get(attr.DUE_BEFORE)),
            next_occurrence_at=_noted(row, attr.NEXT_OCCURRENCE_AT),
            buffered_occurrence_at=_noted(row, attr.BUFFERED_OCCURRENCE_AT),
            last_occurrence_at=_noted(row, attr.LAST_OCCURRENCE_AT),
            last_task_id=_task_id(row.get(attr.LAST_TASK_ID)),
            awaited=_awaited(row.get(attr.AWAITED)),
            missed=_missed(row.get(attr.MISSED)),
            missed_occurrences=_count(row.get(attr.MISSED_OCCURRENCES), 0),
        )  # fmt: skip
        if schedule.start is not None and schedule.end is not None and schedule.end < schedule.start:
            expected = f"expected it not to be before startDate, {row[attr.START_DATE]}"
            raise InvalidInput(attr.END_DATE, row[attr.END_DATE], expected)
        return schedule


def is_schedule(row: Row) -> bool:
    """Whether a row that has not ended is a schedule or will become one. A running task never is."""
    view = RowView(row)
    return view.is_recurring or (view.is_unbegun and view.has_expression)


def is_or_was_schedule(row: Row) -> bool:
    """Whether a row is a schedule, will become one, or was one until it ended. An occurrence never is."""
    return RowView(row).has_expression if is_terminal(row) else is_schedule(row)


def is_at_rest(row: Row) -> bool:
    """Whether a schedule is paused and has no due occurrence, so that no bucket lists it."""
    return RowView(row).is_recurring and attr.TASK_DATE_TIME not in row


def is_listed_as_schedule(task_id: str, schedule_id: str | None) -> bool:
    """Whether an index entry is a schedule's: only a schedule's ``scheduleId`` is its own id."""
    return task_id == schedule_id


def check_schedule_id(value: object) -> str:
    """A task's id, short enough for what the ids of occurrences add. Raises InvalidInput."""
    schedule_id = check_task_id(value)
    size = len(schedule_id.encode("utf-8"))
    if size > MAX_SCHEDULE_ID_BYTES:
        raise InvalidInput(
            attr.TASK_ID, value, f"expected at most {MAX_SCHEDULE_ID_BYTES} bytes for a schedule, this has {size}"
        )
    return schedule_id


def check_owner(value: object) -> str:
    """The owner of declared schedules. Raises InvalidInput."""
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_OWNER_CHARACTERS or not value.isprintable():
        expected = f"expected the name of a deployment, of at most {MAX_OWNER_CHARACTERS} characters"
        raise InvalidInput("owner", value, f"{expected}, such as reminders-prod")
    return value


def handed_on(row: Row) -> dict[str, Any]:
    """The user's own attributes of a schedule's row, which each occurrence gets unchanged."""
    return {name: row[name] for name in row if is_handed_on(name)}


def is_handed_on(name: str) -> bool:
    """Whether an attribute is the user's own."""
    return name not in attr.OWN_ATTRIBUTES and name not in attr.SCHEDULE_ATTRIBUTES


def _timing(expression: Expression, zone: str, start: datetime | None, end: datetime | None) -> dict[str, object]:
    dates = {attr.START_DATE: start, attr.END_DATE: end}
    return {
        attr.SCHEDULE_EXPRESSION: expression.text,
        attr.SCHEDULE_EXPRESSION_TIMEZONE: zone,
        **{name: format_instant(date) for name, date in dates.items() if date is not None},
    }


def _expression(row: Row) -> Expression:
    """Reads the expression from either attribute. A tick removes the second name, so where it is present, it is an
    edit."""
    first, second = (row.get(name) for name in attr.RECURRENCE)
    if second is not None:
        if first is not None and first != second and not RowView(row).is_recurring:
            raise InvalidInput(
                attr.CRON_EXPRESSION, second, "it is another name for scheduleExpression: give one of them"
            )
        return parse_expression(second, attr.CRON_EXPRESSION)
    return parse_expression(first)


def _instant(row: Row, name: str) -> datetime | None:
    """Dates are to the second: the instants of a rate are counted from them."""
    return None if row.get(name) is None else parse_instant(row[name], name).replace(microsecond=0)


def _noted(row: Row, name: str) -> datetime | None:
    """An instant that Dynatick wrote; None if it is malformed, and then it is computed again."""
    try:
        return _instant(row, name)
    except InvalidInput:
        return None


def _window(value: object) -> int:
    if value is None:
        return 0
    if not is_whole(value) or not 0 <= value <= MAX_WINDOW_MINUTES:
        raise InvalidInput(
            attr.FLEXIBLE_TIME_WINDOW, value, f"expected a whole number of minutes from 0 to {MAX_WINDOW_MINUTES}"
        )
    return int(value)


def _expected_within(value: object) -> int | None:
    if value is None:
        return None
    if not is_whole(value) or not 1 <= value <= MAX_EXPECTED_WITHIN_SECONDS:
        expected = f"expected a whole number of seconds from 1 to {MAX_EXPECTED_WITHIN_SECONDS}"
        raise InvalidInput(attr.EXPECTED_WITHIN_SECONDS, value, expected)
    return int(value)


def _state(value: object) -> ScheduleState:
    if value is None:
        return ScheduleState.ENABLED
    if value in (str(ScheduleState.ENABLED), str(ScheduleState.DISABLED)):
        return ScheduleState(value)
    raise InvalidInput(attr.SCHEDULE_STATE, value, "expected ENABLED or DISABLED")


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
    """None for an id that no task can have: one key that the table refuses makes a read of many rows fail."""
    try:
        return check_task_id(value)
    except InvalidInput:
        return None


def _former(value: object) -> Sequence[FormerDefinition]:
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(entry for entry in map(FormerDefinition.from_row, value) if entry is not None)


def _awaited(value: object) -> Sequence[AwaitedOccurrence]:
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(entry for entry in map(AwaitedOccurrence.from_row, value) if entry is not None)


def _missed(value: object) -> Sequence[Missed]:
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(entry for entry in map(Missed.from_row, value) if entry is not None)


# -- awaited occurrences -----------------------------------------------------------------------------------------------

# Occurrences that must have completed by an instant, and why one has not. A schedule with ``expectedWithinSeconds``
# keeps a list of them on its row, from the tick that decides on each until it has completed or its instant has come.

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
