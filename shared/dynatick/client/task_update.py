"""Changes a task by one conditional write, which is decided again if another request changed the row first.

Tasks that this moves out of past buckets are counted, in the records of these buckets.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dynatick.client.settings_cache import SettingsCache
from dynatick.client.views import instant_or_none, number_or, text_or_none, version_of
from dynatick.domain import attributes as attr
from dynatick.domain.batches import BATCH_ACTION, members_by_status
from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.conditional_update import (
    Condition,
    ConditionalUpdate,
    Result,
    Unknown,
    Written,
    as_read,
    merge_updates,
)
from dynatick.domain.instants import up_to_millisecond
from dynatick.domain.lifecycle import (
    cancel,
    postpone,
    redrive,
    replace_definition,
    reschedule,
    restore,
    revise,
    state_of,
    states_before,
)
from dynatick.domain.normalise import Defaults, TaskTime, has_value, task_time
from dynatick.domain.row import RowView, due_of, in_own_shard, is_terminal
from dynatick.domain.schedule import is_or_was_schedule
from dynatick.domain.task import MAX_TASK_ID_BYTES, TERMINAL, Row, Status, check_task_id, is_own_row
from dynatick.engine.conditional_write import write, write_many
from dynatick.engine.counts import count_departures, log_uncounted
from dynatick.engine.ports import Clock, Store
from dynatick.errors import (
    DynatickError,
    InvalidInput,
    ItemTooLarge,
    StoreError,
    TaskChanged,
    TaskNotFound,
    TransitionRefused,
    shown,
)

MAX_KEY_BYTES = 2048
"""The limit of a partition key (DynamoDB quotas). Rows with ids too long for the index exist too, as failed."""

_TRIES = 20
_MAX_COMPARED = 100  # attributes: an expression is limited
_DECIDES_DELETION: Final = (attr.OUTCOME, attr.STATUS, attr.LEASE, attr.CREATED_AT)
UNBEGUN: Final = states_before("reschedule")
_OF_SCHEDULES: Final = {
    "cancel": "pause or delete it (dynatick schedule pause, dynatick schedule delete)",
    "reschedule": "give it another expression or start (dynatick schedule update)",
    "change": "change the schedule itself (dynatick schedule update)",
    "redrive": "redrive the occurrence that failed (dynatick schedule history lists them)",
    "restore": "resume it, if it is paused (dynatick schedule resume)",
    "run": "make an extra occurrence (dynatick schedule run)",
    "delete": "delete it as a schedule (dynatick schedule delete)",
}
"""The alternatives for a schedule to the changes of a task."""

_OF_BATCHES: Final = {
    "cancel": "cancel it with its members (dynatick batch cancel)",
    "reschedule": "its members have the time; cancel it, and insert another",
    "change": "it stays as it was inserted; cancel it, and insert another",
}
_OF_PACKS: Final = {"change": "its members have the payloads, and keep them"}

UNCANCELLED: Final = "a cancelled task is restored, to run at its time, or run at the next tick"

Decide = Callable[[Row], ConditionalUpdate]

_REDRIVEN: Final = {
    str(Status.FAILED): attr.REDRIVEN_FAILED,
    str(Status.COMPLETED): attr.REDRIVEN_COMPLETED,
    str(Status.CANCELLED): attr.REDRIVEN_CANCELLED,
}


def known_id(task_id: str) -> str:
    """An id that a row can have. Raises InvalidInput."""
    try:
        return check_task_id(task_id)
    except InvalidInput:
        if not is_own_row(task_id) and _is_long_key(task_id):
            return task_id
        raise


class Unchanged(Exception):
    """A task stays as it is: it has already what it is to get."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.row = row


@dataclass(frozen=True, slots=True)
class Tried:
    """A change that was tried once."""

    change: ConditionalUpdate
    result: Result

    @property
    def row(self) -> Row | None:
        """As written; or as it is instead."""
        return self.result.row if isinstance(self.result, Written) else self.result.present

    def written(self) -> Row | None:
        """The row if it was changed; None if another request changed it first. Raises StoreError if that is unknown."""
        if isinstance(self.result, Written):
            return self.result.row
        if isinstance(self.result, Unknown):
            kind = ItemTooLarge if self.result.too_large else StoreError
            raise kind(f"cannot change {self.change.task_id!r}: {self.result.error}")
        return None


