"""Tasks: rows of the table, and the checks that a row must pass to become a Task.

A *row* is an item of the table in Python values (numbers as ``Decimal``, binaries as boto3's ``Binary``). Users can
write rows too, so it may be malformed. A *Task* is a valid row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, parse_time
from dynatick.domain.instants import EPOCH, optional_instant, parse_instant
from dynatick.domain.numbers import is_whole
from dynatick.domain.retry import DEFAULT_POLICY, RetryPolicy
from dynatick.errors import InvalidInput

Row = Mapping[str, object]

SYSTEM_PREFIX = "_dynatick#"
"""The ids of Dynatick's own rows begin with it: cursors, installation settings, tick records."""

MAX_TASK_ID_BYTES = 1024
"""The limit for an index sort key (DynamoDB quotas)."""

MAX_ACTION_CHARACTERS = 128

RESERVED_ACTIONS = "dynatick."
"""The names of Dynatick's own actions begin with it: no user's task has one."""

MAX_SUBJECT_BYTES = 256

MAX_TIMEOUT_SECONDS = 900
"""The limit of a Lambda function."""

_MILLISECOND = timedelta(milliseconds=1)


class Status(StrEnum):
    """The status of a task. A row without one is *unscheduled*: Dynatick has not processed it yet."""

    SCHEDULED = "scheduled"  # waits in its bucket
    RUNNING = "running"  # claimed by a processor, until leaseUntil
    WAITING = "waiting"  # its handler has handed it over: it waits for a completion, until leaseUntil
    COMPLETED = "completed"  # its action returned
    FAILED = "failed"  # permanent error, no attempts left, or malformed
    CANCELLED = "cancelled"  # cancelled by a user before it was claimed
    UNSCHEDULED = "unscheduled"  # never written: such a row has no status


_STATUSES = {str(status): status for status in Status if status is not Status.UNSCHEDULED}
TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
UNSCHEDULED = str(Status.UNSCHEDULED)

_FOR_THE_ACTION = frozenset({attr.PAYLOAD, attr.RESULT})  # no decision depends on these


class LargeRow(Mapping[str, object]):
    """A row whose large values stay encoded, and are decoded each time they are read.

    As Python objects they would take up to thirty times the memory, and most are never read.
    """

    __slots__ = ("_decode", "_large", "_small", "size")

    def __init__(
        self, small: Mapping[str, object], large: Mapping[str, bytes], decode: Callable[[bytes], object]
    ) -> None:
        self._small, self._large, self._decode = small, large, decode
        self.size = sum(map(len, large.values()))
        """Bytes of the encoded values."""

    def __getitem__(self, name: str) -> object:
        kept = self._large.get(name)
        return self._small[name] if kept is None else self._decode(kept)

    def __contains__(self, name: object) -> bool:
        return name in self._small or name in self._large

    def __iter__(self) -> Iterator[str]:
        yield from self._small
        yield from self._large

    def __len__(self) -> int:
        return len(self._small) + len(self._large)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LargeRow) and self._small == other._small and self._large == other._large:
            return True  # otherwise, values with different encodings may still be equal
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def without_action_values(self) -> dict[str, object]:
        """The row without the large values that only the action reads: payload, result, and the user's attributes."""
        decides = self._large.keys() & (attr.OWN_ATTRIBUTES - _FOR_THE_ACTION)
        return {**self._small, **{name: self[name] for name in decides}}

    def changed(self, values: Mapping[str, object], *, only: Callable[[str], bool] = lambda name: True) -> LargeRow:
        """A copy with ``values``, which keeps of its own values those for whose name ``only`` returns True."""
        small = {name: value for name, value in self._small.items() if only(name)}
        large = {name: kept for name, kept in self._large.items() if only(name) and name not in values}
        return LargeRow({**small, **values}, large, self._decode)


