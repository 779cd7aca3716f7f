"""How far the daily reconcile has read the table (protocol 15): a row of our own.

A *round* reads the whole table once, in segments side by side, in as many invocations as that takes. One chain of them
at a time works on it, by a lease; a chain that died is taken up by the next daily event, where it was last saved. So a
table that takes longer than a day to read is read to its end. The row decides nothing about tasks: without it, the
reconcile only begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dynatick.domain.conditional_update import ConditionalUpdate, Is, Unknown, Written, as_read
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.task import SYSTEM_PREFIX, Row, check_count
from dynatick.engine.ports import Store
from dynatick.engine.rules import SKEW_MARGIN
from dynatick.errors import InvalidInput, StoreError

RECONCILE_ID = f"{SYSTEM_PREFIX}reconcile"

SEGMENTS = 4
"""Of a new round. A function has about one CPU to read pages with, and more would take from the read capacity of tasks.
A round keeps the number that it began with: a place in one of four segments means nothing among eight."""

LEASE = timedelta(seconds=30)
"""Renewed with each save. Shorter than the minute after which Lambda tries an invocation again that failed."""

_OVERDUE_AFTER = timedelta(days=3)
_TRIES = 10


@dataclass(frozen=True, slots=True)
class Segment:
    """How far a segment was read: through the row ``after``; None: not begun."""

    after: str | None = None
    is_done: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """The row, understood. The counts are those of all invocations so far; what one had not saved is counted again."""

    began_at: datetime
    segments: tuple[Segment, ...]
    scanned: int = 0
    found: int = 0
    repaired: int = 0
    failed: int = 0
    lease: str  # of the invocation that works on it, or was the last to do so
    lease_until: datetime | None  # None: released
    version: int = 1

    @property
    def is_done(self) -> bool:
        """Whether the whole table was read."""
        return all(segment.is_done for segment in self.segments)

    def is_leased(self, now: datetime) -> bool:
        """Whether an invocation that is not known to be dead works on it."""
        return self.lease_until is not None and now <= self.lease_until + SKEW_MARGIN

    def is_overdue(self, now: datetime) -> bool:
        """Whether it should have come to its end long ago."""
        return not self.is_done and now - self.began_at > _OVERDUE_AFTER

    def to_row(self) -> dict[str, object]:
        return {
            "status": "reconcile",
            "outcome": "none",  # an end that no scan for open tasks stops at
            "beganAt": format_instant(self.began_at),
            "segments": [{"after": segment.after, "done": segment.is_done} for segment in self.segments],
            "scanned": self.scanned,
            "found": self.found,
            "repaired": self.repaired,
            "failed": self.failed,
            "lease": self.lease,
            "leaseUntil": None if self.lease_until is None else format_instant(self.lease_until),
            "version": self.version,
        }

    @classmethod
    def from_row(cls, row: Row) -> Round:
        """Raises InvalidInput."""
        until, segments = row.get("leaseUntil"), row.get("segments")
        if not isinstance(segments, list) or not segments:
            raise InvalidInput("segments", segments, "expected a list with a map for each segment")
        return cls(
            began_at=parse_instant(row.get("beganAt"), "beganAt"),
            segments=tuple(_segment(segment) for segment in segments),
            scanned=check_count(row.get("scanned"), "scanned"),
            found=check_count(row.get("found"), "found"),
            repaired=check_count(row.get("repaired"), "repaired"),
            failed=check_count(row.get("failed"), "failed"),
            lease=str(row.get("lease")),
            lease_until=None if until is None else parse_instant(until, "leaseUntil"),
            version=check_count(row.get("version"), "version"),
        )


def acquire(store: Store, *, token: str, now: datetime, continuing: datetime | None = None) -> Round | None:
    """Acquires the lease of the unfinished round, or begins a new one. None if another chain is at work.

    ``continuing``: when the round began that this invocation is to continue; None also if that one is over.
    Raises StoreError if the table does not answer.
    """
    for _ in range(_TRIES):
        row = store.get(RECONCILE_ID)
        known = None if row is None else _understood(row)
        if known is not None and known.lease == token:
            return known  # acquired after all: it was only the answer that got lost
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
            if store.create({"taskId": RECONCILE_ID, **acquired.to_row()}):
                return acquired
            continue
        change = ConditionalUpdate(
            task_id=RECONCILE_ID, set=acquired.to_row(), conditions=as_read(row, "lease", "version")
        )
        result = store.write(change)
        if isinstance(result, Unknown):
            raise StoreError(f"cannot acquire the reconcile: {result.error}")
        if isinstance(result, Written):
            return acquired
    raise StoreError(f"cannot acquire the reconcile: {RECONCILE_ID} was changed by others {_TRIES} times")


def save(store: Store, changed: Round) -> Round | None:
    """Writes what the holder of the lease has changed; None, and nothing is written, if another has acquired the lease.

    Raises StoreError if the table does not answer.
    """
    for _ in range(_TRIES):
        new = replace(changed, version=changed.version + 1)
        held = (Is("lease", changed.lease), Is("version", changed.version))
        result = store.write(ConditionalUpdate(task_id=RECONCILE_ID, set=new.to_row(), conditions=held))
        if isinstance(result, Written):
            return new
        present = read_round(store)
        if present is None or present.lease != changed.lease:
            return None
        if present.to_row() == new.to_row():
            return present  # it was only the answer that got lost
        if isinstance(result, Unknown):
            raise StoreError(f"cannot save how far the reconcile has read: {result.error}")
        changed = replace(changed, version=present.version)  # an earlier save took effect after all
    raise StoreError(f"cannot save how far the reconcile has read: {RECONCILE_ID} was changed {_TRIES} times")


def read_round(store: Store) -> Round | None:
    """The row as it stands; None if there is none that can be understood."""
    row = store.get(RECONCILE_ID)
    return None if row is None else _understood(row)


def _understood(row: Row) -> Round | None:
    """None if it was changed by hand, so that it cannot be understood: then a new round begins."""
    try:
        return Round.from_row(row)
    except InvalidInput:
        return None


def _segment(value: object) -> Segment:
    after, is_done = (value.get("after"), value.get("done")) if isinstance(value, dict) else (None, None)
    if not isinstance(is_done, bool) or not isinstance(after, str | None):
        raise InvalidInput("segments", value, "expected a map of after, a text or null, and done, a boolean")
    return Segment(after, is_done)