def try_many(store: Store, changes: Sequence[ConditionalUpdate]) -> list[Tried]:
    """Tries each change once, in one batch. Ids must be unique; each change asks for the row as written."""
    return [Tried(change, result) for change, result in zip(changes, write_many(store, changes), strict=True)]


def carry_out(
    store: Store,
    task_id: str,
    decide: Callable[[Row], ConditionalUpdate],
    *,
    tried: Tried | None = None,
    row: Row | None = None,
) -> Row:
    """Writes what ``decide`` makes of the row, and returns the row as written. ``tried``: an earlier try. ``row``: as
    it was read just now; None: it is read first.

    Raises TaskNotFound, TransitionRefused (from ``decide``), StoreError.
    """
    row = store.get(known_id(task_id)) if tried is None and row is None else row
    for _ in range(_TRIES):
        if tried is None:
            if row is None:
                raise TaskNotFound(task_id)
            change = decide(row)
            tried = Tried(change, write(store, change))
        if (written := tried.written()) is not None:
            return written
        row, tried = tried.row, None
    raise StoreError(f"cannot change {task_id!r}: other requests changed it {_TRIES} times")


def delete(
    store: Store, task_id: str, version: str | None = None, *, check: Callable[[Row], object] = lambda row: None
) -> Row:
    """Removes a task that isn't running, and returns its row. The delete is conditional on the row as it was read, so
    no claim is undone. ``check``: raises for a row that is to stay.

    Raises TaskNotFound, TransitionRefused, TaskChanged if it isn't in the ``version``, StoreError.
    """
    row = store.get(known_id(task_id))
    if row is None:
        raise TaskNotFound(task_id)
    for _ in range(_TRIES):
        check(row)
        require_deletable(row)
        conditions = as_read(row, *_DECIDES_DELETION) if version is None else in_version(row, version)
        if store.delete(task_id, conditions=conditions):
            return row
        now = store.get(task_id)
        if now is None:  # by this very request, whose answer was lost, or by another
            return row
        row = now
    raise StoreError(f"cannot delete {task_id!r}: other requests changed it {_TRIES} times")


def state_shown(row: Row) -> str:
    """A row's state; that of an ended one is its outcome."""
    return (text_or_none(row[attr.OUTCOME]) if is_terminal(row) else None) or state_of(row)


def cancelled(row: Row, *, now: datetime, retention_days: int) -> ConditionalUpdate:
    """Cancelled. Raises TransitionRefused unless the task waits."""
    require(row, "cancel")
    return cancel(row, now=now, retention_days=retention_days)


def rescheduled(row: Row, *, bucket: Bucket, due_at: datetime) -> ConditionalUpdate:
    """Moved to another bucket. Raises TransitionRefused unless the task waits."""
    require(row, "reschedule")
    return reschedule(row, bucket=bucket, due_at=due_at)


def replaced(
    row: Row, moved: ConditionalUpdate, *, definition: Mapping[str, object], now: datetime
) -> ConditionalUpdate:
    """Given another definition, too, when it is ``moved``. Raises InvalidInput for another action, subject or
    limit key, and Unchanged for a task that has all that."""
    _check_same(row, definition)
    change = replace_definition(row, moved, definition=definition, now=now, run=next_run(row))
    differs = {name for name, value in change.set.items() if not has_value(row, name, value)}
    if differs <= {attr.TASK_DATE_TIME, attr.REPLACED_AT} and not change.remove:
        raise Unchanged(row)
    return change


def restarted(
    row: Row, when: TaskTime, *, bucket: Bucket, definition: Mapping[str, object], now: datetime
) -> ConditionalUpdate:
    """Begun anew after its end, as another run with this definition, in this bucket. Raises InvalidInput for another
    action, subject or limit key, and Unchanged for a task that had all that and was due no earlier: the insert was
    repeated."""
    _check_same(row, definition)
    due_at = when.due_at if bucket == when.bucket else now
    moved = redrive(row, bucket=bucket, due_at=due_at, run=next_run(row))
    change = replace_definition(row, moved, definition=definition, now=now, run=next_run(row))
    last = instant_or_none(row.get(attr.DUE_AT))
    if (
        last is not None
        and when.due_at <= last
        and all(has_value(row, name, value) for name, value in definition.items())
    ):
        raise Unchanged(row)
    return change