def size_of(row: Row) -> int:
    """Bytes of a row's encoded values; 0 for a row that is not a LargeRow."""
    return row.size if isinstance(row, LargeRow) else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A task: a valid row."""

    task_id: str
    bucket: Bucket
    action: str
    due_at: datetime  # when it should run, exactly as requested
    payload: Mapping[str, object] = field(default_factory=dict)
    status: Status = Status.SCHEDULED
    attempt: int = 0  # counted at the claim; 0 until the first
    run: int = 1  # goes up at each redrive or run-now, not at a retry
    turn: int = 0  # how often its handler has asked for a further turn in this run
    next_attempt_at: datetime | None = None  # it is not attempted before; None: ``due_at`` counts
    retry_policy: RetryPolicy = DEFAULT_POLICY
    timeout_seconds: int | None = None  # the longest that an attempt takes; None: as its action declares
    attempts: tuple[Mapping[str, object], ...] = ()  # the earlier ones
    lease: str | None = None  # the claim's token
    lease_until: datetime | None = None
    created_at: datetime | None = None  # None for an occurrence of a schedule
    started_at: datetime | None = None  # of the current attempt
    turns_began_at: datetime | None = None  # firstStartedAt; None in the first turn
    schedule_id: str | None = None
    subject: str | None = None
    limit_key: str | None = None
    batch_id: str | None = None  # of a member of a batch
    traceparent: str | None = None  # what its row says of the span that it comes from; it may be malformed
    attributes: Mapping[str, object] = field(default_factory=dict)  # the row's other attributes, the user's own

    @property
    def shard_key(self) -> str:
        """As that of its row."""
        return self.limit_key or self.task_id

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of one run and turn, and different for an earlier task of the same id.

        An occurrence has no ``created_at``: its id, made of schedule and nominal instant, identifies it.
        """
        turn = f".{self.turn}" if self.turn else ""
        if self.created_at is None:
            return f"{self.task_id}#{self.run}{turn}"
        return f"{self.task_id}#{(self.created_at - EPOCH) // _MILLISECOND}-{self.run}{turn}"

    @property
    def first_started_at(self) -> datetime | None:
        """When the first attempt of this run began, in its first turn."""
        if self.turns_began_at is not None:
            return self.turns_began_at
        for earlier in self.attempts:
            if earlier.get(attr.RUN) == self.run and isinstance(started := earlier.get(attr.STARTED_AT), str):
                try:
                    return parse_instant(started, attr.ATTEMPTS)
                except InvalidInput:  # a malformed record of an attempt must not fail the task
                    continue
        return self.started_at

    @classmethod
    def from_row(cls, row: Row) -> Task:
        """The task of a normalised row. Raises InvalidInput if the row is malformed."""
        bucket = Bucket.parse(row.get(attr.TASK_DATE_TIME))
        return cls(
            task_id=check_task_id(row.get(attr.TASK_ID)),
            bucket=bucket,
            action=check_action(row.get(attr.ACTION)),
            due_at=_due_at(row, bucket),
            payload=check_payload(row.get(attr.PAYLOAD)),
            status=check_status(row.get(attr.STATUS)),
            attempt=check_count(row.get(attr.ATTEMPT, 0), attr.ATTEMPT),
            run=check_count(row.get(attr.RUN, 1), attr.RUN),
            turn=check_count(row.get(attr.TURN, 0), attr.TURN),
            next_attempt_at=optional_instant(row.get(attr.NEXT_ATTEMPT_AT), attr.NEXT_ATTEMPT_AT),
            retry_policy=RetryPolicy.from_row(row.get(attr.RETRY_POLICY)),
            timeout_seconds=None if row.get(attr.TIMEOUT_SECONDS) is None else check_timeout(row[attr.TIMEOUT_SECONDS]),
            attempts=_attempts(row.get(attr.ATTEMPTS)),
            lease=_text_or_none(row.get(attr.LEASE), attr.LEASE),
            lease_until=optional_instant(row.get(attr.LEASE_UNTIL), attr.LEASE_UNTIL),
            created_at=optional_instant(row.get(attr.CREATED_AT), attr.CREATED_AT),
            started_at=optional_instant(row.get(attr.STARTED_AT), attr.STARTED_AT),
            turns_began_at=optional_instant(row.get(attr.FIRST_STARTED_AT), attr.FIRST_STARTED_AT),
            schedule_id=_text_or_none(row.get(attr.SCHEDULE_ID), attr.SCHEDULE_ID),
            subject=subject if isinstance(subject := row.get(attr.SUBJECT), str) else None,  # an older row may have any
            limit_key=key if isinstance(key := row.get(attr.LIMIT_KEY), str) and key else None,  # likewise
            batch_id=_text_or_none(row.get(attr.BATCH_ID), attr.BATCH_ID),
            traceparent=parent if isinstance(parent := row.get(attr.TRACEPARENT), str) else None,
            attributes=(
                {}
                if row.keys() <= attr.OWN_ATTRIBUTES
                else {name: value for name, value in row.items() if name not in attr.OWN_ATTRIBUTES}
            ),
        )


def check_task_id(value: object) -> str:
    """An id: any text of 1 to 1,024 bytes in UTF-8 that is not reserved. Raises InvalidInput."""
    if not isinstance(value, str) or not value:
        raise InvalidInput(attr.TASK_ID, value, "expected a text that is not empty")
    if value.startswith(SYSTEM_PREFIX):
        raise InvalidInput(attr.TASK_ID, value, f"ids beginning with {SYSTEM_PREFIX} are reserved; choose another")
    if (size := _utf8_bytes(value, attr.TASK_ID)) > MAX_TASK_ID_BYTES:
        raise InvalidInput(attr.TASK_ID, value, f"expected at most {MAX_TASK_ID_BYTES} bytes in UTF-8, this has {size}")
    return value


