"""How far the daily reconcile has read the table (protocol 15): a row of our own.

A *round* reads the whole table once, in parallel segments, in as many invocations as that takes. A lease ensures that
one chain of continuations works on it. If a chain dies, the next daily event goes on from the last save: so a table
that takes longer than a day is read to its end. Without the row, the reconcile only begins a new round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dynatick.domain import attributes as attr
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Unknown, Written, as_read
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.task import SYSTEM_PREFIX, Row, check_count
from dynatick.engine.conditional_write import create, write
from dynatick.engine.ports import Store
from dynatick.engine.rules import SKEW_MARGIN
from dynatick.errors import InvalidInput, StoreError

RECONCILE_ID = f"{SYSTEM_PREFIX}reconcile"

SEGMENTS = 4
"""The segments of a new round. A function has about one CPU to read pages with, and more would use up the tasks' read
capacity. A round keeps its number of segments: a position in one of four means nothing among eight."""

LEASE = timedelta(seconds=30)
"""Each save renews it. Shorter than the minute after which Lambda retries a failed invocation."""

_OVERDUE_AFTER = timedelta(days=3)
_TRIES = 10


@dataclass(frozen=True, slots=True)
class Segment:
    """How far a segment was read: through the row with the id ``after``; None: not begun."""

    after: str | None = None
    is_done: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """The row. Its counts are those of all invocations so far, as saved."""

    began_at: datetime
    segments: tuple[Segment, ...]
    scanned: int = 0
    found: int = 0
    repaired: int = 0
    failed: int = 0
    lease: str  # the token of the invocation that works on it, or was the last one
    lease_until: datetime | None  # None: released
    version: int = 1

    @property
    def is_done(self) -> bool:
        """Whether the whole table was read."""
        return all(segment.is_done for segment in self.segments)

    def is_leased(self, now: datetime) -> bool:
        """Whether an invocation has the lease, and may still run."""
        return self.lease_until is not None and now <= self.lease_until + SKEW_MARGIN

    def is_overdue(self, now: datetime) -> bool:
        """Whether it should have ended long ago."""
        return not self.is_done and now - self.began_at > _OVERDUE_AFTER

    def to_row(self) -> dict[str, object]:
        return {
            attr.STATUS: "reconcile",
            attr.OUTCOME: "none",  # so that scans for open tasks pass it over
            attr.BEGAN_AT: format_instant(self.began_at),
            attr.SEGMENTS: [{"after": segment.after, "done": segment.is_done} for segment in self.segments],
            attr.SCANNED: self.scanned,
            attr.FOUND: self.found,
            attr.REPAIRED: self.repaired,
            attr.FAILED: self.failed,
            attr.LEASE: self.lease,
            attr.LEASE_UNTIL: None if self.lease_until is None else format_instant(self.lease_until),
            attr.VERSION: self.version,
        }

    @classmethod
    def from_row(cls, row: Row) -> Round:
        """Raises InvalidInput."""
        until, segments = row.get(attr.LEASE_UNTIL), row.get(attr.SEGMENTS)
        if not isinstance(segments, list) or not segments:
            raise InvalidInput(attr.SEGMENTS, segments, "expected a list with a map for each segment")
        return cls(
            began_at=parse_instant(row.get(attr.BEGAN_AT), attr.BEGAN_AT),
            segments=tuple(_segment(segment) for segment in segments),
            scanned=check_count(row.get(attr.SCANNED), attr.SCANNED),
            found=check_count(row.get(attr.FOUND), attr.FOUND),
            repaired=check_count(row.get(attr.REPAIRED), attr.REPAIRED),
            failed=check_count(row.get(attr.FAILED), attr.FAILED),
            lease=str(row.get(attr.LEASE)),
            lease_until=None if until is None else parse_instant(until, attr.LEASE_UNTIL),
            version=check_count(row.get(attr.VERSION), attr.VERSION),
        )


def acquire(store: Store, *, token: str, now: datetime, continuing: datetime | None = None) -> Round | None:
    """Acquires the lease of the unfinished round, or begins a new round. None: another chain has the lease.

    ``continuing``: only the round that began then; None is returned if it has ended. Raises StoreError if the table
    doesn't answer.
    """
    for _ in range(_TRIES):
        row = store.get(RECONCILE_ID)
        known = None if row is None else _from_row(row)
        if known is not None and known.is_leased(now):
            return None
        unfinished = None if known is None or known.is_done else known
        if continuing is not None and (unfinished is None or unfinished.began_at != continuing):
            return None
        acquired = replace(
            unfinished or Round(began_at=now, segments=(Segment(),) * SEGMENTS, lease=token, lease_until=None),
            lease=token,
            lease_until=now + LEASE,
            version=1 if known is None else known.version + 1,
        )
        if row is None:
            if create(store, {attr.TASK_ID: RECONCILE_ID, **acquired.to_row()}):
                return acquired
            continue
        change = ConditionalUpdate(
            task_id=RECONCILE_ID, set=acquired.to_row(), conditions=as_read(row, attr.LEASE, attr.VERSION)
        )
        result = write(store, change)
        if isinstance(result, Unknown):
            raise StoreError(f"cannot acquire the reconcile: {result.error}")
        if isinstance(result, Written):
            return acquired
    raise StoreError(f"cannot acquire the reconcile: {RECONCILE_ID} was changed by others {_TRIES} times")


def save(store: Store, changed: Round) -> Round | None:
    """Writes a round whose lease this invocation has. None: another one has acquired it, and nothing was written.

    Raises StoreError if the table doesn't answer.
    """
    for _ in range(_TRIES):
        new = replace(changed, version=changed.version + 1)
        held = (Is(attr.LEASE, changed.lease), Is(attr.VERSION, changed.version))
        result = write(store, ConditionalUpdate(task_id=RECONCILE_ID, set=new.to_row(), conditions=held))
        if isinstance(result, Written):
            return new
        present = None if result.present is None else _from_row(result.present)
        is_ours = present is not None and present.lease == changed.lease
        if isinstance(result, Unknown) and (is_ours or not result.was_read):
            raise StoreError(f"cannot save how far the reconcile has read: {result.error}")
        if present is None or not is_ours:
            return None
        changed = replace(changed, version=present.version)  # an earlier save took effect after all
    raise StoreError(f"cannot save how far the reconcile has read: {RECONCILE_ID} was changed {_TRIES} times")


def read_round(store: Store) -> Round | None:
    """The row; None: it doesn't exist, or is malformed."""
    row = store.get(RECONCILE_ID)
    return None if row is None else _from_row(row)


def _from_row(row: Row) -> Round | None:
    """None: it was changed by hand and is malformed. Then a new round begins."""
    try:
        return Round.from_row(row)
    except InvalidInput:
        return None


def _segment(value: object) -> Segment:
    after, is_done = (value.get("after"), value.get("done")) if isinstance(value, dict) else (None, None)
    if not isinstance(is_done, bool) or not isinstance(after, str | None):
        raise InvalidInput(attr.SEGMENTS, value, "expected a map of after, a text or null, and done, a boolean")
    return Segment(after, is_done)
