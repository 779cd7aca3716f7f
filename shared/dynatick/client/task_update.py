"""Changes a task by one conditional write, which is decided again if another request changed the row first.

Tasks that this moves out of past buckets are counted, in the records of these buckets.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dynatick.client.settings_cache import SettingsCache
from dynatick.client.views import text_or_none, version_of
from dynatick.domain import attributes as attr
from dynatick.domain.batches import BATCH_ACTION, members_by_status
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import (
    Condition,
    ConditionalUpdate,
    Result,
    Unknown,
    Written,
    as_read,
    merge_updates,
)
from dynatick.domain.lifecycle import state_of, states_before
from dynatick.domain.packs import body_id
from dynatick.domain.row import RowView, is_terminal
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
)

MAX_KEY_BYTES = 2048
"""The limit of a partition key (DynamoDB quotas). Rows with ids too long for the index exist too, as failed."""

_TRIES = 20
_MAX_COMPARED = 100  # attributes: an expression is limited
_DECIDES_DELETION: Final = (attr.OUTCOME, attr.STATUS, attr.LEASE, attr.LEASE_UNTIL, attr.CREATED_AT)
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
    "delete": "cancel it with its members (dynatick batch cancel), and delete it then",
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
    decide: Decide,
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
    store: Store,
    task_id: str,
    version: str | None = None,
    *,
    check: Callable[[Row], object] = lambda row: None,
    with_members: bool = False,
) -> Row:
    """Removes a task that isn't running, and returns its row; a pack with the payloads of its members. The delete is
    conditional on the row as it was read, so no claim is undone. ``check``: raises for a row that is to stay.
    ``with_members``: as of ``require_deletable``.

    Raises TaskNotFound, TransitionRefused, TaskChanged if it isn't in the ``version``, StoreError.
    """
    row = store.get(known_id(task_id))
    if row is None:
        raise TaskNotFound(task_id)
    for _ in range(_TRIES):
        check(row)
        require_deletable(row, with_members=with_members)
        conditions = as_read(row, *_DECIDES_DELETION) if version is None else in_version(row, version)
        # If not, and it is gone, it was deleted by this very request, whose answer was lost, or by another.
        now = None if store.delete(task_id, conditions=conditions) else store.get(task_id)
        if now is None:
            if RowView(row).is_pack:
                _delete_payloads(store, task_id)
            return row
        row = now
    raise StoreError(f"cannot delete {task_id!r}: other requests changed it {_TRIES} times")


def _delete_payloads(store: Store, pack_id: str) -> None:
    payloads = body_id(pack_id)
    try:
        store.delete(payloads)
    except StoreError as error:
        raise StoreError(f"deleted {pack_id!r}, and its payloads in {payloads!r} perhaps not: {error}") from None


def state_shown(row: Row) -> str:
    """A row's state; that of an ended one is its outcome."""
    return (text_or_none(row[attr.OUTCOME]) if is_terminal(row) else None) or state_of(row)


def only_in(version: str | None, decide: Decide) -> Decide:
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


def require(row: Row, action: str) -> None:
    """Raises TransitionRefused unless the row is a task in a state that allows this."""
    state, allowed = state_shown(row), states_before(action)
    _require_task(row, action)
    if RowView(row).is_released and Status.SCHEDULED in allowed:
        return
    # A status that was set by hand, without an outcome, ends nothing: the scheduler repairs it.
    if state not in allowed or (state in TERMINAL and not is_terminal(row)):
        instead = UNCANCELLED if action == "redrive" and state == Status.CANCELLED else ""
        raise TransitionRefused(RowView(row).task_id, action, state, allowed, instead=instead)


def require_deletable(row: Row, *, with_members: bool = False) -> None:
    """Raises TransitionRefused for a schedule, for a task that runs, and for a batch that has not ended, unless it is
    to be deleted ``with_members``."""
    if not (with_members and row.get(attr.ACTION) == BATCH_ACTION):
        _require_task(row, "delete")
    if (state := state_shown(row)) in (Status.RUNNING, Status.WAITING) and not RowView(row).is_released:
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
        if is_one and action in alternatives and not (action == "delete" and is_terminal(row)):
            raise TransitionRefused(
                RowView(row).task_id, action, state_shown(row), (), is_a=is_a, instead=alternatives[action]
            )


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