def _check_same(row: Row, definition: Mapping[str, object]) -> None:
    for name in (attr.ACTION, attr.SUBJECT, attr.LIMIT_KEY):
        own, given = row.get(name), definition.get(name)
        if own != given and not (name == attr.ACTION and None in (own, given)):  # one is left to the installation
            expected = "none" if own is None else shown(own)
            raise InvalidInput(name, given, f"expected {expected}, as the task has; choose another id for another task")


def postponed(row: Row, when: TaskTime, *, until: timedelta | None, grid: Grid, now: datetime) -> ConditionalUpdate:
    """Moved to a later time, at most ``until`` after its first. Raises Unchanged if that is not later than its time, or
    has passed."""
    try:
        own = task_time(row, now=now, grid=grid, defaults=Defaults()).due_at
    except InvalidInput:  # that of a raw row, which gets one that can be understood
        own = now
    first = instant_or_none(row.get(attr.FIRST_DUE_AT)) or instant_or_none(row.get(attr.DUE_AT)) or own
    due_at = when.due_at if until is None or when.due_at - first <= until else first + until
    if due_at <= max(own, now):
        raise Unchanged(row)
    bucket = (
        in_own_shard(row, when.bucket, grid)
        if due_at == when.due_at
        else grid.bucket_of(RowView(row).shard_key, due_at)
    )
    return postpone(row, bucket=bucket, due_at=due_at, first_due_at=first)


def revised(row: Row, *, payload: object, check: Callable[[str, object], None]) -> ConditionalUpdate:
    """Given another payload. Raises TransitionRefused unless the task waits or has failed; InvalidInput from ``check``,
    which gets the task's action and the payload."""
    require(row, "change")
    if isinstance(action := row.get(attr.ACTION), str):
        check(action, payload)
    return revise(row, payload=payload)


def only_in(version: str | None, decide: Callable[[Row], ConditionalUpdate]) -> Callable[[Row], ConditionalUpdate]:
    """The decision, for a row that is still in this version (None: any). It raises TaskChanged for another one."""
    if version is None:
        return decide
    return lambda row: merge_updates(decide(row), conditions=in_version(row, version))


def in_version(row: Row, version: str) -> tuple[Condition, ...]:
    """Conditions that the row is still in this version. Raises TaskChanged if it is not.

    They compare all of Dynatick's attributes, and as many of the user's own as an expression has room for. (A new
    attribute that is added at that very moment is not noticed; it stays.)
    """
    if version_of(row) != version:
        raise TaskChanged(RowView(row).task_id)
    others = sorted(name for name in row if name not in attr.OWN_ATTRIBUTES)
    return as_read(row, *sorted(attr.OWN_ATTRIBUTES - {attr.TASK_ID}), *others[:_MAX_COMPARED])


def redriven(
    row: Row, *, bucket: Bucket, now: datetime, payload: Callable[[Row], object] = lambda row: None
) -> ConditionalUpdate:
    """Started anew, as another run. ``payload``: returns another payload for it, or None. Raises TransitionRefused
    unless the task has failed, and what ``payload`` raises."""
    require(row, "redrive")
    return redrive(row, bucket=bucket, due_at=now, run=next_run(row), payload=payload(row))


def restored(row: Row, *, bucket: Bucket, now: datetime) -> ConditionalUpdate:
    """Its cancellation taken back. ``bucket``: that of the next tick, to which it goes if its own comes before it.
    Raises TransitionRefused unless the task was cancelled."""
    require(row, "restore")
    own = RowView(row).bucket
    return restore(row, now=now, bucket=None if own is not None and own.minute >= bucket.minute else bucket)


def run_at_once(row: Row, *, bucket: Bucket, now: datetime) -> ConditionalUpdate:
    """Moved to the next tick; an ended task starts anew, as another run."""
    require(row, "run")
    if is_terminal(row):
        return redrive(row, bucket=bucket, due_at=now, run=next_run(row))
    return reschedule(row, bucket=bucket, due_at=now)


def is_due(row: Row, now: datetime) -> bool:
    """Whether a waiting task is due, so that the next tick runs it."""
    due = due_of(RowView(row).task_id, row.get(attr.DUE_AT), row.get(attr.NEXT_ATTEMPT_AT))
    return due is not None and due.at <= up_to_millisecond(now)


