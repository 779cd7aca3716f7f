"""Placement (protocol 5 to 7): every open task gets a bucket that some tick will poll.

One function does it for the stream, for passes and for reconcile. What a row needs first is decided here too: to be
normalised, repaired or marked failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Lost, Result, Unknown, Written, as_read
from dynatick.domain.lifecycle import defer, ended_by_hand, move
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
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.schedule import is_at_rest, is_schedule
from dynatick.domain.task import Row, Status, is_own_row
from dynatick.engine.conditional_write import write
from dynatick.engine.cursor import read_cursor
from dynatick.engine.ports import DeadLetter, DeadLetters, Store
from dynatick.engine.rules import Rules
from dynatick.engine.settings import InstallationSettings
from dynatick.errors import StoreError

# -- readiness ---------------------------------------------------------------------------------------------------------


def make_ready(
    row: Row, rules: Rules, settings: InstallationSettings, *, now: datetime, revision: int = 1
) -> ConditionalUpdate | None:
    """The change that the row needs first; None: it needs none. ``revision``: with which a new schedule begins."""
    view = RowView(row)
    if is_terminal(row) or is_own_row(view.task_id):
        return None
    grid, defaults = settings.grid, rules.defaults
    if (reason := rejection_reason(row)) is not None:
        fail = refused if is_schedule(row) else reject
        return fail(row, reason, now=now, grid=grid, retention_days=rules.retention_days)
    if is_schedule(row):
        return ready(row, now=now, grid=grid, defaults=defaults, revision=revision)
    if needs_normalising(row):
        return normalise(row, now=now, grid=grid, defaults=defaults)
    repaired = ended_by_hand(row, now=now, retention_days=rules.retention_days)
    if repaired is not None:
        return repaired
    if not view.is_live:
        return normalise(row, now=now, grid=grid, defaults=defaults)
    if view.is_scheduled and view.bucket is None:
        return place(row, now=now, grid=grid, defaults=defaults)
    if stray := premature_attributes(row):
        return ConditionalUpdate(
            task_id=view.task_id, remove=stray, conditions=as_read(row, attr.OUTCOME, attr.STATUS), returning=True
        )
    return None


def is_rejection(change: ConditionalUpdate) -> bool:
    """Whether a change marks a row as failed."""
    return change.set.get(attr.OUTCOME) == str(Status.FAILED)


# -- placement ---------------------------------------------------------------------------------------------------------

_TRIES = 30


class Undelivered(StoreError):
    """The dead-letter queue refused the message of a row that is to be marked failed: the row stays open."""

    def __init__(self, row: Row, rejection: ConditionalUpdate) -> None:
        super().__init__(
            f"the dead-letter queue did not take {RowView(row).task_id!r}; it stays open, and is tried again"
        )
        self.rejection = rejection


@dataclass(slots=True)
class Placer:
    """Places rows by the cursors of their shards.

    ``send_letter`` sends the dead letter of a row before it is marked failed. It returns False if the queue refuses:
    then the row stays open, and is tried again later. In a pass it is ``leave_to_pass``.
    """

    store: Store
    rules: Rules
    settings: InstallationSettings
    clock: Callable[[], datetime]
    send_letter: Callable[[Row, str], bool]
    moved: int = field(default=0, init=False)
    normalised: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)

    def make_ready(self, row: Row, *, revision: int = 1) -> ConditionalUpdate | None:
        """What must be written before a row is a task in a bucket: see the function of this name."""
        return make_ready(row, self.rules, self.settings, now=self.clock(), revision=revision)

    def carry_out(self, row: Row, change: ConditionalUpdate) -> Result:
        """Writes what ``make_ready`` decided. A row that would be too large is marked failed without its payload.

        Raises Undelivered if the dead-letter queue refuses its message.
        """
        if is_rejection(change):
            # The stream repeats records and shows old rows: a letter goes out for the present row only.
            present = self.store.get(change.task_id)
            if present is None or present != row:
                return Lost(present)
            if not self.send_letter(row, rejection_text(change)):
                raise Undelivered(row, change)
        return self.write(row, change)

    def write(self, row: Row, change: ConditionalUpdate) -> Result:
        """``carry_out`` for a change that needs no letter, or whose letter was sent."""
        result = write(self.store, change)
        if isinstance(result, Unknown) and result.too_large:
            result = self._mark_too_large(row, change, result.error)
        self.count(change, result)
        return result

    def count(self, change: ConditionalUpdate, result: Result) -> None:
        """Counts what was written."""
        if isinstance(result, Written):
            if is_rejection(change):
                self.failed += 1
            elif {attr.STATUS, attr.DUE_AT, attr.ACCEPTED_DEFINITION} & change.set.keys():
                self.normalised += 1

    def place(
        self,
        task_id: str,
        image: Row | None = None,
        *,
        first: ConditionalUpdate | None = None,
        revision_of: Callable[[Row], int] = lambda row: 1,
    ) -> Row | None:
        """Gives the task a bucket that some tick will poll. Returns the row as last read.

        ``image``: the row as its stream record shows it; if nothing is to be done, it is not read again. ``first``: the
        first change, if that was decided before. ``revision_of``: with which revision a schedule begins.
        Raises StoreError if the table doesn't answer, or others keep changing the row; Undelivered if the row is to be
        marked failed and stays open. It then lies in a bucket whose tick tries again, unless the index can't hold it.
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
                    if unsent is not None and is_rejection(change):
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
            if self.is_ahead(row):  # the closed watermark is read after the row (5)
                return row
            if not fresh:
                row, fresh = self.store.get(task_id), True
                continue
            moving = move(row, self._bucket_for(row))
            result = write(self.store, moving)
            self.moved += isinstance(result, Written)
            if isinstance(result, Unknown) and result.too_large:
                result = self._mark_too_large(row, moving, result.error)
            row = self._after(row, result)  # and check again: this process may have been frozen before its write (7)
        raise StoreError(f"cannot place {task_id!r}: it was changed by others {_TRIES} times")

    def _keep_open(self, row: Row, rejection: ConditionalUpdate, unsent: Undelivered) -> Row | None:
        """Puts a row into the next tick, which tries again to mark it failed. Raises ``unsent`` if it lies there."""
        if self.is_ahead(row) and (rejection_reason(row) is not None or attr.ERROR not in rejection.set):
            raise unsent
        soon = self._bucket_for({attr.TASK_ID: rejection.task_id})
        result = write(self.store, defer_rejection(row, rejection, soon))
        if isinstance(result, Unknown) and result.too_large:
            raise unsent
        return self._after(row, result)

    def defer(self, row: Row, at: datetime) -> bool:
        """Moves a row that no tick could work on to the tick of an instant. False: that was not written."""
        task_id, later = RowView(row).task_id, self.settings.grid.bucket_of(RowView(row).shard_key, at)
        result = write(self.store, defer(row, later))
        self.check_moves({task_id: later})
        return isinstance(result, Written)

    def check_moves(self, moves: Mapping[str, Bucket]) -> tuple[Mapping[str, Bucket], Mapping[int, int]]:
        """Places again the tasks that this process moved into buckets that are closed by now (7, 17).

        A pass checks what it moves in its own shard, too: another tick closes buckets although the pass has the shard
        lease, and it may have lost or released that. ``moves``: every bucket that was written, or may have been.
        Returns the buckets of those that were placed again, and the closed watermarks by shard. Each is read once,
        after the writes. Raises StoreError, or Undelivered, as ``place`` does.
        """
        placed: dict[str, Bucket] = {}
        closed: dict[int, int] = {}
        for task_id, bucket in moves.items():
            if not self._is_open(bucket, closed):
                row = self.place(task_id)
                present = None if row is None else RowView(row).bucket
                if present is not None:
                    placed[task_id] = present
        return placed, closed

    def is_ahead(self, row: Row, closed: dict[int, int] | None = None) -> bool:
        """Whether the row's bucket is canonical, in a shard in use, that of its limit key if it has one (24), and not
        yet closed.

        ``closed``: closed watermarks by shard, read after ``row``; those that are missing are read and added.
        """
        view = RowView(row)
        bucket, key = view.bucket, view.limit_key
        if bucket is None or (key is not None and bucket.shard != self.settings.grid.shard_of(key)):
            return False
        return self._is_open(bucket, {} if closed is None else closed)

    def _is_open(self, bucket: Bucket, closed: dict[int, int]) -> bool:
        if bucket.shard >= self.settings.shards_ever:
            return False
        if bucket.shard not in closed:
            closed[bucket.shard] = read_cursor(self.store, bucket.shard, self.clock()).closed_through
        return bucket.minute > closed[bucket.shard]

    def _bucket_for(self, row: Row) -> Bucket:
        """The bucket for a row that can't stay in its own: that of its own tick, or if it is closed, of the first tick
        after now and after the closed watermark."""
        grid, now, view = self.settings.grid, self.clock(), RowView(row)
        shard = grid.shard_of(view.shard_key)
        closed = read_cursor(self.store, shard, now).closed_through
        bucket = view.bucket
        wanted = None if bucket is None else grid.tick_at_or_after(bucket.instant)
        if wanted is not None and wanted > closed:
            return Bucket(wanted, shard)
        return Bucket(grid.tick_after(max(minute_of(now), closed)), shard)

    def _after(self, row: Row, result: Result) -> Row | None:
        """The row after a write. Raises StoreError if it is not known whether that took effect."""
        if isinstance(result, Written) and result.row is not None:
            return result.row
        if isinstance(result, Lost):
            return result.present
        if isinstance(result, Unknown) and not result.too_large:
            raise StoreError(result.error)
        return self.store.get(RowView(row).task_id)

    def _mark_too_large(self, row: Row, change: ConditionalUpdate, error: str) -> Result:
        reason = "the row is too large, or its taskId too long to be indexed; its payload was dropped to say so"
        if not is_rejection(change):
            change = reject(
                row, reason, now=self.clock(), grid=self.settings.grid, retention_days=self.rules.retention_days
            )
            if not self.send_letter(row, reason):
                raise Undelivered(row, change)
        result = write(self.store, without_large_values(change, row))
        self.count(change, result)
        return result


def leave_to_pass(row: Row, error: str) -> bool:
    """Sends nothing, and returns False: a pass sends letters in threads of their own, beside its claims."""
    return False


def rejection_text(rejection: ConditionalUpdate) -> str:
    """The error of a change that marks a row failed."""
    return str(rejection.set.get(attr.ERROR, "its status was set to failed by hand"))


def rejections_to(dead_letters: DeadLetters, clock: Callable[[], datetime]) -> Callable[[Row, str], bool]:
    """Returns a ``send_letter`` that waits for the queue's answer."""

    def send(row: Row, error: str) -> bool:
        return all(dead_letters.send([DeadLetter(row=row, attempt=0, error=error, failed_at=clock())]))

    return send
