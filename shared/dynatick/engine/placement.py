"""Settle (protocol 5 to 7): a task whose bucket is closed to newcomers goes to the next tick.

One function for the stream, for what a pass leaves over and for reconcile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Lost, Result, Unknown, Written, as_read
from dynatick.domain.lifecycle import ended_by_hand, is_terminal, move
from dynatick.domain.normalise import (
    defer_rejection,
    needs_normalising,
    normalise,
    place,
    premature_attributes,
    reject,
    rejection_reason,
    without_large_values,
)
from dynatick.domain.recurrence import ready, refused
from dynatick.domain.schedule import is_at_rest, is_schedule
from dynatick.domain.task import Row, Status, is_own_row
from dynatick.engine.cursor import read_cursor
from dynatick.engine.installation_settings import InstallationSettings
from dynatick.engine.ports import DeadLetter, DeadLetters, Store
from dynatick.engine.rules import Rules
from dynatick.errors import StoreError

_LIVE = (str(Status.SCHEDULED), str(Status.RUNNING))
_TRIES = 30


class Undelivered(StoreError):
    """The dead-letter queue did not take the message of a row that is to be marked failed: it stays open."""

    def __init__(self, row: Row, rejection: ConditionalUpdate) -> None:
        super().__init__(f"the dead-letter queue did not take {row['taskId']!r}; it stays open, and is tried again")
        self.rejection = rejection


@dataclass(slots=True)
class Placer:
    """Settles rows against the cursors of their shards.

    ``rejected`` is called with each row that this marks as failed, before it is marked; it returns False if the
    dead-letter queue did not take it, and then the row stays open for a later try.
    """

    store: Store
    rules: Rules
    settings: InstallationSettings
    clock: Callable[[], datetime]
    rejected: Callable[[Row, str], bool]
    moved: int = field(default=0, init=False)
    normalised: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)

    def make_ready(self, row: Row, *, revision: int = 1) -> ConditionalUpdate | None:
        """What must be written before a row is a task in a bucket: normalised, repaired, or marked failed. Pure.

        ``revision``: with which a schedule begins that nobody has looked at.
        """
        now = self.clock()
        if is_terminal(row) or is_own_row(row.get("taskId")):
            return None
        if (reason := rejection_reason(row)) is not None:
            return self._rejection(row, reason, now)
        if is_schedule(row):
            return ready(row, now=now, grid=self.settings.grid, defaults=self.rules.defaults, revision=revision)
        if needs_normalising(row):
            return normalise(row, now=now, grid=self.settings.grid, defaults=self.rules.defaults)
        repaired = ended_by_hand(row, now=now, retention_days=self.rules.retention_days)
        if repaired is not None:
            return repaired
        if row.get("status") not in _LIVE:
            return normalise(row, now=now, grid=self.settings.grid, defaults=self.rules.defaults)
        if row.get("status") == str(Status.SCHEDULED) and Bucket.canonical(row.get("taskDateTime")) is None:
            return place(row, now=now, grid=self.settings.grid, defaults=self.rules.defaults)
        if stray := premature_attributes(row):
            return ConditionalUpdate(
                task_id=str(row["taskId"]), remove=stray, conditions=as_read(row, "outcome"), returning=True
            )
        return None

    def carry_out(self, row: Row, change: ConditionalUpdate) -> Result:
        """Writes what ``make_ready`` decided. A row too large for that is marked failed without what makes it so.

        Raises Undelivered if the dead-letter queue does not take its message.
        """
        if self.is_rejection(change):
            # A letter should go out once, and for the row as it is: the stream repeats records, and shows old ones.
            present = self.store.get(change.task_id)
            if present is None or present != row:
                return Lost(present)
            if not self.rejected(row, str(change.set.get("error", "its status was set to failed by hand"))):
                raise Undelivered(row, change)
        result = self.store.write(change)
        if isinstance(result, Unknown) and result.too_large:
            result = self._mark_too_large(row, change, result.error)
        self.count(change, result)
        return result

    def count(self, change: ConditionalUpdate, result: Result) -> None:
        """Keeps the figures of what was written."""
        if isinstance(result, Written):
            if self.is_rejection(change):
                self.failed += 1
            elif {"status", "dueAt", "definition"} & change.set.keys():
                self.normalised += 1

    def settle(
        self,
        task_id: str,
        image: Row | None = None,
        *,
        first: ConditionalUpdate | None = None,
        revision_of: Callable[[Row], int] = lambda row: 1,
    ) -> Row | None:
        """Sees to it that the task lies in a bucket that some tick will look at. Returns the row as last read.

        ``image``: the row as its event shows it, enough to find that there is nothing to do. ``first``: what is to be
        done with it, if that was decided. ``revision_of``: with which revision a schedule begins.
        Raises StoreError if the table does not answer, or never holds still; Undelivered if the row is to be marked
        failed and stays open, in a bucket whose tick tries again unless no index takes it.
        """
        row = image if image is not None else self.store.get(task_id)
        fresh, change = image is None, first
        unsent: Undelivered | None = None
        for _ in range(_TRIES):
            if row is None or is_terminal(row) or is_own_row(task_id):
                return row
            change = change or self.make_ready(row, revision=revision_of(row))
            if change is not None:
                try:
                    if unsent is not None and self.is_rejection(change):
                        row = self._keep_open(row, change, unsent)
                    else:
                        row = self._after(row, self.carry_out(row, change))
                    change = None
                except Undelivered as error:
                    if unsent is not None:
                        raise
                    unsent, change = error, error.rejection
                fresh = True
                continue
            if is_at_rest(row):
                return row
            if self.is_ahead(row):  # C is read after the row (5)
                return row
            if not fresh:
                row, fresh = self.store.get(task_id), True
                continue
            moving = move(row, self._bucket_for(row))
            result = self.store.write(moving)
            self.moved += isinstance(result, Written)
            if isinstance(result, Unknown) and result.too_large:
                result = self._mark_too_large(row, moving, result.error)
            row = self._after(row, result)  # and then look again, for the mover may have been frozen meanwhile (7)
        raise StoreError(f"cannot settle {task_id!r}: it was changed by others {_TRIES} times")

    def _keep_open(self, row: Row, rejection: ConditionalUpdate, unsent: Undelivered) -> Row | None:
        """Puts a row into the next tick, which tries again to mark it failed; raises ``unsent`` once it lies there."""
        if self.is_ahead(row) and (rejection_reason(row) is not None or "error" not in rejection.set):
            raise unsent
        result = self.store.write(defer_rejection(row, rejection, self._bucket_for({"taskId": row["taskId"]})))
        if isinstance(result, Unknown) and result.too_large:
            raise unsent
        return self._after(row, result)

    def is_ahead(self, row: Row, closed: dict[int, int] | None = None) -> bool:
        """Whether the row's bucket is canonical, in a shard that is served, and still open to newcomers.

        ``closed``: C by shard as read after ``row`` was; filled in here.
        """
        bucket = Bucket.canonical(row.get("taskDateTime"))
        if bucket is None or bucket.shard >= self.settings.shards_ever:
            return False
        closed = {} if closed is None else closed
        if bucket.shard not in closed:
            closed[bucket.shard] = read_cursor(self.store, bucket.shard, self.clock()).closed_through
        return bucket.minute > closed[bucket.shard]

    @staticmethod
    def is_rejection(change: ConditionalUpdate) -> bool:
        """Whether a change marks a row as failed."""
        return change.set.get("outcome") == str(Status.FAILED)

    def _bucket_for(self, row: Row) -> Bucket:
        """Where a row belongs that cannot stay: in its own tick if that is still open, in a shard that is served; else
        in the first tick after now and C."""
        grid, now = self.settings.grid, self.clock()
        shard = grid.shard_of(str(row["taskId"]))
        closed = read_cursor(self.store, shard, now).closed_through
        bucket = Bucket.canonical(row.get("taskDateTime"))
        wanted = None if bucket is None else grid.tick_at_or_after(bucket.instant)
        if wanted is not None and wanted > closed:
            return Bucket(wanted, shard)
        return Bucket(grid.tick_after(max(minute_of(now), closed)), shard)

    def _after(self, row: Row, result: Result) -> Row | None:
        """The row after a write, whichever way it went."""
        if isinstance(result, Written) and result.row is not None:
            return result.row
        if isinstance(result, Unknown) and not result.too_large:
            raise StoreError(result.error)
        return self.store.get(str(row["taskId"]))

    def _rejection(self, row: Row, reason: str, now: datetime) -> ConditionalUpdate:
        fail = refused if is_schedule(row) else reject
        return fail(row, reason, now=now, grid=self.settings.grid, retention_days=self.rules.retention_days)

    def _mark_too_large(self, row: Row, change: ConditionalUpdate, error: str) -> Result:
        reason = "the row is too large, or its taskId too long to be indexed; its payload was dropped to say so"
        if not self.is_rejection(change):
            change = reject(
                row,
                reason,
                now=self.clock(),
                grid=self.settings.grid,
                retention_days=self.rules.retention_days,
            )
            if not self.rejected(row, reason):
                raise Undelivered(row, change)
        result = self.store.write(without_large_values(change, row))
        self.count(change, result)
        return result


def send_rejection(dead_letters: DeadLetters, row: Row, error: str, now: datetime) -> bool:
    """One letter for a row that is marked failed without ever having run; whether it was taken."""
    taken: Sequence[bool] = dead_letters.send([DeadLetter(row=row, attempt=0, error=error, failed_at=now)])
    return all(taken)


def until_refused(dead_letters: DeadLetters, clock: Callable[[], datetime]) -> Callable[[Row, str], bool]:
    """For one batch of the stream: once a letter is refused, no other is sent, for each may take seconds. A tick sends
    them."""
    refused = False

    def send(row: Row, error: str) -> bool:
        nonlocal refused
        refused = refused or not send_rejection(dead_letters, row, error, clock())
        return not refused

    return send
