"""Claims the tasks of a bucket, and finds out why others could not be claimed (protocol 9, 10, 12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Condition, ConditionalUpdate, Result, Unknown, Written
from dynatick.domain.lifecycle import claim
from dynatick.domain.row import Due, RowView, is_terminal
from dynatick.domain.task import LargeRow, Row, Task, size_of
from dynatick.engine.conditional_write import write, write_many
from dynatick.engine.placement import Placer, Undelivered
from dynatick.engine.ports import Store
from dynatick.engine.rules import SKEW_MARGIN
from dynatick.errors import DynatickError, InvalidInput, StoreError

Entries = Sequence[tuple[Bucket, str]]
"""Entries of the index: the bucket that lists a task, and the task's id."""

LONGEST_LEASE = timedelta(hours=1)
"""Four times as long as Lambda lets a function run."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """Claimed by this process. ``row``: as in the table; if it is large, ``task`` is without its payload."""

    task: Task
    row: Row

    @property
    def size(self) -> int:
        """Bytes of a large row's undecoded attributes; 0 for a small row."""
        return size_of(self.row)

    def whole(self) -> Task:
        """The task with its payload. Raises InvalidInput if that can't be decoded."""
        return Task.from_row(self.row) if self.size else self.task


@dataclass(frozen=True, slots=True)
class Malformed:
    """Claimed by this process, but the row can't be understood."""

    row: Row
    reason: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """Not claimed: the row is no task, and is marked failed by ``change`` as soon as its letter was sent."""

    row: Row
    change: ConditionalUpdate


@dataclass(frozen=True, slots=True)
class Ineligible:
    """Ended, deleted, or moved to another bucket."""


@dataclass(frozen=True, slots=True)
class Contended:
    """Open, and not claimed by this process: it holds its bucket back until a later poll (3).

    ``stuck``: no process will end it, so it is deferred at the final poll of its bucket.
    """

    stuck: bool = False


@dataclass(frozen=True, slots=True)
class LeaseExpired:
    """Claimed, and its lease has expired: it may have killed its process, or it was handed over, and is overdue. A
    recovery reclaims it (10)."""

    task_id: str
    action: str = ""  # as it stands in the row
    is_last: bool = False  # its next attempt is the last, and it may have killed its process
    limit_key: str | None = None
    is_overdue: bool = False  # no completion came


Verdict = Claimed | Malformed | Rejected | Ineligible | Contended | LeaseExpired


@dataclass(frozen=True, slots=True)
class _Released:
    """The task is to be claimed again, alone: an earlier process has released it."""


def judge(row: Row | None, bucket: Bucket, *, now: datetime) -> Verdict | _Released | None:
    """Why a row could not be claimed in ``bucket``. None: it must be made ready first."""
    if row is None or is_terminal(row):
        return Ineligible()
    view = RowView(row)
    if not view.is_open_in(bucket):
        return Ineligible()
    if not view.is_running:
        return None
    if view.is_released:
        if view.attempt is None:  # it could never be claimed
            wrong = InvalidInput(attr.ATTEMPT, row.get(attr.ATTEMPT), "expected a whole number, 0 or more")
            return Malformed(row, str(wrong))
        return _Released()
    if not lease_is_over(row, now):
        return Contended(stuck=not lease_is_over(row, now + LONGEST_LEASE))
    return LeaseExpired(
        view.task_id, str(row.get(attr.ACTION)), view.is_last_attempt, view.limit_key, view.awaits_completion
    )


def is_stuck(row: Row, bucket: Bucket, placer: Placer, now: datetime) -> bool:
    """Whether no tick can work on an open row of this bucket: it can't be made a task nor marked failed, or no process
    can hold its lease."""
    view = RowView(row)
    if not view.is_open_in(bucket):
        return False
    if not view.is_running:
        return placer.make_ready(row) is not None
    return not lease_is_over(row, now + LONGEST_LEASE)


def lease_is_over(row: Row, now: datetime) -> bool:
    """Whether no process can still work on a running row; also true if its lease can't be read (10)."""
    lease_until = RowView(row).lease_until
    return lease_until is None or now > lease_until + SKEW_MARGIN


def understand(row: Row) -> Claimed | Malformed:
    """A row that is ours, as a task if it is one."""
    try:
        return Claimed(Task.from_row(row.without_action_values() if isinstance(row, LargeRow) else row), row)
    except InvalidInput as error:
        return Malformed(row, str(error))