def require(row: Row, action: str) -> None:
    """Raises TransitionRefused unless the row is a task in a state that allows this."""
    state, allowed = state_shown(row), states_before(action)
    _require_task(row, action)
    # A status that was set by hand, without an outcome, ends nothing: the scheduler repairs it.
    if state not in allowed or (state in TERMINAL and not is_terminal(row)):
        instead = UNCANCELLED if action == "redrive" and state == Status.CANCELLED else ""
        raise TransitionRefused(RowView(row).task_id, action, state, allowed, instead=instead)


def require_deletable(row: Row) -> None:
    """Raises TransitionRefused for a schedule, and for a task that runs."""
    _require_task(row, "delete")
    if (state := state_shown(row)) in (Status.RUNNING, Status.WAITING):
        wait = "an attempt can't be stopped: wait until it has ended; if the task is retried, cancel it then"
        wait = "cancel it first" if state == Status.WAITING else wait
        raise TransitionRefused(RowView(row).task_id, "delete", state, states_before("run"), instead=wait)


def _require_task(row: Row, action: str) -> None:
    if is_or_was_schedule(row):
        state, instead = state_shown(row), _OF_SCHEDULES[action]
        raise TransitionRefused(RowView(row).task_id, action, state, (), is_a="a schedule", instead=instead)
    for is_one, is_a, alternatives in (
        (row.get(attr.ACTION) == BATCH_ACTION, "a batch", _OF_BATCHES),
        (RowView(row).is_pack, "the pack of a batch", _OF_PACKS),
    ):
        if is_one and action in alternatives:
            raise TransitionRefused(
                RowView(row).task_id, action, state_shown(row), (), is_a=is_a, instead=alternatives[action]
            )


def next_run(row: Row) -> int:
    return max(number_or(row.get(attr.RUN), 1), 1) + 1


def _is_long_key(task_id: object) -> bool:
    try:
        return isinstance(task_id, str) and MAX_TASK_ID_BYTES < len(task_id.encode("utf-8")) <= MAX_KEY_BYTES
    except UnicodeEncodeError:
        return False


class Departures:
    """Counts the tasks that one request takes out of past buckets. Decisions may be made in several threads; the other
    methods are for one."""

    def __init__(self, store: Store, settings_cache: SettingsCache, clock: Clock) -> None:
        self._store, self._settings_cache, self._clock = store, settings_cache, clock
        self._noted: dict[str, Departure] = {}  # by task: from when its update was last decided
        self._counted: dict[Bucket, Counter[str]] = {}

    def noting(self, decide: Decide) -> Decide:
        """``decide``, noting the bucket of the row that it gets."""

        def decide_and_note(row: Row) -> ConditionalUpdate:
            change = decide(row)
            task_id, departure = RowView(row).task_id, departure_of(row, change, now=self._clock())
            if departure is None:
                self._noted.pop(task_id, None)
            else:
                self._noted[task_id] = departure
            return change

        return decide_and_note

    def count(self, task_id: str) -> None:
        """Counts a task whose update was written."""
        if (departure := self._noted.pop(task_id, None)) is not None:
            self._counted.setdefault(departure.bucket, Counter())[departure.as_what] += departure.tasks

    def write(self) -> None:
        """Adds what was counted to the records. If that fails, it is logged: the tasks were changed all the same."""
        counted, self._counted = self._counted, {}
        if not counted:
            return
        try:
            days = self._settings_cache.defaults().retention_days
            count_departures(self._store, counted, token=uuid.uuid4().hex, now=self._clock(), retention_days=days)
        except DynatickError as error:
            log_uncounted(error)


@dataclass(frozen=True, slots=True)
class Departure:
    """The past bucket that an update moves a task out of, and as what it is counted there: a pack for each member that
    moves with it."""

    bucket: Bucket
    as_what: str
    tasks: int


def departure_of(row: Row, change: ConditionalUpdate, *, now: datetime) -> Departure | None:
    """None: the update moves the task out of no past bucket."""
    bucket = Bucket.canonical(row.get(attr.TASK_DATE_TIME))
    to = change.set.get(attr.TASK_DATE_TIME)
    if bucket is None or to is None or to == str(bucket) or bucket.minute > minute_of(now):
        return None
    state = state_shown(row)
    members = members_by_status(row)
    return Departure(bucket, _REDRIVEN.get(state, attr.MOVED), 1 if members is None else members.get(state, 0))