def check_action(value: object) -> str:
    """The name of an action. Raises InvalidInput."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(attr.ACTION, value, "expected the name of an action as text, such as log or webhook")
    if len(value) > MAX_ACTION_CHARACTERS:
        raise InvalidInput(attr.ACTION, value, f"expected at most {MAX_ACTION_CHARACTERS} characters")
    return value


def check_users_action(value: object) -> str:
    """The name of an action that a user's task may have. Raises InvalidInput."""
    action = check_action(value)
    if action.startswith(RESERVED_ACTIONS):
        raise InvalidInput(
            attr.ACTION, action, f"actions beginning with {RESERVED_ACTIONS} are reserved; choose another"
        )
    return action


def check_payload(value: object) -> Mapping[str, object]:
    """A payload: a map, empty if there is none. Raises InvalidInput, without the value."""
    if value is None:
        return {}
    if type(value) is not dict and not isinstance(
        value, Mapping
    ):  # the message omits the value: errors appear in the index and in logs
        raise InvalidInput(attr.PAYLOAD, f"a {type(value).__name__}", "expected a map of names to values")
    for name in value:
        if not isinstance(name, str):
            raise InvalidInput(attr.PAYLOAD, name, "expected names that are text")
    return value


def check_timeout(value: object, maximum: int | None = None) -> int:
    """The seconds of a ``timeoutSeconds``. ``maximum``: the longest that the processor can serve; None: not known.
    Raises InvalidInput."""
    if not is_whole(value) or not 1 <= value <= MAX_TIMEOUT_SECONDS:
        expected = f"expected a whole number of seconds from 1 to {MAX_TIMEOUT_SECONDS}"
        raise InvalidInput(attr.TIMEOUT_SECONDS, value, expected)
    if maximum is not None and value > maximum:
        can = "as long as an attempt can take here (the parameter ProcessorTimeoutSeconds)"
        raise InvalidInput(attr.TIMEOUT_SECONDS, value, f"expected at most {maximum}, {can}")
    return int(value)


def check_subject(value: object) -> str:
    """What a task is about, such as ``customer:4711``: text of 1 to 256 bytes in UTF-8. Raises InvalidInput."""
    if not isinstance(value, str) or not value:
        raise InvalidInput(attr.SUBJECT, value, "expected a text that is not empty, such as customer:4711")
    if (size := _utf8_bytes(value, attr.SUBJECT)) > MAX_SUBJECT_BYTES:
        raise InvalidInput(attr.SUBJECT, value, f"expected at most {MAX_SUBJECT_BYTES} bytes in UTF-8, this has {size}")
    return value


def check_status(value: object) -> Status:
    """The status in a row, which only Dynatick sets. Raises InvalidInput."""
    status = _STATUSES.get(value) if isinstance(value, str) else None
    if status is None:
        raise InvalidInput(attr.STATUS, value, "leave it out: it is set by Dynatick")
    return status


def check_count(value: object, name: str) -> int:
    """A whole number from 0 on. Raises InvalidInput."""
    if not is_whole(value) or value < 0:
        raise InvalidInput(name, value, "expected a whole number, 0 or more")
    return int(value)


def own_row(kind: str) -> dict[str, object]:
    """How each of Dynatick's own rows begins. By its outcome, scans for open tasks pass it over."""
    return {attr.STATUS: kind, attr.OUTCOME: "none"}


def is_own_row(task_id: object) -> bool:
    """Whether an id belongs to one of Dynatick's own rows, which are not tasks."""
    return isinstance(task_id, str) and task_id.startswith(SYSTEM_PREFIX)


def _utf8_bytes(text: str, name: str) -> int:
    try:
        return len(text) if text.isascii() else len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidInput(name, text, "expected text that UTF-8 can hold (no lone surrogates)") from None


def _due_at(row: Row, bucket: Bucket) -> datetime:
    """The due instant. It may have any accepted form, if a user has changed it and the scheduler has not run yet."""
    if row.get(attr.DUE_AT) is None:
        return bucket.instant
    due = parse_time(row[attr.DUE_AT], attr.DUE_AT)
    return due.instant if isinstance(due, Bucket) else due


def _attempts(value: object) -> tuple[Mapping[str, object], ...]:
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(entry for entry in value if isinstance(entry, Mapping))


def _text_or_none(value: object, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise InvalidInput(name, value, "expected text")
