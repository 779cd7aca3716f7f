"""What a pass counts: for its tick record and the metrics, and in each bucket the tasks that have gone elsewhere.

The index lists a task in one bucket only. So each process that moves tasks out of a past bucket counts them in the
bucket record, after the move was written: once for each bucket, not for each task. If it dies between the two, the
record is too low. It is too high only if the answer to its write was lost, and another process had changed it before it
was read again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Written, as_read
from dynatick.domain.distribution import Distribution
from dynatick.domain.instants import format_instant
from dynatick.domain.task import SYSTEM_PREFIX, Row
from dynatick.engine.conditional_write import create_many, write_many
from dynatick.engine.ports import Store
from dynatick.errors import StoreError

# -- report ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a continuation goes on: in this bucket, after this id (None: from its beginning)."""

    minute: int
    after: str | None = None

    def __lt__(self, other: Resume) -> bool:
        return (self.minute, self.after or "") < (other.minute, other.after or "")


@dataclass(kw_only=True, slots=True)
class PassReport:
    """One pass over one shard. Counts are of tasks."""

    tick: int
    shard: int
    continuation: int
    started_at: datetime
    finished_at: datetime | None = None
    leased_elsewhere: bool = False  # another process has the shard lease, and does the work of this tick too
    buckets: int = 0  # polled, each counted once
    first_minute: int | None = None  # the first of them
    due: int = 0  # found waiting
    claimed: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    rescheduled: int = 0  # by their handlers, for a further turn
    released: int = 0
    occurrences: int = 0  # of schedules, made by this pass
    missed: int = 0  # runs of schedules that were not made
    expired: int = 0  # found with an expired lease
    recovered: int = 0  # reclaimed after their lease expired
    deferred: int = 0  # because the dead-letter queue refused their message, or no tick can work on them
    superseded: int = 0  # ended, deleted or replaced by others while they ran
    unrecorded: int = 0  # ran, but could not be recorded: they run again
    overran: int = 0  # attempts that took longer than their timeoutSeconds
    unfinished: int = 0  # running, or being claimed, at the end of the pass
    moved: int = 0
    rejected: int = 0
    lateness: Distribution = field(default_factory=Distribution)  # milliseconds, of the attempts that count for it
    first_start_ms: int | None = None  # from the start of the pass to the start of its first task
    closed_through: int | None = None
    drained_through: int | None = None
    resume: Resume | None = None  # set when the pass was cut short
    continued: bool = False
    paused: bool = False  # it was cut short because the installation was paused
    workers: int = 0  # started for ranges of ids
    handed_to_workers: int = 0  # tasks in those ranges
    woken_late: int = 0  # begun by this invocation although an earlier wake-up should have begun them
    planned: int = 0  # tasks for which this pass has planned wake-ups
    unsent: int = 0  # wake-ups that their queue refused
    planning_failed: str | None = None  # why a bucket was not planned to its end
    idle_before: dict[str, object] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do: the cursor counts such a tick, and it has no record."""
        return not (
            self.due or self.claimed or self.missed or self.expired or self.recovered or self.failed or self.rejected
            or self.workers or self.resume
        )  # fmt: skip

    @property
    def made_progress(self) -> bool:
        """Whether the pass got further. Without progress, continuations would go on for ever."""
        if self.claimed + self.recovered > self.released:
            return True
        further = self.resume is not None and self.first_minute is not None and self.resume.minute > self.first_minute
        return self.buckets > 1 and (further or not self.released)

    def leave(self, position: Resume) -> None:
        """Leaves what is due from a position on to a later invocation."""
        self.resume = position if self.resume is None else min(position, self.resume)

    def to_row(self) -> dict[str, object]:
        """The tick record, without its id and expiry."""
        row: dict[str, object] = {
            attr.STATUS: "tick",
            attr.OUTCOME: "none",  # so that scans for open tasks pass it over
            attr.TICK: str(Bucket(self.tick)),
            attr.SHARD: self.shard,
            attr.CONTINUATION: self.continuation,
            attr.STARTED_AT: format_instant(self.started_at),
            **self.counts(),
            attr.LATENESS_MAX_MS: self.lateness.max,
            attr.LATENESS_MEAN_MS: self.lateness.mean,
            attr.LATENESS_P50_MS: self.lateness.percentile(50),
            attr.LATENESS_P99_MS: self.lateness.percentile(99),
            **self.ending(),
        }
        if self.first_start_ms is not None:
            row[attr.FIRST_START_MS] = self.first_start_ms
        if self.idle_before:
            row[attr.IDLE_BEFORE] = dict(self.idle_before)
        return row

    def counts(self) -> dict[str, int]:
        """The figures of the record that can be added to those of another pass."""
        return {
            attr.BUCKETS: self.buckets,
            attr.DUE: self.due,
            attr.CLAIMED: self.claimed,
            attr.COMPLETED: self.completed,
            attr.FAILED: self.failed + self.rejected,
            attr.RETRIED: self.retried,
            attr.RESCHEDULED: self.rescheduled,
            attr.RELEASED: self.released,
            attr.OCCURRENCES: self.occurrences,
            attr.MISSED: self.missed,
            attr.EXPIRED: self.expired,
            attr.RECOVERED: self.recovered,
            attr.DEFERRED: self.deferred,
            attr.SUPERSEDED: self.superseded,
            attr.UNRECORDED: self.unrecorded,
            attr.UNFINISHED: self.unfinished,
            attr.MOVED: self.moved,
            attr.WOKEN_LATE: self.woken_late,
            attr.WORKERS: self.workers,
            attr.HANDED_TO_WORKERS: self.handed_to_workers,
        }

    def ending(self) -> dict[str, object]:
        """How the pass ended."""
        ended = {} if self.finished_at is None else {attr.FINISHED_AT: format_instant(self.finished_at)}
        return {attr.CONTINUED: self.continued, **ended}


def tick_record_id(tick: int, shard: int, continuation: int) -> str:
    """The id of a tick record. ``continuation``: 0 for the first invocation of a pass."""
    return f"{SYSTEM_PREFIX}tick#{Bucket(tick)}#{shard}#{continuation}"


# -- bucket record -----------------------------------------------------------------------------------------------------

RAN: Final = (attr.RETRIED, attr.RESCHEDULED, attr.DEFERRED, attr.REDRIVEN_FAILED, attr.REDRIVEN_COMPLETED)
"""Those of tasks that ran in the bucket."""

FAILED: Final = (attr.RETRIED, attr.DEFERRED, attr.REDRIVEN_FAILED)
"""Those of tasks that failed there."""

DEPARTURES: Final = (*RAN, attr.REDRIVEN_CANCELLED, attr.MOVED)
_TRIES = 10
_logger = logging.getLogger("dynatick.engine")

Departures = Mapping[str, int]
"""Numbers of tasks, by the names in ``DEPARTURES``."""


def bucket_record_id(bucket: Bucket) -> str:
    return f"{SYSTEM_PREFIX}bucket#{bucket}"


def read_departures(store: Store, buckets: Iterable[Bucket]) -> Departures:
    """The departures from all these buckets together."""
    rows = store.get_many([bucket_record_id(bucket) for bucket in buckets], consistent=False).values()
    return {name: number for name in DEPARTURES if (number := sum(_number(row, name) for row in rows))}


def count_departures(
    store: Store, departures: Mapping[Bucket, Departures], *, token: str, now: datetime, retention_days: int
) -> None:
    """Adds to the records of buckets: a read and a write for each, in batches. ``token``: unique for each call, so that
    a write whose answer was lost is recognised, and not repeated. Raises StoreError."""
    expires = int((now + timedelta(days=retention_days)).timestamp())
    left = {bucket_record_id(bucket): numbers for bucket, numbers in departures.items() if numbers}
    for _ in range(_TRIES):
        rows = store.get_many(left) if left else {}
        left = {key: numbers for key, numbers in left.items() if rows.get(key, {}).get(attr.WRITTEN_BY) != token}
        if not left:
            return
        values = {key: _added(rows.get(key, {}), numbers, token, expires) for key, numbers in left.items()}
        new = [key for key in left if key not in rows]
        old = [key for key in left if key in rows]
        made = create_many(store, [{attr.TASK_ID: key, **values[key]} for key in new])
        changes = [
            ConditionalUpdate(
                task_id=key,
                set=values[key],
                conditions=as_read(rows[key], attr.VERSION),
                mark=(Is(attr.WRITTEN_BY, token),),
            )
            for key in old
        ]
        written = write_many(store, changes)
        done = {key for key, result in zip(new, made, strict=True) if result is True}
        done |= {key for key, result in zip(old, written, strict=True) if isinstance(result, Written)}
        left = {key: numbers for key, numbers in left.items() if key not in done}
        if not left:
            return
    raise StoreError(f"cannot count what left {', '.join(sorted(left)[:3])}: other processes changed it {_TRIES} times")


def log_uncounted(error: Exception) -> None:
    """Logs that departures could not be counted: what they are about was done all the same."""
    _logger.warning(
        "departures from buckets could not be counted: their history is too low",
        extra={"action": "departures_uncounted", "problem": str(error)},
    )


def _added(row: Row, numbers: Departures, token: str, expires: int) -> dict[str, object]:
    return {
        attr.STATUS: "bucket",
        attr.OUTCOME: "none",  # so that scans for open tasks pass it over
        **{name: _number(row, name) + number for name, number in numbers.items()},
        attr.VERSION: _number(row, attr.VERSION) + 1,
        attr.WRITTEN_BY: token,
        attr.EXPIRES_AT: max(expires, _number(row, attr.EXPIRES_AT)),
    }


def _number(row: Row, name: str) -> int:
    """A number of a record; 0 for anything else, which a person may have written."""
    value = row.get(name)
    return int(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else 0