@dataclass(slots=True)
class Claimer:
    """Claims entries of buckets in batches. Each claim has its own token, so a late record can't hit another claim."""

    store: Store
    placer: Placer
    clock: Callable[[], datetime]
    new_token: Callable[[], str]
    add_unclear: Callable[[str, str], None] = lambda task_id, token: None
    """Gets the task and the token of a claim that may have taken effect, and will not be begun: the table has answered
    neither the claim nor the read after it."""

    def claim(
        self, entries: Entries, *, lease_until: datetime, due: Mapping[str, Due] = MappingProxyType({})
    ) -> Sequence[Verdict]:
        """One verdict for each entry, in order; ids must differ. ``due``: by id, those that are claimed before their
        tick, each on condition that it is still due (18); why one is not claimed, its tick finds out.

        Raises StoreError if the table doesn't answer and nothing was claimed; otherwise an entry without an answer is
        Contended, for a later poll.
        """
        wanted = [(task_id, bucket, due[task_id].conditions if task_id in due else ()) for bucket, task_id in entries]
        tokens, results = self._write(wanted, lease_until)
        verdicts: list[Verdict] = [
            understand(result.row) if isinstance(result, Written) and result.row is not None else Contended()
            for result in results
        ]
        try:
            for n, ((bucket, task_id), token, result) in enumerate(zip(entries, tokens, results, strict=True)):
                if not isinstance(result, Written) and task_id in due:
                    _require_read(result)
                elif not isinstance(result, Written):
                    verdicts[n] = self._classify(task_id, bucket, token, result, lease_until)
        except DynatickError:
            if not any(isinstance(verdict, Claimed) for verdict in verdicts):
                raise
        return verdicts

    def _write(
        self, wanted: Sequence[tuple[str, Bucket, tuple[Condition, ...]]], lease_until: datetime
    ) -> tuple[Sequence[str], Sequence[Result]]:
        """Writes claims, each with a token of its own. Returns the tokens and the results."""
        now = self.clock()
        tokens = [self.new_token() for _ in wanted]
        results = write_many(
            self.store,
            [
                claim(task_id, bucket, token=token, lease_until=lease_until, now=now, due=due)
                for (task_id, bucket, due), token in zip(wanted, tokens, strict=True)
            ],
        )
        for (task_id, *_), token, result in zip(wanted, tokens, results, strict=True):
            self._note_unclear(task_id, token, result)
        return tokens, results

    def _classify(self, task_id: str, bucket: Bucket, token: str, result: Result, lease_until: datetime) -> Verdict:
        too_large = result.error if isinstance(result, Unknown) and result.too_large else None
        row = self._present(task_id, result)
        verdict = judge(row, bucket, now=self.clock())
        if too_large is not None and row is not None and not isinstance(verdict, Ineligible):
            return Malformed(row, f"the row is too large to be claimed ({too_large})")
        if isinstance(verdict, _Released):
            return self._claim_one(bucket, task_id, token, lease_until, released=True)
        if verdict is not None:
            return verdict
        if row is None:
            return Ineligible()
        return self._make_ready_and_claim(row, bucket, token, lease_until)

    def _make_ready_and_claim(self, row: Row, bucket: Bucket, token: str, lease_until: datetime) -> Verdict:
        """Normalises and claims a row that the scheduler function has not seen yet, or that was changed by hand (9)."""
        task_id = RowView(row).task_id
        try:
            change = self.placer.make_ready(row)
            if change is None:  # it is ready: the reason for which the claim was refused is gone
                return self._claim_one(bucket, task_id, token, lease_until)
            try:
                result = self.placer.carry_out(row, change)
            except Undelivered as error:
                return Rejected(row, error.rejection)
            if isinstance(result, Written) and result.row is not None:
                row = result.row
                if RowView(row).is_open_in(bucket):
                    return self._claim_one(bucket, task_id, token, lease_until)
                if not is_terminal(row):
                    self.placer.place(task_id, row)
                return Ineligible()
        except DynatickError:
            return Contended(stuck=True)
        return Contended()

    def _claim_one(
        self, bucket: Bucket, task_id: str, token: str, lease_until: datetime, *, released: bool = False
    ) -> Verdict:
        result = write(
            self.store,
            claim(task_id, bucket, token=token, lease_until=lease_until, now=self.clock(), released=released),
        )
        self._note_unclear(task_id, token, result)
        if isinstance(result, Written) and result.row is not None:
            return understand(result.row)
        verdict = judge(self._present(task_id, result), bucket, now=self.clock())
        if isinstance(verdict, _Released):  # released, but malformed: a recovery reclaims it
            return LeaseExpired(task_id)
        return verdict or Contended()

    def _note_unclear(self, task_id: str, token: str, result: Result) -> None:
        if isinstance(result, Unknown) and not (result.was_read or result.too_large):
            self.add_unclear(task_id, token)

    def _present(self, task_id: str, result: Result) -> Row | None:
        """The row of a claim that did not succeed. Raises StoreError if it could not be read."""
        if isinstance(result, Unknown) and result.too_large:
            return self.store.get(task_id)
        _require_read(result)
        return None if isinstance(result, Written) else result.present


def _require_read(result: Result) -> None:
    """Raises StoreError if the table has answered neither a claim nor the read after it."""
    if isinstance(result, Unknown) and not (result.was_read or result.too_large):
        raise StoreError(result.error)
